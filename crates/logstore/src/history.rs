//! History of a public port: its holders in order, and times of possibly missing records.

use crate::record::Record;
use crate::time::rfc3339;

/// End of a holding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No record of an end; the time of the daemon's last sign of life.
    Open(u64),
    At(u64),
    /// Between two times: the daemon ended without a record, or the record was lost.
    Between(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) record: Record,
    pub(crate) from_ms: Option<u64>,
    /// Earliest possible beginning.
    pub(crate) possible_from_ms: u64,
    /// Beginning for certain.
    pub(crate) known_from_ms: u64,
    pub(crate) end: End,
    /// Time of missing records between others of the same holder.
    pub(crate) doubt: Option<(u64, u64)>,
}

/// Time of possibly missing records, with the reason.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) why: String,
}

/// Time for which the holder is unknown, for one transport.
#[derive(Clone, Debug)]
pub(crate) struct Unknown {
    pub(crate) transport: usize,
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) why: String,
}

/// History of ports, in the order of events.
#[derive(Default)]
pub(crate) struct History {
    open: Vec<Holding>,
    /// Holdings open at the end of an earlier daemon and not confirmed by a later one.
    before: Vec<Holding>,
    ended: Vec<Holding>,
    /// Last gap of each transport without later records.
    gaps: [Option<Gap>; 3],
    unknown: Vec<Unknown>,
    /// Time of the last entry.
    pub(crate) last_ms: u64,
    started: bool,
    pub(crate) stopped_ms: Option<u64>,
}

impl History {
    pub(crate) fn start(&mut self, at_ms: u64, keeps_state: bool) {
        let stopped = self.stopped_ms.take();
        if stopped.is_none() && self.started {
            let from_ms = self.last_ms.min(at_ms);
            let why = format!(
                "the daemon of that time was killed between {} and {}",
                rfc3339(from_ms),
                rfc3339(at_ms)
            );
            let all = (0..3).map(|transport| Unknown { transport, from_ms, to_ms: at_ms, why: why.clone() });
            self.unknown.extend(all);
        }
        self.started = true;
        let end = stopped.map_or(End::Between(self.last_ms.min(at_ms), at_ms), End::At);
        // Records that the earlier daemon never wrote may have waited in memory all its life; it may restore
        // those holdings.
        self.before.extend(self.open.drain(..).map(|holding| Holding { end, ..holding }));
        if !keeps_state {
            self.ended.append(&mut self.before);
            self.end_gaps(7, at_ms);
        }
    }

    /// Records a gap: afterwards nothing is known until a record of the port.
    pub(crate) fn gap(&mut self, gap: &Gap) {
        for holding in &mut self.open {
            let from_ms = gap.from_ms.max(holding.known_from_ms);
            let (first, last) = holding.doubt.unwrap_or((from_ms, gap.to_ms));
            holding.doubt = Some((first.min(from_ms), last.max(gap.to_ms)));
        }
        for slot in &mut self.gaps {
            match slot {
                Some(open) => open.to_ms = open.to_ms.max(gap.to_ms),
                None => *slot = Some(gap.clone()),
            }
        }
    }

    /// Handles a record of these transports.
    pub(crate) fn end_gaps(&mut self, transports: u8, at_ms: u64) {
        for transport in (0..3).filter(|transport| transports & 1 << transport != 0) {
            if let Some(gap) = self.gaps[transport].take() {
                let to_ms = at_ms.max(gap.from_ms);
                self.unknown.push(Unknown { transport, from_ms: gap.from_ms, to_ms, why: gap.why });
            }
        }
    }

    pub(crate) fn record(&mut self, record: Record) {
        let at_ms = record.at_ms;
        let gap_end_ms = self.gaps.iter().flatten().map(|gap| gap.to_ms).max();
        let possible_from_ms = self.gaps.iter().flatten().map(|gap| gap.from_ms).min().unwrap_or(0);
        self.end_gaps(record.transports, at_ms);
        let same = self.open.iter().position(|holding| holding.record.has_same_ports(&record));
        let same = same.map(|at| self.open.remove(at));
        if !record.kind.begins() {
            let begun = match same {
                Some(begun) if begun.record.is_same_holder(&record) => begun,
                other => {
                    self.end_untold(other, at_ms);
                    // If there is a gap, it began in the gap.
                    let known_from_ms = gap_end_ms.unwrap_or(at_ms).min(at_ms);
                    let end = End::Open(0);
                    Holding { record, from_ms: None, possible_from_ms, known_from_ms, end, doubt: None }
                }
            };
            self.ended.push(Holding { end: End::At(at_ms), ..begun });
            return;
        }
        self.end_untold(same, at_ms);
        let goes_on = |old: &Holding| {
            record.kind.goes_on() && old.record.has_same_ports(&record) && old.record.is_same_holder(&record)
        };
        // The latest one, if the same holder had the same ports before.
        let begun = self.before.iter().rposition(goes_on).map(|at| self.before.remove(at));
        let new = Holding {
            record,
            from_ms: Some(at_ms),
            possible_from_ms: at_ms,
            known_from_ms: at_ms,
            end: End::Open(0),
            doubt: None,
        };
        self.open.push(Holding { end: End::Open(0), ..begun.unwrap_or(new) });
    }

    /// Ends a holding without a record: another holder has its ports or released them.
    fn end_untold(&mut self, lost: Option<Holding>, at_ms: u64) {
        let between = |lost: Holding| {
            let from_ms = lost.doubt.map_or(lost.record.at_ms, |doubt| doubt.0).min(at_ms);
            Holding { end: End::Between(from_ms, at_ms), ..lost }
        };
        self.ended.extend(lost.map(between));
    }

    /// Holdings and unknown times. Holdings without an end are open, or ended with the daemon.
    pub(crate) fn all(mut self) -> (Vec<Holding>, Vec<Unknown>) {
        self.end_gaps(7, u64::MAX);
        let end = self.stopped_ms.map_or(End::Open(self.last_ms), End::At);
        // After a gap, no record confirms a holding that no record ends.
        let unconfirmed =
            |holding: Holding| Holding { doubt: holding.doubt.map(|d| (d.0, u64::MAX)), ..holding };
        self.ended.extend(self.before.drain(..).map(unconfirmed));
        self.ended.extend(self.open.drain(..).map(|holding| unconfirmed(Holding { end, ..holding })));
        (self.ended, self.unknown)
    }
}
