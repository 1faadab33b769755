//! XDP program: redirects the translator's packets to the socket of their queue and passes everything else to
//! the kernel, which works as if there were no translator.
//!
//! ```text
//!   Ethernet, up to two VLAN tags
//!     IPv6, neighbour solicitation to a group:  target -> to6 -+
//!     IPv6:                                destination -> to6 -+-> OURS ------> socket of this queue
//!     IPv4:                                destination -> to4 -+-> KERNEL ----> kernel
//!                                  not there:  source -> from4 +-> not there -> kernel
//!     ARP:                                      target -> to4 -'
//! ```
//! The tables are longest-prefix-match tries that can be changed while the program runs. Frames that cannot
//! be parsed (too short, unknown type) go to the kernel.
//!
//! A neighbour solicitation goes to a group derived from the last 24 bits of its target (RFC 4291 2.7.1).
//! Addresses of the kernel and of the translator often have the same last bits, so the target decides.

use crate::asm::{Assembler, Helper, Insn, Label, Reg, Width};
use crate::bpf::{self, MapKind};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Largest number of prefixes per table. Memory is allocated per entry.
const PREFIXES_MAX: u32 = 4 << 20;

/// Owner of the packets of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Owner {
    /// The translator.
    Gatun = 1,
    /// The kernel, although a shorter prefix belongs to the translator.
    Kernel = 2,
}

/// Prefix tables that the programs of all interfaces share.
#[derive(Debug)]
pub(crate) struct PrefixTables {
    to6: OwnedFd,
    to4: OwnedFd,
    from4: OwnedFd,
}

/// Prefix in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrefixRule {
    /// IPv6 packets to the prefix.
    To6(Ipv6Addr, u8),
    /// IPv4 packets to the prefix, and ARP about it.
    To4(Ipv4Addr, u8),
    /// IPv4 packets from the prefix, if no rule matches their destination.
    From4(Ipv4Addr, u8),
}

impl PrefixTables {
    /// Creates empty tables.
    pub(crate) fn new() -> io::Result<Self> {
        let trie = |name, address_len: u32| {
            bpf::create_map(MapKind::LpmTrie, name, 4 + address_len, size_of::<u32>() as u32, PREFIXES_MAX)
        };
        Ok(PrefixTables {
            to6: trie("gatun_to6", 16)?,
            to4: trie("gatun_to4", 4)?,
            from4: trie("gatun_from4", 4)?,
        })
    }

    /// Tables from their files, see [`files`](Self::files).
    pub(crate) fn from_files([to6, to4, from4]: [OwnedFd; 3]) -> Self {
        PrefixTables { to6, to4, from4 }
    }

    /// Duplicates of the tables' files.
    pub(crate) fn files(&self) -> io::Result<[OwnedFd; 3]> {
        Ok([self.to6.try_clone()?, self.to4.try_clone()?, self.from4.try_clone()?])
    }

    /// Sets the owner of a prefix.
    pub(crate) fn set(&self, entry: PrefixRule, owner: Owner) -> io::Result<()> {
        match entry {
            PrefixRule::To6(addr, len) => bpf::update(&self.to6, key6(addr, len), owner as u32),
            PrefixRule::To4(addr, len) => bpf::update(&self.to4, key4(addr, len), owner as u32),
            PrefixRule::From4(addr, len) => bpf::update(&self.from4, key4(addr, len), owner as u32),
        }
    }

    /// Removes a prefix.
    pub(crate) fn remove(&self, entry: PrefixRule) -> io::Result<()> {
        match entry {
            PrefixRule::To6(addr, len) => bpf::delete(&self.to6, key6(addr, len)),
            PrefixRule::To4(addr, len) => bpf::delete(&self.to4, key4(addr, len)),
            PrefixRule::From4(addr, len) => bpf::delete(&self.from4, key4(addr, len)),
        }
    }
}

/// `struct bpf_lpm_trie_key`: the length in the machine's byte order, then the address.
fn key6(addr: Ipv6Addr, len: u8) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(len).to_ne_bytes());
    key[4..].copy_from_slice(&addr.octets());
    key
}

fn key4(addr: Ipv4Addr, len: u8) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&u32::from(len).to_ne_bytes());
    key[4..].copy_from_slice(&addr.octets());
    key
}

