//! Checks of announced routes: if they are set, and if a routing daemon on this host makes use of them.

use super::Finding;
use gatun_api::client::Client;
use gatun_api::types::{AnnounceState, AnnouncedTable, Health};
use gatun_config::{Announce, Config};
use gatun_wire::text::counted;
use std::collections::BTreeSet;
use std::process::Command;

const CHECK: &str = "announce";
const PAGE: &str = "see docs/how-to/announce.md";

/// Findings about `[announce]`, if the configuration has it and the daemon runs.
pub(super) fn examine(client: &Client, config: &Config) -> Vec<Finding> {
    let (Some(announce), Ok(health)) = (&config.announce, client.get::<Health>("/v1/health")) else {
        return Vec::new();
    };
    let mut findings = vec![routes(&health)];
    if health.announce == AnnounceState::Announced {
        let has_backup = config.peer.is_some() || config.cluster.is_some();
        let expected = Expected { tables: &health.tables, has_backup };
        if config.cluster.is_some() {
            findings.extend(untracked(announce));
        }
        findings.extend(bird(announce, &expected, &|command| birdc(command)));
    }
    findings
}

/// Routes that BIRD should learn.
struct Expected<'h> {
    tables: &'h [AnnouncedTable],
    /// True if this box has to get the packets for further networks when another one fails.
    has_backup: bool,
}

fn routes(health: &Health) -> Finding {
    let count = health.tables.iter().map(|table| table.routes).sum();
    match (health.announce, &health.error, health.reasons.iter().find(|reason| reason.withdraws)) {
        (AnnounceState::Announced, Some(error), _) => {
            Finding::wrong(CHECK, format!("not all routes are set: {error}"), "gatun health")
        }
        (AnnounceState::Announced, None, _) => {
            Finding::ok(CHECK, format!("{} set for a routing daemon", counted(count, "route")))
        }
        (_, _, Some(reason)) => {
            let what = format!("all routes are withdrawn: {}", reason.what);
            Finding::wrong(CHECK, what, "remove the fault; the routes come back by themselves")
        }
        _ => Finding::note(CHECK, "the routes are withdrawn, and come back by themselves", "gatun health"),
    }
}

/// Finding about a node of a cluster that does not notice links that carry nothing.
fn untracked(announce: &Announce) -> Option<Finding> {
    let what = "only the routers notice a link that has a carrier and carries nothing: the other nodes go on \
                sending packets to this one";
    let fix = format!("`tracked_routes` in [announce]: {PAGE}");
    announce.tracked_routes.is_empty().then(|| Finding::note(CHECK, what, fix))
}

/// Findings about BIRD. Other routing daemons cannot be asked.
fn bird(announce: &Announce, expected: &Expected<'_>, ask: &dyn Fn(&str) -> Option<String>) -> Vec<Finding> {
    let Some(tables) = ask("show route table all") else {
        let what = "no BIRD answers on this host, so the other checks of announced routes are left out";
        let fix = format!("`birdc show route` has to work for this user; for another daemon, {PAGE}");
        return vec![Finding::note(CHECK, what, fix)];
    };
    let mut findings = vec![learnt(announce, expected, &tables)];
    let sessions = bgp_sessions(&ask("show protocols all").unwrap_or_default());
    for session in sessions.iter().filter(|session| !session.is_established()) {
        let Session { name, state, .. } = session;
        let what = format!(
            "BGP session {name} of BIRD is not established ({state}): its neighbour sends no packets"
        );
        findings.push(Finding::wrong(CHECK, what, format!("birdc show protocols all {name}")));
    }
    for session in sessions.iter().filter(|session| session.is_established() && session.exported == 0) {
        let Session { name, neighbour, .. } = session;
        let what = format!(
            "BIRD announces no route by BGP session {name}: neighbour {neighbour} sends no packets here"
        );
        let fix = format!("`export` in the channels of `protocol bgp {name}`: {PAGE}");
        findings.push(Finding::note(CHECK, what, fix));
    }
    findings.extend(without_bfd(&sessions, &ask("show bfd sessions").unwrap_or_default()));
    findings
}

