//! Checks of a pair of boxes: connection, sessions, configurations, certificate, and the ways of packets.

use super::Finding;
use super::sample::{Counted, PACKETS_MIN, sample};
use gatun_api::client::Client;
use gatun_api::types::{Peer, PeerState, Pool, RENEW_DAYS, days_until};
use gatun_config::Config;
use gatun_wire::text::{counted, group};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const CHECK: &str = "peer";
const STATUS: &str = "gatun peer status";
/// Ratio of the directions from which routes count as asymmetric: even a download has an acknowledgement for
/// each few segments.
const ASYMMETRIC: u64 = 100;

/// Findings about `[peer]`, if the configuration has it and the daemon runs.
pub(super) fn examine(client: &Client, config: &Config) -> Vec<Finding> {
    let (Some(_), Ok(peer)) = (&config.peer, client.get::<Peer>("/v1/peer")) else { return Vec::new() };
    let mut findings = of_state(&peer);
    findings.extend(asymmetric_pools(client));
    findings.extend(routes(config));
    findings
}

/// Findings about the state of the pair.
fn of_state(peer: &Peer) -> Vec<Finding> {
    let mut findings = vec![connection(peer)];
    findings.extend(differences(peer));
    findings.extend(peer.clock_fault().map(|fault| clocks(CHECK, &fault)));
    let renew = "gatun peer renew AUTHORITY /etc/gatun/peer, then reload: see docs/how-to/pair.md";
    findings.extend(peer.certificate_end_s.map(|end| certificate((CHECK, "of the pair"), end, renew)));
    findings
}

fn connection(peer: &Peer) -> Finding {
    let name = peer.other_box();
    let why = peer.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    match peer.state {
        _ if peer.is_connected() && peer.reason.is_some() => Finding::wrong(
            CHECK,
            format!("{name} is connected, and gets no sessions{why}"),
            "repair what the reason says",
        ),
        PeerState::Synced | PeerState::Releasing => {
            Finding::ok(CHECK, format!("connected to {name}, both boxes have the same sessions"))
        }
        PeerState::Syncing => {
            Finding::note(CHECK, format!("{name} and this box still send each other their sessions"), STATUS)
        }
        PeerState::Waiting => Finding::wrong(
            CHECK,
            format!("this box waits for {name}, and assigns no ports{why}"),
            repair(peer),
        ),
        PeerState::Alone if peer.peer_gone => Finding::wrong(
            CHECK,
            format!("{name} is declared gone: nothing backs this box{why}"),
            "repair the other box, and start it with `gatun run --forget`",
        ),
        PeerState::Alone | PeerState::Off | PeerState::Other => {
            let unused = match peer.counters.ends_waiting {
                0 => String::new(),
                ends => format!("; {} until it is back", ports_of(ends)),
            };
            Finding::wrong(CHECK, format!("not connected to {name}{why}{unused}"), repair(peer))
        }
    }
}

fn ports_of(ends: u64) -> String {
    format!("ports of {} that it knows stay unused", counted(ends, "ended session"))
}

/// Remedy of a pair without a connection. A box that may run is never to be taken over.
fn repair(peer: &Peer) -> &'static str {
    match peer.is_refused() {
        true => "repair what the reason says: the other box may run",
        false => {
            "start the other box, and compare `listen` and `connect` of [peer], and firewalls; if that box is \
             switched off for good, or has lost its sessions, gatun peer takeover"
        }
    }
}

fn differences(peer: &Peer) -> Option<Finding> {
    if peer.differences.is_empty() {
        return None;
    }
    let what = format!("the configurations of both boxes differ: {}", peer.differences.join(", "));
    Some(Finding::wrong(CHECK, what, "write the same values on both boxes, and reload"))
}

/// Finding about the clocks of two boxes that differ.
pub(super) fn clocks(check: &'static str, fault: &str) -> Finding {
    let what = format!(
        "the clocks differ: {fault}; `gatun who` compares times of both logs, and may name another subscriber"
    );
    let fix = "set both clocks by NTP: `chronyc tracking` shows which one is off; without an NTP client, \
               install chrony";
    Finding::wrong(check, what, fix)
}

