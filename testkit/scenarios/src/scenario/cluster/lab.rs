//! Nodes and etcd of `cluster`, and faults while numbered packets pass.

use super::nodes;
use crate::middle::{Gatun, Place, Programs};
use crate::scenario::probe::{ProbeLoad, QUIET, echo};
use anyhow::Context as _;
use gatun_testkit::pair::SERVER;
use gatun_testkit::{EtcdMembers, EtcdPlace, PairNetwork, Process, wait_until};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// Time limit for the cluster to be as expected: a node that has lost its state gets all shards again.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// The nodes, etcd, and an echo server.
pub(super) struct Lab<'n> {
    pub(super) net: &'n PairNetwork,
    pub(super) etcd: EtcdMembers<'n>,
    /// Member of etcd that was killed.
    pub(super) killed_member: Option<usize>,
    pub(super) load: ProbeLoad,
    programs: &'n Programs,
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
        let mut lab = Lab { net, etcd, killed_member: None, programs, load, nodes, _echo: echo(net)? };
        for number in 0..lab.count() {
            lab.start(number)?;
        }
        lab.settle()?;
        Ok(lab)
    }

    pub(super) fn count(&self) -> usize {
        self.net.boxes.len()
    }

    pub(super) fn start(&mut self, number: usize) -> anyhow::Result<()> {
        let config = nodes::config(number, self.count(), &self.etcd.endpoints());
        let (host, name) = (&self.net.boxes[number], format!("node-{}", nodes::name(number)));
        self.nodes[number] = Some(Gatun::start(host, Place::Anywhere, self.programs, &name, &config)?);
        Ok(())
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

    /// Changes the packet filter of a node.
    pub(super) fn filter(&self, number: usize, rules: &str) -> anyhow::Result<()> {
        gatun_testkit::run(self.net.boxes[number].command("nft").arg(rules))?;
        Ok(())
    }

    /// Runs `gatun cluster` at a node.
    pub(super) fn ask(&self, number: usize, words: &[&str]) -> anyhow::Result<()> {
        nodes::ask(&self.programs.gatun, number, words)
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
        let ping = || self.net.client.run(&format!("ping -c 1 -W 1 {SERVER}")).is_ok();
        Ok(wait_until("the client reaches the server", PATIENCE, ping)?)
    }

    /// Waits until the running nodes have all shards, twice.
    pub(super) fn wait_until_whole(&self) -> anyhow::Result<()> {
        let running: Vec<usize> = (0..self.count()).filter(|number| self.nodes[*number].is_some()).collect();
        let is_whole = || running.iter().all(|number| nodes::is_whole(*number, &running));
        Ok(wait_until("each shard has an owner and a backup", PATIENCE, is_whole)?)
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

    /// Share of the client's packets that nodes send to others, in a quiet time.
    pub(super) fn redirected(&self) -> anyhow::Result<f64> {
        let sum = || -> anyhow::Result<(u64, u64)> {
            let mut all = (0, 0);
            for number in 0..self.count() {
                let traffic = nodes::traffic(number)?;
                all = (all.0 + traffic.received, all.1 + traffic.redirected);
            }
            Ok(all)
        };
        let before = sum()?;
        std::thread::sleep(QUIET);
        let after = sum()?;
        // A redirected packet is received twice.
        let (received, redirected) = (after.0 - before.0, after.1 - before.1);
        Ok(redirected as f64 / received.saturating_sub(redirected).max(1) as f64)
    }

    /// Stops all. Returns the directories of the logs.
    pub(super) fn end(self) -> anyhow::Result<Vec<String>> {
        let logs = (0..self.count()).map(nodes::log).collect();
        for node in self.nodes.into_iter().flatten() {
            node.stop()?;
        }
        Ok(logs)
    }
}
