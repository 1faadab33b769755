//! Traced packets as a capture file: pcapng with a comment on each packet, one interface for packets before
//! translation and one for packets after it.

use super::outcome;
use gatun_api::types::TracedPacket;
use gatun_daemon::tables::counted;
use gatun_io::pcap::{CommentedWriter, Frame, Link};
use std::io::{self, Write};
use std::time::Duration;

const BEFORE: u32 = 0;
const AFTER: u32 = 1;

/// Capture file of traced packets.
pub(super) struct Capture<W: Write>(CommentedWriter<W>);

impl<W: Write> Capture<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Returns an error if `out` cannot be written.
    pub(super) fn new(out: W) -> io::Result<Capture<W>> {
        Ok(Capture(CommentedWriter::new(out, Link::Raw, &["before", "after"])?))
    }

    /// Writes a packet, followed by the packet sent for it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn write(&mut self, packet: &TracedPacket) -> io::Result<()> {
        let mut comment = format!("worker {}: {}", packet.worker, outcome(packet));
        for sentence in &packet.why {
            comment.push('\n');
            comment += sentence;
        }
        if packet.lost > 0 {
            comment += &format!("\nmissing before this one: {}", counted(packet.lost, "packet"));
        }
        let frame =
            |hex| Frame { time: Duration::from_micros(packet.time_us), bytes: bytes(hex), cut: false };
        self.0.write(BEFORE, &frame(&packet.before), packet.before_bytes, &comment)?;
        if packet.after.is_empty() {
            return Ok(());
        }
        let comment =
            if packet.answered { "answer to the previous packet" } else { "previous packet, translated" };
        self.0.write(AFTER, &frame(&packet.after), packet.after_bytes, comment)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(super) fn finish(self) -> io::Result<()> {
        self.0.finish()
    }
}

/// Bytes of hexadecimal digits.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    hex.as_bytes().as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::Fate;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_capture_has_both_packets_with_comments_and_times() {
        let packet = TracedPacket {
            time_us: 1_700_000_000_123_456,
            worker: 3,
            fate: Fate::Forwarded,
            reason: None,
            help: None,
            answered: false,
            instance: None,
            node: None,
            packet: None,
            becomes: None,
            why: vec!["it belongs to a session".into()],
            before: "60ab01".into(),
            before_bytes: 80,
            after: "45ff".into(),
            after_bytes: 60,
            lost: 0,
        };
        let mut out = Vec::new();
        let mut capture = Capture::new(&mut out).unwrap();
        capture.write(&packet).unwrap();
        capture.finish().unwrap();
        let mut reader = PcapNgReader::new(&out[..]).unwrap();
        let mut found = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(p) = block.unwrap() {
                let comment = p.options.iter().find_map(|option| match option {
                    EnhancedPacketOption::Comment(text) => Some(text.to_string()),
                    _ => None,
                });
                assert_eq!(p.timestamp.as_nanos(), 1_700_000_000_123_456_000);
                found.push((p.interface_id, p.data.to_vec(), p.original_len, comment.unwrap()));
            }
        }
        let first = "worker 3: forwarded: 60 bytes\nit belongs to a session".to_owned();
        assert_eq!(found[0], (0, vec![0x60, 0xab, 1], 80, first));
        assert_eq!(found[1], (1, vec![0x45, 0xff], 60, "previous packet, translated".to_owned()));
        assert_eq!(found.len(), 2);
    }
}
