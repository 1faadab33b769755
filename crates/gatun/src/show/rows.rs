//! Table columns of API types.

use super::Shown;
use gatun_api::types::*;
use gatun_config::Bytes;
use gatun_daemon::by_pages;
use gatun_daemon::tables::{counted, group};
use std::net::IpAddr;

/// Formats an address and port.
fn end(address: impl Into<IpAddr>, port: u16) -> String {
    match address.into() {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

fn packets(count: &Count) -> String {
    format!("{}, {}", counted(count.packets, "packet"), counted(count.bytes, "byte"))
}

fn of(usage: &Usage) -> String {
    format!("{} of {}", group(usage.used), group(usage.total))
}

/// Formats a duration.
fn time(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} m {s} s"),
        (0, h, m, _) => format!("{h} h {m} m"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

fn bound(sandbox: &Sandbox) -> String {
    match &sandbox.missing[..] {
        [] => sandbox.state.to_string(),
        missing => format!("{}: {}", sandbox.state, missing.join("; ")),
    }
}

/// Formats the state of a fast path, with the reason why it is not in use or why it has refused something.
fn state(state: FastPathState, why: Option<&String>) -> String {
    match why {
        Some(why) => format!("{state}: {why}"),
        None => state.to_string(),
    }
}

impl Shown for Status {
    const COLUMNS: &'static [&'static str] = &[
        "version",
        "process",
        "uptime",
        "configuration",
        "workers",
        "sandbox",
        "memory",
        "sessions",
        "bindings",
        "subscribers",
        "received",
        "forwarded",
        "  by a fast path",
        "  refused by the device",
        "echo replies",
        "passed",
        "dropped",
        "  with an ICMP error",
        "  silently",
        "held",
        "redirected",
        "every packet accounted for",
    ];

    fn cells(&self) -> Vec<String> {
        let workers = match self.workers_silent {
            0 => self.workers.to_string(),
            silent => format!("{}, {silent} do not answer", self.workers),
        };
        let sessions = of(&Usage { used: self.sessions, total: self.sessions_max });
        let sessions = match self.sessions_waiting {
            0 => sessions,
            waiting => format!("{sessions}, and {} to restore", group(waiting)),
        };
        let redirected = match self.redirected_outside {
            0 => packets(&self.redirected),
            outside => format!("{}, {} from outside", packets(&self.redirected), group(outside)),
        };
        let packets_accounted = if self.packets_accounted { "yes" } else { "NO: please report this defect" };
        vec![
            self.version.clone(),
            self.pid.to_string(),
            time(self.uptime_seconds),
            self.config_file.clone(),
            workers,
            bound(&self.sandbox),
            by_pages(&self.pages),
            sessions,
            group(self.bindings),
            group(self.subscribers),
            packets(&self.received),
            packets(&self.forwarded),
            format!("{}{}", packets(&self.offloaded), place(self.fast_path)),
            group(self.refused_by_device),
            packets(&self.echo_replies),
            packets(&self.passed),
            packets(&self.dropped),
            packets(&self.rejected),
            packets(&self.dropped_silently),
            group(self.held),
            redirected,
            packets_accounted.to_owned(),
        ]
    }
}

impl Shown for Config {
    const COLUMNS: &'static [&'static str] = &["file", "revision", "text"];

    fn cells(&self) -> Vec<String> {
        vec![self.file.clone(), self.revision.clone(), self.text.clone()]
    }
}

impl Shown for StaticMap {
    const COLUMNS: &'static [&'static str] = &["instance", "protocol", "inside", "outside"];

    fn cells(&self) -> Vec<String> {
        let protocol = self.protocol.map_or("address".to_owned(), |protocol| protocol.to_string());
        vec![self.instance.clone().unwrap_or_default(), protocol, self.inside.clone(), self.outside.clone()]
    }
}

impl Shown for Export {
    const COLUMNS: &'static [&'static str] =
        &["name", "connected", "sent", "lost", "waiting", "bytes in spool"];

    fn cells(&self) -> Vec<String> {
        let connected = if self.connected { "yes" } else { "NO" };
        let counts = [self.sent, self.lost, self.waiting, self.spooled_bytes].map(group);
        [self.name.clone(), connected.to_owned()].into_iter().chain(counts).collect()
    }
}

impl Shown for LogStore {
    const COLUMNS: &'static [&'static str] =
        &["log", "records on disk", "bytes", "records waiting", "events lost"];

    fn cells(&self) -> Vec<String> {
        let state = match (self.kept, self.writable, &self.error) {
            (false, ..) => "not configured ([log])".to_owned(),
            (true, true, _) => "written".to_owned(),
            (true, false, None) => "not written yet".to_owned(),
            (true, false, Some(error)) => format!("CANNOT BE WRITTEN: {error}"),
        };
        let counts = [self.records, self.bytes, self.waiting, self.lost].map(group);
        std::iter::once(state).chain(counts).collect()
    }
}

