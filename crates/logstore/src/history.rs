//! The history of one public port: its holders one after another, and the times of which records may be missing.

use crate::record::Record;
use crate::time::rfc3339;

/// How a holding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing tells of an end; the last sign of life of the daemon was then.
    Open(u64),
    At(u64),
    /// Between the two, as the daemon ended without saying so, or the record was lost.
    Between(u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    pub(crate) record: Record,
    pub(crate) from_ms: Option<u64>,
    /// The earliest time at which it can have begun.
    pub(crate) possible_from_ms: u64,
    /// The time from which it is known to have the port.
    pub(crate) known_from_ms: u64,
    pub(crate) end: End,
    /// Records of this time are missing, between others of the same holder.
    pub(crate) doubt: Option<(u64, u64)>,
}

/// A time of which records may be missing, and why.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) why: String,
}

/// A time of which it is not known whether somebody had the port, for one transport.
#[derive(Clone, Debug)]
pub(crate) struct Unknown {
    pub(crate) transport: usize,
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    pub(crate) why: String,
}

/// The history of some ports, in the order of events.
#[derive(Default)]
pub(crate) struct History {
    open: Vec<Holding>,
    /// What was open when a daemon before ended, so far as none after it has told that it goes on.
    before: Vec<Holding>,
    ended: Vec<Holding>,
    /// The last gap after which nothing tells of a transport.
    gaps: [Option<Gap>; 3],
    unknown: Vec<Unknown>,
    /// The last time that anything tells of.
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
                "the daemon of that time ended without a word, between {} and {}",
                rfc3339(from_ms),
                rfc3339(at_ms)
            );
            let all = (0..3).map(|transport| Unknown { transport, from_ms, to_ms: at_ms, why: why.clone() });
            self.unknown.extend(all);
        }
        self.started = true;
        let end = stopped.map_or(End::Between(self.last_ms.min(at_ms), at_ms), End::At);
        // What the daemon before has not told of may have waited in memory all its life: this one may still.
        self.before.extend(self.open.drain(..).map(|holding| Holding { end, ..holding }));
        if !keeps_state {
            self.ended.append(&mut self.before);
            self.told(7, at_ms);
        }
    }

    /// From then on nothing is known until something tells of the port again.
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

    /// Something tells of these transports.
    pub(crate) fn told(&mut self, transports: u8, at_ms: u64) {
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
        self.told(record.transports, at_ms);
        let same = self.open.iter().position(|holding| holding.record.is_same_place(&record));
        let same = same.map(|at| self.open.remove(at));
        if !record.kind.begins() {
            let begun = match same {
                Some(begun) if begun.record.is_same_holder(&record) => begun,
                other => {
                    self.end_untold(other, at_ms);
                    // It began in a time whose records are missing, if there is one.
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
            record.kind.goes_on() && old.record.is_same_place(&record) && old.record.is_same_holder(&record)
        };
        // The latest, where the same place was the same holder's before.
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

    /// Somebody else has what `lost` had, or has given it back, and no record tells of its end.
    fn end_untold(&mut self, lost: Option<Holding>, at_ms: u64) {
        let between = |lost: Holding| {
            let from_ms = lost.doubt.map_or(lost.record.at_ms, |doubt| doubt.0).min(at_ms);
            Holding { end: End::Between(from_ms, at_ms), ..lost }
        };
        self.ended.extend(lost.map(between));
    }

    /// All holdings, and the times of which nothing is known. Holdings that nothing ends are open, or ended with the daemon.
    pub(crate) fn all(mut self) -> (Vec<Holding>, Vec<Unknown>) {
        self.told(7, u64::MAX);
        let end = self.stopped_ms.map_or(End::Open(self.last_ms), End::At);
        // Of what no record ends, nothing tells after a gap that it went on.
        let unconfirmed =
            |holding: Holding| Holding { doubt: holding.doubt.map(|d| (d.0, u64::MAX)), ..holding };
        self.ended.extend(self.before.drain(..).map(unconfirmed));
        self.ended.extend(self.open.drain(..).map(|holding| unconfirmed(Holding { end, ..holding })));
        (self.ended, self.unknown)
    }
}
