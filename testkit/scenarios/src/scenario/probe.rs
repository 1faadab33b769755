//! Client and server of scenarios in which boxes fail: numbered datagrams, and open TCP connections.

use anyhow::Context as _;
use gatun_testkit::{PairNetwork, Process};
use serde::Deserialize;
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// Port of the server.
pub(super) const PORT: &str = "7";
/// Server as the client sees it.
pub(super) const SERVER: &str = "2001:db8:64::c633:6402";
/// Time limit for the client's connections.
const OPEN_MAX: Duration = Duration::from_secs(120);
/// Time limit of the client to end.
const END_MAX: Duration = Duration::from_secs(60);
/// File that the client makes once its connections are open; /run belongs to the sandbox.
const READY: &str = "/run/probe-ready";
/// Time without a fault before each one, and after its end.
pub(super) const QUIET: Duration = Duration::from_secs(2);

/// Starts the server, which echoes all.
pub(super) fn echo(net: &PairNetwork) -> anyhow::Result<Process> {
    let mut echo = net.server.python(include_str!("probe/echo.py"), &[PORT]);
    Ok(Process::start(echo.stdout(Stdio::null()))?)
}

/// Load of the client.
#[derive(Clone, Debug)]
pub(super) struct ProbeLoad {
    /// Flows of datagrams, and TCP connections.
    pub(super) flows: u32,
    pub(super) connections: u32,
    /// Addresses of the client that take turns; any address if there is none.
    pub(super) hosts: Vec<String>,
}

/// Running client.
pub(super) struct Probe {
    process: Process,
    phases: ChildStdin,
}

impl Probe {
    /// Starts the client, and waits until its connections are open.
    pub(super) fn start(net: &PairNetwork, load: &ProbeLoad) -> anyhow::Result<Probe> {
        let (flows, connections) = (load.flows.to_string(), load.connections.to_string());
        let mut arguments = vec![SERVER, PORT, &flows, &connections, READY];
        arguments.extend(load.hosts.iter().map(String::as_str));
        // It is there if this is not the first client.
        let _ = std::fs::remove_file(READY);
        let mut probe = net.client.python(include_str!("probe/client.py"), &arguments);
        let (mut process, phases) = Process::start_with_input(probe.stdout(Stdio::piped()))?;
        let begin = Instant::now();
        while !Path::new(READY).exists() {
            anyhow::ensure!(
                process.ended().is_none(),
                "the client has ended before its connections were open"
            );
            anyhow::ensure!(
                begin.elapsed() < OPEN_MAX,
                "the client's connections are not open after {OPEN_MAX:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Probe { process, phases })
    }

    /// Begins the next phase: the fault, or the time after it.
    pub(super) fn next(&mut self) -> anyhow::Result<()> {
        self.phases.write_all(b"next\n").context("the client has ended")
    }

    /// Ends the client.
    pub(super) fn end(self) -> anyhow::Result<Outcome> {
        drop(self.phases);
        let (status, said) = self.process.output(END_MAX)?;
        anyhow::ensure!(status.success(), "the client failed: {said}");
        serde_json::from_str(&said).with_context(|| said)
    }
}

/// Opens connections while another client runs, and expects that all of them go on.
pub(super) fn open(net: &PairNetwork, load: &ProbeLoad, connections: u32) -> anyhow::Result<()> {
    let mut probe = Probe::start(net, &ProbeLoad { connections, flows: 1, ..load.clone() })?;
    probe.next()?;
    probe.next()?;
    let outcome = probe.end()?;
    anyhow::ensure!(
        outcome.ended + outcome.strange == 0,
        "new connections ended: {}",
        outcome.why.join(", ")
    );
    Ok(())
}

/// Report of the client.
#[derive(Deserialize)]
pub(super) struct Outcome {
    phases: [Phase; 3],
    /// TCP connections that have ended, or whose last bytes were not echoed.
    pub(super) ended: u64,
    /// Answers to another flow or connection than the one that they arrived at.
    pub(super) strange: u64,
    /// Errors of these.
    pub(super) why: Vec<String>,
}

#[derive(Deserialize)]
struct Phase {
    sent: u64,
    lost: u64,
    gap_ms: f64,
    /// Longest gap of one flow of datagrams.
    flow_gap_ms: f64,
    received: u64,
}

impl Outcome {
    /// Lost packets of the fault. Those on their way at its beginning were sent before it.
    pub(super) fn lost(&self) -> u64 {
        let [before, away, _] = &self.phases;
        before.lost + away.lost
    }

    /// Packets lost after the end of the fault.
    pub(super) fn lost_on_return(&self) -> u64 {
        let [_, _, back] = &self.phases;
        back.lost
    }

    /// Longest gaps during the fault and after it, ms. That of the fault may begin with a packet that was
    /// answered before.
    pub(super) fn gaps_ms(&self) -> [f64; 2] {
        let [before, away, back] = &self.phases;
        [before.gap_ms.max(away.gap_ms), back.gap_ms]
    }

    /// Same as [`gaps_ms`](Self::gaps_ms), for the datagrams of one flow.
    pub(super) fn flow_gaps_ms(&self) -> [f64; 2] {
        let [before, away, back] = &self.phases;
        [before.flow_gap_ms.max(away.flow_gap_ms), back.flow_gap_ms]
    }

    /// Returns whether packets passed during the fault, and after it.
    pub(super) fn goes_on(&self) -> [bool; 2] {
        let [_, away, back] = &self.phases;
        [away.received > 0, back.received > 0]
    }

    /// Packets sent before the fault, during it, and after it.
    pub(super) fn sent(&self) -> u64 {
        self.phases.iter().map(|phase| phase.sent).sum()
    }
}