/// Sums of counters by name, without zeros.
/// Place of a fast path in words.
fn place(place: FastPathPlace) -> &'static str {
    match place {
        FastPathPlace::Kernel => " (in the kernel)",
        FastPathPlace::Switches => " (in P4 switches)",
        FastPathPlace::None | FastPathPlace::Other => "",
    }
}

fn sums<'a>(counters: impl Iterator<Item = &'a Counter>) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for counter in counters {
        match sums.iter_mut().find(|(name, _)| *name == counter.name) {
            Some((_, sum)) => *sum += counter.value,
            None => sums.push((&counter.name, counter.value)),
        }
    }
    let some = sums.iter().filter(|(_, sum)| *sum > 0);
    let listed = some.map(|(name, sum)| format!("{name} {}", group(*sum))).collect::<Vec<_>>().join(", ");
    if listed.is_empty() { "0".to_owned() } else { listed }
}

impl Shown for FastPath {
    const COLUMNS: &'static [&'static str] = &[
        "kernel fast path",
        "device",
        "hook",
        "XDP",
        "attached again",
        "lease",
        "sessions",
        "given to the kernel",
        "removed",
        "refused",
        "taken over at the start",
        "records waiting, lost",
        "translated",
        "dropped",
        "passed to the device",
        "translated by XDP",
        "passed by XDP",
    ];

    fn cells(&self) -> Vec<String> {
        let refused = match (self.refused_full, self.refused_other) {
            (0, 0) => "0".to_owned(),
            (full, 0) => format!("{} (the table is full)", group(full)),
            (full, other) => format!("{} (the table is full), {} (other)", group(full), group(other)),
        };
        let xdp = self.xdp.iter().map(|interface| match &interface.why {
            Some(why) => format!("{}: {why}", interface.name),
            None => interface.name.clone(),
        });
        let xdp = xdp.collect::<Vec<_>>().join(", ");
        let instances = || self.instances.iter();
        vec![
            state(self.state, self.why.as_ref().or(self.error.as_ref())),
            self.device.clone(),
            self.hook.clone(),
            if xdp.is_empty() { "-".to_owned() } else { xdp },
            group(self.attached_again),
            format!("{}.{} s", self.lease_ms / 1000, self.lease_ms / 100 % 10),
            of(&Usage { used: self.sessions, total: self.sessions_max }),
            format!("{}, {} per second", group(self.installed), group(self.installed_per_second)),
            group(self.removed),
            refused,
            group(self.adopted),
            format!("{}, {}", group(self.waiting_records), group(self.lost_records)),
            counted(self.instances.iter().map(|instance| instance.translated).sum(), "packet"),
            counted(self.instances.iter().map(|instance| instance.dropped).sum(), "packet"),
            sums(instances().flat_map(|instance| &instance.passed)),
            counted(instances().map(|instance| instance.xdp_translated).sum(), "packet"),
            sums(instances().flat_map(|instance| &instance.xdp_passed)),
        ]
    }
}

impl Shown for Offload {
    const COLUMNS: &'static [&'static str] = &[
        "P4 switches",
        "name",
        "switches",
        "sessions",
        "given to the switches",
        "removed",
        "waiting for an answer",
        "refused",
        "taken over at the start",
        "mappings",
        "records waiting, lost",
        "translated",
        "given to Gatun",
        "dropped above a limit",
        "dropped for another reason",
    ];

    fn cells(&self) -> Vec<String> {
        let refused = [
            (self.refused_full, "full"),
            (self.refused_unready, "no switch in use"),
            (self.refused_other, "other"),
        ];
        let refused = refused.iter().filter(|(count, _)| *count > 0);
        let refused: Vec<String> = refused.map(|(count, why)| format!("{} ({why})", group(*count))).collect();
        let switches: Vec<String> = self.switches.iter().map(describe).collect();
        vec![
            state(self.state, self.why.as_ref().or(self.error.as_ref())),
            self.name.clone(),
            if switches.is_empty() { "-".to_owned() } else { switches.join("; ") },
            of(&Usage { used: self.sessions, total: self.sessions_max }),
            format!("{}, {} per second", group(self.installed), group(self.installed_per_second)),
            group(self.removed),
            group(self.waiting),
            if refused.is_empty() { "0".to_owned() } else { refused.join(", ") },
            group(self.adopted),
            mappings(self),
            format!("{}, {}", group(self.waiting_records), group(self.lost_records)),
            counted(self.packets, "packet"),
            sums(self.switches.iter().flat_map(|switch| &switch.to_controller)),
            sums(self.switches.iter().flat_map(|switch| &switch.over_limit)),
            sums(self.switches.iter().flat_map(|switch| &switch.dropped)),
        ]
    }
}

