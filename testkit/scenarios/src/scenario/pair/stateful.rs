//! Boxes with sessions, which tell each other of them: stateful NAT64 with `[peer]`.

use super::lab::{BOTH, Fault, Lab, PATIENCE, PUBLIC};
use crate::scenario::goals::Goals;
use crate::scenario::log_disk::{self, BoxLog};
use crate::scenario::upgrade::BETWEEN;
use anyhow::{Context as _, ensure};
use gatun_api::client::Client;
use gatun_api::types::{Binding, Page, Peer, PeerMember, PeerState};
use gatun_testkit::pair::{TRACKED, Way};
use gatun_testkit::wait_until;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Directory of the certificates; /run belongs to the sandbox.
const CERTIFICATES: &str = "/run/pair-certificates";

pub(super) const FAULTS: [Fault; 20] = [
    Fault {
        goals: Goals::KILLED,
        is_brief: true,
        ..Fault::new("kill -9, then a new process", |lab| lab.kill(), |lab| lab.start(0))
    },
    Fault {
        goals: Goals::SILENT,
        is_brief: true,
        ..Fault::new("power lost, then a new process without state", power_lost, power_back)
    },
    Fault {
        used: Some(0),
        running: &[0, 1],
        is_brief: true,
        ..Fault::new(
            "link between the boxes cut, then restored",
            |lab| cut(lab, "down"),
            |lab| cut(lab, "up"),
        )
    },
    Fault {
        goals: Goals::PLANNED,
        running: &[0, 1],
        is_brief: true,
        ..Fault::new("release, then release of the other box", |_| release(0), |_| release(1))
    },
    Fault {
        used: Some(0),
        running: &[0, 1],
        ..Fault::new(
            "packets from the other box lost, then not",
            |lab| one_way(lab, DEAF),
            |lab| one_way(lab, "delete table inet cut"),
        )
    },
    Fault {
        used: None,
        running: &[0, 1],
        ..Fault::new("link between the boxes cut, each has half of the clients, then joined", split, join)
    },
    Fault {
        used: None,
        running: &[0, 1],
        ..Fault::new(
            "link between the boxes cut, one has the packets from inside, the other one the answers",
            ask_by_one_answer_by_other,
            same_way_again,
        )
    },
    Fault {
        used: None,
        running: &[0, 1],
        goals: Goals::DARK,
        ..Fault::new(
            "links between the boxes, of one to the server and of the other one to the client cut",
            part,
            rejoin,
        )
    },
    Fault::new("SIGSTOP, then SIGCONT", |lab| lab.signal(Signal::STOP), |lab| lab.signal(Signal::CONT)),
    Fault::new("links to the routers cut, then restored", |lab| lab.cut(false), |lab| lab.cut(true)),
    Fault {
        goals: Goals::KILLED,
        ..Fault::new("orderly stop, then a new process", |lab| lab.stop(0), |lab| lab.start(0))
    },
    Fault {
        goals: Goals::PLANNED,
        ..Fault::new("release and stop, then a new process and release of the other box", roll, roll_back)
    },
    Fault {
        running: &[0, 1],
        ..Fault::new(
            "packets to the routers lost without a cut, then not",
            |lab| lab.lose(&[Way::ToRouters], true),
            |lab| lab.lose(&[Way::ToRouters], false),
        )
    },
    Fault {
        running: &[0, 1],
        ..Fault::new(
            "packets from the routers lost without a cut, then not",
            |lab| lab.lose(&[Way::FromRouters], true),
            |lab| lab.lose(&[Way::FromRouters], false),
        )
    },
    Fault {
        goals: Goals::SILENT,
        running: &[0, 1],
        ..Fault::new(
            "packets both ways lost without a cut, then not",
            |lab| lab.lose(&BOTH, true),
            |lab| lab.lose(&BOTH, false),
        )
    },
    Fault {
        goals: Goals::KILLED,
        ..Fault::new("kill -9 and take-over, then a new process that forgets", replace, come_back)
    },
    Fault::new("SIGSTOP and take-over, then SIGCONT and a new process that forgets", declare_gone, go_on),
    Fault {
        is_brief: true,
        ..Fault::of_both(
            "disks of both logs full, then with room",
            |lab| log_disk::fill_all(&logs(), PATIENCE, || lab.ping()),
            |_| log_disk::free_all(&logs(), PATIENCE),
        )
    },
    Fault {
        is_brief: true,
        ..Fault::of_both(
            "configuration of one box changed, then of the other one, and both back",
            change,
            change_back,
        )
    },
    Fault {
        is_brief: true,
        from_former: true,
        ..Fault::of_both(
            "rolling upgrade of the other box, then of the owner between two releases",
            upgrade_other,
            upgrade_owner,
        )
    },
];

