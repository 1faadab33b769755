//! Faults of the first node, of the links between the nodes, and of etcd.

use super::lab::{Lab, PATIENCE, UDP_MINUTES};
use super::nodes;
use crate::scenario::goals::Goals;
use crate::scenario::log_disk;
use gatun_testkit::pair::Way;
use rustix::process::Signal;
use std::ops::Range;
use std::time::Duration;

/// Action on the lab.
type Act = fn(&mut Lab<'_>) -> anyhow::Result<()>;

/// Fault, and what ends it.
pub(super) struct Fault {
    pub(super) name: &'static str,
    pub(super) begin: Act,
    pub(super) end: Act,
    /// True if no router uses the first node during the fault.
    pub(super) is_avoided: bool,
    /// True if its shards get other owners.
    pub(super) is_claimed: bool,
    pub(super) goals: Goals,
    /// Length, if it is not that of the others.
    length: Option<Duration>,
    /// True if a brief run plays it.
    pub(super) is_brief: bool,
    /// True if all nodes run the former program before it, and the new one after it.
    pub(super) from_former: bool,
    /// True if clients open connections while it lasts, which have to go on.
    pub(super) has_new_connections: bool,
}

impl Fault {
    const fn new(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault {
            name,
            begin,
            end,
            is_avoided: false,
            is_claimed: false,
            goals: Goals::NONE,
            length: None,
            is_brief: false,
            from_former: false,
            has_new_connections: false,
        }
    }

    /// Fault of the first node alone: the others take its place.
    const fn of_node(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { is_avoided: true, is_claimed: true, ..Fault::new(name, begin, end) }
    }

    /// Fault in which packets between the first node and etcd are lost. Clients open connections meanwhile.
    const fn of_etcd(name: &'static str, begin: Act) -> Fault {
        Fault { has_new_connections: true, ..Fault::new(name, begin, lost_no_more) }
    }

    /// Fault in which packets between nodes are lost. While both have etcd, nothing moves, and some new
    /// connections fail.
    const fn of_packets(name: &'static str, begin: Act) -> Fault {
        Fault::new(name, begin, lost_no_more)
    }

    /// Length of the fault in a run.
    pub(super) fn length(&self, usual: Duration, is_brief: bool) -> Duration {
        self.length.filter(|_| !is_brief).unwrap_or(usual)
    }
}

/// All members of etcd have stopped for longer than any lease.
const WITHOUT_ETCD: Duration = Duration::from_secs(60);

pub(super) const FAULTS: [Fault; 30] = [
    Fault {
        goals: Goals::KILLED,
        is_brief: true,
        ..Fault::of_node("kill -9, then a new process", |lab| lab.kill(0), |lab| lab.start(0))
    },
    Fault {
        goals: Goals::SILENT,
        ..Fault::of_node("power lost, then a new process without state", power_lost, power_back)
    },
    Fault {
        goals: Goals::SILENT,
        ..Fault::of_node(
            "power lost behind switches, then a new process without state",
            silent_power_lost,
            silent_power_back,
        )
    },
    Fault::of_node(
        "SIGSTOP, then SIGCONT",
        |lab| lab.signal(0, Signal::STOP),
        |lab| lab.signal(0, Signal::CONT),
    ),
    Fault {
        goals: Goals::KILLED,
        ..Fault::of_node("orderly stop, then a new process", |lab| lab.stop(0), |lab| lab.start(0))
    },
    Fault {
        goals: Goals::PLANNED,
        is_brief: true,
        ..Fault::of_node(
            "drain, then undrain",
            |lab| lab.ask(0, &["drain", "a", "--timeout", "60"]),
            |lab| lab.ask(0, &["undrain", "a"]),
        )
    },
    Fault {
        goals: Goals::PLANNED,
        ..Fault::of_node(
            "drain and stop, then a new process and undrain",
            |lab| lab.ask(0, &["drain", "a", "--timeout", "60"]).and_then(|()| lab.stop(0)),
            |lab| lab.start(0).and_then(|()| lab.ask(1, &["undrain", "a"])),
        )
    },
    Fault::new(
        "link to the other nodes and to etcd cut, then restored",
        |lab| lab.cut(0, false),
        |lab| lab.cut(0, true),
    ),
    Fault::new(
        "the node reaches etcd alone, then the others again",
        |lab| lab.filter(0, ALONE),
        |lab| lab.filter(0, "delete table inet alone"),
    ),
    Fault::of_etcd("the node reaches all but etcd, then etcd again", |lab| {
        apart_from_etcd(lab, &[TO_ETCD, FROM_ETCD])
    }),
    Fault::of_etcd("packets of the node to etcd lost, then not", |lab| apart_from_etcd(lab, &[TO_ETCD])),
    Fault::of_etcd("packets of etcd to the node lost, then not", |lab| apart_from_etcd(lab, &[FROM_ETCD])),
    Fault::of_packets("packets of the node to the other nodes lost, then not", |lab| {
        unheard_by(lab, ALL, BUT_ETCD)
    }),
    Fault::of_packets("packets of the other nodes to the node lost, then not", |lab| {
        deaf_to(lab, ALL, BUT_ETCD)
    }),
    Fault::of_packets("packets of the node to the other nodes and to etcd lost, then not", |lab| {
        unheard_by(lab, ALL, "")
    }),
    Fault::of_packets("packets of the other nodes and of etcd to the node lost, then not", |lab| {
        deaf_to(lab, ALL, "")
    }),
    Fault::of_packets("packets of the node to a second one lost, then not", |lab| {
        unheard_by(lab, SECOND, BUT_ETCD)
    }),
    Fault::of_packets("packets of a second node to the first one lost, then not", |lab| {
        deaf_to(lab, SECOND, BUT_ETCD)
    }),
    Fault::new(
        "state of two nodes not exchanged, then exchanged",
        |lab| lab.filter(1, APART),
        |lab| lab.filter(1, "delete table inet apart"),
    ),
    Fault { is_brief: true, ..Fault::new("leader of etcd killed, then started", kill_leader, start_members) },
    Fault {
        length: Some(WITHOUT_ETCD),
        ..Fault::new(
            "all members of etcd stopped, then going on",
            |lab| stop_etcd(lab, true),
            |lab| stop_etcd(lab, false),
        )
    },
    Fault {
        is_avoided: true,
        ..Fault::new("etcd stopped and kill -9, then both back", etcd_and_node, both_back)
    },
    Fault {
        is_avoided: true,
        ..Fault::new("kill -9 of a node, then of a second one, then new processes", kill_two, start_two)
    },
    Fault {
        is_avoided: true,
        ..Fault::new(
            "links of the node to the routers cut, then restored",
            |lab| Ok(lab.net.cut(0, false)?),
            |lab| Ok(lab.net.cut(0, true)?),
        )
    },
    Fault {
        is_avoided: true,
        ..Fault::new(
            "packets of the node to the routers lost without a cut, then not",
            |lab| lab.lose(&[Way::ToRouters], true),
            |lab| lab.lose(&[Way::ToRouters], false),
        )
    },
    Fault {
        is_avoided: true,
        ..Fault::new(
            "packets of the node from the routers lost without a cut, then not",
            |lab| lab.lose(&[Way::FromRouters], true),
            |lab| lab.lose(&[Way::FromRouters], false),
        )
    },
    Fault {
        goals: Goals::PLANNED,
        is_brief: true,
        ..Fault::new(
            "disks of all logs full, then with room",
            |lab| log_disk::fill_all(&lab.logs(), PATIENCE, || lab.ping()),
            |lab| log_disk::free_all(&lab.logs(), PATIENCE),
        )
    },
    Fault {
        goals: Goals::PLANNED,
        is_brief: true,
        ..Fault::new(
            "rolling configuration change, then another one back",
            |lab| apply_and_confirm(lab, UDP_MINUTES - 1),
            |lab| apply_and_confirm(lab, UDP_MINUTES),
        )
    },
    Fault {
        goals: Goals::PLANNED,
        ..Fault::new("configuration on trial, then withdrawn", |lab| lab.apply(UDP_MINUTES - 1), withdraw)
    },
    // Unlike a drain alone, this loses some packets in most runs, and why is not known (how-to/cluster.md).
    Fault {
        goals: Goals::KILLED,
        is_brief: true,
        from_former: true,
        ..Fault::new("rolling upgrade of the other nodes, then of the first one", upgrade_others, |lab| {
            lab.upgrade(0)
        })
    },
];

/// Nothing but etcd passes between the first node and the others.
const ALONE: &str = "add table inet alone { chain in { type filter hook input priority 0; iifname peer tcp dport { 2379, 2380 } accept; iifname peer tcp sport { 2379, 2380 } accept; \
iifname peer ip protocol tcp drop; }; chain forward { type filter hook forward priority 0; iifname peer drop; oifname peer drop; }; }";

/// The node's daemon and etcd lose each other's packets, also those of the member on the node. The members
/// hear each other.
const TO_ETCD: &str = "chain out { type filter hook output priority 0; tcp dport 2379 drop; };";
const FROM_ETCD: &str = "chain in { type filter hook input priority 0; tcp sport 2379 drop; };";

/// Rule that spares etcd, and its members.
const BUT_ETCD: &str = "tcp dport { 2379, 2380 } accept; tcp sport { 2379, 2380 } accept;";

/// Other nodes than the first one.
const ALL: Range<usize> = 1..usize::MAX;
const SECOND: Range<usize> = 1..2;

/// The second node and the first one exchange no state. Packets pass.
const APART: &str = "add table inet apart { chain in { type filter hook input priority 0; ip saddr 10.0.9.1 tcp dport 7465 drop; ip saddr 10.0.9.1 tcp sport 7465 drop; }; }";

/// A node hears nothing of the others. What its kernel sends them by itself says nothing.
const UNHEARD: &str = "add table netdev unheard { chain in { type filter hook ingress device \"peer\" priority 0; policy drop; }; }";

fn power_lost(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.signal(0, Signal::STOP)?;
    lab.etcd.stop(0, true)?;
    lab.net.cut(0, false)?;
    lab.cut(0, false)
}

fn power_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.kill(0)?;
    nodes::lose_state(0)?;
    lab.etcd.stop(0, false)?;
    lab.net.cut(0, true)?;
    lab.cut(0, true)?;
    lab.start(0)
}