/// Mappings of stateless instances in words.
fn mappings(offload: &Offload) -> String {
    match &offload.mappings_error {
        Some(why) => format!("not in the switches: {why}"),
        None if offload.mappings_left > 0 => {
            format!("{}, {} by Gatun alone", group(offload.mappings), group(offload.mappings_left))
        }
        None => group(offload.mappings),
    }
}

/// A switch in words.
fn describe(switch: &OffloadSwitch) -> String {
    let OffloadSwitch { name, phase, address, .. } = switch;
    let mut said = format!("{name} ({address}): {phase}, {}", counted(switch.sessions, "session"));
    for (count, what) in [
        (switch.changing, "changing"),
        (switch.moving, "moving"),
        (switch.unknown, "unknown"),
        (switch.refused, "refused"),
        (switch.left_out, "routes or next hops without room"),
    ] {
        if count > 0 {
            said += &format!(", {} {what}", group(count));
        }
    }
    said + &format!(", {}", counted(switch.next_hops, "next hop"))
}

impl Shown for ConfigPast {
    const COLUMNS: &'static [&'static str] = &["revision", "replaced at", "by", "bytes"];

    fn cells(&self) -> Vec<String> {
        let revision = self.revision.get(..12).unwrap_or(&self.revision).to_owned();
        vec![revision, self.replaced_at.clone(), self.replaced_by.clone(), group(self.bytes)]
    }
}

impl Shown for Port {
    const COLUMNS: &'static [&'static str] = &["name", "backend", "device", "queues", "MTU", "addresses"];

    fn cells(&self) -> Vec<String> {
        let mtu = self.mtu.map_or("of the device".to_owned(), |mtu| mtu.to_string());
        vec![
            self.name.clone(),
            self.backend.clone(),
            self.device.clone(),
            self.queues.to_string(),
            mtu,
            self.addresses.join(" "),
        ]
    }
}

impl Shown for Worker {
    const COLUMNS: &'static [&'static str] = &[
        "worker",
        "device",
        "received",
        "forwarded",
        "dropped",
        "handed over",
        "lost",
        "sessions",
        "subscribers",
    ];

    fn cells(&self) -> Vec<String> {
        if !self.answers {
            let mut cells = vec![self.number.to_string(), "does not answer".to_owned()];
            cells.resize(Self::COLUMNS.len(), String::new());
            return cells;
        }
        vec![
            self.number.to_string(),
            self.device.clone(),
            group(self.received.packets),
            group(self.forwarded.packets),
            group(self.dropped.packets),
            group(self.handed_before + self.handed_after),
            group(self.handed_lost),
            group(self.sessions),
            group(self.subscribers),
        ]
    }
}

impl Shown for Instance {
    const COLUMNS: &'static [&'static str] = &[
        "instance",
        "packets",
        "outbound",
        "inbound",
        "dropped",
        "TCP sessions",
        "UDP sessions",
        "ICMP sessions",
        "bindings",
        "subscribers",
        "chosen by",
    ];

    fn cells(&self) -> Vec<String> {
        let bindings = [&self.tcp, &self.udp, &self.icmp].map(|lives| lives.bindings.now).iter().sum();
        vec![
            format!("{} {}", self.kind, self.name),
            group(self.matched.packets),
            group(self.outbound.packets),
            group(self.inbound.packets),
            group(self.dropped.packets),
            group(self.tcp.sessions.now),
            group(self.udp.sessions.now),
            group(self.icmp.sessions.now),
            group(bindings),
            group(self.subscribers),
            in_words(&self.selectors),
        ]
    }
}

/// Criteria that select an instance; long lists are shortened.
fn in_words(Selectors { ports, pool6, sources, pool }: &Selectors) -> String {
    const SHOWN: usize = 3;
    let list = |what: &str, all: &[String]| {
        let more = all.len().saturating_sub(SHOWN);
        let first = all.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" ");
        match (all.is_empty(), more) {
            (true, _) => None,
            (_, 0) => Some(format!("{what} {first}")),
            _ => Some(format!("{what} {first} and {more} more")),
        }
    };
    let pool = pool.as_ref().map(|pool| format!("pool {pool}"));
    let all = [list("port", ports), list("from", sources), list("to", pool6), pool];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Shown for Pool {
    const COLUMNS: &'static [&'static str] = &[
        "pool",
        "public",
        "TCP ports",
        "UDP ports",
        "ICMP",
        "held down",
        "blocks",
        "subscribers",
        "refused",
        "bytes out",
        "bytes in",
    ];

    fn cells(&self) -> Vec<String> {
        let blocks = |blocks: &BlockUsage| format!("{} of {}", group(blocks.owned), group(blocks.total));
        vec![
            self.name.to_string(),
            group(self.addresses.into()),
            of(&self.tcp),
            of(&self.udp),
            of(&self.icmp),
            group(self.ports_held),
            self.blocks.as_ref().map_or(String::new(), blocks),
            group(self.subscribers),
            group(self.refused),
            Bytes(self.outbound.bytes).to_string(),
            Bytes(self.inbound.bytes).to_string(),
        ]
    }
}

