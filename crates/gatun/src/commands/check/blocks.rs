//! Number of subscribers that a pool of port blocks serves.

use gatun_config::PoolSize;
use gatun_daemon::tables::{counted, group};
use gatun_nat::plan::{Allocation, BlockProtocols, Blocks, Deterministic, Pool4, Transport};
use gatun_nat::pool4::Pool4State;
use serde_json::{Value, json};

/// Blocks of a pool and the number of subscribers that they suffice for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedSubscribers {
    /// Blocks on demand.
    OnDemand {
        size: u16,
        /// Blocks of the pool: if protocols have separate blocks, of the protocol with the fewest.
        blocks: u64,
        per_subscriber: u16,
    },
    /// Deterministic blocks.
    ByFormula { size: u16, blocks: u64, subscribers: u64, overflow: u64 },
}

impl ServedSubscribers {
    /// Capacity of a pool; none if it allocates single ports.
    pub(crate) fn by(pool: &Pool4) -> Option<ServedSubscribers> {
        match &pool.allocation {
            Allocation::Random(_) => None,
            Allocation::Blocks(Blocks { size, per_subscriber, protocols, .. }) => {
                let blocks = match protocols {
                    BlockProtocols::Shared => shared_blocks(pool, *size),
                    BlockProtocols::Split => {
                        let each = Transport::ALL.map(|transport| blocks_of(pool, *size, transport));
                        each.into_iter().filter(|blocks| *blocks > 0).min().unwrap_or(0)
                    }
                };
                Some(ServedSubscribers::OnDemand { size: *size, blocks, per_subscriber: *per_subscriber })
            }
            Allocation::Deterministic(formula) => Some(ServedSubscribers::ByFormula {
                size: formula.blocks.size,
                blocks: shared_blocks(pool, formula.blocks.size),
                subscribers: subscribers(formula),
                overflow: u64::from(formula.overflow_per_address) * PoolSize::of(pool).addresses,
            }),
        }
    }

    /// Text, one line.
    pub(crate) fn in_words(&self) -> String {
        match *self {
            ServedSubscribers::OnDemand { size, blocks, per_subscriber } => {
                let most = blocks / u64::from(per_subscriber.max(1));
                let with_all = match per_subscriber {
                    0 | 1 => String::new(),
                    n => format!(", {} with {n} (blocks_per_subscriber)", group(most)),
                };
                format!(
                    "{} of {}: serves {} with one each{with_all}",
                    counted(blocks, "block"),
                    counted(size.into(), "port"),
                    counted(blocks, "subscriber")
                )
            }
            ServedSubscribers::ByFormula { size, blocks, subscribers, overflow } => format!(
                "{} of {}: one for each of {}, {} for overflow",
                counted(blocks, "block"),
                counted(size.into(), "port"),
                counted(subscribers, "subscriber"),
                group(overflow)
            ),
        }
    }

    /// JSON.
    pub(crate) fn json(&self) -> Value {
        match *self {
            ServedSubscribers::OnDemand { size, blocks, per_subscriber } => json!({
                "size": size, "blocks": blocks, "subscribers_with_one_block": blocks,
                "subscribers_with_all_blocks": blocks / u64::from(per_subscriber.max(1)),
            }),
            ServedSubscribers::ByFormula { size, blocks, subscribers, overflow } => json!({
                "size": size, "blocks": blocks, "subscribers": subscribers, "overflow_blocks": overflow,
            }),
        }
    }
}

/// Blocks shared by all protocols of an address.
fn shared_blocks(pool: &Pool4, size: u16) -> u64 {
    let protocols = Transport::ALL
        .into_iter()
        .filter(|&transport| pool.ranges.iter().any(|range| range.transports[transport as usize]));
    let ports = Pool4State::ports_of(pool).unwrap_or(0);
    ports / u64::from(size).max(1) / (protocols.count() as u64).max(1)
}

/// Blocks of one protocol.
fn blocks_of(pool: &Pool4, size: u16, transport: Transport) -> u64 {
    let mut only = pool.clone();
    only.ranges.retain(|range| range.transports[transport as usize]);
    for range in &mut only.ranges {
        range.transports = [false; 3];
        range.transports[transport as usize] = true;
    }
    Pool4State::ports_of(&only).unwrap_or(0) / u64::from(size).max(1)
}

/// Subscribers of a formula.
fn subscribers(formula: &Deterministic) -> u64 {
    let of = |net: &gatun_nat::plan::Net6| {
        let is_ipv4 = net.len >= 96 && net.addr.to_ipv4_mapped().is_some();
        let len = if is_ipv4 { 128 } else { formula.subscriber_len };
        1u64.checked_shl(len.saturating_sub(net.len).into()).unwrap_or(u64::MAX)
    };
    formula.inside.iter().map(of).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(prefixes: &str, allocation: &str) -> Option<ServedSubscribers> {
        let text = format!(
            "[[pool]]\nprefixes = \"{prefixes}\"\nallocation = {allocation}\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n\
             subscriber = \"/56\"\n"
        );
        let (config, _) = gatun_config::load_str(&text, "t.toml").unwrap();
        ServedSubscribers::by(&config.plan.pools[0])
    }

    #[test]
    fn block_counts_match_the_allocation() {
        assert_eq!(of("9.9.9.0/30", "\"random\""), None);
        // Ports 1024 to 65535 of four addresses.
        let served =
            of("9.9.9.0/30", "{ kind = \"blocks\", size = 1024, blocks_per_subscriber = 4 }").unwrap();
        assert_eq!(served, ServedSubscribers::OnDemand { size: 1024, blocks: 252, per_subscriber: 4 });
        let said = served.in_words();
        assert_eq!(
            said,
            "252 blocks of 1,024 ports: serves 252 subscribers with one each, 63 with 4 (blocks_per_subscriber)"
        );
        // Each protocol has this many blocks, and a subscriber uses one of each.
        let split = of(
            "9.9.9.0/30",
            "{ kind = \"blocks\", size = 1024, blocks_per_subscriber = 1, protocols = \"split\" }",
        );
        assert_eq!(split, Some(ServedSubscribers::OnDemand { size: 1024, blocks: 252, per_subscriber: 1 }));
        assert!(!split.unwrap().in_words().contains("blocks_per_subscriber"));
        let formula = of(
            "9.9.9.0/30",
            "{ kind = \"deterministic\", size = 1024, overflow = 3, inside = [\"2a00::/49\"] }",
        );
        let served = formula.unwrap();
        assert_eq!(
            served,
            ServedSubscribers::ByFormula { size: 1024, blocks: 252, subscribers: 128, overflow: 12 }
        );
        assert_eq!(
            served.in_words(),
            "252 blocks of 1,024 ports: one for each of 128 subscribers, 12 for overflow"
        );
    }

    #[test]
    fn an_engine_has_as_many_blocks_as_counted() {
        let text = "[[pool]]\nprefixes = \"9.9.9.9\"\nallocation = { kind = \"blocks\", size = 4096, \
                    blocks_per_subscriber = 1 }\n[[nat64]]\npool6 = \"64:ff9b::/96\"\n";
        let (config, _) = gatun_config::load_str(text, "t.toml").unwrap();
        let nat = gatun_nat::Nat::new(&config.plan, [1; 4]).unwrap();
        let total = nat.pools()[0].block_usage().unwrap().total;
        let Some(ServedSubscribers::OnDemand { blocks, .. }) = ServedSubscribers::by(&config.plan.pools[0])
        else {
            panic!()
        };
        assert_eq!((blocks, total), (15, 15));
    }
}
