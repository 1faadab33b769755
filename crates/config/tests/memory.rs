//! Memory of a full engine in RAM equals the prediction of `gatun check`.

use gatun_config::load_str;
use gatun_nat::{Instant, Nat, Plan, Verdict};
use gatun_wire::{HEADROOM, Packet};
use std::net::Ipv6Addr;

/// Bytes of this process in RAM, including reserved huge pages.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        rest.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    (kilobytes("VmRSS:") + kilobytes("HugetlbPages:")) * 1024
}

/// The first packet of a flow by its number: the protocols in turn, 16 flows per subscriber. It has no
/// checksum: engines update checksums incrementally.
fn packet(flow: u32, out: &mut [u8; 60]) -> usize {
    let (subscriber, of_it) = (flow / 48, flow % 48);
    let port = (1024 + of_it as u16).to_be_bytes();
    let src = Ipv6Addr::from(0x2001_0db8_0000_0000_u128 << 64 | u128::from(subscriber) << 64 | 1);
    out.fill(0);
    out[0] = 0x60;
    out[7] = 64;
    out[8..24].copy_from_slice(&src.octets());
    out[24..40].copy_from_slice(&"64:ff9b::808:808".parse::<Ipv6Addr>().unwrap().octets());
    let payload = &mut out[40..];
    let (proto, len) = match flow % 3 {
        0 => {
            payload[..2].copy_from_slice(&port);
            (payload[3], payload[12], payload[13]) = (80, 0x50, 2);
            (6, 20)
        }
        1 => {
            payload[..2].copy_from_slice(&port);
            (payload[3], payload[5], payload[6]) = (53, 8, 1);
            (17, 8)
        }
        _ => {
            payload[0] = 128;
            payload[4..6].copy_from_slice(&port);
            (58, 8)
        }
    };
    out[6] = proto;
    out[5] = len;
    40 + usize::from(len)
}

/// Opens sessions up to the limit.
fn fill(nat: &mut Nat, plan: &Plan) {
    let sessions = plan.limits.sessions_max;
    let mut buffers = vec![[0u8; HEADROOM + 60 + 64]; 64];
    let mut verdicts = [Verdict::Pass; 64];
    for first in (0..sessions).step_by(64) {
        let count = 64.min(sessions - first);
        let mut bytes = [0; 60];
        let mut burst: Vec<Packet<'_>> = (first..first + count)
            .zip(&mut buffers)
            .map(|(flow, buffer)| {
                let len = packet(flow, &mut bytes);
                buffer[HEADROOM..HEADROOM + 60].copy_from_slice(&bytes);
                Packet::new(buffer, HEADROOM, len).unwrap()
            })
            .collect();
        assert_eq!(nat.process(Instant(1_000), &mut burst, &mut verdicts), count as usize);
        let all = verdicts[..count as usize].iter().all(|v| *v == Verdict::Forward);
        assert!(all, "{:?}", &verdicts[..count as usize]);
    }
    assert_eq!(nat.occupancy().sessions, sessions as usize);
}

// A single test, because all tests of a file share a process.
#[test]
fn a_full_engine_takes_the_predicted_memory_within_five_percent() {
    // As the daemon does.
    gatun_mem::take_at_once(2);
    for allocation in ["\"random\"", "{ kind = \"blocks\", size = 32, blocks_per_subscriber = 3 }"] {
        let text = format!(
            r#"
[[pool]]
prefixes = "192.0.2.0-192.0.2.7"
ports = "1024-65535"
allocation = {allocation}
[[nat64]]
pool6 = "64:ff9b::/96"
[limits]
sessions_max = 600_000
subscribers_max = 12_500
syn_store_max = 1
fragment_entries_max = 1
fragment_bytes_max = 65_536
"#
        );
        let (config, _) = load_str(&text, "memory.toml").unwrap();
        let memory = config.memory();
        let said = memory.total();
        let before = resident();
        let mut nat = Nat::new(&config.plan, [1, 2, 3, 4]).unwrap();
        fill(&mut nat, &config.plan);
        let taken = resident() - before;
        let off = (taken as f64 / said as f64 - 1.0).abs();
        assert!(off < 0.05, "{allocation}: said {said}, took {taken}: {:+.1} %", off * 100.0);
        assert!((said - memory.tables.events) / 600_000 < 128, "{said}");
    }
}
