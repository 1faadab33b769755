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
    let mut findings = Vec::new();
    findings.push(learnt(announce, expected, &tables));
    let protocols = ask("show protocols").unwrap_or_default();
    let sessions: Vec<[&str; 2]> = protocols.lines().filter_map(bgp_session).collect();
    for [name, state] in sessions.iter().filter(|[_, state]| *state != "Established") {
        let what = format!(
            "BGP session {name} of BIRD is not established ({state}): its neighbour sends no packets"
        );
        findings.push(Finding::wrong(CHECK, what, format!("birdc show protocols all {name}")));
    }
    let bfd = ask("show bfd sessions").unwrap_or_default();
    let are_up = bfd.lines().filter(|line| line.split_whitespace().nth(2) == Some("Up")).count();
    if are_up < sessions.iter().filter(|[_, state]| *state == "Established").count() {
        let what = format!(
            "{are_up} BFD sessions of BIRD are up, and more of BGP: if this box dies, a neighbour without BFD notices after its hold time, up to 240 s"
        );
        findings.push(Finding::note(
            CHECK,
            what,
            format!("`bfd on` in `protocol bgp`, on both sides: {PAGE}"),
        ));
    }
    findings
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

/// Name and state of a BGP session, in a line of `birdc show protocols`.
fn bgp_session(line: &str) -> Option<[&str; 2]> {
    let mut fields = line.split_whitespace();
    let name = fields.next()?;
    (fields.next()? == "BGP").then_some(())?;
    // Table, state, time, and the state of the session.
    Some([name, fields.nth(3).unwrap_or("down")])
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
    use gatun_api::types::AnnounceRole;

    const TABLES: &str =
        "Table own4_table:\n192.0.2.1/32 unicast [own4 18:23:50.187] * (200)\n\tdev gatun-routes\n";
    const PROTOCOLS: &str = "\
Name       Proto      Table      State  Since         Info
device1    Device     ---        up     18:23:50.178  
provider   BGP        ---        up     18:23:50.978  Established   
inside     BGP        ---        start  18:23:50.178  Idle          
";
    const BFD: &str = "\
IP address                Interface  State      Since         Interval  Timeout
10.64.0.2                 small      Up         18:23:50.946    0.050    0.150
";

    fn states(tables: &str, protocols: &str, bfd: &str) -> Vec<(State, String)> {
        let config = gatun_config::load_str(
            "[[nat64]]\npool6 = \"2001:db8:64::/96\"\n[[pool]]\nprefixes = \"192.0.2.1\"\n[announce]\n",
            "test",
        );
        let announce = config.unwrap().0.announce.unwrap();
        let ask = |command: &str| match command {
            "show route table all" => Some(tables.to_owned()),
            "show protocols" => Some(protocols.to_owned()),
            _ => Some(bfd.to_owned()),
        };
        bird(&announce, &Expected { tables: &set([1, 0]), has_backup: false }, &ask)
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
        let config =
            "[[nat64]]\npool6 = \"2001:db8:64::/96\"\n[[pool]]\nprefixes = \"192.0.2.1\"\n[announce]\n";
        let announce = gatun_config::load_str(config, "test").unwrap().0.announce.unwrap();
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
    fn routes_that_bird_has_not_learnt_and_sessions_without_bfd_are_found() {
        let found = states(TABLES, PROTOCOLS, BFD);
        assert_eq!(found[0].0, State::Ok);
        assert!(
            found[1].0 == State::Wrong && found[1].1.contains("inside of BIRD is not established (Idle)")
        );
        assert_eq!(found.len(), 2, "{found:?}");
        let found = states("Table own4_table:\n", "", "");
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("has not learnt the routes of table 186"), "{found:?}");
        let found = states(TABLES, PROTOCOLS, "");
        assert!(found[2].0 == State::Note && found[2].1.starts_with("0 BFD sessions"), "{found:?}");
    }
}
