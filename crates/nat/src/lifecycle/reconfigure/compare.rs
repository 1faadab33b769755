//! Comparison of two plans. It depends on the plans alone, so no engine has to run.
//!
//! Each plan is destructured, so that a new field that is missing here does not compile.

use super::describe::limit;
use super::difference::Difference;
use super::pools::{self, PoolDifference};
use crate::base::plan::{
    Eam, EventPlan, IcmpPolicy, Limits, Nat44, Nat64, Plan, Pool4, Siit, StaticBinding, Timeouts,
};
use crate::tables::event::EventKind;
use crate::tables::sizes::filters_by_address;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use gatun_wire::text::counted;

impl Difference {
    /// Compares the plan `old` with the plan `new`.
    pub fn between(old: &Plan, new: &Plan) -> Difference {
        let mut d = Difference::default();
        // `pooled` follows from the pools.
        let Plan { own4, own6, pools, nat64, nat44, siit, limits, icmp, events, .. } = new;
        // The division among workers or shards is compared before it is made.
        let Plan { pooled: _, shards: _, sharding: _, .. } = new;
        d.note("own IPv4 address", old.own4, *own4);
        d.note("own IPv6 address", old.own6, *own6);
        if old.is_stateful() != new.is_stateful() {
            d.restart(match new.is_stateful() {
                true => "the first stateful instance is added",
                false => "the last stateful instance is removed",
            });
        }
        if filters_by_address(new) && !filters_by_address(old) {
            d.restart("filtering by address is new: its index of sessions is created only at start-up");
        }
        let shares = |plan: &Plan| plan.pools.iter().any(|pool| !pool.overload.is_empty());
        if shares(new) && !shares(old) {
            d.restart("overload is new: its index of flows is created only at start-up");
        }
        d.pools(old, pools);
        d.numbered(&old.nat64, nat64, |n| &n.name, "nat64", !nat44.is_empty() || !old.nat44.is_empty());
        d.numbered(&old.nat44, nat44, |n| &n.name, "nat44", false);
        let pool_name = |plan: &Plan, pool: usize| plan.pools.get(pool).map(|p| p.name.clone());
        for (a, b) in old.nat64.iter().zip(nat64).filter(|(a, b)| a.name == b.name) {
            let pools = (pool_name(old, a.pool), pool_name(new, b.pool));
            d.nat64(a, b, pools);
        }
        for (a, b) in old.nat44.iter().zip(nat44).filter(|(a, b)| a.name == b.name) {
            let pools = (pool_name(old, a.pool), pool_name(new, b.pool));
            d.nat44(a, b, pools);
        }
        d.stateless(&old.siit, siit);
        d.limits(&old.limits, limits);
        d.icmp(&old.icmp, icmp);
        d.events(&old.events, events);
        d
    }

    fn pools(&mut self, old: &Plan, new: &[Pool4]) {
        for pool in new {
            match old.pools.iter().find(|known| known.name == pool.name) {
                Some(known) => PoolDifference::of(known, pool).note(self, &pool.name),
                None => self.change(format!("pool {:?}: added", pool.name)),
            }
        }
        for known in old.pools.iter().filter(|known| new.iter().all(|pool| pool.name != known.name)) {
            self.change(format!("pool {:?}: removed", known.name));
        }
        if let Some((address, from, to)) = pools::moved(&old.pools, new) {
            self.restart(format!(
                "address {address} moves from pool {from:?} to pool {to:?}: remove it, reload, add it to the \
                 other pool and reload again; or restart"
            ));
        }
    }

