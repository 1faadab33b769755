//! One run: a bed, what stands in its middle, traffic through it, and the accounts at the end.

use crate::bed::Bed;
use crate::counters::Counters;
use crate::ends::{Ends, Load, StageResult, Until};
use crate::killer;
use crate::middle::{Forwarder, Gatun, Place, Programs, stay_on_first_processor};
use gatun_io::{RxError, Stats, TxError};
use gatun_lab::Error;
use gatun_traffic::{Tally, Traffic};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is to stand in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Middle<'a> {
    /// Gatun, with this configuration.
    Gatun(&'a str),
    /// What copies frames across.
    Forwarder,
    /// The kernel's own forwarding, untranslated.
    Kernel,
}

/// How long packets may take to come back, or to be counted, at a run's end.
const SETTLED_MAX: Duration = Duration::from_secs(15);

enum Running {
    Gatun(Gatun),
    Forwarder(Forwarder),
    Kernel,
}

/// Traffic through something.
pub(crate) struct Run<'a> {
    bed: &'a Bed,
    middle: Running,
    ends: Ends,
    drops_before: u64,
}

/// Where every packet of a run went.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    pub(crate) tx: u64,
    pub(crate) tally: Tally,
    /// Packets that ended on the way, by the counter that says so.
    pub(crate) explained_by: BTreeMap<String, u64>,
}

impl Accounts {
    pub(crate) fn lost(&self) -> u64 {
        self.tally.lost(self.tx)
    }

    pub(crate) fn explained(&self) -> u64 {
        self.explained_by.values().sum()
    }

    /// Whether every packet that is missing was counted by whoever dropped it, and no other.
    pub(crate) fn balance(&self) -> bool {
        self.lost() == self.explained()
    }
}

/// The share of a stage that is done, on the terminal.
fn progress(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} %")
        .unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(1000).with_style(style).with_message(name.to_owned())
}