/// Loaded program of one interface, with the sockets to which it redirects packets.
#[derive(Debug)]
pub(crate) struct Program {
    program: OwnedFd,
    sockets: OwnedFd,
}

impl Program {
    /// Loads the program for an interface with this many queues.
    pub(crate) fn load(tables: &PrefixTables, queues: u32) -> io::Result<Self> {
        let sockets = bpf::create_map(MapKind::XskMap, "gatun_sockets", 4, 4, queues)?;
        let code = code([&tables.to6, &tables.to4, &tables.from4, &sockets].map(AsRawFd::as_raw_fd));
        Ok(Program { program: bpf::load(&code, "gatun")?, sockets })
    }

    /// Loaded program from its files: the program and the map of its sockets.
    pub(crate) fn from_files(program: OwnedFd, sockets: OwnedFd) -> Self {
        Program { program, sockets }
    }

    /// Files of the program.
    pub(crate) fn into_files(self) -> (OwnedFd, OwnedFd) {
        (self.program, self.sockets)
    }

    /// Redirects the packets of a queue to a socket.
    pub(crate) fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        bpf::update(&self.sockets, queue.to_ne_bytes(), socket.as_raw_fd() as u32)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// Smallest XDP result that lets a packet continue (`enum xdp_action`).
const XDP_PASS: i32 = 2;

const ETHERNET_LEN: i16 = 14;
const TYPE_AT: i16 = 12;
const TAG_LEN: i16 = 4;
const TAGS_MAX: usize = 2;
const IPV4_LEN: i16 = 20;
const IPV6_LEN: i16 = 40;
const ARP_LEN: i16 = 28;
/// ICMPv6 header and target of a solicitation (RFC 4861 4.3).
const SOLICITATION_LEN: i16 = 24;
/// Lowest stack offset used: the key.
const KEY_AT: i16 = -24;

/// Value of a big-endian field when it is read in the machine's byte order.
fn be16(value: u16) -> i32 {
    i32::from(value.to_be())
}

fn be32(value: u32) -> u32 {
    value.to_be()
}

/// R6 is the context, R7 the start of the Ethernet header as if there were no tags, R8 the end of the packet.
struct CodeWriter {
    asm: Assembler,
    pass: Label,
    take: Label,
    maps: [RawFd; 4],
}

fn code(maps: [RawFd; 4]) -> Vec<Insn> {
    let mut asm = Assembler::default();
    let [pass, take, v6, v4, arp] = std::array::from_fn(|_| asm.label());
    let mut w = CodeWriter { asm, pass, take, maps };
    w.begin();
    w.asm.jump_eq(Reg::R3, be16(0x86dd), v6);
    w.asm.jump_eq(Reg::R3, be16(0x0800), v4);
    w.asm.jump_eq(Reg::R3, be16(0x0806), arp);
    w.asm.jump(pass);
    w.asm.set(v6);
    w.ipv6();
    w.asm.set(v4);
    w.ipv4();
    w.asm.set(arp);
    w.arp();
    w.end();
    w.asm.finish()
}

impl CodeWriter {
    /// Exits if fewer than `len` bytes follow R7.
    fn need(&mut self, len: i16) {
        self.asm.mov_reg(Reg::R2, Reg::R7);
        self.asm.add(Reg::R2, i32::from(len));
        self.asm.jump_gt(Reg::R2, Reg::R8, self.pass);
    }

    /// Loads the ethertype after the tags into R3.
    fn begin(&mut self) {
        self.asm.mov_reg(Reg::R6, Reg::R1);
        // `struct xdp_md`: data, data_end, ..., rx_queue_index at 16.
        self.asm.load(Width::Four, Reg::R7, Reg::R6, 0);
        self.asm.load(Width::Four, Reg::R8, Reg::R6, 4);
        self.need(ETHERNET_LEN);
        self.asm.load(Width::Two, Reg::R3, Reg::R7, TYPE_AT);
        let untagged = self.asm.label();
        for _ in 0..TAGS_MAX {
            let tagged = self.asm.label();
            self.asm.jump_eq(Reg::R3, be16(0x8100), tagged);
            self.asm.jump_ne(Reg::R3, be16(0x88a8), untagged);
            self.asm.set(tagged);
            self.asm.add(Reg::R7, i32::from(TAG_LEN));
            self.need(ETHERNET_LEN);
            self.asm.load(Width::Two, Reg::R3, Reg::R7, TYPE_AT);
        }
        self.asm.set(untagged);
    }

