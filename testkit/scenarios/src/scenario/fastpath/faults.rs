//! Faults while numbered packets pass: each is caused by another thread during a stage.

use super::tun::{Offloaded, Settings, Tun};
use crate::bed::Bed;
use crate::ends::{Ends, Load, Sample, StageResult, Until};
use crate::middle::Programs;
use crate::processors::{leave_first_processor, stay_on_first_processor};
use crate::report::{Report, Table, group};
use crate::scenario::moves::{self, RATE};
use gatun_testkit::Error;
use gatun_testkit::traffic::{Family, Protocols, Sizes, Spec, Tally, Traffic};
use rustix::process::Signal;
use std::time::Duration;

/// Time limit of Gatun's time to translate again after a fault, and of a stage around one fault.
const SETTLE: Duration = Duration::from_secs(3);
/// Lease of the fast path in these runs: longer than a restart on a busy machine.
const LEASE: Duration = Duration::from_secs(3);
/// Time for which Gatun is stopped by SIGSTOP.
const STOPPED: Duration = Duration::from_secs(6);
/// Rounds of packets before the first fault: a UDP session is given to the kernel after ten packets.
const ROUNDS: u64 = 12;
/// Reordered packets for a thousand moves, at most.
const REORDERED_PER_1000_MOVES: u64 = 1;

/// Size of the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Flows of the numbered packets.
    pub(super) flows: u32,
    /// Sessions that are ended at once.
    pub(super) cleared: u32,
    /// Times that the fast path is switched off and on.
    pub(super) switches: u32,
}

/// Result of a stage with a fault.
struct Outcome {
    name: &'static str,
    stage: StageResult,
    /// Counts of the packets that arrived.
    tally: Tally,
    before: Offloaded,
    after: Offloaded,
    sessions: [u64; 2],
    samples: Vec<Sample>,
    /// Packets that full queues dropped.
    queue_drops: u64,
}

impl Outcome {
    /// Lost packets that no full queue dropped.
    fn lost(&self) -> u64 {
        self.stage.lost().saturating_sub(self.queue_drops)
    }

    fn row(&self) -> Vec<String> {
        let damaged = self.tally.corrupted + self.tally.duplicates + self.tally.late;
        vec![
            self.name.to_owned(),
            group(self.stage.tx),
            group(self.stage.lost()),
            group(self.queue_drops),
            group(self.tally.reordered),
            group(damaged),
            format!("{} / {}", group(self.sessions[0]), group(self.sessions[1])),
            format!("{} / {}", group(self.before.sessions), group(self.after.sessions)),
            group(self.after.translated.saturating_sub(self.before.translated)),
        ]
    }
}

/// Gatun with its fast path, and both ends of the bed.
struct Lab<'a> {
    tun: Tun<'a>,
    ends: Ends,
    /// True if Gatun has a fast path.
    is_fast: bool,
    outcomes: Vec<Outcome>,
}

impl<'a> Lab<'a> {
    fn start(
        bed: &'a Bed,
        programs: &'a Programs,
        traffic: &'a Traffic,
        settings: Settings,
    ) -> anyhow::Result<Lab<'a>> {
        let tun = Tun::start(bed, programs, traffic, settings)?;
        if settings.kernel == Some("auto")
            && let Some(why) = tun.unavailable()?
        {
            anyhow::bail!("the kernel fast path is not available here: {why}");
        }
        stay_on_first_processor();
        let mut ends = Ends::with_pause(bed, traffic.clone(), Duration::from_micros(50))?;
        anyhow::ensure!(ends.wait_until_open(), "no packet returned");
        let mut lab = Lab { tun, ends, is_fast: settings.kernel == Some("auto"), outcomes: Vec::new() };
        lab.ends.stage(
            "start",
            Load::InFlight(128),
            Until::Packets(ROUNDS * u64::from(traffic.flows())),
            |_| (None, 0),
        );
        Ok(lab)
    }

    /// Waits until the kernel has at least as many sessions.
    fn wait_for_sessions(&self, count: u64) -> anyhow::Result<bool> {
        Ok(!self.is_fast || self.tun.wait_until(|offloaded| offloaded.sessions >= count)?.is_some())
    }

    /// Sends numbered packets for a time, while a fault happens.
    fn during(
        &mut self,
        name: &'static str,
        load: Load,
        fault: impl FnOnce(&mut Tun<'a>) -> Result<(), Error> + Send,
    ) -> anyhow::Result<&Outcome> {
        let before = (self.tun.offloaded()?, self.tun.sessions()?, self.ends.tally().clone());
        let first_sample = self.ends.samples().len();
        let drops_before = self.tun.queue_drops()?;
        let over = std::sync::atomic::AtomicBool::new(false);
        let Lab { tun, ends, .. } = self;
        let (stage, done) = std::thread::scope(|scope| {
            let over = &over;
            let fault = scope.spawn(move || {
                leave_first_processor();
                std::thread::sleep(SETTLE / 6);
                let done = fault(tun);
                std::thread::sleep(SETTLE / 2);
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                done
            });
            let is_over = || over.load(std::sync::atomic::Ordering::Relaxed);
            let stage = ends.stage_until(name, load, is_over);
            (stage, fault.join())
        });
        done.map_err(|_| anyhow::anyhow!("{name}: a thread panicked"))??;
        let outcome = Outcome {
            name,
            stage,
            tally: self.ends.tally().since(&before.2),
            before: before.0,
            after: self.tun.offloaded()?,
            sessions: [before.1, self.tun.sessions()?],
            samples: self.ends.samples()[first_sample..].to_vec(),
            queue_drops: self.tun.queue_drops()?.saturating_sub(drops_before),
        };
        self.outcomes.push(outcome);
        Ok(&self.outcomes[self.outcomes.len() - 1])
    }

    fn finish(self) -> anyhow::Result<Vec<Outcome>> {
        drop(self.ends);
        self.tun.stop()?;
        Ok(self.outcomes)
    }
}