/// Limit of each subscriber's ports.
const PORTS_MAX: u32 = 40_000;
/// Connections that are opened after a take-over: their ports are of all ranges.
const AFTER_TAKEOVER: u32 = 200;
/// Time limit of the operator's word, which waits for the lease of the other box's kernel.
const WORD_MAX: Duration = Duration::from_secs(60);
/// Addresses of the client: one address has too few ports for all connections of a run.
const HOSTS: u32 = 16;

/// Makes the certificates of the pair, and the disks of the logs.
pub(super) fn prepare(gatun: &Path) -> anyhow::Result<()> {
    logs().iter().try_for_each(BoxLog::mount)?;
    let said = Command::new(gatun).args(["peer", "init", CERTIFICATES]).output()?;
    ensure!(said.status.success(), "gatun peer init: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

/// Configuration of a box.
pub(super) fn config(number: usize) -> String {
    config_with(number, PORTS_MAX)
}

/// Configuration of a box with a limit of each subscriber's ports.
fn config_with(number: usize, ports: u32) -> String {
    let (member, other) = (["a", "b"][number], 2 - number);
    format!(
        "[[port]]\ndevice = \"nat64\"\n[[pool]]\nname = \"res\"\nprefixes = [\"192.0.2.0/30\"]\n\
         [limits]\nsessions_per_subscriber = 40000\nports_per_subscriber = {ports}\n\
         [[nat64]]\nname = \"lab\"\npool6 = \"2001:db8:64::/96\"\nsubscriber = \"/128\"\n\
         [state]\ndirectory = \"{}\"\n[api]\nlisten = \"unix:{}\"\n\
         [log]\ndirectory = \"{}\"\n[announce]\ntracked_routes = {TRACKED:?}\nstall = \"1s\"\nreturn_after = \"1s\"\n\
         [peer]\nmember = \"{member}\"\nlisten = \"10.0.9.{}:7464\"\nconnect = \"10.0.9.{other}:7464\"\n\
         directory = \"{CERTIFICATES}/{member}\"\n",
        state(number),
        socket(number),
        log(number).directory,
        number + 1
    )
}

/// Addresses of the client, subscribers of their own.
pub(super) fn hosts() -> Vec<String> {
    (0..HOSTS).map(|n| format!("2001:db8:1::1:{n:x}")).collect()
}

/// Socket of a box's API.
pub(super) fn socket(number: usize) -> String {
    format!("/run/pair-{number}/api.sock")
}

/// Rule by which a box receives nothing from the other one.
const DEAF: &str =
    "add table inet cut { chain in { type filter hook input priority 0; iifname peer drop; }; }";

fn state(number: usize) -> String {
    format!("/run/pair-{number}/state")
}

/// Log of a box, which outlives the loss of its state.
fn log(number: usize) -> BoxLog {
    BoxLog { directory: format!("/run/pair-{number}/log"), socket: socket(number) }
}

/// Logs of both boxes.
pub(super) fn logs() -> [BoxLog; 2] {
    [0, 1].map(log)
}

fn client(number: usize) -> Client {
    Client::new(socket(number))
}

/// Waits until both boxes have the same sessions.
pub(super) fn settle() -> anyhow::Result<()> {
    let is_synced = |number: usize| {
        client(number).get::<Peer>("/v1/peer").is_ok_and(|peer| peer.state == PeerState::Synced)
    };
    wait_until("both boxes have the same sessions", PATIENCE, || is_synced(0) && is_synced(1))?;
    Ok(())
}

/// Sets the link between the boxes down or up.
fn cut(lab: &mut Lab<'_>, state: &str) -> anyhow::Result<()> {
    lab.net.boxes[1].ip(&format!("link set peer {state}"))?;
    Ok(())
}

/// Changes what the first box receives from the other one, which receives everything.
fn one_way(lab: &mut Lab<'_>, rules: &str) -> anyhow::Result<()> {
    gatun_testkit::run(lab.net.boxes[0].command("nft").arg(rules))?;
    Ok(())
}

/// Upper half of the client's addresses, which uses the second box.
const HALF: &str = "2001:db8:1::1:8/125";
/// Leads answers to the box that has sent the packet before, as in a half of a network.
const BACK: &str = "add table inet split { chain in { type filter hook prerouting priority mangle; iifname box-a ct mark set 1; iifname box-b ct mark set 2; iifname servers meta mark set ct mark; }; }";

/// Cuts the network in two halves, each with a box and half of the client's addresses. Both boxes open
/// connections.
fn split(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    let (inside, outside) = (&lab.net.inside, &lab.net.outside);
    gatun_testkit::run(outside.command("nft").arg(BACK))?;
    for n in [1, 2] {
        outside.ip(&format!("route add 192.0.2.0/30 via 10.0.{n}.2 table {n}"))?;
        outside.ip(&format!("rule add fwmark {n} lookup {n}"))?;
    }
    inside.ip("-6 route add default via 2001:db8:20::2 table 2")?;
    inside.ip(&format!("-6 rule add from {HALF} lookup 2"))?;
    cut(lab, "down")?;
    wait_until("the boxes are alone", PATIENCE, are_alone)?;
    let before = [bindings(0)?.len(), bindings(1)?.len()];
    lab.open(BETWEEN)?;
    let after = [bindings(0)?.len(), bindings(1)?.len()];
    let have_opened = after[0] > before[0] && after[1] > before[1];
    ensure!(have_opened, "ports of each box before and after new connections: {before:?}, {after:?}");
    Ok(())
}

fn join(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    let (inside, outside) = (&lab.net.inside, &lab.net.outside);
    inside.ip(&format!("-6 rule del from {HALF} lookup 2"))?;
    inside.ip("-6 route flush table 2")?;
    for n in [1, 2] {
        outside.ip(&format!("rule del fwmark {n} lookup {n}"))?;
        outside.ip(&format!("route flush table {n}"))?;
    }
    gatun_testkit::run(outside.command("nft").arg("delete table inet split"))?;
    cut(lab, "up")
}

/// Leads answers to the second box, while the boxes do not reach each other.
fn ask_by_one_answer_by_other(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.net.outside.ip("route add 192.0.2.0/30 via 10.0.2.2 table 2")?;
    lab.net.outside.ip("rule add to 192.0.2.0/30 lookup 2")?;
    cut(lab, "down")?;
    Ok(wait_until("the boxes are alone", PATIENCE, are_alone)?)
}

fn same_way_again(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.net.outside.ip("rule del to 192.0.2.0/30 lookup 2")?;
    lab.net.outside.ip("route flush table 2")?;
    cut(lab, "up")
}

/// Leaves the first box the client, and the second one the server.
fn part(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    cut(lab, "down")?;
    lab.net.cut_outside(0, false)?;
    lab.net.cut_inside(1, false)?;
    Ok(wait_until("the boxes are alone", PATIENCE, are_alone)?)
}

fn rejoin(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.net.cut_outside(0, true)?;
    lab.net.cut_inside(1, true)?;
    cut(lab, "up")
}

/// Returns whether the boxes have no connection, and know it.
fn are_alone() -> bool {
    let is_alone = |number: usize| {
        client(number).get::<Peer>("/v1/peer").is_ok_and(|peer| peer.state == PeerState::Alone)
    };
    is_alone(0) && is_alone(1)
}

fn power_lost(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.signal(Signal::STOP)?;
    lab.cut(false)?;
    cut(lab, "down")
}

fn power_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.kill()?;
    lose_state(0)?;
    lab.cut(true)?;
    cut(lab, "up")?;
    lab.start(0)
}

/// Removes the state of a box.
fn lose_state(number: usize) -> anyhow::Result<()> {
    // The directory itself may be a mount point.
    for file in std::fs::read_dir(state(number))? {
        std::fs::remove_file(file?.path())?;
    }
    Ok(())
}

/// Removes the state of a box that does not run, and sets its log aside.
pub(super) fn forget(number: usize) -> anyhow::Result<()> {
    lose_state(number)?;
    log(number).set_aside()
}

fn release(number: usize) -> anyhow::Result<()> {
    let released = client(number).ask::<Peer>("POST", "/v1/peer/release", b"");
    released.map_err(|error| anyhow::anyhow!("release of box {number}: {error}"))?;
    let other = [PeerMember::B, PeerMember::A][number];
    let is_owner = |by: usize| owns_all(other, by);
    wait_until("the other box owns the addresses", PATIENCE, || is_owner(0) && is_owner(1))?;
    Ok(())
}

/// Returns whether a box knows a member as the owner of all addresses.
fn owns_all(owner: PeerMember, by: usize) -> bool {
    let peer = client(by).get::<Peer>("/v1/peer");
    peer.is_ok_and(|peer| peer.shards.iter().all(|shard| shard.owner == owner))
}

/// Kills the first box. The operator says so to the second one, which then assigns all ports, while the
/// kernel of the first one may have translated for its lease.
fn replace(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.kill()?;
    lab.net.wait_until_used(1, PUBLIC)?;
    take_over(lab)
}

fn take_over(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    let took = client(1).ask::<Peer>("POST", "/v1/peer/takeover", b"");
    took.map_err(|error| anyhow::anyhow!("take-over: {error}"))?;
    wait_until("the second box owns the addresses", WORD_MAX, || owns_all(PeerMember::B, 1))?;
    lab.open(AFTER_TAKEOVER)
}

/// Stops the first box. The operator takes it for dead, and says so to the second one.
fn declare_gone(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.signal(Signal::STOP)?;
    lab.net.wait_until_used(1, PUBLIC)?;
    wait_until("the second box misses the first one", PATIENCE, || {
        client(1).get::<Peer>("/v1/peer").is_ok_and(|peer| peer.state == PeerState::Alone)
    })?;
    take_over(lab)
}

/// The first box goes on, and is refused. Then it starts without its state.
fn go_on(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.signal(Signal::CONT)?;
    wait_until("the first box is refused", PATIENCE, || {
        client(0).get::<Peer>("/v1/peer").is_ok_and(|peer| peer.state == PeerState::Waiting)
    })?;
    lab.kill()?;
    come_back(lab)
}

/// Starts the first box without its state, because the second one refuses it with that.
fn come_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.start_with_flags(0, &["--forget"])?;
    settle()?;
    release(1)
}

