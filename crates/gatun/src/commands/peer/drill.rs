//! `gatun peer drill`: hands all public addresses over and back, and reports.

use super::requests::{hand_over, owns_any, state, wait};
use crate::commands::ask::Daemon;
use crate::commands::print_bytes;
use anyhow::{Context as _, bail};
use gatun_api::types::{Peer, PeerState, Status};
use gatun_daemon::tables::counted;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
The drill shows that the other box can do the work, before a failure asks for it. Subscribers notice \
nothing. Run it at the box that owns the public addresses. Without --back it waits until you enter \
`gatun peer release` at the other box.

Exit status:
  0  handed over and back; no session was refused, and the connection was kept
  1  otherwise

Examples:
  gatun peer drill
  gatun peer drill --back 'ssh second gatun peer release'
";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Drill {
    /// Command for the shell that makes the other box hand back
    #[arg(long, value_name = "COMMAND")]
    back: Option<String>,
    /// Longest time to wait for each of the two hand-overs
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    #[command(flatten)]
    daemon: Daemon,
}

/// State before or after the drill.
struct Observed {
    peer: Peer,
    sessions: u64,
}

impl Observed {
    fn read(daemon: &Daemon) -> anyhow::Result<Observed> {
        let status: Status = daemon.client()?.get("/v1/status")?;
        Ok(Observed { peer: state(daemon)?, sessions: status.sessions })
    }

    /// Sessions of the peer that were refused. One that ends at the same time is not missed.
    fn refused(&self) -> u64 {
        let reasons = self.peer.counters.refused.iter().filter(|reason| reason.name != "ending");
        reasons.map(|reason| reason.value).sum()
    }
}

/// # Errors
/// Returns an error if the pair is not ready for a drill, or a hand-over does not end in time.
pub(super) fn execute(args: &Drill) -> anyhow::Result<ExitCode> {
    let before = Observed::read(&args.daemon)?;
    check(&before.peer)?;
    let limit = Duration::from_secs(args.timeout);
    let say = |text: String| print_bytes(format!("{text}\n").as_bytes());
    let (peer, took) = hand_over(&args.daemon, limit)?;
    say(format!("handed over to {} in {:.1} s", peer.other_box(), took.as_secs_f64()))?;
    let began = Instant::now();
    match &args.back {
        Some(command) => run(command)?,
        None => say(format!("now enter `gatun peer release` at {}", peer.other_box()))?,
    }
    let is_back = |peer: &Peer| owns_all(peer) && peer.state == PeerState::Synced;
    wait(&args.daemon, limit, "the other box owns the public addresses", is_back)?;
    say(match args.back {
        Some(_) => format!("handed back in {:.1} s", began.elapsed().as_secs_f64()),
        None => {
            format!("handed back; the other box had the addresses for {:.1} s", began.elapsed().as_secs_f64())
        }
    })?;
    let after = Observed::read(&args.daemon)?;
    let (text, is_good) = report(&before, &after);
    say(text)?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks that the pair is ready for a drill.
fn check(peer: &Peer) -> anyhow::Result<()> {
    if peer.member.is_none() {
        bail!("there is no [peer] in the configuration");
    }
    if peer.state != PeerState::Synced {
        bail!("the boxes do not have the same sessions (state: {}): see `gatun peer status`", peer.state);
    }
    if !owns_any(peer) {
        bail!("this box owns no public address: run the drill at {}", peer.other_box());
    }
    if !owns_all(peer) {
        bail!(
            "each box owns public addresses, and a drill would end with all of them at this box: \
             use `gatun peer release`"
        );
    }
    Ok(())
}

fn owns_all(peer: &Peer) -> bool {
    peer.shards.iter().all(|shard| Some(shard.owner) == peer.member)
}

fn run(command: &str) -> anyhow::Result<()> {
    let status = Command::new("sh").args(["-c", command]).status().context("cannot run sh")?;
    if !status.success() {
        bail!("`{command}` failed ({status}): enter `gatun peer release` at the other box");
    }
    Ok(())
}

/// Report, and whether all went well.
fn report(before: &Observed, after: &Observed) -> (String, bool) {
    let refused = after.refused().saturating_sub(before.refused());
    let connections = after.peer.counters.connections.saturating_sub(before.peer.counters.connections);
    let link = match connections {
        0 => "the connection was kept".to_owned(),
        n => format!("the connection was lost, and opened {}", counted(n, "time")),
    };
    let text = format!(
        "sessions here: {} before, {} after; {} of the peer refused; {link}",
        gatun_wire::text::group(before.sessions),
        gatun_wire::text::group(after.sessions),
        counted(refused, "session"),
    );
    (text, refused == 0 && connections == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::{Counter, PeerMember, PeerShard};

    fn pair(owners: &[PeerMember]) -> Peer {
        let shard = |owner: &PeerMember| PeerShard { owner: *owner, epoch: 1, addresses: Vec::new() };
        Peer {
            state: PeerState::Synced,
            member: Some(PeerMember::A),
            peer_name: Some("second".into()),
            shards: owners.iter().map(shard).collect(),
            ..Peer::default()
        }
    }

    #[test]
    fn a_drill_begins_only_at_the_owner_of_a_synced_pair() {
        let said = |peer: &Peer| check(peer).unwrap_err().to_string();
        assert!(said(&Peer::default()).contains("no [peer]"));
        let mut peer = pair(&[PeerMember::A]);
        assert!(check(&peer).is_ok());
        peer.state = PeerState::Alone;
        assert!(said(&peer).contains("state: alone"));
        assert!(said(&pair(&[PeerMember::B])).contains("run the drill at b (second)"));
        assert!(said(&pair(&[PeerMember::A, PeerMember::B])).contains("each box owns"));
    }

    #[test]
    fn the_report_tells_of_refused_sessions_and_of_a_lost_connection() {
        let observed = |sessions, refused, connections| {
            let mut peer = pair(&[PeerMember::A]);
            let reason = |name: &str| Counter { name: name.into(), value: refused, help: String::new() };
            peer.counters.refused = vec![reason("full"), reason("ending")];
            peer.counters.connections = connections;
            Observed { peer, sessions }
        };
        let (text, is_good) = report(&observed(1200, 1, 1), &observed(1201, 1, 1));
        let kept = "sessions here: 1,200 before, 1,201 after; 0 sessions of the peer refused; \
                    the connection was kept";
        assert_eq!((text.as_str(), is_good), (kept, true));
        let (text, is_good) = report(&observed(5, 0, 1), &observed(4, 3, 2));
        assert!(text.contains("3 sessions of the peer refused") && text.contains("opened 1 time"), "{text}");
        assert!(!is_good);
    }
}