/// Finding about established BGP sessions whose neighbour has no BFD session that is up.
fn without_bfd(sessions: &[Session], bfd: &str) -> Option<Finding> {
    let up: BTreeSet<_> = bfd.lines().filter_map(bfd_up).collect();
    let established = sessions.iter().filter(|session| session.is_established());
    let slow: Vec<_> = established.filter(|session| !up.contains(&session.neighbour[..])).collect();
    if slow.is_empty() {
        return None;
    }
    let names: Vec<_> =
        slow.iter().map(|one| format!("{} (neighbour {})", one.name, one.neighbour)).collect();
    let what = format!(
        "no BFD beside the BGP of BIRD with {}: if this box dies, that neighbour notices after its hold \
         time, up to 240 s",
        names.join(", ")
    );
    Some(Finding::note(CHECK, what, format!("`bfd on` in `protocol bgp`, on both sides: {PAGE}")))
}

/// Neighbour of a BFD session that is up, in a line of `birdc show bfd sessions`.
fn bfd_up(line: &str) -> Option<&str> {
    let mut fields = line.split_whitespace();
    let neighbour = fields.next()?;
    (fields.nth(1)? == "Up").then_some(neighbour)
}

/// Finding about the routes that BIRD should have learnt, by all of its tables.
fn learnt(announce: &Announce, expected: &Expected<'_>, tables: &str) -> Finding {
    let marker = format!("dev {}", announce.device);
    let (mut network, mut protocol, mut found) = ("", "", BTreeSet::new());
    for line in tables.lines() {
        if line.trim() == marker {
            found.insert((network, protocol));
        } else if let Some((before, after)) = line.split_once(" [") {
            // The further routes to a network have no name of it.
            if !line.starts_with([' ', '\t']) {
                network = before.split_whitespace().next().unwrap_or_default();
            }
            protocol = after.split([' ', ']']).next().unwrap_or_default();
        }
    }
    let set = expected.tables.iter().filter(|table| table.routes > 0);
    let numbers: Vec<_> = set.clone().map(|table| table.table.to_string()).collect();
    let numbers = numbers.join(" and ");
    let routes: u64 = set.map(|table| table.routes).sum();
    let fix = format!("protocol kernel {{ kernel table ...; learn; ... }}: {PAGE}");
    match found.len() as u64 {
        0 => Finding::wrong(CHECK, format!("BIRD has not learnt the routes of table {numbers}"), fix),
        some if some < routes && expected.has_backup => {
            let what = format!(
                "BIRD has learnt {some} of {routes} routes of table {numbers}: it leads no packets for the \
                 other networks here, even if another box fails"
            );
            Finding::note(CHECK, what, fix)
        }
        _ => Finding::ok(CHECK, format!("BIRD has learnt routes to {}", announce.device)),
    }
}

/// BGP session of BIRD.
struct Session {
    name: String,
    state: String,
    /// Address of the neighbour, without an interface.
    neighbour: String,
    /// Routes that it announces, of all channels.
    exported: u64,
}

impl Session {
    fn is_established(&self) -> bool {
        self.state == "Established"
    }
}

/// BGP sessions in `birdc show protocols all`. A protocol for a range of neighbours is none: each neighbour
/// has one of its own.
fn bgp_sessions(protocols: &str) -> Vec<Session> {
    let mut sessions = Vec::new();
    let mut is_bgp = false;
    for line in protocols.lines() {
        if !line.starts_with([' ', '\t']) {
            let fields: Vec<_> = line.split_whitespace().collect();
            is_bgp = fields.get(1) == Some(&"BGP");
            if is_bgp {
                // Name, protocol, table, state, time, and the state of the session.
                let state = fields.get(5).unwrap_or(&"down").to_string();
                let (name, neighbour) = (fields[0].to_owned(), String::new());
                sessions.push(Session { name, state, neighbour, exported: 0 });
            }
        } else if let (true, Some((key, value))) = (is_bgp, line.trim().split_once(':')) {
            match (key, sessions.last_mut()) {
                ("Neighbor address", Some(session)) => {
                    let address = value.trim();
                    session.neighbour = address.split('%').next().unwrap_or(address).to_owned();
                }
                ("Routes", Some(session)) => session.exported += exported(value),
                ("Neighbor range", _) => {
                    sessions.pop();
                    is_bgp = false;
                }
                _ => {}
            }
        }
    }
    sessions
}