/// The links keep their carrier at the other ends, so only BFD notices it.
fn silent_power_lost(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.signal(0, Signal::STOP)?;
    lab.etcd.stop(0, true)?;
    lab.lose(&[Way::ToRouters, Way::FromRouters], true)?;
    lab.filter(0, UNHEARD)
}

fn silent_power_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.kill(0)?;
    nodes::lose_state(0)?;
    lab.filter(0, "delete table netdev unheard")?;
    lab.lose(&[Way::ToRouters, Way::FromRouters], false)?;
    lab.etcd.stop(0, false)?;
    lab.start(0)
}

/// Loses packets between the first node's daemon and etcd.
fn apart_from_etcd(lab: &mut Lab<'_>, chains: &[&str]) -> anyhow::Result<()> {
    lab.filter(0, &format!("add table inet lost {{ {} }}", chains.concat()))?;
    lab.wait_until_without_etcd(0)
}

/// Has other nodes receive nothing of the first one, which hears them.
fn unheard_by(lab: &mut Lab<'_>, others: Range<usize>, spared: &str) -> anyhow::Result<()> {
    let mut others = others.start..others.end.min(lab.count());
    others.clone().try_for_each(|number| lab.filter(number, &lost_from(&[0], spared)))?;
    others.try_for_each(|number| lab.wait_until_apart(number, 0))
}

