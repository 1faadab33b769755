//! `gatun peer status`, `release` and `takeover`: requests to a running daemon.

use crate::commands::ask::Daemon;
use crate::commands::{confirmed, print_bytes, report, unix_seconds};
use crate::show::Output;
use anyhow::bail;
use gatun_api::types::{Peer, PeerState, days_until};
use gatun_daemon::tables::counted;
use gatun_logstore::time;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Time between two looks at the state.
const EVERY: Duration = Duration::from_millis(100);

const STATUS_EXAMPLES: &str = "\
Exit status:
  0  both boxes have the same sessions
  1  not connected, sessions are still sent, or there is no [peer] or no daemon

Examples:
  gatun peer status
  gatun peer status -o json
";

const RELEASE_EXAMPLES: &str = "\
The other box gets all sessions, then the public addresses. Subscribers notice nothing: both boxes translate \
packets of all sessions before, during and after that. Routes of [announce] follow the owner.

Examples:
  gatun peer release            waits until the other box owns the addresses
";

const TAKEOVER_EXAMPLES: &str = "\
Without this command, a box whose peer has failed translates all sessions and assigns ports of its own range \
(`own_ports`). With it, the box assigns all ports, and does not wait for the peer any more.

Use it only if the other box is switched off, or has lost its sessions. If it still forwards packets, two \
subscribers could have the same port. If it is connected, the daemon refuses.

Examples:
  gatun peer takeover           asks, and waits until it is done
  gatun peer takeover --yes     for scripts
";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(super) struct Status {
    /// Print nothing if both boxes have the same sessions
    #[arg(long, short)]
    quiet: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `release`.
#[derive(Debug, clap::Args)]
#[command(after_help = RELEASE_EXAMPLES)]
pub(super) struct Release {
    /// Longest time to wait until the other box owns the addresses
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    #[command(flatten)]
    daemon: Daemon,
}