impl Shown for Address {
    const COLUMNS: &'static [&'static str] = &[
        "pool",
        "public address",
        "TCP ports",
        "UDP ports",
        "ICMP",
        "new bindings",
        "bytes out",
        "bytes in",
    ];

    fn cells(&self) -> Vec<String> {
        let new = if self.drained { "none: drained" } else { "yes" };
        vec![
            self.pool.to_string(),
            self.address.to_string(),
            of(&self.tcp),
            of(&self.udp),
            of(&self.icmp),
            new.to_owned(),
            Bytes(self.outbound.bytes).to_string(),
            Bytes(self.inbound.bytes).to_string(),
        ]
    }
}

impl Shown for Block {
    const COLUMNS: &'static [&'static str] =
        &["pool", "public address", "ports", "protocols", "instance", "subscriber"];

    fn cells(&self) -> Vec<String> {
        let protocols: Vec<&str> = self.protocols.iter().map(|protocol| protocol.word()).collect();
        vec![
            self.pool.to_string(),
            self.address.to_string(),
            format!("{}-{}", self.first_port, self.last_port),
            protocols.join(" "),
            self.instance.to_string(),
            self.subscriber.clone(),
        ]
    }
}

impl Shown for Subscriber {
    const COLUMNS: &'static [&'static str] = &[
        "instance",
        "subscriber",
        "public address",
        "sessions",
        "TCP ports",
        "UDP ports",
        "ICMP",
        "blocks",
        "refused",
        "bytes out",
        "bytes in",
    ];

    fn cells(&self) -> Vec<String> {
        let refused = [self.refused_sessions, self.refused_rate, self.refused_ports, self.refused_blocks];
        vec![
            self.instance.to_string(),
            self.subscriber.clone(),
            self.address.map_or(String::new(), |address| address.to_string()),
            group(self.sessions.into()),
            self.tcp_ports.to_string(),
            self.udp_ports.to_string(),
            self.icmp_ids.to_string(),
            self.blocks.to_string(),
            group(refused.iter().map(|&n| u64::from(n)).sum()),
            Bytes(self.outbound.bytes).to_string(),
            Bytes(self.inbound.bytes).to_string(),
        ]
    }
}

impl Shown for Binding {
    const COLUMNS: &'static [&'static str] =
        &["instance", "protocol", "inside", "outside", "sessions", "remarks"];

    fn cells(&self) -> Vec<String> {
        let remarks = match (self.configured, self.shared) {
            (true, _) => "static",
            (_, true) => "shared by flows",
            _ => "",
        };
        let more = if self.more_sessions { "+" } else { "" };
        vec![
            self.instance.to_string(),
            self.protocol.to_string(),
            end(self.inside, self.inside_port),
            end(self.outside, self.outside_port),
            format!("{}{more}", self.sessions),
            remarks.to_owned(),
        ]
    }
}

impl Shown for Session {
    const COLUMNS: &'static [&'static str] =
        &["instance", "protocol", "inside", "outside", "remote", "state", "ends in"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.instance.to_string(),
            self.protocol.to_string(),
            end(self.inside, self.inside_port),
            end(self.outside, self.outside_port),
            end(self.remote, self.remote_port),
            if self.offloaded { format!("{} (fast path)", self.state) } else { self.state.to_string() },
            time(u64::from(self.expires_ms) / 1000),
        ]
    }
}

impl Shown for Counter {
    const COLUMNS: &'static [&'static str] = &["counter", "value", "what it means"];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), group(self.value), self.help.clone()]
    }
}

impl Shown for Drop {
    const COLUMNS: &'static [&'static str] = &["reason", "v6>v4", "v4>v6", "v4>v4", "what it means"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.reason.clone(),
            group(self.six_to_four.packets),
            group(self.four_to_six.packets),
            group(self.four_to_four.packets),
            self.help.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_endpoints_are_formatted() {
        for (seconds, wanted) in [(5, "5 s"), (61, "1 m 1 s"), (7320, "2 h 2 m"), (90_000, "1 d 1 h")] {
            assert_eq!(time(seconds), wanted);
        }
        assert_eq!(end("2001:db8::1".parse::<IpAddr>().unwrap(), 80), "[2001:db8::1]:80");
        assert_eq!(end("192.0.2.1".parse::<IpAddr>().unwrap(), 80), "192.0.2.1:80");
    }
}