/// Traffic of UDP. The generator's TCP repeats its SYN, which always passes the engine, so later segments
/// could overtake it.
fn traffic(flows: u32) -> Traffic {
    let subscribers = (flows / 16).max(1);
    Traffic::new(Spec {
        family: Family::V6,
        subscribers,
        flows_per_subscriber: 16,
        protocols: Protocols::Udp,
        sizes: Sizes::Fixed(128),
        seed: 0x6661_756c,
    })
}

/// Causes all faults, and adds their table and checks to the report.
pub(super) fn run(
    bed: &Bed,
    programs: &Programs,
    size: Size,
    kernel: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut outcomes = faults(bed, programs, size, kernel, report)?;
    outcomes.extend(full(bed, programs, size, kernel, report)?);
    outcomes.extend(clear(bed, programs, size, kernel, report)?);
    let damaged: u64 = outcomes.iter().map(|o| o.tally.corrupted + o.tally.duplicates + o.tally.late).sum();
    report.check(damaged == 0, "no packet was corrupted or duplicated".into());
    let header = [
        "fault",
        "sent",
        "lost",
        "dropped by full queues",
        "reordered",
        "damaged",
        "sessions before / after",
        "in the kernel before / after",
        "translated by the kernel",
    ];
    report.tables.push(Table {
        title: "Faults under load".into(),
        header: header.map(String::from).into(),
        rows: outcomes.iter().map(Outcome::row).collect(),
    });
    report.samples = outcomes.into_iter().flat_map(|outcome| outcome.samples).collect();
    Ok(())
}

