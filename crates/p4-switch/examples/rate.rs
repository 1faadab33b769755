//! Measures the pipeline: processor time of a packet in the P4 program, among few and many sessions, beside
//! plain forwarding by a table: in the same host, and by DPDK's own code and table. The ports are rings,
//! which are part of the time. Making and checking the frames is not.
//!
//! ```text
//!   rate [SESSIONS...]
//!   rate --count dpdk|forwarding|from-ipv6|from-ipv4    one round, for callgrind
//!   rate --insertions SESSIONS                          insertions among so many sessions, for callgrind
//! ```
//! `scripts/bench-p4 --packets`, `--steps` and `--count` run it.

use gatun_p4_switch::{
    Entry, Environment, EnvironmentConfig, Object, ObjectConfig, PortConfig, Switch, SwitchConfig,
};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Frames of a round. The rings have room for them.
const ROUND: usize = 256;
const ROUNDS: usize = 400;
/// Sessions of the shorter measurement.
const FEW: u64 = 1_024;
/// Sessions whose insertions are counted.
const COUNTED: u64 = 500;
const MAC: u64 = 0x0200_0000_0001;
const INSIDE: usize = 1;
const OUTSIDE: usize = 2;
const CLIENTS: u64 = 0x2001_0db8_0001_0000;
const PREFIX: u64 = 0x2001_0db8_0064_0000;
const SERVER: u64 = 0xc633_6407;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn switch(environment: Environment, spec: &str, sizes: Vec<(String, u32)>, dpdk_code: bool) -> Switch {
    let headers = here("../../target/tools/dpdk-headers");
    let config = ObjectConfig { headers, sizes, optimisation: 3, dpdk_code };
    let object = Object::compile(environment, &here(spec), &config);
    let config = SwitchConfig { ports: vec![PortConfig::default(); 4], buffers: 4096 };
    Switch::new(environment, &object.unwrap(), &config).unwrap()
}

/// Time of the thread in seconds.
fn processor_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Takes the frames that the pipeline has sent, and returns their number.
fn sent(switch: &mut Switch) -> usize {
    [INSIDE, OUTSIDE].map(|port| std::iter::from_fn(|| switch.take(port)).count()).iter().sum()
}

/// Frames of a table, in rounds.
struct Rounds<'s, F> {
    switch: &'s mut Switch,
    /// Number of sessions.
    count: u64,
    /// Frames of both directions of a session.
    frames: F,
    state: u64,
}

impl<F: Fn(u64) -> [Vec<u8>; 2]> Rounds<'_, F> {
    /// Gives frames of random sessions to the switch.
    fn put(&mut self) {
        for _ in 0..ROUND {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let frames = (self.frames)((self.state >> 33) % self.count);
            for (port, frame) in [INSIDE, OUTSIDE].into_iter().zip(frames) {
                self.switch.put(port, &frame).unwrap();
            }
        }
    }

    /// Takes the frames that were sent in `steps` for each packet: whether these were all.
    fn take(&mut self) -> bool {
        let in_time = sent(self.switch);
        self.switch.run(ROUND as u32 * 128);
        let late = sent(self.switch);
        assert_eq!(in_time + late, 2 * ROUND, "packets that the program forwards");
        late == 0
    }

    /// Steps of the pipeline that one packet takes: one in the host's own code.
    fn steps(&mut self) -> u32 {
        let is_enough = |steps: &u32| {
            self.put();
            self.switch.run(2 * ROUND as u32 * steps);
            self.take()
        };
        (1..100).find(is_enough).unwrap()
    }

    /// Nanoseconds of a packet in a round. Idle steps are not part of the time.
    fn time(&mut self, steps: u32) -> f64 {
        self.put();
        let begin = processor_seconds();
        self.switch.run(2 * ROUND as u32 * steps);
        let time = (processor_seconds() - begin) * 1e9 / (2 * ROUND) as f64;
        self.take();
        time
    }
}

