//! Capture files: reads pcap and pcapng, writes pcap, and parses the link layers that carry IP.
//!
//! ```text
//!   frame:  [ link header ......... protocol field ] [ IP packet ......... ]
//! ```
//! A translated packet keeps the link header of the original packet, with the protocol field changed. Times
//! are kept to the nanosecond if the file has them.

use pcap_file::pcap::{PcapHeader, PcapReader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::io::{self, Read, Write};
use std::time::Duration;

/// Longest accepted frame: a whole IPv6 packet with any link header.
pub const FRAME_MAX: usize = 65_575 + 64;

/// Link layer that carries IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// No link header (LINKTYPE_RAW, _IPV4, _IPV6). Written as LINKTYPE_RAW.
    Raw,
    /// Four bytes of address family in the capturing machine's byte order (LINKTYPE_NULL).
    Null,
    /// Four bytes of address family in network byte order (LINKTYPE_LOOP).
    Loop,
    /// Ethernet, with or without VLAN tags.
    Ethernet,
    /// Linux cooked capture, as written by `tcpdump -i any` (LINKTYPE_LINUX_SLL).
    Cooked,
    /// Linux cooked capture, version 2 (LINKTYPE_LINUX_SLL2).
    Cooked2,
}

/// Layout of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Length of the link header in bytes.
    pub header_len: usize,
    /// Offset of the protocol field.
    protocol_at: usize,
}

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Largest number of VLAN tags that are skipped.
const TAGS_MAX: usize = 4;

impl Link {
    fn of(datalink: DataLink) -> io::Result<Self> {
        match u32::from(datalink) {
            // Some systems write 12 or 14 for RAW.
            12 | 14 | 101 | 228 | 229 => Ok(Link::Raw),
            0 => Ok(Link::Null),
            108 => Ok(Link::Loop),
            1 => Ok(Link::Ethernet),
            113 => Ok(Link::Cooked),
            276 => Ok(Link::Cooked2),
            n => Err(invalid(format!(
                "unsupported link layer {n}: expected raw IP, Ethernet, loopback or Linux cooked"
            ))),
        }
    }

    fn datalink(self) -> DataLink {
        DataLink::from(match self {
            Link::Raw => 101,
            Link::Null => 0,
            Link::Loop => 108,
            Link::Ethernet => 1,
            Link::Cooked => 113,
            Link::Cooked2 => 276,
        })
    }

    /// Layout of a frame, or `None` if it carries no IP packet.
    pub fn layout(self, frame: &[u8]) -> Option<Layout> {
        let (header_len, protocol_at) = match self {
            Link::Raw => (0, 0),
            Link::Null | Link::Loop => (4, 0),
            Link::Ethernet => {
                let mut protocol_at = 12;
                let tag = |at: usize| {
                    matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]))
                };
                for _ in 0..TAGS_MAX {
                    protocol_at += if tag(protocol_at) { 4 } else { 0 };
                }
                (protocol_at + 2, protocol_at)
            }
            Link::Cooked => (16, 14),
            Link::Cooked2 => (20, 0),
        };
        let version = frame.get(header_len)? >> 4;
        let named = match self {
            Link::Raw | Link::Null | Link::Loop => true,
            _ => {
                let protocol = frame.get(protocol_at..protocol_at + 2)?;
                (protocol == ETHERTYPE_IPV4 && version == 4) || (protocol == ETHERTYPE_IPV6 && version == 6)
            }
        };
        (named && matches!(version, 4 | 6)).then_some(Layout { header_len, protocol_at })
    }

    /// Link header for a packet that replaces the one in `frame`. `answer` swaps the two Ethernet addresses.
    fn header(self, frame: &[u8], layout: Layout, packet: &[u8], answer: bool) -> Vec<u8> {
        let mut header = frame.get(..layout.header_len).unwrap_or_default().to_vec();
        let six = packet.first().is_some_and(|byte| byte >> 4 == 6);
        match self {
            Link::Raw => {}
            Link::Null | Link::Loop => set_family(&mut header, self == Link::Loop, six),
            Link::Ethernet | Link::Cooked | Link::Cooked2 => {
                let protocol = if six { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
                if let Some(field) = header.get_mut(layout.protocol_at..layout.protocol_at + 2) {
                    field.copy_from_slice(&protocol);
                }
            }
        }
        if answer && self == Link::Ethernet && header.len() >= 12 {
            let (to, rest) = header.split_at_mut(6);
            to.swap_with_slice(&mut rest[..6]);
        }
        header
    }
}

/// Writes the Linux address family into four bytes. The old number shows their byte order.
fn set_family(header: &mut [u8], network_order: bool, six: bool) {
    let family: u32 = if six { 10 } else { 2 };
    let big = network_order || header.first() == Some(&0);
    let bytes = if big { family.to_be_bytes() } else { family.to_le_bytes() };
    if let Some(field) = header.get_mut(..4) {
        field.copy_from_slice(&bytes);
    }
}