/// Faults of one Gatun, one after the other.
fn faults(
    bed: &Bed,
    programs: &Programs,
    size: Size,
    kernel: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<Vec<Outcome>> {
    let traffic = traffic(size.flows);
    let flows = u64::from(traffic.flows());
    let settings = Settings {
        kernel,
        kernel_sessions_max: (2 * size.flows).next_power_of_two(),
        lease: LEASE,
        tcp_packets: None,
        xdp: false,
    };
    let mut lab = Lab::start(bed, programs, &traffic, settings)?;
    let is_fast = lab.is_fast;
    let has_all = lab.wait_for_sessions(flows)?;
    report.check(has_all, format!("the kernel has all {} sessions", group(flows)));

    let calm = lab.during("none", Load::Rate(RATE), |_| Ok(()))?;
    report.check(calm.lost() == 0, "without a fault, nothing is lost".into());

    let killed = lab.during("kill -9 and restart", Load::Rate(RATE), |tun| {
        tun.kill()?;
        tun.start_again()
    })?;
    let ended = killed.sessions[0].saturating_sub(killed.sessions[1]);
    report.check(ended == 0, "kill -9 and restart end no session".into());
    // Without a process, the device's queue drops each packet that the program gives to it.
    let lost = killed.stage.lost();
    report.check(
        !is_fast || lost == 0,
        format!(
            "kill -9 and restart lose no packet of {} a second: lost {}",
            group(RATE as u64),
            group(lost)
        ),
    );

    let full_rate = lab.during("kill -9 and restart, highest rate", Load::InFlight(256), |tun| {
        tun.kill()?;
        tun.start_again()
    })?;
    let ended = full_rate.sessions[0].saturating_sub(full_rate.sessions[1]);
    report.check(ended == 0, "kill -9 and restart at the highest rate end no session".into());

    if is_fast {
        switch(&mut lab, size, flows, report)?;
        lease(&mut lab, report)?;
    } else {
        report.not_run.push("switching the fast path, and the end of its lease: no fast path".into());
    }

    lab.during("device down and up", Load::Rate(RATE), |tun| {
        tun.ip("link set nat64 down")?;
        std::thread::sleep(Duration::from_millis(300));
        tun.ip("link set nat64 up")
    })?;
    let after = lab.during("after the device was up again", Load::Rate(RATE), |_| Ok(()))?;
    report.check(after.lost() == 0, "after the device was down and up, nothing is lost".into());
    lab.finish()
}

/// Switches the fast path off and on by reloads.
fn switch(lab: &mut Lab<'_>, size: Size, flows: u64, report: &mut Report) -> anyhow::Result<()> {
    let outcome = lab.during("switched off and on by reloads", Load::Rate(RATE), |tun| {
        for _ in 0..size.switches {
            tun.switch("off")?;
            let empty = tun.wait_until(|offloaded| offloaded.sessions == 0)?;
            tun.switch("auto")?;
            let full = tun.wait_until(|offloaded| offloaded.sessions >= flows)?;
            if empty.is_none() || full.is_none() {
                return Err(Error("a reload did not move the sessions in time".into()));
            }
        }
        Ok(())
    })?;
    let count = |of: &Offloaded| of.installed + of.removed;
    let moves = count(&outcome.after).saturating_sub(count(&outcome.before));
    let wanted = 2 * flows * u64::from(size.switches);
    let (lost, reordered) = (outcome.lost(), outcome.tally.reordered);
    moves::check(report, moves, wanted, lost);
    let most = (REORDERED_PER_1000_MOVES * moves).div_ceil(1000);
    let what =
        format!("{} moves reorder at most {} packets: {}", group(moves), group(most), group(reordered));
    report.check(reordered <= most, what);
    Ok(())
}

/// Stops Gatun for longer than its lease.
fn lease(lab: &mut Lab<'_>, report: &mut Report) -> anyhow::Result<()> {
    let outcome = lab.during("SIGSTOP for longer than the lease", Load::Rate(RATE), |tun| {
        tun.signal(Signal::STOP)?;
        std::thread::sleep(STOPPED);
        tun.signal(Signal::CONT)
    })?;
    // Half a second of the stage, the lease, and a second more for intervals that overlap both.
    let begin_s = outcome.samples.first().map_or(0.0, |sample| sample.at_s);
    let within = |sample: &&Sample| {
        let at_s = sample.at_s - begin_s;
        at_s > (LEASE.as_secs_f64() + 1.5) && at_s < STOPPED.as_secs_f64() - 0.5
    };
    let silent: Vec<&Sample> = outcome.samples.iter().filter(within).collect();
    let is_silent = !silent.is_empty() && silent.iter().all(|sample| sample.rx_pps == 0.0);
    report.check(is_silent, "the kernel translates nothing after the lease has run out".into());
    let after = lab.during("after SIGSTOP", Load::Rate(RATE), |_| Ok(()))?;
    report.check(after.lost() == 0, "after the process went on, nothing is lost".into());
    Ok(())
}

/// More flows than the kernel's table has room for.
fn full(
    bed: &Bed,
    programs: &Programs,
    size: Size,
    kernel: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<Option<Outcome>> {
    if kernel.is_none() {
        return Ok(None);
    }
    let traffic = traffic(size.flows);
    let room = size.flows / 4;
    let settings =
        Settings { kernel, kernel_sessions_max: room, lease: LEASE, tcp_packets: None, xdp: false };
    let mut lab = Lab::start(bed, programs, &traffic, settings)?;
    let outcome = lab.during("the kernel's table is full", Load::Rate(RATE), |_| Ok(()))?;
    let (lost, refused) = (outcome.lost(), outcome.after.refused_full);
    report.check(lost == 0, "with a full table, nothing is lost".into());
    let bounded = outcome.after.sessions <= u64::from(room) && refused > 0;
    report.check(bounded, format!("a full table refuses sessions: {}", group(refused)));
    Ok(lab.finish()?.pop())
}

/// Ends all sessions at once.
fn clear(
    bed: &Bed,
    programs: &Programs,
    size: Size,
    kernel: Option<&'static str>,
    report: &mut Report,
) -> anyhow::Result<Option<Outcome>> {
    let traffic = traffic(size.cleared);
    let flows = u64::from(traffic.flows());
    let settings = Settings {
        kernel,
        kernel_sessions_max: size.cleared.next_power_of_two(),
        lease: LEASE,
        tcp_packets: None,
        xdp: false,
    };
    let mut lab = Lab::start(bed, programs, &traffic, settings)?;
    let has_all = lab.wait_for_sessions(flows)?;
    let mut result = Ok(0);
    let mut took = None;
    let outcome = lab.during("all sessions ended at once", Load::Rate(RATE), |tun| {
        result = tun.clear();
        took = tun.wait_until(|offloaded| offloaded.sessions * 10 < flows)?;
        Ok(())
    })?;
    let lost = outcome.lost();
    let ended = result?;
    report.check(has_all, format!("the kernel has all {} sessions before their end", group(flows)));
    report.check(ended == flows, format!("{} of {} sessions ended at once", group(ended), group(flows)));
    let took = took.map_or("not in time".into(), |time| format!("{:.2} s", time.as_secs_f64()));
    report.notes.push(format!(
        "The kernel had less than a tenth of the ended sessions after {took}; {} packets were lost.",
        group(lost)
    ));
    let opened = lab.during("after their end", Load::Rate(RATE), |_| Ok(()))?;
    report
        .check(opened.lost() == 0, "after all sessions have ended, new ones open and nothing is lost".into());
    let mut outcomes = lab.finish()?;
    outcomes.truncate(1);
    Ok(outcomes.pop())
}