/// Arguments of `takeover`.
#[derive(Debug, clap::Args)]
#[command(after_help = TAKEOVER_EXAMPLES)]
pub(super) struct Takeover {
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer.
pub(super) fn status(args: &Status) -> anyhow::Result<ExitCode> {
    let peer = state(&args.daemon)?;
    let is_good = peer.state == PeerState::Synced;
    report(&peer, (is_good, args.quiet), args.output, || text(&peer, unix_seconds()))
}

/// # Errors
/// Returns an error if the daemon refuses, or the connection is lost meanwhile.
pub(super) fn release(args: &Release) -> anyhow::Result<ExitCode> {
    let (peer, took) = hand_over(&args.daemon, Duration::from_secs(args.timeout))?;
    let text = format!("{} owns all public addresses after {:.1} s\n", peer.other_box(), took.as_secs_f64());
    print_bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Releases, and waits until the other box owns all addresses. Returns the state, and the time it took.
pub(super) fn hand_over(daemon: &Daemon, limit: Duration) -> anyhow::Result<(Peer, Duration)> {
    let began = Instant::now();
    let _: Peer = daemon.client()?.ask("POST", "/v1/peer/release", &[])?;
    // With a reason, the other box was not told.
    let has_released =
        |peer: &Peer| !owns_any(peer) && peer.state != PeerState::Releasing && peer.reason.is_none();
    let peer = wait(daemon, limit, "this box still owns public addresses", has_released)?;
    Ok((peer, began.elapsed()))
}

/// Waits for a state of the connected pair.
pub(super) fn wait(
    daemon: &Daemon,
    limit: Duration,
    otherwise: &str,
    is_there: impl Fn(&Peer) -> bool,
) -> anyhow::Result<Peer> {
    let began = Instant::now();
    loop {
        let peer = state(daemon)?;
        if is_there(&peer) {
            return Ok(peer);
        }
        if !peer.is_connected() {
            let why = peer.reason.map_or_else(String::new, |why| format!(" ({why})"));
            bail!("the connection to the peer was lost{why}; {otherwise}: see `gatun peer status`");
        }
        if began.elapsed() > limit {
            bail!("{otherwise} after {} s: see `gatun peer status`", limit.as_secs());
        }
        std::thread::sleep(EVERY);
    }
}

/// # Errors
/// Returns an error if the daemon refuses, or the peer connects meanwhile.
pub(super) fn take_over(args: &Takeover) -> anyhow::Result<ExitCode> {
    if !args.yes && !confirmed("Is the other box switched off, or are its sessions lost?")? {
        eprintln!("gatun: nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    let mut peer: Peer = args.daemon.client()?.ask("POST", "/v1/peer/takeover", &[])?;
    while let Some(ms) = peer.takeover_in_ms {
        std::thread::sleep(Duration::from_millis(ms).clamp(EVERY, Duration::from_secs(1)));
        peer = state(&args.daemon)?;
    }
    if !peer.peer_gone {
        bail!("the peer has connected, so it is not gone: nothing was taken over; see `gatun peer status`");
    }
    print_bytes(b"this box owns all public addresses\n")?;
    Ok(ExitCode::SUCCESS)
}

/// State of the daemon's member.
pub(super) fn state(daemon: &Daemon) -> anyhow::Result<Peer> {
    Ok(daemon.client()?.get("/v1/peer")?)
}

/// True if this box owns public addresses. A box that is not of a pair owns all of them.
pub(crate) fn owns_addresses(peer: &Peer) -> bool {
    peer.member.is_none() || owns_any(peer)
}

/// True if this member owns public addresses.
pub(super) fn owns_any(peer: &Peer) -> bool {
    peer.shards.iter().any(|shard| Some(shard.owner) == peer.member)
}

/// State in words. `now_s` is the time, seconds since 1970.
fn text(peer: &Peer, now_s: u64) -> String {
    let (Some(member), Some(summary)) = (peer.member, summary(peer)) else {
        return "no pair: there is no [peer] in the configuration\n".to_owned();
    };
    let mut text = format!("{summary}\n");
    text += &peer.reason.iter().map(|why| format!("reason: {why}\n")).collect::<String>();
    if peer.peer_gone {
        text += "an operator has declared the peer gone\n";
    }
    if let Some(ms) = peer.takeover_in_ms {
        text += &format!("this box owns all public addresses in {:.1} s\n", ms as f64 / 1e3);
    }
    for shard in &peer.shards {
        let here = if shard.owner == member { " (this box)" } else { "" };
        let addresses = shard.addresses.join(" ");
        text += &match shard.epoch {
            0 => format!("no owner yet: {addresses}\n"),
            epoch => format!("owner {}{here}, epoch {epoch}: {addresses}\n", shard.owner),
        };
    }
    let counters = &peer.counters;
    let both = |sessions, ends| format!("{}, {}", counted(sessions, "session"), counted(ends, "end"));
    let told = both(counters.sessions_told, counters.ends_told);
    text +=
        &format!("told: {told}; received: {}\n", both(counters.sessions_received, counters.ends_received));
    for refused in counters.refused.iter().filter(|reason| reason.value > 0) {
        text += &format!("refused: {} ({})\n", counted(refused.value, "session"), refused.name);
    }
    text += &peer.differences.iter().map(|key| format!("differs from the peer: {key}\n")).collect::<String>();
    text += &peer.clock_fault().map_or_else(String::new, |fault| format!("{fault}\n"));
    text += &peer.certificate_end_s.map_or_else(String::new, |end| certificate(end, now_s));
    text
}

/// Line about this member and its connection. `None` without `[peer]`.
pub(crate) fn summary(peer: &Peer) -> Option<String> {
    Some(format!("member {}: {}", peer.member?, connection(peer)))
}

fn connection(peer: &Peer) -> String {
    let address = peer.peer_address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
    let other = format!("{}{address}", peer.other_box());
    match peer.state {
        PeerState::Off | PeerState::Other => peer.state.to_string(),
        PeerState::Waiting if peer.is_refused() => format!("waits for {other}, and assigns no ports"),
        PeerState::Waiting => {
            format!("waits for {other}, and assigns no ports; if that box is lost, use `gatun peer takeover`")
        }
        PeerState::Alone => format!("NOT connected to {other}"),
        PeerState::Syncing => format!("connected to {other}, sessions are being sent"),
        PeerState::Synced => format!("connected to {other}, both have the same sessions"),
        PeerState::Releasing => format!("gives its public addresses to {other}"),
    }
}

fn certificate(end_s: u64, now_s: u64) -> String {
    let date = time::rfc3339(end_s.saturating_mul(1000));
    let date = date.split('T').next().unwrap_or_default();
    match days_until(end_s, now_s) {
        Some(days) => format!("certificate: ends on {date}, in {}\n", counted(days, "day")),
        None => format!("certificate: ENDED on {date}; use `gatun peer renew`\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::{Counter, PeerCounters, PeerMember, PeerShard};

    const DAY_S: u64 = 86_400;

    fn pair() -> Peer {
        let shard = |owner, addresses: &str| PeerShard { owner, epoch: 3, addresses: vec![addresses.into()] };
        let conflict = Counter { name: "conflict".into(), value: 1, help: String::new() };
        Peer {
            state: PeerState::Synced,
            member: Some(PeerMember::A),
            peer_name: Some("second".into()),
            peer_address: Some("10.64.0.2:7464".into()),
            connected_for_ms: Some(61_000),
            clock_difference_ms: Some(-3),
            shards: vec![shard(PeerMember::A, "192.0.2.1-192.0.2.9"), shard(PeerMember::B, "192.0.2.10")],
            certificate_end_s: Some(1_777_000_000),
            counters: PeerCounters {
                sessions_told: 1200,
                ends_told: 1,
                refused: vec![conflict],
                ..PeerCounters::default()
            },
            ..Peer::default()
        }
    }

    #[test]
    fn the_status_names_the_owner_of_each_address() {
        let text = text(&pair(), 1_777_000_000 - 10 * DAY_S);
        for part in [
            "member a: connected to b (second) at 10.64.0.2:7464, both have the same sessions\n",
            "owner a (this box), epoch 3: 192.0.2.1-192.0.2.9\nowner b, epoch 3: 192.0.2.10\n",
            "told: 1,200 sessions, 1 end; received: 0 sessions, 0 ends\n",
            "refused: 1 session (conflict)\n",
            "certificate: ends on 2026-04-24, in 10 days\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("gone") && !text.contains("clock"), "{text}");
    }

    #[test]
    fn faults_of_a_pair_have_words() {
        assert_eq!(super::text(&Peer::default(), 0), "no pair: there is no [peer] in the configuration\n");
        let mut peer = pair();
        peer.state = PeerState::Alone;
        peer.reason = Some("connection refused".into());
        peer.peer_gone = true;
        peer.takeover_in_ms = Some(5_500);
        peer.differences = vec!["pools.res.prefixes".into()];
        peer.clock_difference_ms = Some(-86_400_000);
        let text = text(&peer, 1_777_000_001);
        for part in [
            "member a: NOT connected to b (second) at 10.64.0.2:7464\nreason: connection refused\n",
            "an operator has declared the peer gone\nthis box owns all public addresses in 5.5 s\n",
            "differs from the peer: pools.res.prefixes\n",
            "\nthe clock of b (second) is 86400 s behind that of this box\n",
            "certificate: ENDED on 2026-04-24; use `gatun peer renew`\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        peer.state = PeerState::Waiting;
        peer.shards[0].epoch = 0;
        let text = super::text(&peer, 0);
        assert!(text.contains("assigns no ports") && text.contains("no owner yet: 192.0.2.1"), "{text}");
        assert!(!text.contains("takeover"), "the other box runs: {text}");
        peer.reason = Some("cannot connect to 10.64.0.2:7464: Connection refused".into());
        assert!(super::text(&peer, 0).contains("gatun peer takeover"));
    }
}