impl<'a> Run<'a> {
    /// Puts it in the middle of the bed, and opens both ends; from now on this thread stays on the first processor.
    pub(crate) fn new(
        bed: &'a Bed,
        programs: &Programs,
        middle: Middle<'_>,
        traffic: Traffic,
    ) -> anyhow::Result<Run<'a>> {
        let middle = match middle {
            Middle::Gatun(config) => {
                Running::Gatun(Gatun::start(&bed.middle, Place::LastProcessor, programs, config)?)
            }
            Middle::Forwarder => Running::Forwarder(Forwarder::start(bed, programs)?),
            Middle::Kernel => {
                bed.route_by_kernel()?;
                Running::Kernel
            }
        };
        stay_on_first_processor();
        let ends = Ends::new(bed, traffic)?;
        let drops_before = cable_drops(bed)?;
        Ok(Run { bed, middle, ends, drops_before })
    }

    /// Sends through it. Gatun, where it is that, is asked every half second how many sessions it has.
    pub(crate) fn stage(&mut self, name: &'static str, load: Load, until: Until) -> StageResult {
        self.observed(name, load, until, &AtomicU64::new(0))
    }

    /// As [`stage`](Self::stage), while so many random sessions a second are ended through Gatun's API. Returns how many
    /// were there to be ended, too.
    ///
    /// # Errors
    /// What the API said.
    pub(crate) fn stage_with_kills(
        &mut self,
        name: &'static str,
        load: Load,
        until: Until,
        kills_per_s: f64,
    ) -> anyhow::Result<(StageResult, u64)> {
        let (killed, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let traffic = self.ends.traffic().clone();
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| killer::kill(&traffic, kills_per_s, &killed, &over));
            let result = self.observed(name, load, until, &killed);
            over.store(true, Ordering::Relaxed);
            killer.join().map_err(|_| anyhow::anyhow!("the session killer panicked"))??;
            Ok((result, killed.load(Ordering::Relaxed)))
        })
    }

    fn observed(&mut self, name: &'static str, load: Load, until: Until, killed: &AtomicU64) -> StageResult {
        let bar = progress(name);
        let before = self.processor_ns();
        let sessions = AtomicU64::new(u64::MAX);
        let over = AtomicBool::new(false);
        let Run { middle, ends, .. } = self;
        let mut result = std::thread::scope(|scope| {
            if let Running::Gatun(gatun) = middle {
                let (gatun, sessions, over) = (&*gatun, &sessions, &over);
                scope.spawn(move || watch(gatun, sessions, over));
            }
            let result = ends.stage(name, load, until, |share| {
                bar.set_position((share * 1000.0) as u64);
                let sessions = sessions.load(Ordering::Relaxed);
                ((sessions != u64::MAX).then_some(sessions), killed.load(Ordering::Relaxed))
            });
            over.store(true, Ordering::Relaxed);
            result
        });
        bar.finish_and_clear();
        let spent = self.processor_ns().zip(before).map(|(after, before)| after.saturating_sub(before));
        result.processor_ns = spent;
        result
    }

    /// Processor time that what is in the middle has had so far, ns; the kernel's own is nobody's.
    fn processor_ns(&self) -> Option<u64> {
        match &self.middle {
            Running::Gatun(gatun) => processor_ns(gatun.id()),
            Running::Forwarder(forwarder) => processor_ns(forwarder.id()),
            Running::Kernel => None,
        }
    }

    /// What Gatun counts now, where it is Gatun.
    pub(crate) fn counters(&self) -> Result<Option<Counters>, Error> {
        match &self.middle {
            Running::Gatun(gatun) => gatun.counters().map(Some),
            _ => Ok(None),
        }
    }

    /// Waits until every packet has come back or was counted where it ended, ends what is in the middle, and adds up.
    pub(crate) fn finish(mut self) -> anyhow::Result<(Accounts, Ends)> {
        let deadline = Instant::now() + SETTLED_MAX;
        while let Some(counters) = self.counters()? {
            if self.accounts(counters.drops)?.balance() || Instant::now() > deadline {
                break;
            }
            let next_look = Instant::now() + Duration::from_millis(100);
            while Instant::now() < next_look {
                self.ends.settle();
            }
        }
        let drops = match std::mem::replace(&mut self.middle, Running::Kernel) {
            Running::Gatun(gatun) => gatun.stop()?.drops,
            Running::Forwarder(forwarder) => forwarder.stop()?,
            Running::Kernel => BTreeMap::new(),
        };
        Ok((self.accounts(drops)?, self.ends))
    }

    /// What is known now, with the drops of what is in the middle.
    fn accounts(&self, drops: BTreeMap<String, u64>) -> Result<Accounts, Error> {
        let mut explained_by = BTreeMap::new();
        let mut add = |name: String, count: u64| {
            if count > 0 {
                *explained_by.entry(name).or_default() += count;
            }
        };
        let cables = cable_drops(self.bed)?.saturating_sub(self.drops_before);
        add("cable: the other end's queue was full".into(), cables);
        drops.into_iter().for_each(|(name, count)| add(format!("middle: {name}"), count));
        let [generator, reflector] = self.ends.device_stats();
        device_errors("generator", &generator, false, &mut add);
        device_errors("reflector", &reflector, true, &mut add);
        Ok(Accounts { tx: self.ends.tx(), tally: self.ends.tally().clone(), explained_by })
    }
}

/// Of all threads of a process: the first number of their schedstat.
fn processor_ns(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(tasks.filter_map(of_task).sum())
}

/// What a device of our own did not hand over; a generator's packets that were not taken were never sent.
fn device_errors(who: &str, stats: &Stats, sends_what_it_got: bool, add: &mut impl FnMut(String, u64)) {
    for kind in RxError::ALL {
        add(format!("{who}: {}", kind.name()), stats.rx_errors[*kind as usize]);
    }
    for kind in TxError::ALL.iter().filter(|_| sends_what_it_got) {
        add(format!("{who}: {}", kind.name()), stats.tx_errors[*kind as usize]);
    }
}

fn cable_drops(bed: &Bed) -> Result<u64, Error> {
    Ok(bed.drops()?.iter().map(|(_, dropped)| dropped).sum())
}

/// Asks for the number of sessions until it is over.
fn watch(gatun: &Gatun, sessions: &AtomicU64, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(counters) = gatun.counters() {
            sessions.store(counters.sessions, Ordering::Relaxed);
        }
        for _ in 0..10 {
            if over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
