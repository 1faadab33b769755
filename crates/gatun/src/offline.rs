//! Offline translation of a capture: the packets' timestamps are the engine's clock.

use anyhow::Context as _;
use gatun_io::pcap::{CommentedWriter, Frame, Layout, Link, Reader, Writer};
use gatun_nat::{Counters, Instant, Nat, Plan, Verdict};
use gatun_wire::{HEADROOM, Packet};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

/// Buffer size for the longest packet and its headers.
const BUFFER_LEN: usize = HEADROOM + gatun_io::pcap::FRAME_MAX + 256;
/// Records checked per call of `expire`.
const EXPIRE_BUDGET: usize = 4096;
/// Maximum number of steps in which time advances between two packets.
const STEPS_MAX: u64 = 10_000;
/// Time after the last packet, in which held packets are released or dropped.
const LINGER_MS: u64 = 30_000;

const OUTPUT_FAILED: &str = "cannot write the output";
const DROPS_FAILED: &str = "cannot write the dropped packets";

/// Result of a translation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Frames in the file.
    pub(crate) frames: u64,
    /// Frames without an IP packet, not given to the engine.
    pub(crate) not_ip: u64,
    /// Frames truncated by the snap length.
    pub(crate) cut: u64,
    /// True if the file is truncated inside its last record, which is ignored.
    pub(crate) cut_off: bool,
    /// Packets written.
    pub(crate) written: u64,
    /// The engine's counters.
    pub(crate) counters: Counters,
}

/// Translation of one capture.
pub(crate) struct Offline<W: Write, D: Write> {
    nat: Nat,
    output: Writer<W>,
    drops: Option<CommentedWriter<D>>,
    buffer: Vec<u8>,
    /// Time of the first frame, the engine's zero.
    begin: Option<Duration>,
    now: Instant,
    /// Last frame; its link header is used for packets that timers emit.
    last: Option<(Frame, Layout)>,
    outcome: Outcome,
}

impl<W: Write, D: Write> Offline<W, D> {
    /// Creates an engine for `plan`.
    ///
    /// # Errors
    /// Returns an error if the engine cannot be created.
    pub(crate) fn new(
        plan: &Plan,
        seed: u64,
        output: Writer<W>,
        drops: Option<CommentedWriter<D>>,
    ) -> anyhow::Result<Self> {
        let nat = Nat::new(plan, [seed; 4]).map_err(|error| anyhow::anyhow!("{}", error.0))?;
        Ok(Offline {
            nat,
            output,
            drops,
            buffer: vec![0; BUFFER_LEN],
            begin: None,
            now: Instant(0),
            last: None,
            outcome: Outcome::default(),
        })
    }

    /// Translates `input`; `progress` gets the number of finished frames.
    ///
    /// # Errors
    /// Returns an error if the input is malformed, or if the output cannot be written.
    pub(crate) fn run<R: Read>(
        mut self,
        input: &mut Reader<R>,
        mut progress: impl FnMut(u64),
    ) -> anyhow::Result<Outcome> {
        let link = input.link();
        while let Some(frame) = self.next_frame(input)? {
            self.outcome.frames += 1;
            self.outcome.cut += u64::from(frame.cut);
            progress(self.outcome.frames);
            self.take(link, frame)?;
        }
        let end = self.now.plus_ms(LINGER_MS);
        while self.now < end && self.nat.counters().held > 0 {
            self.pass_time(self.now.plus_ms(100))?;
        }
        self.outcome.counters = self.nat.counters().clone();
        self.output.finish().context(OUTPUT_FAILED)?;
        if let Some(drops) = self.drops {
            drops.finish().context(DROPS_FAILED)?;
        }
        Ok(self.outcome)
    }

    /// Reads a frame. A file truncated inside a record ends before that record.
    fn next_frame<R: Read>(&mut self, input: &mut Reader<R>) -> anyhow::Result<Option<Frame>> {
        match input.next_frame() {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                self.outcome.cut_off = true;
                Ok(None)
            }
            other => other.context("cannot read the capture"),
        }
    }

    fn take(&mut self, link: Link, frame: Frame) -> anyhow::Result<()> {
        let begin = *self.begin.get_or_insert(frame.time);
        // Frames of several interfaces may be slightly out of order; the clock never goes back.
        let at = Instant(frame.time.saturating_sub(begin).as_millis() as u64).max(self.now);
        self.pass_time(at)?;
        match link.layout(&frame.bytes) {
            Some(layout) => self.translate(frame, layout),
            None => {
                self.outcome.not_ip += 1;
                Ok(())
            }
        }
    }

    /// Advances the clock: sessions expire, held packets are released or dropped.
    fn pass_time(&mut self, until: Instant) -> anyhow::Result<()> {
        let gap = until.since_ms(self.now);
        let least = (gap / STEPS_MAX).max(1);
        while self.now < until {
            let idle = u64::from(self.nat.expire(self.now, EXPIRE_BUDGET));
            self.write_emitted()?;
            self.now = self.now.plus_ms(idle.max(least)).min(until);
        }
        Ok(())
    }

    fn translate(&mut self, frame: Frame, layout: Layout) -> anyhow::Result<()> {
        let packet = frame.bytes.get(layout.header_len..).unwrap_or_default();
        let len = packet.len();
        self.buffer[HEADROOM..HEADROOM + len].copy_from_slice(packet);
        let packet =
            Packet::new(&mut self.buffer, HEADROOM, len).context("a frame is longer than the buffer")?;
        let mut burst = [packet];
        let mut verdicts = [Verdict::Pass];
        // There are enough buffers for the packets emitted for one packet.
        self.nat.process(self.now, &mut burst, &mut verdicts);
        let answer = matches!(verdicts[0], Verdict::Reply(_));
        match verdicts[0] {
            // Passed packets are unchanged.
            Verdict::Forward | Verdict::Reply(_) | Verdict::Pass => {
                let packet = burst[0].bytes();
                self.output.write(frame.time, &frame, layout, packet, answer).context(OUTPUT_FAILED)?;
                self.outcome.written += 1;
            }
            // A capture belongs to no cluster, so nothing is redirected.
            Verdict::Drop(_) | Verdict::Held | Verdict::Redirect => {}
        }
        if let (Some(drops), Verdict::Drop(reason) | Verdict::Reply(gatun_nat::Reply::Error(reason))) =
            (&mut self.drops, verdicts[0])
        {
            let comment = format!("{}: {}", reason.name(), reason.help());
            drops.write(0, &frame, frame.bytes.len() as u32, &comment).context(DROPS_FAILED)?;
        }
        self.last = Some((frame, layout));
        self.write_emitted()
    }

    /// Writes packets that the engine emitted, with the link header of the last frame.
    fn write_emitted(&mut self) -> anyhow::Result<()> {
        let (Some((frame, layout)), Some(begin)) = (&self.last, self.begin) else { return Ok(()) };
        let time = frame.time.max(begin + Duration::from_millis(self.now.0));
        let (output, written) = (&mut self.output, &mut self.outcome.written);
        let mut result = Ok(());
        self.nat.drain_emitted(|emitted| {
            if result.is_ok() {
                result = output.write(time, frame, *layout, emitted.packet.bytes(), false);
                *written += 1;
            }
        });
        result.context(OUTPUT_FAILED)
    }
}
