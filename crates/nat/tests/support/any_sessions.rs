//! Arbitrary bytes as the session file of a previous process: an engine restores its sessions or refuses
//! them, and stays consistent. The fuzz target and the replay of its findings share this file.
//!
//! ```text
//!   0    1: sessions follow, written as by an engine and then damaged; otherwise, bytes of the file follow
//!        2: the file ends early    4: the engine gives out blocks    8: ports are shared    16: filters by address
//!   1    the clock, as a power of two of milliseconds
//!   ..   bytes of the file: 32 of the header, then records
//!   ..   or: sessions of 20 bytes; after one that begins with 0xff, damage: offset (16 bits), and change
//! ```

use gatun_mem::BorrowedFd;
use gatun_nat::inspect::{Selection, SessionCursor};
use gatun_nat::plan::*;
use gatun_nat::session_file::{
    self, InheritedSessions, Offload, Ownership, Renumbering, Replica, SavedSession, SavedSessions,
    SessionFilter,
};
use gatun_nat::tcp_fsm::TcpState;
use gatun_nat::{FeedCursor, Instant, Nat, Plan};
use gatun_wire::Prefix64;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

/// Offset of the records, and length of each, in layout `session_file::LAYOUT`.
const RECORDS_AT: u64 = 2 << 20;
const RECORD_LEN: usize = 64;
const HEADER_LEN: usize = 32;
const SAVED_LEN: usize = 20;
const REPLICAS: [Replica; 3] = [Replica::None, Replica::Told, Replica::Standby];
const OFFLOADS: [Offload; 4] = [Offload::Engine, Offload::Pending, Offload::Fast, Offload::Draining];

fn net(addr: [u8; 4], len: u8) -> Net4 {
    Net4::new(addr.into(), len).expect("host bits are zero")
}

/// Plan with tables so small that every limit is reached.
fn plan(kind: u8) -> Plan {
    let range = PoolRange {
        first: Ipv4Addr::new(203, 0, 113, 0),
        last: Ipv4Addr::new(203, 0, 113, 3),
        ports: (1024, 1151),
        transports: [true; 3],
    };
    let blocks = Blocks { size: 32, per_subscriber: 2, ..Blocks::default() };
    let allocation = if kind & 4 == 0 { Allocation::default() } else { Allocation::Blocks(blocks) };
    let overload = if kind & 8 == 0 { vec![] } else { vec![(Transport::Udp, 443), (Transport::Tcp, 443)] };
    let filtering = if kind & 16 == 0 { Filtering::EndpointIndependent } else { Filtering::AddressDependent };
    let binding = StaticBinding {
        transport: Transport::Tcp,
        inside: (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 80),
        outside: (Ipv4Addr::new(203, 0, 113, 0), 1024),
    };
    Plan {
        pools: vec![Pool4 {
            name: "pool".into(),
            ranges: vec![range],
            allocation,
            overload,
            ..Pool4::default()
        }],
        nat64: vec![Nat64 {
            name: "six".into(),
            pool6: vec![Prefix64::WELL_KNOWN],
            wkp_non_global: true,
            filtering,
            static_bindings: vec![binding],
            ..Nat64::default()
        }],
        nat44: vec![Nat44 {
            name: "four".into(),
            inside: vec![net([100, 64, 0, 0], 16)],
            filtering,
            ..Nat44::default()
        }],
        limits: Limits {
            sessions_max: 32,
            subscribers_max: 4,
            sessions_per_subscriber: 16,
            ports_per_subscriber: 12,
            ..Limits::default()
        },
        ..Plan::default()
    }
}

/// Makes a session that is often valid: of few hosts, at addresses and ports inside and outside the pool.
fn saved(bytes: &[u8; SAVED_LEN]) -> SavedSession {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let states = [TcpState::Established, TcpState::V6Init, TcpState::V4Init, TcpState::Trans];
    let instance = bytes[0] & 3;
    let inside = match instance {
        1 => Ipv4Addr::new(100, 64, bytes[1] & 1, bytes[2] & 7).to_ipv6_mapped(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, (bytes[1] & 7).into(), 0, 0, 0, (bytes[2] & 3).into()),
    };
    SavedSession {
        instance,
        pool6: bytes[0] >> 2 & 1,
        transport: Transport::ALL[usize::from(bytes[0] >> 3) % 3],
        inside: (inside, number(3)),
        outside: (Ipv4Addr::new(203, 0, 113, bytes[5] & 7), 1020 + (number(6) & 0xff)),
        remote: (
            Ipv4Addr::from([198, 51, 100, bytes[8] & 3]),
            if bytes[9] & 1 == 0 { 443 } else { number(10) },
        ),
        tcp: states[usize::from(bytes[12] & 3)],
        expires_ms: u32::from_be_bytes([bytes[13], bytes[14], bytes[15], bytes[16]]),
        shares_port: bytes[17] & 1 == 1,
        ownership: Ownership { epoch: u16::from(bytes[18]), offload: OFFLOADS[usize::from(bytes[19] & 3)] },
        replica: REPLICAS[usize::from(bytes[19] >> 3 & 3) % 3],
        quarantined: bytes[19] & 4 != 0,
    }
}

