//! Nodes and etcd of `cluster`, and faults while numbered packets pass.

use super::nodes;
use crate::middle::{Gatun, Programs};
use crate::scenario::lag::Lag;
use crate::scenario::log_disk::BoxLog;
use crate::scenario::probe::{self, Probe, ProbeLoad, QUIET, echo};
use crate::scenario::upgrade;
use anyhow::{Context as _, ensure};
use gatun_testkit::pair::{SERVER, Way};
use gatun_testkit::{EtcdMembers, EtcdPlace, PairNetwork, Process, wait_until};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// Time limit for the cluster to be as expected: a node that has lost its state gets all shards again.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Lifetime of UDP sessions in the configuration, minutes.
pub(super) const UDP_MINUTES: u32 = 5;

/// Connections opened during a fault: several of each subscriber.
const NEW_CONNECTIONS: u32 = 200;

/// Counters of a node: packets from both sides, and those of them that it sends to other nodes. The type of
/// the inner packet is 28 bytes behind the beginning of the tunnel's UDP header.
const COUNTERS: [&str; 4] = ["inside", "outside", "sent_inside", "sent_outside"];
const COUNT: &str = "table inet traffic { counter inside { }; counter outside { }; counter sent_inside { }; counter sent_outside { }; \
chain forward { type filter hook forward priority 0; iifname inside oifname != inside meta nfproto ipv6 counter name inside; iifname outside meta nfproto ipv4 counter name outside; \
oifname peer udp dport 4789 @th,224,16 0x86dd counter name sent_inside; oifname peer udp dport 4789 @th,224,16 0x0800 counter name sent_outside; }; }";

/// Shares of the packets from each side that go to another node than they arrive at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Redirected {
    pub(super) inside: f64,
    pub(super) outside: f64,
}

/// Number of packets of a counter in nft's words.
fn packets(text: &str, counter: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("counter {counter} {{"))?;
    let (_, rest) = rest.split_once("packets ")?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The nodes, etcd, and an echo server.
pub(super) struct Lab<'n> {
    pub(super) net: &'n PairNetwork,
    pub(super) etcd: EtcdMembers<'n>,
    /// Member of etcd that was killed.
    pub(super) killed_member: Option<usize>,
    pub(super) load: ProbeLoad,
    programs: &'n Programs,
    /// Programs with the build that nodes start with.
    started: Programs,
    nodes: Vec<Option<Gatun>>,
    _echo: Process,
}