/// Captured frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Time since 1970.
    pub time: Duration,
    /// Bytes from the link header on.
    pub bytes: Vec<u8>,
    /// True if the capture truncated the frame.
    pub cut: bool,
}

/// Reader of pcap and pcapng files.
pub struct Reader<R: Read> {
    file: File<R>,
    link: Link,
    resolution: TsResolution,
}

type Input<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

enum File<R: Read> {
    Pcap(PcapReader<Input<R>>),
    PcapNg(PcapNgReader<Input<R>>),
    /// A pcapng file whose first packet had to be read to learn the interface.
    Empty,
}

impl<R: Read> Reader<R> {
    /// Opens a capture file and detects its format from its first bytes.
    ///
    /// # Errors
    /// Returns an error if the file is not a capture file, or its link layer carries no IP.
    pub fn new(mut input: R) -> io::Result<Self> {
        let mut magic = Vec::new();
        input.by_ref().take(4).read_to_end(&mut magic)?;
        let pcapng = magic == [0x0a, 0x0d, 0x0d, 0x0a];
        let input = io::Cursor::new(magic).chain(input);
        if pcapng {
            let file = File::PcapNg(PcapNgReader::new(input).map_err(broken)?);
            let mut reader = Reader { file, link: Link::Raw, resolution: TsResolution::NanoSecond };
            reader.find_link()?;
            return Ok(reader);
        }
        let reader =
            PcapReader::new(input).map_err(|_| invalid("the file is neither pcap nor pcapng".into()))?;
        let PcapHeader { datalink, ts_resolution, .. } = reader.header();
        Ok(Reader { file: File::Pcap(reader), link: Link::of(datalink)?, resolution: ts_resolution })
    }

    /// Link layer of all frames.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Returns true if times are in nanoseconds, false if they are in microseconds.
    pub fn nanoseconds(&self) -> bool {
        self.resolution == TsResolution::NanoSecond
    }

    /// Finds the link layer of a pcapng file, which describes its interfaces before their packets.
    fn find_link(&mut self) -> io::Result<()> {
        let File::PcapNg(reader) = &mut self.file else { return Ok(()) };
        loop {
            match reader.next_block() {
                None => {
                    self.file = File::Empty;
                    return Ok(());
                }
                Some(Ok(Block::InterfaceDescription(interface))) => {
                    self.link = Link::of(interface.linktype)?;
                    return Ok(());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(broken(error)),
            }
        }
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// Returns an error if the file is damaged, or a frame is longer than [`FRAME_MAX`]. The error kind is
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends inside a record, as it does when its writer was
    /// killed; all frames before it are valid.
    pub fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        let frame = match &mut self.file {
            File::Empty => None,
            File::Pcap(reader) => match reader.next_raw_packet() {
                None => None,
                Some(packet) => Some(frame_of_pcap(packet.map_err(broken)?, self.resolution)),
            },
            File::PcapNg(reader) => next_of_pcapng(reader, self.link)?,
        };
        match frame {
            Some(frame) if frame.bytes.len() > FRAME_MAX => {
                Err(invalid(format!("a frame of {} bytes", frame.bytes.len())))
            }
            frame => Ok(frame),
        }
    }
}

fn frame_of_pcap(packet: RawPcapPacket<'_>, resolution: TsResolution) -> Frame {
    let nanos = match resolution {
        TsResolution::MicroSecond => u64::from(packet.ts_frac) * 1000,
        TsResolution::NanoSecond => u64::from(packet.ts_frac),
    };
    Frame {
        time: Duration::from_secs(u64::from(packet.ts_sec)) + Duration::from_nanos(nanos),
        cut: packet.orig_len as usize > packet.data.len(),
        bytes: packet.data.into_owned(),
    }
}

fn next_of_pcapng<R: Read>(reader: &mut PcapNgReader<R>, link: Link) -> io::Result<Option<Frame>> {
    loop {
        // A block borrows the reader, which is needed afterwards to look up the interface.
        let (interface, raw_time, original_len, bytes) = match reader.next_block() {
            None => return Ok(None),
            Some(Err(error)) => return Err(broken(error)),
            Some(Ok(Block::EnhancedPacket(p))) => {
                (p.interface_id, p.timestamp.as_nanos() as u64, p.original_len, p.data.into_owned())
            }
            Some(Ok(Block::SimplePacket(p))) => (0, 0, p.original_len, p.data.into_owned()),
            Some(Ok(_)) => continue,
        };
        let Some(interface) = reader.interfaces().get(interface as usize) else {
            return Err(invalid(format!(
                "a packet refers to interface {interface}, which the file does not describe"
            )));
        };
        if Link::of(interface.linktype)? != link {
            return Err(invalid("the file has interfaces of different link layers".into()));
        }
        let time = time_of(raw_time, interface);
        let cut = original_len as usize > bytes.len();
        return Ok(Some(Frame { time, bytes, cut }));
    }
}

/// Converts a raw timestamp, which the reader library leaves in the interface's unit (`if_tsresol`).
fn time_of(raw: u64, interface: &InterfaceDescriptionBlock<'_>) -> Duration {
    let mut ticks_a_second = 1_000_000_u128;
    let mut offset = 0;
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(n) if n & 0x80 != 0 => ticks_a_second = 1 << (n & 0x3f),
            InterfaceDescriptionOption::IfTsResol(n) => ticks_a_second = 10_u128.pow(u32::from(*n).min(18)),
            InterfaceDescriptionOption::IfTsOffset(seconds) => offset = *seconds,
            _ => {}
        }
    }
    let nanos = u128::from(raw) * 1_000_000_000 / ticks_a_second;
    let seconds = (nanos / 1_000_000_000) as u64;
    Duration::new(seconds.wrapping_add(offset), (nanos % 1_000_000_000) as u32)
}