    /// Compares the order of instances, whose numbers are part of every session's key.
    fn numbered<T>(
        &mut self,
        old: &[T],
        new: &[T],
        name: impl Fn(&T) -> &String,
        kind: &str,
        followed: bool,
    ) {
        for (a, b) in old.iter().zip(new) {
            if name(a) != name(b) {
                self.restart(format!(
                    "{kind} {:?} replaces {kind} {:?}: keep the order, and add new ones at the end",
                    name(b),
                    name(a)
                ));
                return;
            }
        }
        for gone in old.iter().skip(new.len()) {
            self.restart(format!("{kind} {:?} is removed: this needs a restart", name(gone)));
        }
        for come in new.iter().skip(old.len()) {
            match followed {
                true => self.restart(format!("{kind} {:?} is added before a nat44 instance", name(come))),
                false => self.change(format!("{kind} {:?}: added", name(come))),
            }
        }
    }

    fn nat64(&mut self, old: &Nat64, new: &Nat64, pools: (Option<String>, Option<String>)) {
        let Nat64 {
            name,
            pool6,
            pool: _,
            sources,
            realm,
            filtering,
            external_tcp,
            wkp_non_global,
            icmp_error_source,
            inbound_refresh,
            rst_during_fin,
            icmp_queries,
            subscriber_len,
            static_bindings,
            timeouts,
            settings,
        } = new;
        let at = format!("nat64 {name:?}");
        self.pool_of(&at, pools);
        let gone = old.pool6.iter().filter(|p| !pool6.contains(p)).count();
        if self.note(&format!("{at}: pool6"), &old.pool6, pool6) && gone > 0 {
            self.end(format!("{at}: sessions through removed prefixes"));
        }
        if self.note(&format!("{at}: sources"), &old.sources, sources) && !sources.is_empty() {
            self.end(format!("{at}: sessions of hosts that are no longer among its sources"));
        }
        self.realm(&at, old.realm, *realm);
        self.note(&format!("{at}: filtering"), old.filtering, *filtering);
        self.note(&format!("{at}: external_tcp"), old.external_tcp, *external_tcp);
        self.note(&format!("{at}: wkp_non_global"), old.wkp_non_global, *wkp_non_global);
        self.note(&format!("{at}: icmp_error_source"), old.icmp_error_source, *icmp_error_source);
        self.note(&format!("{at}: inbound_refresh"), old.inbound_refresh, *inbound_refresh);
        self.note(&format!("{at}: rst_during_fin"), old.rst_during_fin, *rst_during_fin);
        self.note(&format!("{at}: icmp_queries"), old.icmp_queries, *icmp_queries);
        self.subscriber(&at, old.subscriber_len, *subscriber_len);
        self.statics(&at, &old.static_bindings, static_bindings);
        self.timeouts(&at, &old.timeouts, timeouts);
        self.note_keys(&format!("{at}: "), &old.settings, settings);
    }

    fn nat44(&mut self, old: &Nat44, new: &Nat44, pools: (Option<String>, Option<String>)) {
        let Nat44 {
            name,
            inside,
            realm,
            pool: _,
            exempt,
            filtering,
            external_tcp,
            inbound_refresh,
            icmp_queries,
            subscriber_len,
            static_bindings,
            timeouts,
            mtu,
            mss_max,
        } = new;
        let at = format!("nat44 {name:?}");
        self.pool_of(&at, pools);
        self.realm(&at, old.realm, *realm);
        if self.note(&format!("{at}: inside"), &old.inside, inside) {
            self.end(format!("{at}: sessions of hosts that are no longer inside"));
        }
        if self.note(&format!("{at}: exempt"), &old.exempt, exempt) && !exempt.is_empty() {
            self.end(format!("{at}: sessions to destinations that are now exempt"));
        }
        self.note(&format!("{at}: filtering"), old.filtering, *filtering);
        self.note(&format!("{at}: external_tcp"), old.external_tcp, *external_tcp);
        self.note(&format!("{at}: inbound_refresh"), old.inbound_refresh, *inbound_refresh);
        self.note(&format!("{at}: icmp_queries"), old.icmp_queries, *icmp_queries);
        self.subscriber(&at, old.subscriber_len, *subscriber_len);
        self.statics(&at, &old.static_bindings, static_bindings);
        self.timeouts(&at, &old.timeouts, timeouts);
        self.note(&format!("{at}: mtu"), old.mtu, *mtu);
        self.note(&format!("{at}: tcp_mss_max"), old.mss_max, *mss_max);
    }