impl<'n> Lab<'n> {
    pub(super) fn new(
        net: &'n PairNetwork,
        programs: &'n Programs,
        load: ProbeLoad,
    ) -> anyhow::Result<Lab<'n>> {
        let place = |(host, n): (_, u8)| EtcdPlace {
            host: Some(host),
            client: ([10, 0, 9, n], 2379).into(),
            peer: ([10, 0, 9, n], 2380).into(),
        };
        let places = net.boxes.iter().zip(1..).take(3).map(place).collect();
        let etcd = EtcdMembers::start(places, Path::new("/run/etcd"))?;
        let nodes = net.boxes.iter().map(|_| None).collect();
        let (started, _echo) = (programs.clone(), echo(net)?);
        let mut lab = Lab { net, etcd, killed_member: None, programs, started, load, nodes, _echo };
        for number in 0..lab.count() {
            lab.filter(number, COUNT)?;
            lab.start(number)?;
        }
        lab.settle()?;
        Ok(lab)
    }

    pub(super) fn count(&self) -> usize {
        self.net.boxes.len()
    }

    pub(super) fn start(&mut self, number: usize) -> anyhow::Result<()> {
        let config = self.config(UDP_MINUTES);
        nodes::make_files(number)?;
        let (host, me, own) = (&self.net.boxes[number], nodes::name(number), nodes::own(number));
        let file = format!("node-{me}");
        let named = (&file[..], &["--node", &me[..]][..]);
        self.nodes[number] = Some(Gatun::start_with_own_files(host, &own, &self.started, named, &config)?);
        Ok(())
    }

    /// Stops all nodes, and starts them with the former program. The cluster begins anew, since that program
    /// need not read what the new one has written.
    pub(super) fn start_former(&mut self) -> anyhow::Result<()> {
        for number in 0..self.count() {
            self.stop(number)?;
            nodes::lose_state(number)?;
            nodes::log(number).set_aside()?;
        }
        self.etcd.control(0, &["del", "--prefix", "/gatun/"])?;
        self.started = self.programs.former().context("there is no former program")?;
        (0..self.count()).try_for_each(|number| self.start(number))?;
        self.settle()?;
        std::thread::sleep(QUIET);
        Ok(())
    }

    /// Has nodes start with the new program again.
    pub(super) fn use_new_program(&mut self) {
        self.started = self.programs.clone();
    }

    /// Upgrades a node as an operator does, and opens connections through nodes of both builds.
    pub(super) fn upgrade(&mut self, number: usize) -> anyhow::Result<()> {
        let me = nodes::name(number);
        self.ask(number, &["drain", &me, "--timeout", "60"])?;
        self.wait_until_avoided(number)?;
        self.stop(number)?;
        self.start(number)?;
        wait_until("the node is registered", PATIENCE, || nodes::is_registered(number))?;
        self.ask(number, &["undrain", &me])?;
        self.wait_until_whole()?;
        probe::open(self.net, &self.load, upgrade::BETWEEN)
    }

    fn config(&self, udp_minutes: u32) -> String {
        nodes::config(self.count(), &self.etcd.endpoints(), udp_minutes)
    }

    /// Applies a configuration at all nodes, by the first one, on trial.
    pub(super) fn apply(&self, udp_minutes: u32) -> anyhow::Result<()> {
        let file = self.programs.output.join("apply.toml");
        std::fs::write(&file, self.config(udp_minutes))?;
        self.ask(0, &["apply", &file.to_string_lossy(), "--confirm", "600s", "--yes"])?;
        self.wait_until_run(udp_minutes)
    }

    /// Waits until all nodes run a configuration.
    pub(super) fn wait_until_run(&self, udp_minutes: u32) -> anyhow::Result<()> {
        let text = self.config(udp_minutes);
        let is_run = || (0..self.count()).all(|number| nodes::runs(number, &text));
        Ok(wait_until("all nodes run the configuration", PATIENCE, is_run)?)
    }

    /// Has all nodes keep the configuration that is on trial, and waits until they do.
    pub(super) fn confirm(&self) -> anyhow::Result<()> {
        self.ask(1, &["confirm"])?;
        let is_kept = || (0..self.count()).all(nodes::keeps_configuration);
        Ok(wait_until("all nodes keep the configuration", PATIENCE, is_kept)?)
    }

    pub(super) fn signal(&self, number: usize, signal: Signal) -> anyhow::Result<()> {
        Ok(self.nodes[number].as_ref().context("the node does not run")?.signal(signal)?)
    }

    pub(super) fn kill(&mut self, number: usize) -> anyhow::Result<()> {
        Ok(self.nodes[number].take().context("the node does not run")?.kill()?)
    }

    pub(super) fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        self.nodes[number].take().context("the node does not run")?.stop()?;
        Ok(())
    }

    /// Sets the link of a node to the other nodes and to etcd down or up.
    pub(super) fn cut(&self, number: usize, is_up: bool) -> anyhow::Result<()> {
        let host = &self.net.boxes[number];
        host.ip(&format!("link set peer {}", if is_up { "up" } else { "down" }))?;
        // The kernel has removed the routes with the link.
        for other in (1..=self.count()).filter(|other| is_up && *other != number + 1) {
            host.ip(&format!("route replace 10.0.8.{other}/32 via 10.0.9.{other}"))?;
        }
        Ok(())
    }

    /// Loses packets between the first node and the routers, while the links keep their carrier.
    pub(super) fn lose(&self, ways: &[Way], is_lost: bool) -> anyhow::Result<()> {
        Ok(ways.iter().try_for_each(|way| self.net.lose(0, *way, is_lost))?)
    }

    /// Changes the packet filter of a node.
    pub(super) fn filter(&self, number: usize, rules: &str) -> anyhow::Result<()> {
        gatun_testkit::run(self.net.boxes[number].command("nft").arg(rules))?;
        Ok(())
    }

    /// Runs `gatun cluster` at a node.
    pub(super) fn ask(&self, number: usize, words: &[&str]) -> anyhow::Result<()> {
        let node = self.nodes[number].as_ref().context("the node does not run")?;
        nodes::ask(node.program(), number, words)
    }

    /// Number of the member of etcd that leads.
    pub(super) fn etcd_leader(&self) -> anyhow::Result<usize> {
        for number in 0..self.etcd.endpoints().len() {
            let status = self.etcd.control(number, &["endpoint", "status", "-w", "fields"])?;
            let of = |field: &str| {
                let line = status.lines().find(|line| line.starts_with(&format!("\"{field}\"")))?;
                line.rsplit(' ').next()
            };
            if of("MemberID").is_some() && of("MemberID") == of("Leader") {
                return Ok(number);
            }
        }
        anyhow::bail!("no member of etcd leads")
    }

    /// Waits until all nodes have their shards, and the routers send packets to the first node.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        self.wait_until_whole()?;
        let is_used = || self.net.used(&self.net.inside, SERVER) == Some(0);
        wait_until("the router of the client uses the first node", PATIENCE, is_used)?;
        Ok(wait_until("the client reaches the server", PATIENCE, || self.ping())?)
    }

    /// Opens a session. Returns whether the server answers.
    pub(super) fn ping(&self) -> bool {
        self.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok()
    }

    /// Waits until the running nodes have all shards, twice.
    pub(super) fn wait_until_whole(&self) -> anyhow::Result<()> {
        let running: Vec<usize> = (0..self.count()).filter(|number| self.nodes[*number].is_some()).collect();
        let is_whole = || running.iter().all(|number| nodes::is_whole(*number, &running));
        Ok(wait_until("each shard has an owner and a backup", PATIENCE, is_whole)?)
    }

    /// Waits until a node goes on without etcd.
    pub(super) fn wait_until_without_etcd(&self, number: usize) -> anyhow::Result<()> {
        let is_without = || nodes::is_without_etcd(number);
        Ok(wait_until("the node goes on without etcd", PATIENCE, is_without)?)
    }

    /// Waits until a node has no connection to another one.
    pub(super) fn wait_until_apart(&self, number: usize, other: usize) -> anyhow::Result<()> {
        let are_apart = || nodes::is_apart(number, other);
        Ok(wait_until("the nodes are not connected", PATIENCE, are_apart)?)
    }

    /// Opens connections during a fault, and expects that they go on.
    pub(super) fn open(&self) -> anyhow::Result<()> {
        probe::open(self.net, &self.load, NEW_CONNECTIONS)
    }

    /// Waits until no router uses a node.
    pub(super) fn wait_until_avoided(&self, number: usize) -> anyhow::Result<()> {
        let other = |used: Option<usize>| used.is_some_and(|used| used != number);
        let is_avoided = || {
            other(self.net.used(&self.net.inside, SERVER))
                && nodes::addresses().all(|public| other(self.net.used(&self.net.outside, &public)))
        };
        Ok(wait_until("no router uses the node", PATIENCE, is_avoided)?)
    }

    /// Shares of the packets from each side that nodes send to others, in a quiet time.
    pub(super) fn redirected(&self) -> anyhow::Result<Redirected> {
        let sum = || -> anyhow::Result<[u64; 4]> {
            let mut all = [0; 4];
            for host in &self.net.boxes {
                let text =
                    gatun_testkit::run(host.command("nft").args(["list", "table", "inet", "traffic"]))?;
                for (sum, name) in all.iter_mut().zip(COUNTERS) {
                    *sum += packets(&text, name).with_context(|| format!("counter {name}: {text}"))?;
                }
            }
            Ok(all)
        };
        let before = sum()?;
        std::thread::sleep(QUIET);
        let after = sum()?;
        let [inside, outside, from_inside, from_outside] =
            [0, 1, 2, 3].map(|n| (after[n] - before[n]) as f64);
        Ok(Redirected { inside: from_inside / inside.max(1.0), outside: from_outside / outside.max(1.0) })
    }

    /// Measures how far backups lag behind owners, while a client has all its connections.
    pub(super) fn lag(&self, is_brief: bool) -> anyhow::Result<Lag> {
        let mut probe = Probe::start(self.net, &self.load)?;
        let lag = Lag::measure(self.net, &self.sockets(), &self.load.hosts, is_brief)?;
        probe.next()?;
        probe.next()?;
        let outcome = probe.end()?;
        ensure!(outcome.ended == 0, "{} connections ended: {}", outcome.ended, outcome.why.join(", "));
        Ok(lag)
    }

    pub(super) fn logs(&self) -> Vec<BoxLog> {
        (0..self.count()).map(nodes::log).collect()
    }

    pub(super) fn sockets(&self) -> Vec<String> {
        (0..self.count()).map(nodes::socket).collect()
    }

    /// Stops all. Returns the directories of each node's log.
    pub(super) fn end(self) -> anyhow::Result<Vec<Vec<String>>> {
        let logs = self.logs().iter().map(BoxLog::directories).collect();
        for node in self.nodes.into_iter().flatten() {
            node.stop()?;
        }
        Ok(logs)
    }
}

#[cfg(test)]
mod tests {
    use super::packets;

    #[test]
    fn the_counters_of_nft_are_read() {
        let text = "table inet traffic {\n\tcounter inside {\n\t\tpackets 12 bytes 900\n\t}\n\n\tcounter sent_inside {\n\t\tpackets 7 bytes 500\n\t}\n}";
        assert_eq!(packets(text, "inside"), Some(12));
        assert_eq!(packets(text, "sent_inside"), Some(7));
        assert_eq!(packets(text, "outside"), None);
    }
}
