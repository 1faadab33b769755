//! Tables with counters and state of each instance and each pool.

use crate::tables::{Table, group, table};
use gatun_nat::report::{EntryCount, InstanceCounters, InstanceKind, InstanceStats, PoolStats};
use gatun_wire::DropReason;
use gatun_worker::Snapshot;

/// Renders the tables with titles. Empty if there is nothing to distinguish.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let mut add = |title: &str, table: Table| {
        if table.row_count() > 0 {
            text += &format!("\n{title}\n{table}\n");
        }
    };
    add("packets by instance", traffic(snapshot));
    add("state by instance", state(snapshot));
    if snapshot.instances.len() > 1 {
        add("dropped packets by instance and reason", drops(snapshot));
    }
    add("pools", pools(snapshot));
    text
}

fn name(stats: &InstanceStats) -> String {
    format!("{} {}", stats.kind.name(), stats.name)
}

fn traffic(snapshot: &Snapshot) -> Table {
    let mut table = table(["instance", "outbound", "bytes", "inbound", "bytes", "dropped"]);
    for stats in &snapshot.instances {
        table.add_row(packets(&name(stats), &stats.counters));
    }
    if snapshot.unattributed != InstanceCounters::default() {
        table.add_row(packets("(no instance)", &snapshot.unattributed));
    }
    table
}

fn state(snapshot: &Snapshot) -> Table {
    let mut table = table(["instance", "sessions", "sessions created", "bindings", "subscribers"]);
    for stats in snapshot.instances.iter().filter(|stats| stats.kind != InstanceKind::Siit) {
        let now = |count: &[EntryCount; 3]| group(count.iter().map(EntryCount::now).sum());
        let created = group(stats.entries.sessions.iter().map(|count| count.created).sum());
        let (sessions, bindings) = (now(&stats.entries.sessions), now(&stats.entries.bindings));
        table.add_row([name(stats), sessions, created, bindings, group(stats.subscribers.into())]);
    }
    table
}

fn packets(name: &str, counters: &InstanceCounters) -> Vec<String> {
    let InstanceCounters { outbound, inbound, .. } = counters;
    let numbers =
        [outbound.packets, outbound.bytes, inbound.packets, inbound.bytes, counters.dropped().packets];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(group));
    row
}

fn drops(snapshot: &Snapshot) -> Table {
    let mut table = table(["instance", "reason", "packets"]);
    let named = snapshot.instances.iter().map(|stats| (name(stats), &stats.counters));
    for (name, counters) in named.chain([("(no instance)".to_owned(), &snapshot.unattributed)]) {
        for (reason, count) in DropReason::ALL.iter().zip(&counters.drops).filter(|(_, c)| c.packets > 0) {
            table.add_row([&name, reason.name(), &group(count.packets)]);
        }
    }
    table
}

fn pools(snapshot: &Snapshot) -> Table {
    let mut table =
        table(["pool", "addresses", "TCP ports", "UDP ports", "ICMP", "blocks", "subscribers", "refused"]);
    for PoolStats { name, addresses, ports, blocks, subscribers, counters, .. } in &snapshot.pools {
        let of = |used: u64, total: u64| format!("{} of {}", group(used), group(total));
        let [tcp, udp, icmp] = ports.map(|usage| of(usage.used, usage.total));
        let blocks = blocks.map_or(String::new(), |blocks| of(blocks.owned, blocks.total));
        let (addresses, subscribers) = (group((*addresses).into()), group((*subscribers).into()));
        let refused = group(counters.refused);
        table.add_row([&**name, &addresses, &tcp, &udp, &icmp, &blocks, &subscribers, &refused]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_nat::report::EntryCounts;

    fn instance(kind: InstanceKind, name: &str) -> InstanceStats {
        let (counters, entries) = (InstanceCounters::default(), EntryCounts::default());
        InstanceStats { kind, name: name.into(), counters, entries, subscribers: 0 }
    }

    #[test]
    fn counters_are_listed_by_instance() {
        let mut home = instance(InstanceKind::Nat64, "home");
        home.counters.outbound.packets = 12_345;
        home.counters.drops[DropReason::NoBib as usize].packets = 6;
        home.entries.sessions[1] = EntryCount { created: 1_500, ended: 800 };
        let mut snapshot = Snapshot { instances: vec![home], ..Snapshot::default() };
        let text = render(&snapshot);
        for wanted in ["nat64 home", "12,345", " 700 ", "1,500"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert!(
            !text.contains("no_bib") && !text.contains("(no instance)") && !text.contains("addresses"),
            "{text}"
        );
        snapshot.instances.push(instance(InstanceKind::Siit, "servers"));
        snapshot.unattributed.drops[DropReason::NotInPool as usize].packets = 7;
        let text = render(&snapshot);
        for wanted in ["siit servers", "(no instance)", "no_bib", "not_in_pool"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