/// Releases, and stops once packets take the other box.
fn roll(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    release(0)?;
    lab.net.wait_until_used(1, PUBLIC)?;
    lab.stop(0)
}

fn roll_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.start(0)?;
    settle()?;
    release(1)
}

/// Changes the first box's limit, and opens connections while the configurations differ.
fn change(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.reload(0, config_with(0, PORTS_MAX - 1))?;
    wait_until("both boxes name the difference, and stay connected", PATIENCE, || differ(true))?;
    lab.open(BETWEEN)
}

/// The second box follows. Then both get their former limit again, in the same order.
fn change_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.reload(1, config_with(1, PORTS_MAX - 1))?;
    wait_until("both boxes have the changed configuration", PATIENCE, || differ(false))?;
    lab.reload(0, config(0))?;
    wait_until("both boxes name the difference, and stay connected", PATIENCE, || differ(true))?;
    lab.reload(1, config(1))?;
    Ok(wait_until("both boxes have their former configuration", PATIENCE, || differ(false))?)
}

/// Returns whether both boxes have the same sessions, and know that their configurations differ or not.
fn differ(are_different: bool) -> bool {
    [0, 1].iter().all(|number| {
        let peer = client(*number).get::<Peer>("/v1/peer");
        peer.is_ok_and(|peer| peer.state == PeerState::Synced && peer.differences.is_empty() != are_different)
    })
}

