//! Drain and undrain of public addresses: drained ones get no new bindings.

use crate::Control;
use crate::configure::Order;
use crate::query::{BadRequest, Query, network4};
use crate::response::{ApiRequest, Refusal};
use gatun_api::types as api;
use gatun_nat::plan::Net4;
use gatun_nat::{Instant, Nat};
use gatun_wire::text::counted;
use gatun_worker::jobs::Job;

/// Cost of an address in a worker's budget: its blocks are inspected.
const ADDRESS: usize = 64;

struct Drain {
    pool: Option<usize>,
    net: Option<Net4>,
    drained: bool,
    /// Next pool and address.
    at: (usize, u32),
    addresses: u64,
}

impl Job for Drain {
    fn step(&mut self, nat: &mut Nat, _: Instant, budget: usize) -> bool {
        let mut left = budget.div_ceil(ADDRESS).max(1);
        while left > 0 {
            let (pool, address) = self.at;
            let Some(addresses) = nat.pools().get(pool).map(|pool| pool.addresses()) else { return true };
            if address >= addresses || self.pool.is_some_and(|only| only != pool) {
                self.at = (pool + 1, 0);
                continue;
            }
            self.at = (pool, address + 1);
            self.addresses += u64::from(nat.set_drained(pool, address, self.net, self.drained));
            left -= 1;
        }
        false
    }
}

impl Control {
    pub(crate) async fn drain(
        &self,
        query: &Query,
        drained: bool,
        asked: &ApiRequest<'_>,
    ) -> Result<api::Drained, Refusal> {
        let names = self.names().await?;
        let pool = query.get("pool").map(|name| query.pool(&names, name)).transpose()?;
        let net = query.get("address").map(|text| network4("address", text)).transpose()?;
        if pool.is_none() && net.is_none() {
            return Err(BadRequest::new("no filter given", "name a pool, or an address").into());
        }
        let job = || Drain { pool, net, drained, at: (0, 0), addresses: 0 };
        let addresses: u64 = self.all(job).await?.iter().map(|job| job.addresses).sum();
        if addresses == 0 {
            return Err(
                BadRequest::new("no public address matches", "gatun show addresses lists them").into()
            );
        }
        let what = if drained { "drained" } else { "undrained" };
        let counted = counted(addresses, "address");
        (self.setup.log)(&format!("api: {} {what} {counted}: '{}'", asked.who, asked.query));
        if self.setup.configure.is_some() {
            self.order(Order::KeepDrained).await?;
        }
        Ok(api::Drained { addresses })
    }
}