/// Number of announced routes of a channel: "3 imported, 1 filtered, 2 exported, 3 preferred".
fn exported(routes: &str) -> u64 {
    let number = |part: &str| part.trim().strip_suffix(" exported")?.parse::<u64>().ok();
    routes.split(',').find_map(number).unwrap_or(0)
}

/// Asks BIRD, without the right to change anything.
fn birdc(command: &str) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut birdc = Command::new("birdc");
    birdc.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("-r").args(command.split(' '));
    let output = birdc.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;
    use gatun_api::types::{AnnounceRole, HealthReason, Part};

    const TABLES: &str =
        "Table own4_table:\n192.0.2.1/32 unicast [own4 18:23:50.187] * (200)\n\tdev gatun-routes\n";
    /// Part of the output of `show protocols all`: two neighbours, and a protocol for a range of them.
    const PROTOCOLS: &str = "\
Name       Proto      Table      State  Since         Info
device1    Device     ---        up     18:23:50.178  

provider   BGP        ---        up     18:23:50.978  Established   
  BGP state:          Established
    Neighbor address: 10.64.0.2
    Session:          external AS4
  Channel ipv4
    Routes:         3 imported, 1 filtered, 2 exported, 3 preferred
  Channel ipv6
    Routes:         0 imported, 0 exported, 0 preferred

inside     BGP        ---        start  18:23:50.178  Idle          
  BGP state:          Idle
    Neighbor address: fe80::1%eth1

off        BGP        ---        down   18:23:50.178  
  BGP state:          Down
    Neighbor address: 10.64.0.3

guests     BGP        ---        start  18:23:50.178  Passive       
  BGP state:          Passive
    Neighbor range:   10.65.0.0/24
    Neighbor AS:      64496
