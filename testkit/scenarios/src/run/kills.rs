//! Programs of a run with a switch that are killed, and started again.

use super::{Gatun, Load, Place, Programs, Run, Running, StageResult, Until, named};
use crate::bed::Link;
use crate::switch::{self, Switch, SwitchCommand};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for the switch to have sessions again.
const FILLED_MAX: Duration = Duration::from_secs(60);

/// Programs that a stage kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KilledPrograms {
    Switch,
    Both,
}

impl KilledPrograms {
    fn name(self) -> &'static str {
        match self {
            KilledPrograms::Switch => "ended in the killed switch",
            KilledPrograms::Both => "ended in the killed switch and the killed Gatun",
        }
    }
}

/// Packets at the borders of programs, as the programs beside them counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketCounts {
    /// Packets given to the programs.
    pub(crate) given: u64,
    /// Packets that they gave.
    pub(crate) got: u64,
}

impl PacketCounts {
    fn since(self, before: PacketCounts) -> PacketCounts {
        PacketCounts { given: self.given - before.given, got: self.got - before.got }
    }

    /// Packets that ended in the programs.
    pub(crate) fn ended(self) -> u64 {
        self.given.saturating_sub(self.got)
    }
}

impl Run<'_> {
    /// Kills Gatun beside the switch, when no packet is on its way: its counters end with it.
    pub(crate) fn kill_gatun(&mut self) -> anyhow::Result<()> {
        self.close_accounts(true, false)?;
        match &mut self.middle {
            Running::Switch(gatun, _) => Ok(gatun.take().map(Gatun::kill).transpose().map(drop)?),
            _ => anyhow::bail!("there is no switch"),
        }
    }

    /// Starts Gatun again beside the switch.
    pub(crate) fn start_gatun(&mut self, programs: &Programs, config: &str) -> anyhow::Result<()> {
        let Running::Switch(gatun, _) = &mut self.middle else { anyhow::bail!("there is no switch") };
        *gatun = Some(Gatun::start(&self.bed.middle, Place::Anywhere, programs, "gatun", config)?);
        switch::wait_until_used()?;
        let drops = self.counters()?.map(|counters| counters.drops).unwrap_or_default();
        // Those of the switch are since its start.
        self.drops_before.extend(drops.into_iter().filter(|(name, _)| !of_switch(name)));
        Ok(())
    }

    /// Sends traffic, and kills the switch, or the switch and Gatun, at the first half's end. Also returns
    /// what the programs beside them gave and got in the stage, without packets that the programs had
    /// counted as lost before they were killed.
    pub(crate) fn stage_with_kills_of_programs(
        &mut self,
        name: &'static str,
        load: Load,
        length: Duration,
        killed: KilledPrograms,
    ) -> anyhow::Result<(StageResult, PacketCounts, Duration)> {
        self.close_accounts(killed == KilledPrograms::Both, true)?;
        let before = self.borders(killed)?;
        let counted_before = self.drops_of_programs(killed)?;
        let Run { middle: Running::Switch(gatun, switch), ends, .. } = self else {
            anyhow::bail!("there is no switch")
        };
        let (result, (counted, uncounted)) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(length / 2);
                let begin = Instant::now();
                let counted = drops_of_programs(switch.as_ref(), gatun.as_ref(), killed)?;
                switch.as_ref().map_or(Ok(()), |switch| switch.kill())?;
                match gatun {
                    Some(gatun) if killed == KilledPrograms::Both => {
                        gatun.signal(rustix::process::Signal::KILL)?;
                    }
                    _ => {}
                }
                anyhow::Ok((counted, begin.elapsed()))
            });
            let result = ends.stage(name, load, Until::Elapsed(length), |_| (None, 0));
            let counted = killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))??;
            anyhow::Ok((result, counted))
        })?;
        switch.take().map_or(Ok(()), |switch| switch.wait_for_end())?;
        if killed == KilledPrograms::Both {
            gatun.take().map_or(Ok(()), Gatun::kill)?;
        }
        self.wait(|_, _, is_silent| Ok(is_silent))?;
        let mut borders = self.borders(killed)?.since(before);
        let counted = counted.into_iter().map(|(name, count)| {
            let before = counted_before.get(&name).copied().unwrap_or(0);
            (name, count.saturating_sub(before))
        });
        for (name, count) in self.of_traffic(counted.collect()) {
            borders.given = borders.given.saturating_sub(count);
            *self.drops_of_killed.entry(name).or_default() += count;
        }
        *self.drops_of_killed.entry(format!("middle: {}", killed.name())).or_default() += borders.ended();
        Ok((result, borders, uncounted))
    }

    /// Starts an empty switch, and Gatun if `config` is its configuration, while traffic goes on. Ends when
    /// the switch has sessions.
    pub(crate) fn stage_with_restart(
        &mut self,
        name: &'static str,
        load: Load,
        (programs, sessions): (&Programs, u64),
        config: Option<&str>,
    ) -> anyhow::Result<StageResult> {
        let Link::Memif(memif) = &self.bed.link else { anyhow::bail!("a switch needs memifs") };
        let command = SwitchCommand::new(self.bed, memif, programs, sessions)?;
        let host = &self.bed.middle;
        let over = AtomicBool::new(false);
        let (result, started) = std::thread::scope(|scope| {
            let starter = scope.spawn(|| {
                let started = (|| {
                    let switch = command.start()?;
                    let start = |config| Gatun::start(host, Place::Anywhere, programs, "gatun", config);
                    let gatun = config.map(start).transpose()?;
                    wait_until_filled()?;
                    anyhow::Ok((switch, gatun))
                })();
                over.store(true, Ordering::Relaxed);
                started
            });
            let result = self.ends.stage_until(name, load, || over.load(Ordering::Relaxed));
            (result, starter.join())
        });
        let (new_switch, new_gatun) = started.map_err(|_| anyhow::anyhow!("the starter panicked"))??;
        let Running::Switch(gatun, switch) = &mut self.middle else { anyhow::bail!("there is no switch") };
        *switch = Some(new_switch);
        *gatun = new_gatun.or(gatun.take());
        Ok(result)
    }

    /// Closes the accounts of Gatun or of the switch, when no packet is on its way: their counters end.
    fn close_accounts(&mut self, gatun_ends: bool, switch_ends: bool) -> anyhow::Result<()> {
        let drops = self.wait(|_, _, is_silent| Ok(is_silent))?.unwrap_or_default().drops;
        let ends = |name: &str| if of_switch(name) { switch_ends } else { gatun_ends };
        let ended: BTreeMap<_, _> = drops.into_iter().filter(|(name, _)| ends(name)).collect();
        let mut counted = self.of_traffic(ended);
        if switch_ends {
            counted = switch::with_reasons(counted, &switch::program_drops()?);
        }
        for (name, count) in counted {
            *self.drops_of_killed.entry(name).or_default() += count;
        }
        self.drops_before.retain(|name, _| !ends(name));
        Ok(())
    }

    /// Drops of the programs that are to be killed.
    fn drops_of_programs(&self, killed: KilledPrograms) -> anyhow::Result<BTreeMap<String, u64>> {
        match &self.middle {
            Running::Switch(gatun, switch) => drops_of_programs(switch.as_ref(), gatun.as_ref(), killed),
            _ => anyhow::bail!("there is no switch"),
        }
    }

    /// Packets at the borders of the switch, or of the switch and Gatun together.
    fn borders(&self, killed: KilledPrograms) -> anyhow::Result<PacketCounts> {
        let [_, reflector] = self.ends.device_stats();
        let reflected = self.ends.reflected();
        let refused: u64 = reflector.tx_errors.iter().sum();
        let mut borders = PacketCounts {
            given: self.ends.tx() + reflected - refused,
            got: self.ends.tally().received + reflected,
        };
        if let (KilledPrograms::Switch, Running::Switch(Some(gatun), _)) = (killed, &self.middle) {
            let counters = gatun.counters()?;
            borders.given += counters.sent;
            borders.got += counters.received;
        }
        Ok(borders)
    }
}

fn drops_of_programs(
    switch: Option<&Switch>,
    gatun: Option<&Gatun>,
    killed: KilledPrograms,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut drops = BTreeMap::new();
    if let Some(switch) = switch {
        drops.extend(named("switch", switch.drops()?.all()));
    }
    if let Some(gatun) = gatun.filter(|_| killed == KilledPrograms::Both) {
        drops.extend(gatun.counters()?.drops);
    }
    Ok(drops)
}

fn of_switch(name: &str) -> bool {
    name.starts_with("switch: ")
}

/// Waits until the switch is in use and has sessions.
fn wait_until_filled() -> anyhow::Result<()> {
    switch::wait_until_used()?;
    let deadline = Instant::now() + FILLED_MAX;
    while switch::state()?.switches.iter().all(|switch| switch.sessions == 0) {
        anyhow::ensure!(Instant::now() < deadline, "the new switch got no session: {:?}", switch::state()?);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
