//! One run: a bed, a program in its middle, traffic through it, and the final accounts.

#[cfg(feature = "dpdk")]
mod changes;
#[cfg(feature = "dpdk")]
pub(crate) mod kills;

use crate::bed::{Bed, Link};
use crate::counters::Counters;
use crate::ends::{Ends, Load, ProcessorTime, StageResult, Until};
use crate::killer;
use crate::middle::{Forwarder, Gatun, Place, Programs, Work};
use crate::processors::stay_on_first_processor;
#[cfg(feature = "dpdk")]
use crate::switch::{self, Switch, SwitchCommand};
use gatun_ether::Dropped;
use gatun_io::{RxError, Stats, TxError};
use gatun_testkit::Error;
use gatun_testkit::testpmd::{Forwarded, Testpmd};
use gatun_testkit::traffic::{Tally, Traffic};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The program in the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Middle<'a> {
    /// Gatun, with this configuration.
    Gatun(&'a str),
    /// Two Gatun processes, with these configurations: CLAT and PLAT, on a bed with a cable between them.
    Pair([&'a str; 2]),
    /// A P4 switch with room for this many sessions, and Gatun as its controller, with this configuration.
    #[cfg(feature = "dpdk")]
    Switch(&'a str, u64),
    /// A program that copies frames; with memif it is testpmd.
    Forwarder,
    /// Gatun's backend, which copies frames without an engine; with veth the same as `Forwarder`.
    Backend,
    /// The kernel's own forwarding, untranslated.
    Kernel,
}

/// Time without movement after which no packet is in flight.
const SILENCE: Duration = Duration::from_secs(1);

/// Time limit for packets to return, or to be counted, at the end of a run.
const SETTLED_MAX: Duration = Duration::from_secs(15);

enum Running {
    Gatun(Gatun),
    Pair(Box<[Gatun; 2]>),
    #[cfg(feature = "dpdk")]
    Switch(Option<Gatun>, Option<Switch>),
    Forwarder(Forwarder),
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "testpmd needs a memif"))]
    Testpmd(Testpmd),
    Kernel,
}

impl Running {
    /// Gatun, if one process of it is in the middle.
    fn gatun(&self) -> Option<&Gatun> {
        match self {
            Running::Gatun(gatun) => Some(gatun),
            #[cfg(feature = "dpdk")]
            Running::Switch(gatun, _) => gatun.as_ref(),
            _ => None,
        }
    }
}

/// A run: traffic through a program in the middle.
pub(crate) struct Run<'a> {
    bed: &'a Bed,
    middle: Running,
    /// The reflector, if it is a separate program.
    reflector: Option<Testpmd>,
    ends: Ends,
    /// Drops of the cables before the run; `drops_before` has Gatun's.
    cables_before: u64,
    drops_before: BTreeMap<String, u64>,
    /// Packets that ended in processes that were killed.
    drops_of_killed: BTreeMap<String, u64>,
}

/// The fate of every packet of a run.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    pub(crate) tx: u64,
    pub(crate) tally: Tally,
    /// Packets that ended on the way, by counter.
    pub(crate) explained_by: BTreeMap<String, u64>,
    /// Processor time of the middle for each packet, ns, if the program reports it at its end.
    pub(crate) ns_each: Option<f64>,
}

impl Accounts {
    pub(crate) fn lost(&self) -> u64 {
        self.tally.lost(self.tx)
    }

    pub(crate) fn explained(&self) -> u64 {
        self.explained_by.values().sum()
    }

    /// Returns true if the counted drops equal the missing packets.
    pub(crate) fn balance(&self) -> bool {
        self.lost() == self.explained()
    }
}

/// Progress of a stage on the terminal.
fn progress(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} %")
        .unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(1000).with_style(style).with_message(name.to_owned())
}