";
    const BFD: &str = "\
bfd1:
IP address                Interface  State      Since         Interval  Timeout
10.64.0.2                 small      Up         18:23:50.946    0.050    0.150
fe80::1                   eth1       Down       18:23:50.361    1.000    0.000
";

    fn announce() -> Announce {
        let config = gatun_config::load_str(
            "[[nat64]]\npool6 = \"2001:db8:64::/96\"\n[[pool]]\nprefixes = \"192.0.2.1\"\n[announce]\n",
            "test",
        );
        config.unwrap().0.announce.unwrap()
    }

    fn states(tables: &str, protocols: &str, bfd: &str) -> Vec<(State, String)> {
        let ask = |command: &str| {
            Some(match command {
                "show route table all" => tables.to_owned(),
                "show protocols all" => protocols.to_owned(),
                "show bfd sessions" => bfd.to_owned(),
                other => panic!("{other}"),
            })
        };
        bird(&announce(), &Expected { tables: &set([1, 0]), has_backup: false }, &ask)
            .into_iter()
            .map(|finding| (finding.state, finding.what))
            .collect()
    }

    /// Tables with these numbers of routes.
    fn set(routes: [u64; 2]) -> [AnnouncedTable; 2] {
        let [own, backup] = routes;
        [
            AnnouncedTable { table: 186, role: AnnounceRole::Own, routes: own },
            AnnouncedTable { table: 187, role: AnnounceRole::Backup, routes: backup },
        ]
    }

    #[test]
    fn a_table_that_bird_does_not_read_is_found() {
        let announce = announce();
        // A pipe shows a route of one protocol in two tables; two protocols have a route to one network.
        let copied = TABLES.replace("own4_table", "gatun4");
        let backup = "\t                 unicast [backup4 18:23:50.187] (100)\n\tdev gatun-routes\n";
        let one = format!("{TABLES}{copied}");
        let both = format!("{one}{backup}");
        let found = |tables: &str, has_backup| {
            let finding = learnt(&announce, &Expected { tables: &set([1, 1]), has_backup }, tables);
            (finding.state, finding.what)
        };
        assert_eq!(found(&both, true).0, State::Ok);
        let (state, what) = found(&one, true);
        assert!(state == State::Note && what.contains("1 of 2 routes of table 186 and 187"), "{what}");
        // Without a pair or a cluster, another router may lead packets for the other networks here.
        assert_eq!(found(&one, false).0, State::Ok);
        let backup = Expected { tables: &set([0, 2]), has_backup: true };
        assert!(learnt(&announce, &backup, "").what.ends_with("not learnt the routes of table 187"));
    }

    #[test]
    fn routes_that_bird_has_not_learnt_and_sessions_that_are_down_are_found() {
        let found = states(TABLES, PROTOCOLS, BFD);
        assert_eq!(found[0].0, State::Ok);
        for (n, what) in
            [(1, "inside of BIRD is not established (Idle)"), (2, "off of BIRD is not established (down)")]
        {
            assert!(found[n].0 == State::Wrong && found[n].1.contains(what), "{found:?}");
        }
        assert_eq!(found.len(), 3, "{found:?}");
        let found = states("Table own4_table:\n", "", "");
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("has not learnt the routes of table 186"), "{found:?}");
        let [finding] = &bird(&announce(), &Expected { tables: &[], has_backup: true }, &|_| None)[..] else {
            panic!("one finding without BIRD")
        };
        assert!(finding.state == State::Note && finding.what.starts_with("no BIRD answers"), "{finding:?}");
    }

    #[test]
    fn neighbours_without_bfd_are_named() {
        let found = |protocols: &str, bfd: &str| without_bfd(&bgp_sessions(protocols), bfd);
        assert!(found(PROTOCOLS, BFD).is_none());
        let without = found(PROTOCOLS, "").unwrap();
        assert!(without.state == State::Note && without.what.contains("with provider (neighbour 10.64.0.2)"));
        assert!(without.fix.unwrap().starts_with("`bfd on`"));
        // It is down, or another neighbour's.
        for bfd in [BFD.replace("Up  ", "Down"), BFD.replace("10.64.0.2", "10.64.0.9")] {
            assert!(found(PROTOCOLS, &bfd).is_some(), "{bfd}");
        }
        // BIRD names the interface of a link-local neighbour, but not beside its BFD session.
        let inside = PROTOCOLS.replace("start  18:23:50.178  Idle", "up     18:23:50.178  Established");
        assert!(found(&inside, BFD).unwrap().what.contains("with inside (neighbour fe80::1)"));
        assert!(found(&inside, &BFD.replace("Down", "Up  ")).is_none());
    }

    #[test]
    fn a_session_that_announces_nothing_is_found() {
        assert_eq!(bgp_sessions(PROTOCOLS).iter().map(|one| one.exported).collect::<Vec<_>>(), [2, 0, 0]);
        let silent = PROTOCOLS.replace("2 exported", "0 exported");
        let found = states(TABLES, &silent, BFD);
        let (state, what) = &found[3];
        assert!(
            *state == State::Note && what.contains("no route by BGP session provider: neighbour 10.64.0.2")
        );
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn withdrawn_and_failing_routes_are_found_with_their_reason() {
        let health = |announce, error: Option<&str>, reasons| Health {
            announce,
            error: error.map(str::to_owned),
            reasons,
            tables: set([1, 2]).into(),
            ..Health::default()
        };
        let good = routes(&health(AnnounceState::Announced, None, Vec::new()));
        assert_eq!((good.state, &good.what[..]), (State::Ok, "3 routes set for a routing daemon"));
        let failed = routes(&health(AnnounceState::Announced, Some("no device"), Vec::new()));
        assert!(failed.state == State::Wrong && failed.what.ends_with("not all routes are set: no device"));
        let reason = |withdraws| HealthReason { part: Part::Ports, what: "tun0 is down".into(), withdraws };
        let gone = routes(&health(AnnounceState::Withdrawn, None, vec![reason(false), reason(true)]));
        assert!(gone.state == State::Wrong && gone.what.ends_with("withdrawn: tun0 is down"), "{gone:?}");
        let later = routes(&health(AnnounceState::Withdrawn, None, Vec::new()));
        assert!(later.state == State::Note && later.what.contains("come back by themselves"), "{later:?}");
    }

    #[test]
    fn a_node_that_tracks_no_routes_is_noted() {
        let mut announce = announce();
        let finding = untracked(&announce).unwrap();
        assert!(finding.state == State::Note && finding.fix.unwrap().starts_with("`tracked_routes`"));
        announce.tracked_routes = announce.networks.clone();
        assert!(!announce.tracked_routes.is_empty() && untracked(&announce).is_none());
    }
}
