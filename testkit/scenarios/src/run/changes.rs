//! A stage in which another thread changes Gatun beside a switch.

use super::{Gatun, Load, Run, StageResult, cable_drops};
use crate::processors::leave_first_processor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time for which packets go on after the changes.
const AFTER: Duration = Duration::from_millis(500);

/// Result of a stage with changes.
pub(crate) struct ChangedStage {
    pub(crate) stage: StageResult,
    pub(crate) reordered: u64,
    /// Packets that full queues dropped.
    pub(crate) queue_drops: u64,
}

impl Run<'_> {
    /// Sends traffic while `change` runs in another thread.
    pub(crate) fn stage_during(
        &mut self,
        name: &'static str,
        load: Load,
        change: impl FnOnce(&Gatun) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<ChangedStage> {
        let (drops, reordered) = (self.queue_drops()?, self.ends.tally().reordered);
        let Run { middle, ends, .. } = self;
        let gatun = middle.gatun().ok_or_else(|| anyhow::anyhow!("Gatun does not run"))?;
        let over = AtomicBool::new(false);
        let (stage, changed) = std::thread::scope(|scope| {
            let over = &over;
            let changer = scope.spawn(move || {
                leave_first_processor();
                let changed = change(gatun);
                std::thread::sleep(AFTER);
                over.store(true, Ordering::Relaxed);
                changed
            });
            let stage = ends.stage_until(name, load, || over.load(Ordering::Relaxed));
            (stage, changer.join())
        });
        changed.map_err(|_| anyhow::anyhow!("{name}: a thread panicked"))??;
        let queue_drops = self.queue_drops()?.saturating_sub(drops);
        Ok(ChangedStage { stage, reordered: self.ends.tally().reordered - reordered, queue_drops })
    }

    /// Packets that the queues of the switch's ports and the cables have dropped so far.
    fn queue_drops(&self) -> anyhow::Result<u64> {
        let drops = self.counters()?.map(|counters| counters.drops).unwrap_or_default();
        let of_queues = drops.iter().filter(|(name, _)| name.contains("lost on the way"));
        Ok(of_queues.map(|(_, count)| count).sum::<u64>() + cable_drops(self.bed)?)
    }
}