    fn pool_of(&mut self, at: &str, (old, new): (Option<String>, Option<String>)) {
        if old != new {
            let name = |pool: Option<String>| pool.unwrap_or_default();
            self.restart(format!(
                "{at}: pool {:?} -> {:?}: its sessions use the old pool; change the pool's ranges instead",
                name(old),
                name(new)
            ));
        }
    }

    fn realm(&mut self, at: &str, old: u8, new: u8) {
        if old != new {
            self.restart(format!("{at}: ports: they are assigned only at start-up"));
        }
    }

    fn subscriber(&mut self, at: &str, old: u8, new: u8) {
        if old != new {
            self.restart(format!("{at}: subscriber /{old} -> /{new}: every record depends on it"));
        }
    }

    fn statics(&mut self, at: &str, old: &[StaticBinding], new: &[StaticBinding]) {
        let key = |b: &StaticBinding| (b.transport, b.inside, b.outside);
        let (a, b): (Vec<_>, Vec<_>) = (old.iter().map(key).collect(), new.iter().map(key).collect());
        let (come, gone) = self.list(&format!("{at}: static bindings"), &a, &b);
        if gone > 0 {
            self.end(format!("{at}: sessions through {}", counted(gone as u64, "static binding")));
        }
        if come > 0 {
            self.end(format!(
                "{at}: sessions that use the port, or its block, of {}",
                counted(come as u64, "new static binding")
            ));
        }
    }

    fn timeouts(&mut self, at: &str, old: &Timeouts, new: &Timeouts) {
        if self.note_keys(&format!("{at}: timeouts."), old, new) {
            self.change(format!("{at}: existing sessions get the new timeouts with their next packet"));
        }
    }

    fn stateless(&mut self, old: &[Siit], new: &[Siit]) {
        for siit in new {
            match old.iter().find(|known| known.name == siit.name) {
                Some(known) => self.siit(known, siit),
                None => self.change(format!("siit {:?}: added", siit.name)),
            }
        }
        for known in old.iter().filter(|known| new.iter().all(|siit| siit.name != known.name)) {
            self.change(format!("siit {:?}: removed", known.name));
        }
        if old.len() == new.len() && old.iter().zip(new).any(|(a, b)| a.name != b.name) {
            self.change("siit: instances reordered");
        }
    }

    fn siit(&mut self, old: &Siit, new: &Siit) {
        let Siit {
            name,
            pool6,
            eamt,
            hairpin,
            denylist4,
            denylist6,
            wkp_non_global,
            icmp_pool4,
            icmp_pool4_mode,
            icmp_pool6,
            settings,
        } = new;
        let at = format!("siit {name:?}");
        self.note(&format!("{at}: pool6"), &old.pool6, pool6);
        let key = |m: &Eam| (m.v4, m.v6);
        let (a, b): (Vec<_>, Vec<_>) = (old.eamt.iter().map(key).collect(), eamt.iter().map(key).collect());
        self.list(&format!("{at}: mappings"), &a, &b);
        self.note(&format!("{at}: hairpin"), old.hairpin, *hairpin);
        self.list(&format!("{at}: denylist4"), &old.denylist4, denylist4);
        self.list(&format!("{at}: denylist6"), &old.denylist6, denylist6);
        self.note(&format!("{at}: wkp_non_global"), old.wkp_non_global, *wkp_non_global);
        self.list(&format!("{at}: icmp_pool4"), &old.icmp_pool4, icmp_pool4);
        self.note(&format!("{at}: icmp_pool4_mode"), old.icmp_pool4_mode, *icmp_pool4_mode);
        self.list(&format!("{at}: icmp_pool6"), &old.icmp_pool6, icmp_pool6);
        self.note_keys(&format!("{at}: "), &old.settings, settings);
    }

