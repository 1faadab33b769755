//! Load time of a million explicit address mappings, inline and from a file: `scripts/bench-config`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const MAPPINGS: u32 = 1_000_000;

fn pairs() -> impl Iterator<Item = (Ipv4Addr, Ipv6Addr)> {
    // Mixed order: multiplying by an odd number permutes the low 24 bits.
    (0..MAPPINGS).map(|n| {
        let mixed = n.wrapping_mul(0x9e_3779) & 0xff_ffff;
        let v6 = 0x2001_0db8_0001_0000_0000_0000_0000_0000_u128 | u128::from(mixed) << 16;
        (Ipv4Addr::from(0x0b00_0000 | mixed), Ipv6Addr::from(v6))
    })
}

fn main() {
    let dir = std::env::temp_dir().join(format!("gatun-million-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    let mut file = String::new();
    let mut inline = String::from("[[siit]]\neam = [\n");
    for (v4, v6) in pairs() {
        let _ = writeln!(file, "{v4} {v6}");
        let _ = writeln!(inline, "  {{ v4 = \"{v4}\", v6 = \"{v6}\" }},");
    }
    inline.push_str("]\n");
    std::fs::write(dir.join("eam.txt"), file).expect("room for 40 MB");
    let from_file = "[[siit]]\neam_file = \"eam.txt\"\n";
    for (kind, text) in [("eam_file", from_file), ("inline", inline.as_str())] {
        let start = Instant::now();
        let (config, _) = gatun_config::load_str(text, &dir.join("gatun.toml").display().to_string())
            .unwrap_or_else(|report| panic!("{report}"));
        let ms = start.elapsed().as_millis();
        let mappings = config.plan.siit[0].eamt.len();
        assert_eq!(mappings, MAPPINGS as usize);
        println!("{kind}: {mappings} mappings in {ms} ms; peak memory {}", peak_memory());
    }
    std::fs::remove_dir_all(&dir).expect("the directory was ours");
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("VmHWM: ?");
    peak.trim_start_matches("VmHWM:").trim().to_owned()
}