/// Finding about the end of a certificate of somebody. `renew` is the remedy.
pub(super) fn certificate(of: (&'static str, &str), end_s: u64, renew: &str) -> Finding {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    validity(of, days_until(end_s, now_s), renew)
}

fn validity((check, whose): (&'static str, &str), days: Option<u64>, renew: &str) -> Finding {
    match days {
        None => {
            let what = format!("the certificate {whose} has ended: no new connection is possible");
            Finding::wrong(check, what, renew)
        }
        Some(days) if days < RENEW_DAYS => {
            let what = format!("the certificate {whose} ends in {}", counted(days, "day"));
            Finding::note(check, what, renew)
        }
        Some(days) => Finding::ok(check, format!("the certificate is valid for {}", counted(days, "day"))),
    }
}

/// Packets of each pool in both directions, by the pool's name.
struct PoolPackets(Vec<(Arc<str>, Directions)>);

/// Packets of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Directions {
    out: u64,
    back: u64,
}

impl PoolPackets {
    fn read(client: &Client) -> Option<PoolPackets> {
        let of =
            |pool: Pool| (pool.name.0, Directions { out: pool.outbound.packets, back: pool.inbound.packets });
        Some(PoolPackets(client.get::<Vec<Pool>>("/v1/pools").ok()?.into_iter().map(of).collect()))
    }
}

impl Counted for PoolPackets {
    /// Without any packet so far, the doctor need not wait.
    fn may_matter(&self) -> bool {
        self.0.iter().any(|(_, packets)| packets.out.max(packets.back) > 0)
    }

    fn since(mut self, before: &PoolPackets) -> PoolPackets {
        for (pool, packets) in &mut self.0 {
            // A reload may have added the pool.
            let former = before.0.iter().find(|(name, _)| name == pool).map(|(_, former)| *former);
            let former = former.unwrap_or_default();
            packets.out = packets.out.saturating_sub(former.out);
            packets.back = packets.back.saturating_sub(former.back);
        }
        self
    }
}

/// Findings about pools whose packets pass this box in one direction only.
fn asymmetric_pools(client: &Client) -> Vec<Finding> {
    let pools = sample(|| PoolPackets::read(client)).map_or_else(Vec::new, |PoolPackets(pools)| pools);
    pools.iter().filter_map(|(pool, packets)| asymmetric(pool, *packets)).collect()
}

fn asymmetric(pool: &str, Directions { out, back }: Directions) -> Option<Finding> {
    if out.max(back) < PACKETS_MIN || out.max(back) / ASYMMETRIC < out.min(back) {
        return None;
    }
    let what = format!(
        "asymmetric routes: in a second, {} packets of pool {pool} went out here, and {} came in: the other \
         direction takes another box, which knows a new session only after its first packets",
        group(out),
        group(back)
    );
    let fix = "announce prefix and pool from the same box, alike: see docs/how-to/announce.md";
    Some(Finding::note(CHECK, what, fix))
}

/// Finding about a configuration by which routers do not learn which box to use.
fn routes(config: &Config) -> Option<Finding> {
    if config.announce.is_some() {
        return None;
    }
    let what = "no [announce]: if the other box fails, nothing leads packets for its public addresses here";
    Some(Finding::note(CHECK, what, "[announce], or keepalived: see docs/how-to/announce.md"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::State;

    const DAY_S: u64 = 86_400;

    #[test]
    fn each_state_of_the_pair_has_a_finding() {
        let of = |state, reason: Option<&str>| {
            let peer = Peer { state, reason: reason.map(str::to_owned), ..Peer::default() };
            let finding = connection(&peer);
            (finding.state, finding.what)
        };
        assert_eq!(of(PeerState::Synced, None).0, State::Ok);
        assert_eq!(of(PeerState::Syncing, None).0, State::Note);
        let (state, what) = of(PeerState::Alone, Some("connection refused"));
        assert_eq!(
            (state, what.as_str()),
            (State::Wrong, "not connected to the other box: connection refused")
        );
        assert_eq!(of(PeerState::Synced, Some("disk full")).0, State::Wrong);
        let (state, what) = of(PeerState::Waiting, None);
        assert!(state == State::Wrong && what.contains("assigns no ports"), "{what}");
    }

    #[test]
    fn a_box_that_may_run_is_not_to_be_taken_over() {
        let fix = |state, why: &str| {
            let peer = Peer { state, reason: Some(why.to_owned()), ..Peer::default() };
            connection(&peer).fix.unwrap()
        };
        for state in [PeerState::Waiting, PeerState::Alone] {
            let fits_not = fix(state, "the configurations differ: workers");
            assert!(fits_not.starts_with("repair what the reason says"), "{fits_not}");
            let silent = fix(state, "cannot connect to 10.0.0.2:7464: Connection refused (os error 111)");
            assert!(silent.contains("gatun peer takeover"), "{silent}");
        }
    }

    #[test]
    fn unused_ports_and_a_declared_loss_are_told() {
        let mut peer = Peer { state: PeerState::Alone, ..Peer::default() };
        peer.counters.ends_waiting = 1_200;
        let what = connection(&peer).what;
        assert!(what.contains("ports of 1,200 ended sessions that it knows stay unused until it"), "{what}");
        peer.peer_gone = true;
        let finding = connection(&peer);
        assert!(finding.what.contains("declared gone: nothing backs this box"), "{}", finding.what);
        assert!(finding.fix.unwrap().contains("gatun run --forget"));
    }

    #[test]
    fn differences_and_the_end_of_the_certificate_are_found() {
        let peer = Peer { differences: vec!["pools.res".into(), "workers".into()], ..Peer::default() };
        assert!(differences(&peer).unwrap().what.ends_with("differ: pools.res, workers"));
        assert!(differences(&Peer::default()).is_none());
        let all = of_state(&Peer { certificate_end_s: Some(1), ..peer });
        assert!(all[1].what.contains("differ: pools.res") && all[2].what.contains("has ended"), "{all:?}");
        let clock = of_state(&Peer { clock_difference_ms: Some(86_400_000), ..Peer::default() });
        assert!(clock[1].state == State::Wrong && clock[1].what.contains("86400 s ahead of"), "{clock:?}");
        assert!(clock[1].fix.as_ref().unwrap().contains("chronyc tracking"));
        assert_eq!(of_state(&Peer { clock_difference_ms: Some(900), ..Peer::default() }).len(), 1);
        let state = |end| validity((CHECK, "of the pair"), days_until(end, 100 * DAY_S), "renew it").state;
        assert_eq!(
            [state(99 * DAY_S), state(110 * DAY_S), state(114 * DAY_S)],
            [State::Wrong, State::Note, State::Ok]
        );
    }

    #[test]
    fn a_pool_with_packets_in_one_direction_shows_asymmetric_routes() {
        let of = |out, back| asymmetric("res", Directions { out, back });
        let what = of(50_000, 3).unwrap().what;
        assert!(
            what.contains("in a second, 50,000 packets of pool res went out here, and 3 came in"),
            "{what}"
        );
        assert!(of(3, 50_000).is_some() && of(50_000, 600).is_none() && of(99, 0).is_none());
    }

    #[test]
    fn a_new_fault_of_routes_is_not_hidden_by_earlier_packets() {
        let pools = |all: &[(&str, u64, u64)]| {
            let of = |&(pool, out, back): &(&str, u64, u64)| (Arc::from(pool), Directions { out, back });
            PoolPackets(all.iter().map(of).collect())
        };
        let before = pools(&[("res", 70_000_000, 90_000_000), ("biz", 5, 4)]);
        let now = pools(&[("res", 70_000_900, 90_000_000), ("biz", 9, 8), ("new", 1, 2)]);
        let PoolPackets(since) = now.since(&before);
        assert_eq!(since[0], (Arc::from("res"), Directions { out: 900, back: 0 }));
        assert_eq!(since[2].1, Directions { out: 1, back: 2 });
        let found: Vec<_> = since.iter().filter(|(pool, of)| asymmetric(pool, *of).is_some()).collect();
        assert_eq!(found.len(), 1);
        assert!(before.may_matter() && !pools(&[("res", 0, 0)]).may_matter());
    }

    #[test]
    fn a_pair_without_announced_routes_is_noted() {
        let config = |announce| {
            let text = format!(
                "[[nat64]]\npool6 = \"2001:db8:64::/96\"\n[[pool]]\nprefixes = \"192.0.2.1\"\n\
                 [peer]\nmember = \"a\"\nlisten = \"10.0.0.1:7464\"\n{announce}"
            );
            gatun_config::load_str(&text, "test").unwrap().0
        };
        assert!(routes(&config("")).unwrap().what.contains("no [announce]"));
        assert!(routes(&config("[announce]\n")).is_none());
    }
}