/// A round whose instructions callgrind counts.
fn count_round<F: Fn(u64) -> [Vec<u8>; 2]>(mut rounds: Rounds<'_, F>) {
    let steps = rounds.steps();
    rounds.put();
    counted(rounds.switch, 2 * ROUND as u32 * steps);
    rounds.take();
    println!("{steps} steps, {} packets", 2 * ROUND);
}

#[inline(never)]
fn counted(switch: &mut Switch, steps: u32) {
    switch.run(steps);
}

fn rounds<F: Fn(u64) -> [Vec<u8>; 2]>(switch: &mut Switch, count: u64, frames: F) -> Rounds<'_, F> {
    Rounds { switch, count, frames, state: 0x9e37_79b9_7f4a_7c15 }
}

/// Medians of the times of a packet: plain forwarding and translation in turn, so that all have the same
/// machine.
fn compare(environment: Environment, count: u64) {
    let mut forwarding = [true, false].map(|dpdk_code| forwarding(environment, count, dpdk_code));
    let mut translating = sessions(environment, count);
    let [dpdk, own] = &mut forwarding;
    let (mut dpdk, mut own) = (rounds(dpdk, count, known), rounds(own, count, known));
    let mut translating = rounds(&mut translating, count, |n| [six(n), four(n)]);
    let steps = [dpdk.steps(), own.steps(), translating.steps()];
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        times[0].push(dpdk.time(steps[0]));
        times[1].push(own.time(steps[1]));
        times[2].push(translating.time(steps[2]));
    }
    let [dpdk, own, time] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    println!("{count:>9} {dpdk:>10.0} {own:>10.0} {time:>11.0}  {:>12.2} {:>12.2}", dpdk / time, own / time);
}

/// UDP over IPv6, 66 bytes, or over IPv4.
fn frame(kind: [u8; 2], ip: &[u8], ports: [u16; 2]) -> Vec<u8> {
    let mac = &MAC.to_be_bytes()[2..];
    let udp =
        [&ports[0].to_be_bytes()[..], &ports[1].to_be_bytes(), &[0, 12, 0x12, 0x34, 1, 2, 3, 4]].concat();
    [mac, &[2, 0, 0, 0, 0, 9], &kind, ip, &udp].concat()
}

fn six(n: u64) -> Vec<u8> {
    let addresses = [CLIENTS, n >> 8, PREFIX, SERVER].map(u64::to_be_bytes).concat();
    frame(
        [0x86, 0xdd],
        &[&[0x60, 0, 0, 0, 0, 12, 17, 64][..], &addresses].concat(),
        [5000 + (n & 0xff) as u16, 53],
    )
}

/// Public address and port of a session.
fn outside(n: u64) -> (u64, u64) {
    (0xc000_0200 + n / 60_000, 1024 + n % 60_000)
}

fn four(n: u64) -> Vec<u8> {
    let (address, port) = outside(n);
    let pair = (SERVER << 32 | address).to_be_bytes();
    let mut ip = [&[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0][..], &pair].concat();
    let sum: u32 = ip.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame([8, 0], &ip, [53, port as u16])
}

/// A switch with sessions, and room for as many as that.
fn sessions(environment: Environment, count: u64) -> Switch {
    sessions_of(environment, 0..count, count)
}

fn sessions_of(environment: Environment, present: Range<u64>, room: u64) -> Switch {
    let room = u32::try_from(room).unwrap().next_power_of_two();
    let sizes = ["flows6", "flows4"].map(|name| (format!("gatun_lookup_{name}"), room));
    let mut switch = switch(environment, "../../p4/gatun.spec", sizes.into(), false);
    let text = format!(
        "gatun_interfaces 1 0 gatun_interface_0 number=1 mac={MAC} ident_step=2 ident_first=1\n\
         gatun_interfaces 2 0 gatun_interface_0 number=2 mac={MAC} ident_step=2 ident_first=1\n\
         gatun_way_next_hops 1 gatun_way_next_hop_0 port=1 vid=0 mac=5 own_mac={MAC}\n\
         gatun_way_next_hops 2 gatun_way_next_hop_0 port=2 vid=0 mac=6 own_mac={MAC}\n"
    );
    switch.load(&text).unwrap();
    insert(&mut switch, present);
    switch
}