/// Has the first node receive nothing of others, which hear it.
fn deaf_to(lab: &mut Lab<'_>, others: Range<usize>, spared: &str) -> anyhow::Result<()> {
    let others: Vec<usize> = (others.start..others.end.min(lab.count())).collect();
    lab.filter(0, &lost_from(&others, spared))?;
    others.iter().try_for_each(|number| lab.wait_until_apart(0, *number))
}

/// Rules by which a node loses what it receives from others: their own packets, and those of their tunnels.
fn lost_from(senders: &[usize], spared: &str) -> String {
    let addresses = senders.iter().flat_map(|n| [format!("10.0.9.{}", n + 1), format!("10.0.8.{}", n + 1)]);
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    format!(
        "add table inet lost {{ chain in {{ type filter hook prerouting priority raw; {spared} iifname peer ip saddr {{ {addresses} }} drop; }}; }}"
    )
}

/// No node loses packets by these rules any more.
fn lost_no_more(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    (0..lab.count()).try_for_each(|number| lab.filter(number, "add table inet lost; delete table inet lost"))
}

fn kill_leader(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    let leader = lab.etcd_leader()?;
    lab.killed_member = Some(leader);
    Ok(lab.etcd.kill(leader)?)
}

fn start_members(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    if let Some(member) = lab.killed_member.take() {
        lab.etcd.start_member(member)?;
    }
    Ok(lab.etcd.wait_ready()?)
}

fn stop_etcd(lab: &mut Lab<'_>, is_stopped: bool) -> anyhow::Result<()> {
    for member in 0..lab.etcd.endpoints().len() {
        lab.etcd.stop(member, is_stopped)?;
    }
    Ok(())
}

fn etcd_and_node(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    stop_etcd(lab, true)?;
    lab.kill(0)
}

/// Kills the second node once the others have all shards of the first one, twice.
fn kill_two(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.kill(0)?;
    lab.wait_until_whole()?;
    lab.kill(1)
}

fn start_two(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.start(0)?;
    lab.start(1)
}

fn both_back(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    stop_etcd(lab, false)?;
    lab.start(0)
}

/// Upgrades all nodes but the first one, which has the routes of the packets from inside.
fn upgrade_others(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.use_new_program();
    (1..lab.count()).try_for_each(|number| lab.upgrade(number))
}

fn apply_and_confirm(lab: &mut Lab<'_>, udp_minutes: u32) -> anyhow::Result<()> {
    lab.apply(udp_minutes)?;
    lab.confirm()
}

fn withdraw(lab: &mut Lab<'_>) -> anyhow::Result<()> {
    lab.ask(1, &["rollback"])?;
    lab.wait_until_run(UDP_MINUTES)
}