    /// Copies an address from the packet after the key length, and looks the key up. R0 is the address of the
    /// value, or zero.
    ///
    /// The key is written in whole stack slots, two words together. Linux 6.1's verifier refuses a second
    /// store to a slot ("attempt to corrupt spilled pointer on stack") if the loader lacks CAP_PERFMON.
    fn look_up(&mut self, map: RawFd, at: i16, len: i16) {
        self.asm.mov(Reg::R2, i32::from(len) * 8);
        self.asm.load(Width::Four, Reg::R3, Reg::R7, at);
        self.store_words(KEY_AT);
        for word in (4..len).step_by(8) {
            self.asm.load(Width::Four, Reg::R2, Reg::R7, at + word);
            match word + 4 < len {
                true => self.asm.load(Width::Four, Reg::R3, Reg::R7, at + word + 4),
                // Bytes after the key are unused and complete the slot.
                false => self.asm.mov(Reg::R3, 0),
            }
            self.store_words(KEY_AT + 4 + word);
        }
        self.asm.load_map(Reg::R1, map);
        self.asm.mov_reg(Reg::R2, Reg::R10);
        self.asm.add(Reg::R2, i32::from(KEY_AT));
        self.asm.call(Helper::MapLookup);
    }

    /// Stores the words of R2 and R3, in this order, as one stack slot.
    fn store_words(&mut self, slot: i16) {
        let later = if cfg!(target_endian = "little") { Reg::R3 } else { Reg::R2 };
        self.asm.shift_left(later, 32);
        self.asm.or(Reg::R2, Reg::R3);
        self.asm.store(Width::Eight, Reg::R10, slot, Reg::R2);
    }

    /// Redirects or passes the packet, by the value that R0 points to.
    fn judge(&mut self) {
        self.asm.load(Width::Four, Reg::R1, Reg::R0, 0);
        self.asm.jump_eq(Reg::R1, Owner::Gatun as i32, self.take);
        self.asm.jump(self.pass);
    }

    fn ipv6(&mut self) {
        const NEXT_HEADER: i16 = ETHERNET_LEN + 6;
        const DST: i16 = ETHERNET_LEN + 24;
        const TYPE: i16 = ETHERNET_LEN + IPV6_LEN;
        const TARGET: i16 = TYPE + 8;
        let to6 = self.maps[0];
        let [by_destination, found] = std::array::from_fn(|_| self.asm.label());
        self.need(ETHERNET_LEN + IPV6_LEN);
        // ff02::1:ff00:0/104
        for (word, value) in [0xff02_0000, 0, 1].into_iter().enumerate() {
            self.asm.load(Width::Four, Reg::R2, Reg::R7, DST + 4 * word as i16);
            self.asm.jump_ne_32(Reg::R2, be32(value), by_destination);
        }
        self.asm.load(Width::One, Reg::R2, Reg::R7, DST + 12);
        self.asm.jump_ne(Reg::R2, 0xff, by_destination);
        self.asm.load(Width::One, Reg::R2, Reg::R7, NEXT_HEADER);
        self.asm.jump_ne(Reg::R2, 58, self.pass);
        self.need(ETHERNET_LEN + IPV6_LEN + SOLICITATION_LEN);
        self.asm.load(Width::One, Reg::R2, Reg::R7, TYPE);
        self.asm.jump_ne(Reg::R2, 135, self.pass);
        self.look_up(to6, TARGET, 16);
        self.asm.jump(found);
        self.asm.set(by_destination);
        self.look_up(to6, DST, 16);
        self.asm.set(found);
        self.asm.jump_eq(Reg::R0, 0, self.pass);
        self.judge();
    }

    fn ipv4(&mut self) {
        const SRC: i16 = ETHERNET_LEN + 12;
        const DST: i16 = ETHERNET_LEN + 16;
        let [_, to4, from4, _] = self.maps;
        let by_source = self.asm.label();
        self.need(ETHERNET_LEN + IPV4_LEN);
        self.look_up(to4, DST, 4);
        self.asm.jump_eq(Reg::R0, 0, by_source);
        self.judge();
        self.asm.set(by_source);
        self.look_up(from4, SRC, 4);
        self.asm.jump_eq(Reg::R0, 0, self.pass);
        self.judge();
    }