/// Inserts both entries of sessions.
fn insert(switch: &mut Switch, sessions: Range<u64>) {
    let tables = ["flows6", "flows4"].map(|name| switch.table(&format!("gatun_lookup_{name}")).unwrap());
    for n in sessions {
        let (address, port) = outside(n);
        let (host, inside_port) = (n >> 8, 5000 + (n & 0xff));
        let out = [address, SERVER, port, 53, 0x1234, 1500, n % 2048, 0xff, 0, 0, 2, 2 * n];
        let back =
            [PREFIX, SERVER, CLIENTS, host, 53, inside_port, 0xedcb, 1280, 1500, 0xff, 0, 0, 1, 2 * n + 1];
        for (table, key, action, data) in [
            (
                tables[0],
                &[CLIENTS, host, PREFIX, SERVER, inside_port, 53, 17][..],
                "gatun_lookup_to_ipv4_0",
                &out[..],
            ),
            (tables[1], &[SERVER, address, 53, port, 17], "gatun_lookup_to_ipv6_0", &back),
        ] {
            switch.insert(table, &Entry { key, action, data }).unwrap();
        }
    }
}

/// Insertions whose instructions callgrind counts, into tables of the same size.
fn count_insertions(environment: Environment, present: u64) {
    let mut switch = sessions_of(environment, 0..present, 1 << 20);
    counted_insertions(&mut switch, present..present + COUNTED);
    println!("{COUNTED} sessions");
}

#[inline(never)]
fn counted_insertions(switch: &mut Switch, sessions: Range<u64>) {
    insert(switch, sessions);
}

fn forwarding(environment: Environment, count: u64, dpdk_code: bool) -> Switch {
    let room = u32::try_from(2 * count).unwrap().next_power_of_two();
    let mut switch = switch(environment, "tests/forward.spec", vec![("known".into(), room)], dpdk_code);
    let known = switch.table("known").unwrap();
    for n in 0..2 * count {
        let data = [1 + n % 2, 0x86dd];
        switch.insert(known, &Entry { key: &[MAC, n], action: "forward", data: &data }).unwrap();
    }
    switch
}

/// The same frame, from two of the known senders.
fn known(n: u64) -> [Vec<u8>; 2] {
    [2 * n + 1, 2 * n].map(|n| {
        let mut frame = six(0);
        frame[6..12].copy_from_slice(&n.to_be_bytes()[2..]);
        frame
    })
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let environment =
        Environment::start(&EnvironmentConfig { memory_mb: 1024, arguments: Vec::new() }).unwrap();
    if let [count, program] = &words[..]
        && count == "--count"
    {
        match &program[..] {
            "dpdk" => count_round(rounds(&mut forwarding(environment, FEW, true), FEW, known)),
            "forwarding" => count_round(rounds(&mut forwarding(environment, FEW, false), FEW, known)),
            "from-ipv6" => {
                count_round(rounds(&mut sessions(environment, FEW), FEW, |n| [six(n), six(n)]));
            }
            _ => count_round(rounds(&mut sessions(environment, FEW), FEW, |n| [four(n), four(n)])),
        }
        return;
    }
    if let [insertions, present] = &words[..]
        && insertions == "--insertions"
    {
        return count_insertions(environment, present.parse().unwrap());
    }
    let counts: Vec<u64> = words.iter().map(|count| count.parse().unwrap()).collect();
    let counts = if counts.is_empty() { vec![FEW, 1_000_000] } else { counts };
    println!("ns of processor time for a packet; both directions at once");
    println!(
        "{:>9} {:>10} {:>10} {:>11}  {:>12} {:>12}",
        "sessions", "DPDK's", "forwarding", "translation", "ratio DPDK's", "ratio"
    );
    counts.into_iter().for_each(|count| compare(environment, count));
}
