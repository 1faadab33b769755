//! `gatun translate` on small captures, read back by tshark, an independent reader.

use gatun_testkit::packet::text;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIG: &str = r#"
[[pool]]
prefixes = ["192.0.2.0/28"]
[[nat64]]
pool6 = "2001:db8:64::/96"
"#;

/// Temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("gatun-translate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("gatun.toml"), CONFIG).unwrap();
        Scratch(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn translate(&self, input: &Path, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatun"));
        command.arg("translate").arg(input).arg(self.file("out.pcap"));
        gatun_testkit::output(command.arg("--config").arg(self.file("gatun.toml")).args(more)).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// UDP packet from an inside host to 198.51.100.7.
fn udp6(payload: &[u8]) -> Vec<u8> {
    text::udp6("2001:db8::1", 5000, "2001:db8:64::198.51.100.7", 53, payload)
}

/// Hand-made pcap file: header (magic, 2.4, snap length, link type), then records.
fn pcap(link: u32, nanoseconds: bool, frames: &[(u32, u32, Vec<u8>)]) -> Vec<u8> {
    let magic: u32 = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut file = Vec::new();
    for word in [magic, 2 | 4 << 16, 0, 0, 65_535, link] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (seconds, fraction, frame) in frames {
        for word in [*seconds, *fraction, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

/// Hand-made pcapng file: section header, one interface with times in microseconds, packets.
fn pcapng(link: u32, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = 12 + body.len() as u32;
        [&kind.to_le_bytes()[..], &len.to_le_bytes(), body, &len.to_le_bytes()].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend_from_slice(&[1, 0, 0, 0]);
    section.extend_from_slice(&u64::MAX.to_le_bytes());
    let mut file = block(0x0a0d_0d0a, &section);
    let interface = [link.to_le_bytes(), 0_u32.to_le_bytes()].concat();
    file.extend(block(1, &interface));
    for (micros, frame) in frames {
        let mut body = Vec::new();
        for word in [0, (micros >> 32) as u32, *micros as u32, frame.len() as u32, frame.len() as u32] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, &body));
    }
    file
}

const MAC_DST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_SRC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet(tags: &[u8], ethertype: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&MAC_DST[..], &MAC_SRC, tags, &ethertype, packet].concat()
}

/// Fields of a capture from tshark, which verifies checksums; `None` if it is not installed and skipping is
/// allowed.
fn tshark(file: &Path, fields: &[&str]) -> Option<String> {
    if let Some(why) = gatun_testkit::missing(&[("tshark", "tshark")]) {
        gatun_testkit::skip(&why);
        return None;
    }
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    command.args(["-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = gatun_testkit::output(&mut command).unwrap();
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

const FIELDS: &[&str] = &[
    "frame.time_epoch",
    "frame.encap_type",
    "ip.dst",
    "ip.ttl",
    "ip.checksum.status",
    "udp.dstport",
    "udp.checksum.status",
    "data.data",
];

fn assert_ok(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn raw_ip_is_translated_and_its_time_is_kept() {
    let scratch = Scratch::new("raw");
    let input = scratch.file("in.pcap");
    std::fs::write(&input, pcap(101, true, &[(1_700_000_000, 123_456_789, udp6(b"hello"))])).unwrap();
    let output = scratch.translate(&input, &["--json"]);
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["rx"].as_u64(), json["translated_v6_to_v4"].as_u64()), (Some(1), Some(1)), "{json}");
    if let Some(read) = tshark(&scratch.file("out.pcap"), FIELDS) {
        // encap 7 is raw IP. tshark does not decode port 53 as data, so the payload is checked below.
        assert_eq!(read.trim_end(), "1700000000.123456789|7|198.51.100.7|63|1|53|1|", "{read}");
    }
    let bytes = std::fs::read(scratch.file("out.pcap")).unwrap();
    assert!(bytes.ends_with(b"hello"));
    assert_eq!(bytes.len(), 24 + 16 + 20 + 8 + 5);
}

#[test]
fn ethernet_keeps_its_addresses_and_tags_and_changes_its_type() {
    let scratch = Scratch::new("ethernet");
    let input = scratch.file("in.pcap");
    let tag = [0x81, 0x00, 0x00, 0x2a];
    let frames = [
        (10, 500_000, ethernet(&[], [0x86, 0xdd], &udp6(b"plain"))),
        (11, 600_000, ethernet(&tag, [0x86, 0xdd], &udp6(b"tagged"))),
        (12, 0, ethernet(&[], [0x08, 0x06], &[0; 28])),
    ];
    std::fs::write(&input, pcap(1, false, &frames)).unwrap();
    let output = scratch.translate(&input, &["--json"]);
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["frames", "not_ip", "rx", "forwarded", "written"].map(|name| json[name].as_u64().unwrap());
    assert_eq!(counts, [3, 1, 2, 2, 2], "{json}");
    let fields = ["frame.time_epoch", "eth.dst", "eth.src", "vlan.id", "ip.dst", "udp.checksum.status"];
    if let Some(read) = tshark(&scratch.file("out.pcap"), &fields) {
        let expected = "10.500000000|02:00:00:00:00:01|02:00:00:00:00:02||198.51.100.7|1\n\
                        11.600000000|02:00:00:00:00:01|02:00:00:00:00:02|42|198.51.100.7|1\n";
        assert_eq!(read, expected);
    }
}

#[test]
fn pcapng_is_read_and_an_icmp_error_returns_to_the_sender() {
    let scratch = Scratch::new("pcapng");
    let input = scratch.file("in.pcapng");
    let mut expiring = udp6(b"x");
    expiring[7] = 1; // Hop Limit
    let frames = [(1_700_000_000_000_001, ethernet(&[], [0x86, 0xdd], &expiring))];
    std::fs::write(&input, pcapng(1, &frames)).unwrap();
    let drops = scratch.file("drops.pcapng");
    let output = scratch.translate(&input, &["--json", "--drops", drops.to_str().unwrap()]);
    assert_ok(&output);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["replied"].as_u64(), Some(1), "{json}");
    assert_eq!(json["drops"][0]["reason"], "ttl", "{json}");
    let fields =
        ["frame.time_epoch", "eth.dst", "ipv6.src", "ipv6.dst", "icmpv6.type", "icmpv6.checksum.status"];
    if let Some(read) = tshark(&scratch.file("out.pcap"), &fields) {
        // The error quotes the packet, so there are two pairs of addresses.
        let fields: Vec<&str> = read.trim_end().split('|').collect();
        assert_eq!(fields[..2], ["1700000000.000001000", "02:00:00:00:00:02"], "{read}");
        assert!(
            fields[2].starts_with("2001:db8:64::c000:201,") && fields[3].starts_with("2001:db8::1,"),
            "{read}"
        );
        assert_eq!(fields[4..], ["3", "1"], "{read}");
    }
    if let Some(read) = tshark(&drops, &["frame.time_epoch", "frame.comment"]) {
        assert!(read.starts_with("1700000000.000001000|ttl: "), "{read}");
    }
}

#[test]
fn a_seed_determines_the_output_and_timestamps_expire_sessions() {
    let scratch = Scratch::new("time");
    let input = scratch.file("in.pcap");
    // The same flow again after more than the UDP lifetime of five minutes: a new session, a new port.
    let frames: Vec<_> = (0..8).map(|n| (1_000 + 400 * n, 0, udp6(b"x"))).collect();
    std::fs::write(&input, pcap(101, false, &frames)).unwrap();
    assert_ok(&scratch.translate(&input, &["--seed", "7"]));
    let first = std::fs::read(scratch.file("out.pcap")).unwrap();
    assert_ok(&scratch.translate(&input, &["--seed", "7"]));
    assert_eq!(first, std::fs::read(scratch.file("out.pcap")).unwrap());
    let record = 16 + 20 + 8 + 1;
    let ports: std::collections::BTreeSet<_> =
        first[24..].chunks(record).map(|r| [r[16 + 20], r[16 + 21]]).collect();
    assert!(ports.len() > 1, "eight sessions, one port: {ports:?}");
}

#[test]
fn files_that_are_not_captures_are_refused() {
    let scratch = Scratch::new("bad");
    let input = scratch.file("in.pcap");
    for (content, expected) in [
        (b"hello world, this is no capture".to_vec(), "neither pcap nor pcapng"),
        (Vec::new(), "neither pcap nor pcapng"),
        (pcap(105, false, &[]), "unsupported link layer 105"),
    ] {
        std::fs::write(&input, content).unwrap();
        let output = scratch.translate(&input, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    std::fs::write(scratch.file("out.pcap"), pcap(101, false, &[])).unwrap();
    let same = scratch.translate(&scratch.file("out.pcap"), &[]);
    assert!(String::from_utf8_lossy(&same.stderr).contains("is the input"), "{same:?}");
}

#[test]
fn a_truncated_capture_is_translated_up_to_its_last_whole_record() {
    let scratch = Scratch::new("killed");
    let input = scratch.file("in.pcap");
    let frame = |n: u32| (1_700_000_000 + n, 0, udp6(b"whole"));
    std::fs::write(&input, pcap(101, false, &[frame(0), frame(1)])).unwrap();
    assert_ok(&scratch.translate(&input, &["--json"]));
    let expected = std::fs::read(scratch.file("out.pcap")).unwrap();

    let whole = pcap(101, false, &[frame(0), frame(1), frame(2)]);
    let record = 16 + 40 + 8 + 5;
    let whole_ng = |frames: usize| pcapng(101, &vec![(1_700_000_000_000_000, udp6(b"whole")); frames]);
    let begin_ng = whole_ng(2).len();
    // Truncated in the last record's header, directly after it, and in its packet.
    let cases = [1, 15, 16, 17, record - 1].map(|cut| (whole[..whole.len() - record + cut].to_vec(), true));
    let cases_ng = [1, 8, 30, 60].map(|cut| (whole_ng(3)[..begin_ng + cut].to_vec(), false));
    for (content, exact) in cases.into_iter().chain(cases_ng) {
        std::fs::write(&input, &content).unwrap();
        let output = scratch.translate(&input, &["--json"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{} bytes: {said}", content.len());
        assert!(said.contains("is truncated inside the record after frame 2,"), "{said}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let counts = ["frames", "rx", "forwarded", "written"].map(|name| json[name].as_u64().unwrap());
        assert_eq!((counts, json["cut_off"].as_bool()), ([2; 4], Some(true)), "{json}");
        let written = std::fs::read(scratch.file("out.pcap")).unwrap();
        assert_eq!(written.len(), expected.len());
        assert!(!exact || written == expected, "the output is that of the whole records");
    }
    std::fs::write(&input, &whole).unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&scratch.translate(&input, &["--json"]).stdout).unwrap();
    assert_eq!(json["cut_off"].as_bool(), Some(false), "{json}");
}