/// Upgrades the box that owns nothing, and opens connections while the owner runs the former program.
fn upgrade_other(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.use_new_program();
    lab.stop(1)?;
    lab.start(1)?;
    settle()?;
    lab.open(BETWEEN)
}

/// Upgrades the owner, which hands over before. The new owner opens connections while the other box runs the
/// former program.
fn upgrade_owner(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    release(0)?;
    lab.net.wait_until_used(1, PUBLIC)?;
    lab.open(BETWEEN)?;
    lab.stop(0)?;
    roll_back(lab)
}

/// Checks that no public port has two users in these boxes.
pub(super) fn examine(running: &[usize]) -> anyhow::Result<()> {
    let mut users = BTreeMap::new();
    for &number in running {
        for binding in bindings(number)? {
            let place = (binding.protocol.word(), binding.outside, binding.outside_port);
            let user = (binding.inside, binding.inside_port);
            let first = *users.entry(place).or_insert(user);
            ensure!(first == user, "{place:?} has two users, {first:?} and {user:?}");
        }
    }
    Ok(())
}

/// Bindings of a box.
fn bindings(number: usize) -> anyhow::Result<Vec<Binding>> {
    let (mut all, mut at) = (Vec::new(), String::new());
    loop {
        let page: Page<Binding> = client(number)
            .get(&format!("/v1/bindings?limit=1000{at}"))
            .map_err(|error| anyhow::anyhow!("{error}"))
            .with_context(|| format!("bindings of box {number}"))?;
        all.extend(page.items);
        match page.next {
            Some(next) => at = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}
