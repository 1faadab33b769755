//! Traced packets as a capture file with comments: pcapng, an interface for what came and one for what left.

use crate::commands::trace::outcome;
use gatun_api::types::TracedPacket;
use std::io::{self, Write};

/// IP packets without a link's header in front.
const LINKTYPE_RAW: u16 = 101;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
/// Options.
const COMMENT: u16 = 1;
const NAME: u16 = 2;

/// A file that is written.
pub(crate) struct Capture<W: Write> {
    out: W,
}

impl<W: Write> Capture<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// Where it cannot be written to.
    pub(crate) fn new(out: W) -> io::Result<Capture<W>> {
        let mut capture = Capture { out };
        // Byte order, version 1.0, a section of unknown length.
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4du32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        capture.block(SECTION, &section)?;
        for name in ["before", "after"] {
            let mut interface = LINKTYPE_RAW.to_le_bytes().to_vec();
            interface.extend([0; 6]);
            option(&mut interface, NAME, name.as_bytes());
            interface.extend([0; 4]);
            capture.block(INTERFACE, &interface)?;
        }
        Ok(capture)
    }

    /// Writes a packet, and what was sent for it right behind.
    ///
    /// # Errors
    /// Where the file cannot be written to.
    pub(crate) fn write(&mut self, packet: &TracedPacket) -> io::Result<()> {
        let mut comment = format!("worker {}: {}", packet.worker, outcome(packet));
        for sentence in &packet.why {
            comment.push('\n');
            comment += sentence;
        }
        if packet.lost > 0 {
            comment += &format!("\n{} packets are missing before this one", packet.lost);
        }
        let before = (bytes(&packet.before), packet.before_bytes);
        self.packet(0, packet.time_us, &before, &comment)?;
        let after = bytes(&packet.after);
        if after.is_empty() {
            return Ok(());
        }
        let comment =
            if packet.answered { "the answer to the packet before" } else { "the packet before, translated" };
        self.packet(1, packet.time_us, &(after, packet.after_bytes), comment)
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Where it cannot be written to.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn packet(
        &mut self,
        interface: u32,
        us: u64,
        (bytes, len): &(Vec<u8>, u32),
        comment: &str,
    ) -> io::Result<()> {
        let mut block = Vec::new();
        let kept = bytes.len() as u32;
        for word in [interface, (us >> 32) as u32, us as u32, kept, *len] {
            block.extend(word.to_le_bytes());
        }
        block.extend(bytes);
        pad(&mut block);
        option(&mut block, COMMENT, comment.as_bytes());
        block.extend([0; 4]);
        self.block(PACKET, &block)
    }

    /// Type, length, body, and the length again.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let len = (body.len() as u32 + 12).to_le_bytes();
        self.out.write_all(&kind.to_le_bytes())?;
        self.out.write_all(&len)?;
        self.out.write_all(body)?;
        self.out.write_all(&len)
    }
}

fn option(block: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..value.len().min(usize::from(u16::MAX))).unwrap_or_default();
    block.extend(code.to_le_bytes());
    block.extend((value.len() as u16).to_le_bytes());
    block.extend(value);
    pad(block);
}

/// Everything begins at a multiple of four bytes.
fn pad(block: &mut Vec<u8>) {
    block.resize(block.len().next_multiple_of(4), 0);
}

/// The bytes that hexadecimal digits stand for.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap_or(0) as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_api::types::Fate;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_reader_that_is_not_ours_finds_both_packets_and_the_comment() {
        let packet = TracedPacket {
            time_us: 1_700_000_000_123_456,
            worker: 3,
            fate: Fate::Forwarded,
            reason: None,
            help: None,
            answered: false,
            instance: None,
            packet: None,
            becomes: None,
            why: vec!["it is of a session".into()],
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
                found.push((p.interface_id, p.data.to_vec(), p.original_len, comment.unwrap()));
            }
        }
        let first = "worker 3: forwarded: 60 bytes\nit is of a session".to_owned();
        assert_eq!(found[0], (0, vec![0x60, 0xab, 1], 80, first));
        assert_eq!(found[1], (1, vec![0x45, 0xff], 60, "the packet before, translated".to_owned()));
        assert_eq!(found.len(), 2);
    }
}