    fn limits(&mut self, old: &Limits, new: &Limits) {
        let Limits {
            sessions_max,
            sessions_reserved,
            sessions_reserved_below,
            subscribers_max,
            sessions_per_subscriber,
            ports_per_subscriber,
            ports_per_subscriber_by,
            session_rate_per_subscriber,
            session_burst_per_subscriber,
            syn_store_max,
            path_mtus_max,
            fragment_entries_max,
            fragment_bytes_max,
            fragments_per_source,
        } = new;
        // The outline of the engine decides whether there is room for more.
        self.note("sessions_max", old.sessions_max, *sessions_max);
        self.note("sessions_reserved", old.sessions_reserved, *sessions_reserved);
        self.note("sessions_reserved_below", old.sessions_reserved_below, *sessions_reserved_below);
        self.note("subscribers_max", old.subscribers_max, *subscribers_max);
        self.note("sessions_per_subscriber", old.sessions_per_subscriber, *sessions_per_subscriber);
        self.note("ports_per_subscriber", old.ports_per_subscriber, *ports_per_subscriber);
        let by_protocol = |limits: [u32; 3]| limits.map(limit);
        self.note(
            "ports per subscriber, of TCP, UDP, ICMP",
            by_protocol(old.ports_per_subscriber_by),
            by_protocol(*ports_per_subscriber_by),
        );
        self.note(
            "session_rate_per_subscriber",
            old.session_rate_per_subscriber,
            *session_rate_per_subscriber,
        );
        self.note(
            "session_burst_per_subscriber",
            old.session_burst_per_subscriber,
            *session_burst_per_subscriber,
        );
        self.fixed("syn_store_max", old.syn_store_max, *syn_store_max);
        self.fixed("path_mtus_max", old.path_mtus_max, *path_mtus_max);
        self.fixed("fragment_entries_max", old.fragment_entries_max, *fragment_entries_max);
        self.fixed("fragment_bytes_max", old.fragment_bytes_max, *fragment_bytes_max);
        self.note("fragments_per_source", old.fragments_per_source, *fragments_per_source);
    }

    fn icmp(&mut self, old: &IcmpPolicy, new: &IcmpPolicy) {
        let IcmpPolicy {
            rate,
            burst,
            rate_per_source,
            burst_per_source,
            suppressed,
            quota_code6,
            quota_code4,
        } = new;
        self.note("icmp rate", old.rate, *rate);
        self.note("icmp burst", old.burst, *burst);
        self.note("icmp rate_per_source", old.rate_per_source, *rate_per_source);
        self.note("icmp burst_per_source", old.burst_per_source, *burst_per_source);
        let names =
            |reasons: &[gatun_wire::DropReason]| -> Vec<_> { reasons.iter().map(|r| r.name()).collect() };
        self.note("icmp suppress", names(&old.suppressed), names(suppressed));
        self.note("icmp quota_code6", old.quota_code6, *quota_code6);
        self.note("icmp quota_code4", old.quota_code4, *quota_code4);
    }

    fn events(&mut self, old: &EventPlan, new: &EventPlan) {
        let EventPlan { kinds, ring_len, state_ring_len, destinations, threshold } = new;
        for (more, less, what) in [(kinds, &old.kinds, "made"), (&old.kinds, kinds, "no longer made")] {
            let names: Vec<_> = more.without(*less).iter().map(EventKind::name).collect();
            if !names.is_empty() {
                self.changes.push(format!("events: {} are {what}", names.join(", ")));
            }
        }
        self.fixed("events: ring", old.ring_len, *ring_len);
        self.fixed("events: ring of state records", old.state_ring_len, *state_ring_len);
        self.note("events: destinations", old.destinations, *destinations);
        self.note("events: threshold", old.threshold, *threshold);
    }
}