/// Writer of pcap files.
pub struct Writer<W: Write> {
    file: PcapWriter<W>,
    link: Link,
}

impl<W: Write> Writer<W> {
    /// Starts a file with times in nanoseconds or microseconds.
    ///
    /// # Errors
    /// Returns an error if `output` cannot be written.
    pub fn new(output: W, link: Link, nanoseconds: bool) -> io::Result<Self> {
        let header = PcapHeader {
            version_major: 2,
            version_minor: 4,
            ts_correction: 0,
            ts_accuracy: 0,
            snaplen: FRAME_MAX as u32,
            datalink: link.datalink(),
            ts_resolution: if nanoseconds { TsResolution::NanoSecond } else { TsResolution::MicroSecond },
            endianness: Endianness::Little,
        };
        Ok(Writer { file: PcapWriter::with_header(output, header).map_err(broken)?, link })
    }

    /// Writes an IP packet with the link header of the frame that it came from. With `answer`, it goes back
    /// to the frame's sender.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn write(
        &mut self,
        time: Duration,
        from: &Frame,
        layout: Layout,
        packet: &[u8],
        answer: bool,
    ) -> io::Result<()> {
        let mut bytes = self.link.header(&from.bytes, layout, packet, answer);
        bytes.extend_from_slice(packet);
        let frac = match self.file.ts_resolution() {
            TsResolution::MicroSecond => time.subsec_micros(),
            TsResolution::NanoSecond => time.subsec_nanos(),
        };
        let raw = RawPcapPacket {
            ts_sec: time.as_secs() as u32,
            ts_frac: frac,
            incl_len: bytes.len() as u32,
            orig_len: bytes.len() as u32,
            data: bytes.into(),
        };
        self.file.write_raw_packet(&raw).map(drop).map_err(broken)
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn finish(self) -> io::Result<()> {
        self.file.into_writer().flush()
    }
}

/// Writer of pcapng files with a comment on each frame.
pub struct CommentedWriter<W: Write> {
    file: pcap_file::pcapng::PcapNgWriter<W>,
}

impl<W: Write> CommentedWriter<W> {
    /// Starts a file with one interface per name.
    ///
    /// # Errors
    /// Returns an error if `output` cannot be written.
    pub fn new(output: W, link: Link, interfaces: &[&str]) -> io::Result<Self> {
        let mut file = pcap_file::pcapng::PcapNgWriter::new(output).map_err(broken)?;
        for &name in interfaces {
            let mut interface = InterfaceDescriptionBlock::new(link.datalink(), FRAME_MAX as u32);
            let options =
                [InterfaceDescriptionOption::IfName(name.into()), InterfaceDescriptionOption::IfTsResol(9)];
            interface.options.extend(options);
            file.write_pcapng_block(interface).map_err(broken)?;
        }
        Ok(CommentedWriter { file })
    }

    /// Writes a frame of an interface, by its number; `original_len` is its length before it was cut.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn write(
        &mut self,
        interface: u32,
        frame: &Frame,
        original_len: u32,
        comment: &str,
    ) -> io::Result<()> {
        use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
        // An option has 16 bits for its length, which the library does not check.
        let comment = &comment[..comment.floor_char_boundary(u16::MAX.into())];
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: frame.time,
            original_len,
            data: frame.bytes.as_slice().into(),
            options: vec![EnhancedPacketOption::Comment(comment.into())],
        };
        self.file.write_pcapng_block(block).map(drop).map_err(broken)
    }

    /// Finishes the file.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn finish(self) -> io::Result<()> {
        self.file.into_inner().flush()
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn broken(error: PcapError) -> io::Error {
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends inside a packet");
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => cut_off(),
        PcapError::IoError(error) => error,
        PcapError::IncompleteBuffer => cut_off(),
        other => invalid(format!("the file is damaged: {other}")),
    }
}