/// Makes the file that the input describes.
fn file(kind: u8, clock_ms: u64, bytes: &[u8]) -> File {
    let file = File::from(memfd_create("sessions", MemfdFlags::CLOEXEC).expect("memory"));
    if kind & 1 == 0 {
        let (header, records) = bytes.split_at(bytes.len().min(HEADER_LEN));
        let len = RECORDS_AT + records.len().next_multiple_of(RECORD_LEN) as u64;
        ftruncate(&file, if kind & 2 == 0 { len } else { len / 2 }).expect("memory");
        file.write_all_at(header, 0).expect("memory");
        if kind & 2 == 0 {
            file.write_all_at(records, RECORDS_AT).expect("memory");
        }
        return file;
    }
    let (chunks, _) = bytes.as_chunks::<SAVED_LEN>();
    let whole = chunks.iter().take_while(|chunk| chunk[0] != 0xff).count();
    let sessions: Vec<SavedSession> = chunks[..whole].iter().map(saved).collect();
    let len = session_file::bytes_of(sessions.len());
    ftruncate(&file, len).expect("memory");
    session_file::write(file.as_fd(), &sessions, clock_ms).expect("the file is long enough");
    for damage in bytes[whole * SAVED_LEN..].chunks_exact(3).skip(1) {
        let place = u64::from(u16::from_be_bytes([damage[0], damage[1]]));
        let at = if place < HEADER_LEN as u64 { place } else { RECORDS_AT + place };
        let mut byte = [0];
        if file.read_exact_at(&mut byte, at).is_ok() {
            file.write_all_at(&[byte[0] ^ damage[2]], at).expect("memory");
        }
    }
    if kind & 2 != 0 {
        ftruncate(&file, len - 1).expect("memory");
    }
    file
}

/// Endpoints of a session, for comparison.
type Ends = (u8, u8, (Ipv6Addr, u16), (Ipv4Addr, u16), (Ipv4Addr, u16));

fn sessions(nat: &Nat) -> BTreeSet<Ends> {
    let (mut at, mut all) = (SessionCursor::default(), Vec::new());
    while !at.done {
        let mut some = Vec::with_capacity(64);
        nat.read_sessions(&mut at, &Selection::default(), 64, &mut some);
        all.extend(some);
    }
    all.iter().map(|s| (s.instance, s.transport as u8, s.inside, s.outside, s.remote)).collect()
}

/// Restores the sessions of such a file in an engine, and lets them expire. Returns the number of restored
/// ones.
pub(crate) fn run(input: &[u8]) -> usize {
    let [kind, clock, bytes @ ..] = input else { return 0 };
    let clock_ms = (1u64 << (clock % 64)) >> 1;
    let file = file(*kind, clock_ms, bytes);
    let fd: BorrowedFd<'_> = file.as_fd();
    let Ok(records) = SavedSessions::read(fd, clock_ms) else { return 0 };
    let mut nat = Nat::new(&plan(*kind), [1, 2, 3, 4]).expect("the plan is right");
    let now = Instant(1_000);
    let found: Vec<SavedSession> = records.sessions().collect();
    let numbers = Renumbering { instances: vec![Some((0, vec![Some(0)])), Some((1, vec![]))] };
    let part = nat
        .finder()
        .find(InheritedSessions { records, numbers }, &SessionFilter::All)
        .expect("there is memory");
    nat.inherit(now, vec![part]);
    while !nat.restore_some(now, 7) {}
    let progress = nat.progress();
    assert_eq!(progress.left, 0);
    assert_eq!(progress.restored + progress.not.iter().sum::<u64>(), found.len() as u64);
    let ends = |s: &SavedSession| (s.instance, s.transport as u8, s.inside, s.outside, s.remote);
    let offered: BTreeSet<Ends> = found.iter().map(ends).collect();
    let restored = sessions(&nat);
    assert!(restored.is_subset(&offered), "{restored:?}");
    let quarantined = nat.occupancy().quarantined;
    assert_eq!((restored.len() + quarantined) as u64, progress.restored, "two sessions are the same");
    assert_eq!(nat.occupancy().sessions, restored.len());
    assert!(nat.conserved_by_instance());
    // No fast path has any of them.
    nat.release_all(now, &mut FeedCursor::default(), usize::MAX);
    // Whatever their remaining lifetime, they expire. Only the static binding stays. An established TCP
    // connection is probed first (RFC 6146 3.5.2.2).
    for day in 1..4 {
        nat.expire(now.plus_ms(day << 40), 1 << 16);
    }
    let left = nat.occupancy();
    assert_eq!((left.sessions, left.bindings, left.quarantined), (0, 1, 0), "{restored:?}");
    assert!(nat.conserved_by_instance());
    restored.len()
}