impl<'a> Run<'a> {
    /// Starts the middle and opens both ends; pins this thread to the first processor.
    pub(crate) fn new(
        bed: &'a Bed,
        programs: &Programs,
        middle: Middle<'_>,
        traffic: Traffic,
    ) -> anyhow::Result<Run<'a>> {
        let reflector = match &bed.link {
            Link::Veth => None,
            #[cfg(feature = "dpdk")]
            Link::Memif(memif) => memif.start_reflector(&programs.output.join("reflector.log"))?,
        };
        let middle = start(bed, programs, middle)?;
        stay_on_first_processor();
        #[cfg(feature = "dpdk")]
        if let Link::Memif(memif) = &bed.link {
            memif.wait_until_up()?;
        }
        let ends = Ends::new(bed, traffic)?;
        let cables_before = cable_drops(bed)?;
        let (drops_before, drops_of_killed) = (BTreeMap::new(), BTreeMap::new());
        let mut run = Run { bed, middle, reflector, ends, cables_before, drops_before, drops_of_killed };
        // Gatun's own multicasts, dropped before the links came up, are not traffic.
        run.drops_before = run.counters()?.map(|counters| counters.drops).unwrap_or_default();
        Ok(run)
    }

    /// Sends traffic through the middle. Gatun's number of sessions is read every half second.
    pub(crate) fn stage(&mut self, name: &'static str, load: Load, until: Until) -> StageResult {
        self.observed(name, load, until, &AtomicU64::new(0))
    }

    /// Like [`stage`](Self::stage), while Gatun's API ends this many random sessions a second. Also returns
    /// how many of these sessions existed.
    ///
    /// # Errors
    /// Returns an error if the API does.
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
        let (begin, before) = (Instant::now(), self.spent());
        let sessions = AtomicU64::new(u64::MAX);
        let over = AtomicBool::new(false);
        let Run { middle, ends, .. } = self;
        let mut result = std::thread::scope(|scope| {
            if let Some(gatun) = middle.gatun() {
                let (sessions, over) = (&sessions, &over);
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
        // The wait after the last packet, a fraction of a second, has no packets.
        let elapsed_ns = begin.elapsed().as_nanos() as f64;
        result.middle = self.spent().zip(before).map(|(after, before)| {
            let (ns, counted) = (after.busy_ns - before.busy_ns, after.packets - before.packets);
            let packets = if counted > 0 { counted } else { 2 * result.rx };
            ProcessorTime { ns_each: ns as f64 / packets.max(1) as f64, share: ns as f64 / elapsed_ns }
        });
        result
    }

    /// Processor time of the middle so far. With memif, where programs poll without a pause, the program
    /// reports its busy time; otherwise the kernel does, and includes its own work for the program.
    fn spent(&self) -> Option<Work> {
        let is_veth = matches!(self.bed.link, Link::Veth);
        match &self.middle {
            Running::Gatun(gatun) if !is_veth => gatun.work().ok(),
            Running::Gatun(gatun) => processor_ns(gatun.id()),
            #[cfg(feature = "dpdk")]
            Running::Switch(..) => None,
            Running::Pair(pair) => {
                let both = pair.each_ref().map(|gatun| processor_ns(gatun.id()).map(|work| work.busy_ns));
                let busy_ns = both.into_iter().sum::<Option<u64>>()?;
                Some(Work { busy_ns, ..Work::default() })
            }
            Running::Forwarder(forwarder) if is_veth => processor_ns(forwarder.id()),
            Running::Forwarder(_) | Running::Testpmd(_) | Running::Kernel => None,
        }
    }

    /// Resident memory of Gatun, MiB, if Gatun is in the middle.
    pub(crate) fn memory_mib(&self) -> Option<f64> {
        match &self.middle {
            Running::Gatun(gatun) => gatun.memory_mib(),
            _ => None,
        }
    }

    /// Packets sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.ends.tx()
    }

    /// Packets that returned so far.
    #[cfg(feature = "dpdk")]
    pub(crate) fn returned(&self) -> u64 {
        self.ends.tally().received
    }

    /// Receives packets that are on their way, for a moment.
    pub(crate) fn settle(&mut self) {
        let next_look = Instant::now() + Duration::from_millis(100);
        while Instant::now() < next_look {
            self.ends.settle();
        }
    }

    /// Gatun's counters, if Gatun is in the middle.
    pub(crate) fn counters(&self) -> Result<Option<Counters>, Error> {
        match &self.middle {
            Running::Gatun(gatun) => gatun.counters().map(Some),
            Running::Pair(pair) => both(pair.each_ref().map(|gatun| gatun.counters())).map(Some),
            #[cfg(feature = "dpdk")]
            Running::Switch(Some(gatun), Some(switch)) => {
                let mut counters = gatun.counters()?;
                counters.drops.extend(named("switch", switch.drops()?.all()));
                Ok(Some(counters))
            }
            #[cfg(feature = "dpdk")]
            Running::Switch(Some(gatun), None) => gatun.counters().map(Some),
            _ => Ok(None),
        }
    }

    /// Receives packets until `is_over`, or some time is over. `is_over` gets whether no packet arrives, no
    /// counter moves and Gatun holds no packet: it sends or counts held packets within some seconds (RFC 6146
    /// 3.5.2.2). Returns the last counters, if Gatun is in the middle.
    fn wait(
        &mut self,
        is_over: impl Fn(&Run, &Counters, bool) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<Counters>> {
        let deadline = Instant::now() + SETTLED_MAX;
        let mut last = (None, Instant::now());
        while let Some(counters) = self.counters()? {
            let moved = (counters.received, counters.drops.clone(), self.ends.tally().received);
            if last.0.as_ref() != Some(&moved) {
                last = (Some(moved), Instant::now());
            }
            let is_silent = counters.held == 0 && last.1.elapsed() > SILENCE;
            if is_over(self, &counters, is_silent)? || Instant::now() > deadline {
                return Ok(Some(counters));
            }
            self.settle();
        }
        Ok(None)
    }

    /// Waits until every packet has returned or was counted where it ended, ends the middle, and adds up.
    pub(crate) fn finish(mut self) -> anyhow::Result<(Accounts, Ends)> {
        self.wait(|run, counters, is_silent| {
            let balances = run.accounts(run.of_traffic(counters.drops.clone()))?.balance();
            // A reflector reports its losses only at its end.
            Ok(balances || (run.reflector.is_some() && is_silent))
        })?;
        let reflected = self.reflector.as_mut().map(Testpmd::halt).transpose()?;
        let forwarded = match &mut self.middle {
            Running::Testpmd(testpmd) => Some(testpmd.halt()?),
            _ => None,
        };
        let mut ns_each = forwarded.as_ref().and_then(|forwarded| forwarded.busy_ns_each);
        let mut drops = match std::mem::replace(&mut self.middle, Running::Kernel) {
            Running::Gatun(gatun) => {
                let drops = gatun.stop()?.drops;
                self.of_traffic(drops)
            }
            #[cfg(feature = "dpdk")]
            Running::Switch(gatun, switch) => {
                let reasons = switch::program_drops()?;
                let mut drops = gatun.map(Gatun::stop).transpose()?.unwrap_or_default().drops;
                let of_switch = switch.map(Switch::stop).transpose()?.unwrap_or_default();
                drops.extend(named("switch", of_switch.all()));
                switch::with_reasons(self.of_traffic(drops), &reasons)
            }
            Running::Pair(pair) => {
                let drops = both(pair.map(Gatun::stop))?.drops;
                self.of_traffic(drops)
            }
            Running::Forwarder(forwarder) => {
                let told = forwarder.stop()?;
                ns_each = told.busy_ns_each;
                named("middle", told.drops)
            }
            Running::Testpmd(testpmd) => {
                drop(testpmd);
                forwarded.map(|forwarded| named("middle", dropped(&forwarded))).unwrap_or_default()
            }
            Running::Kernel => BTreeMap::new(),
        };
        if let Some((reflector, reflected)) = self.reflector.take().zip(reflected) {
            drop(reflector);
            drops.extend(named("reflector", dropped(&reflected)));
        }
        let accounts = Accounts { ns_each, ..self.accounts(drops)? };
        #[cfg(feature = "dpdk")]
        if let Link::Memif(memif) = &self.bed.link {
            memif.wait_until_down()?;
        }
        Ok((accounts, self.ends))
    }

    /// Gatun's drops since the start of the run, without those that cannot be of the traffic.
    fn of_traffic(&self, drops: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
        // testpmd reflects everything: Gatun's multicasts, which come back from a group's address, and
        // Gatun's ICMP errors. The generator sends no ICMP, so drops with an ICMP reason are not of its
        // traffic.
        let is_echo = |name: &str| {
            self.reflector.is_some() && (name == Dropped::SourceMac.name() || name.starts_with("icmp_"))
        };
        let since = drops.into_iter().map(|(name, count)| {
            let before = self.drops_before.get(&name).copied().unwrap_or(0);
            (name, count.saturating_sub(before))
        });
        named("middle", since.filter(|(name, _)| !is_echo(name)).collect())
    }

    /// Current accounts, with `drops` of the programs.
    fn accounts(&self, drops: BTreeMap<String, u64>) -> Result<Accounts, Error> {
        let mut explained_by = BTreeMap::new();
        let mut add = |name: String, count: u64| {
            if count > 0 {
                *explained_by.entry(name).or_default() += count;
            }
        };
        let cables = cable_drops(self.bed)?.saturating_sub(self.cables_before);
        add("cable: the other end's queue was full".into(), cables);
        drops.into_iter().for_each(|(name, count)| add(name, count));
        self.drops_of_killed.iter().for_each(|(name, count)| add(name.clone(), *count));
        let [generator, reflector] = self.ends.device_stats();
        device_errors("generator", &generator, false, &mut add);
        device_errors("reflector", &reflector, true, &mut add);
        Ok(Accounts { tx: self.ends.tx(), tally: self.ends.tally().clone(), explained_by, ns_each: None })
    }
}

/// Starts the program between the cables.
fn start(bed: &Bed, programs: &Programs, middle: Middle<'_>) -> anyhow::Result<Running> {
    match (middle, &bed.link) {
        (Middle::Gatun(config), Link::Veth) => {
            Ok(Running::Gatun(Gatun::start(&bed.middle, Place::LastProcessor, programs, "gatun", config)?))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Gatun(config), Link::Memif(_)) => {
            // Gatun's worker is pinned by its configuration; its other threads run elsewhere.
            let mut gatun = Gatun::start(&bed.middle, Place::Anywhere, programs, "gatun", config)?;
            gatun.wait_for_links(crate::memif::MIDDLE_MACS.len())?;
            Ok(Running::Gatun(gatun))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Switch(config, sessions), Link::Memif(memif)) => {
            let switch = SwitchCommand::new(bed, memif, programs, sessions)?.start()?;
            let gatun = Gatun::start(&bed.middle, Place::Anywhere, programs, "gatun", config)?;
            switch::wait_until_used()?;
            Ok(Running::Switch(Some(gatun), Some(switch)))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Switch(..), Link::Veth) => anyhow::bail!("a switch needs memifs"),
        (Middle::Pair([clat, plat]), Link::Veth) => {
            let start =
                |name, config| Gatun::start(&bed.middle, Place::LastProcessor, programs, name, config);
            Ok(Running::Pair(Box::new([start("clat", clat)?, start("plat", plat)?])))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Pair([clat, plat]), Link::Memif(_)) => {
            let start = |name, config| Gatun::start(&bed.middle, Place::Anywhere, programs, name, config);
            let mut pair = [start("clat", clat)?, start("plat", plat)?];
            pair.iter_mut().try_for_each(|gatun| gatun.wait_for_links(crate::memif::MIDDLE_MACS.len()))?;
            Ok(Running::Pair(Box::new(pair)))
        }
        (Middle::Forwarder | Middle::Backend, Link::Veth) => {
            Ok(Running::Forwarder(Forwarder::start(bed, programs)?))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Backend, Link::Memif(memif)) => {
            let devices = memif.middle_devices();
            Ok(Running::Forwarder(Forwarder::start_dpdk(bed, programs, &devices, memif.middle_mtu())?))
        }
        (Middle::Kernel, Link::Veth) => {
            bed.route_by_kernel()?;
            Ok(Running::Kernel)
        }
        #[cfg(feature = "dpdk")]
        (Middle::Forwarder, Link::Memif(memif)) => {
            Ok(Running::Testpmd(memif.start_forwarder(&bed.middle, &programs.output.join("forwarder.log"))?))
        }
        #[cfg(feature = "dpdk")]
        (Middle::Kernel, Link::Memif(_)) => anyhow::bail!("the kernel has no memif"),
    }
}

/// Counters with names prefixed by their owner.
fn named(who: &str, counters: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    counters.into_iter().map(|(name, count)| (format!("{who}: {name}"), count)).collect()
}

/// Counters of both instances of a pair.
fn both([clat, plat]: [Result<Counters, Error>; 2]) -> Result<Counters, Error> {
    Ok(Counters::of_both([("CLAT", clat?), ("PLAT", plat?)]))
}

/// Packets that testpmd dropped, by reason.
fn dropped(forwarded: &Forwarded) -> BTreeMap<String, u64> {
    [("rx_dropped", forwarded.rx_dropped), ("tx_dropped", forwarded.tx_dropped)]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
}

/// Processor time of all threads of a process: the first number of each schedstat.
fn processor_ns(pid: u32) -> Option<Work> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Work { busy_ns: tasks.filter_map(of_task).sum(), ..Work::default() })
}

/// Errors of the lab's own devices. A packet that the generator's device refused was never sent, and is left
/// out.
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

/// Reads the number of sessions until `over` is set.
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
