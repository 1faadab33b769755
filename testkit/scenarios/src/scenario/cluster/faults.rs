//! Faults of the first node, of the links between the nodes, and of etcd.

use super::lab::{Lab, PATIENCE, UDP_MINUTES};
use super::nodes;
use crate::scenario::goals::Goals;
use crate::scenario::log_disk;
use gatun_testkit::pair::Way;
use rustix::process::Signal;
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
        }
    }

    /// Fault of the first node alone: the others take its place.
    const fn of_node(name: &'static str, begin: Act, end: Act) -> Fault {
        Fault { is_avoided: true, is_claimed: true, ..Fault::new(name, begin, end) }
    }

    /// Length of the fault in a run.
    pub(super) fn length(&self, usual: Duration, is_brief: bool) -> Duration {
        self.length.filter(|_| !is_brief).unwrap_or(usual)
    }
}

/// All members of etcd have stopped for longer than any lease.
const WITHOUT_ETCD: Duration = Duration::from_secs(60);

pub(super) const FAULTS: [Fault; 21] = [
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
    Fault {
        goals: Goals::PLANNED,
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