    fn arp(&mut self) {
        const TARGET: i16 = ETHERNET_LEN + 24;
        let to4 = self.maps[1];
        self.need(ETHERNET_LEN + ARP_LEN);
        self.look_up(to4, TARGET, 4);
        self.asm.jump_eq(Reg::R0, 0, self.pass);
        self.judge();
    }

    fn end(&mut self) {
        self.asm.set(self.take);
        self.asm.load_map(Reg::R1, self.maps[3]);
        self.asm.load(Width::Four, Reg::R2, Reg::R6, 16);
        // For a queue without a socket, the kernel gets the packets.
        self.asm.mov(Reg::R3, XDP_PASS);
        self.asm.call(Helper::RedirectMap);
        self.asm.exit();
        self.asm.set(self.pass);
        self.asm.mov(Reg::R0, XDP_PASS);
        self.asm.exit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatun_testkit::packet::{V4, V6, text};

    /// `None` if this process may not load programs and such tests may be skipped.
    fn tables() -> Option<PrefixTables> {
        let skip = |e| gatun_testkit::skip(&format!("cannot create BPF maps: {e}"));
        PrefixTables::new().map_err(skip).ok()
    }

    /// Frame with this many VLAN tags.
    fn frame(tags: usize, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xa5; 12];
        for tag in 0..tags {
            let kind: u16 = if tag + 1 < tags { 0x88a8 } else { 0x8100 };
            frame.extend(kind.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn ipv6(dst: &str, next_header: u8, payload: &[u8]) -> Vec<u8> {
        V6::new(text::v6("2001:db8:9::9"), text::v6(dst)).raw(next_header, payload)
    }

    fn ipv4(src: &str, dst: &str) -> Vec<u8> {
        V4::new(text::v4(src), text::v4(dst)).raw(17, &[])
    }

    fn arp(target: &str) -> Vec<u8> {
        let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
        packet.extend([2, 0, 0, 0, 0, 9, 192, 0, 2, 9, 0, 0, 0, 0, 0, 0]);
        packet.extend(target.parse::<Ipv4Addr>().unwrap().octets());
        packet
    }

    fn solicitation(kind: u8, target: &str) -> Vec<u8> {
        let target: Ipv6Addr = target.parse().unwrap();
        let [.., a, b, c] = target.octets();
        let group =
            Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c));
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend(target.octets());
        ipv6(&group.to_string(), 58, &message)
    }

    /// Program that returns 1 (XDP_DROP) for a missing socket, as in this test.
    fn program(tables: &PrefixTables) -> OwnedFd {
        let sockets = bpf::create_map(MapKind::XskMap, "test", 4, 4, 1).unwrap();
        let maps = [&tables.to6, &tables.to4, &tables.from4, &sockets].map(AsRawFd::as_raw_fd);
        let mut code = code(maps);
        const MOV_R3: u64 = 0x03b7;
        let fall_back = code.iter().rposition(|insn| insn & 0xffff == MOV_R3).unwrap();
        code[fall_back] = MOV_R3 | 1 << 32;
        bpf::load(&code, "test").unwrap()
    }

    fn takes(program: &OwnedFd, frame: &[u8]) -> bool {
        match bpf::test_run(program, frame).unwrap() {
            1 => true,
            2 => false,
            other => panic!("XDP answer {other}"),
        }
    }

    /// Linux 6.1 refuses other programs if the loader lacks CAP_PERFMON.
    #[test]
    fn each_stack_slot_is_written_once_and_as_a_whole() {
        const FRAME: u64 = 10;
        const STORES: [u64; 2] = [0x02, 0x03];
        const CALL: u64 = 0x85;
        const SLOT: i16 = 8;
        let keys = [1, 2, 3].map(|map| [map, if map == 1 { 20 } else { 8 }]);
        let mut maps = Vec::new();
        let mut written: Vec<i16> = Vec::new();
        let mut lookups = 0;
        for insn in code([1, 2, 3, 4]) {
            let (op, dst, offset) = (insn & 0xff, insn >> 8 & 0xf, (insn >> 16) as i16);
            if STORES.contains(&(op & 7)) {
                assert_eq!(dst, FRAME, "{insn:#x} does not write to the stack");
                assert_eq!(
                    (op & 0x18, offset % SLOT),
                    (Width::Eight as u64, 0),
                    "{insn:#x} writes half a slot"
                );
                assert!(!written.contains(&offset), "{insn:#x} writes a slot twice");
                written.push(offset);
            }
            if op == 0x18 {
                maps.push((insn >> 32) as i16);
            }
            if op == CALL && insn >> 32 == Helper::MapLookup as u64 {
                let [_, len] = *keys.iter().find(|[map, _]| maps.last() == Some(map)).unwrap();
                let slots: Vec<i16> = (KEY_AT..KEY_AT + len).step_by(SLOT as usize).collect();
                assert_eq!(written, slots, "the key of the map {:?}", maps.last());
                written.clear();
                lookups += 1;
            }
        }
        assert_eq!((lookups, written.len()), (5, 0));
    }

    #[test]
    fn the_program_takes_only_the_translators_packets_after_up_to_two_tags() {
        let Some(tables) = tables() else { return };
        let program = program(&tables);
        let six = |addr: &str, len| PrefixRule::To6(addr.parse().unwrap(), len);
        let four = |addr: &str, len| PrefixRule::To4(addr.parse().unwrap(), len);
        for (entry, owner) in [
            (six("64:ff9b::", 96), Owner::Gatun),
            (six("2001:db8::64", 128), Owner::Gatun),
            (six("64:ff9b::7f00:0", 112), Owner::Kernel),
            (four("192.0.2.0", 28), Owner::Gatun),
            (four("10.0.0.1", 32), Owner::Kernel),
            (PrefixRule::From4(Ipv4Addr::new(100, 64, 0, 0), 10), Owner::Gatun),
            (PrefixRule::From4(Ipv4Addr::new(100, 64, 7, 0), 24), Owner::Kernel),
        ] {
            tables.set(entry, owner).unwrap();
        }
        let cases = [
            (0x86dd, ipv6("64:ff9b::c000:221", 17, &[0; 8]), true),
            (0x86dd, ipv6("64:ff9b::7f00:1", 17, &[0; 8]), false),
            (0x86dd, ipv6("64:ff9b:0:0:1::", 17, &[0; 8]), false),
            (0x86dd, ipv6("2001:db8::64", 58, &[136; 24]), true),
            (0x86dd, ipv6("2001:db8::65", 58, &[136; 24]), false),
            (0x86dd, ipv6("ff02::1", 58, &[136; 24]), false),
            (0x86dd, solicitation(135, "2001:db8::64"), true),
            (0x86dd, solicitation(135, "64:ff9b::c000:221"), true),
            // The same group as one of our addresses.
            (0x86dd, solicitation(135, "2001:db8:1::64"), false),
            (0x86dd, solicitation(136, "2001:db8::64"), false),
            (0x0800, ipv4("198.51.100.1", "192.0.2.15"), true),
            (0x0800, ipv4("198.51.100.1", "192.0.2.16"), false),
            (0x0800, ipv4("100.64.0.2", "198.51.100.1"), true),
            (0x0800, ipv4("100.128.0.2", "198.51.100.1"), false),
            (0x0800, ipv4("100.64.0.2", "10.0.0.1"), false),
            (0x0800, ipv4("100.64.7.2", "198.51.100.1"), false),
            (0x0806, arp("192.0.2.3"), true),
            (0x0806, arp("10.0.0.1"), false),
            (0x0806, arp("10.0.0.2"), false),
            (0x88cc, ipv4("100.64.0.2", "192.0.2.3"), false),
        ];
        for (kind, packet, ours) in cases {
            for tags in 0..=2 {
                let frame = frame(tags, kind, &packet);
                assert_eq!(takes(&program, &frame), ours, "{tags} tags, {kind:#x}, {packet:02x?}");
                // Truncated anywhere, the frame goes to the kernel, or its readable part is treated as
                // before.
                for len in 14..frame.len() {
                    assert!(ours || !takes(&program, &frame[..len]), "{len} bytes of {frame:02x?}");
                }
            }
            assert!(!takes(&program, &frame(3, kind, &packet)), "a third tag");
        }
        tables.remove(six("64:ff9b::7f00:0", 112)).unwrap();
        assert!(takes(&program, &frame(0, 0x86dd, &ipv6("64:ff9b::7f00:1", 17, &[]))));
    }
}
