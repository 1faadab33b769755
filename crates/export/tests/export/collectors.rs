//! IPFIX as read by tshark, nfdump and pmacct: independent programs.

use crate::support::{IPFIX, TestDir, batch, events, settings, start, wait};
use gatun_export::{CollectorAddress, SinkSettings};
use gatun_testkit::packet::text;
use gatun_testkit::{find_program, missing, skip};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Process that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> SocketAddr {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Checks whether a process has the UDP port.
fn is_bound(address: SocketAddr) -> bool {
    UdpSocket::bind(address).is_err()
}

/// Datagrams that a sink sends over UDP.
fn messages(destinations: bool) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let target = CollectorAddress::Udp(socket.local_addr().unwrap());
    let (sink, _) = start(SinkSettings { destinations, ..settings(target, IPFIX) });
    sink.put(&batch(&events()));
    let mut all = Vec::new();
    let mut bytes = [0; 2000];
    while let Ok(len) = socket.recv(&mut bytes) {
        all.push(bytes[..len].to_vec());
    }
    all
}

/// Capture file with datagrams from and to 192.0.2.1, port 4739.
fn capture(path: &Path, datagrams: &[Vec<u8>]) {
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        pcap.extend(word.to_le_bytes());
    }
    for datagram in datagrams {
        let packet = text::udp4("192.0.2.1", 4739, "192.0.2.1", 4739, datagram);
        let len = packet.len() as u32;
        for word in [0, 0, len, len] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(packet);
    }
    fs::write(path, pcap).unwrap();
}

fn tshark(path: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark").arg("-r").arg(path).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

// proves: LOG-1, LOG-2, LOG-3
#[test]
fn tshark_reads_every_event_and_destinations_only_if_configured() {
    if let Some(why) = missing(&[("tshark", "tshark")]) {
        return skip(&why);
    }
    let place = TestDir::new("tshark");
    let path = place.0.join("ipfix.pcap");
    for destinations in [false, true] {
        capture(&path, &messages(destinations));
        let text = tshark(&path, &["-V", "-O", "cflow"]);
        assert!(!text.contains("Malformed") && !text.contains("No template found"), "{text}");
        let numbers: Vec<u64> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Nat Event: "))
            .map(|rest| rest.rsplit(['(', ' ']).next().unwrap().trim_end_matches(')').parse().unwrap())
            .collect();
        assert_eq!(
            numbers,
            [10, 6, 7, 11, 16, 17, 13, 8, 4, 5, 9, 16, 17, 13, 3, 12, 18, 18, 18, 18],
            "{text}"
        );
        assert_eq!(text.matches("198.51.100.9").count(), if destinations { 4 } else { 0 });
        for wanted in ["2001:db8:1:4200::7", "100.64.0.7", "203.0.113.7", "51234", "51200", "51455", "3456"] {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
        assert!(text.contains("Jan  1, 2026 00:00:00.123"), "{text}");
    }
}

fn nfdump_records(directory: &Path) -> Vec<Value> {
    let output = Command::new("nfdump")
        .env("TZ", "UTC")
        .args(["-q", "-o", "json", "-R"])
        .arg(directory)
        .output()
        .unwrap();
    // Objects separated by commas, without the brackets of a list.
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&format!("[{}]", text.trim().trim_matches(['[', ']']))).unwrap_or_default()
}

// proves: LOG-1
#[test]
fn nfdump_collects_sessions_and_blocks() {
    if let Some(why) = missing(&[("nfcapd", "nfdump")]) {
        return skip(&why);
    }
    let (place, address) = (TestDir::new("nfdump"), free_port());
    let port = address.port().to_string();
    let mut command = Command::new(find_program("nfcapd").unwrap());
    command.env("TZ", "UTC");
    command.args(["-b", "127.0.0.1", "-p", &port, "-t", "2", "-w"]).arg(&place.0);
    let nfcapd = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait("nfcapd listens", || is_bound(address));
    let (sink, _) =
        start(SinkSettings { destinations: true, ..settings(CollectorAddress::Udp(address), IPFIX) });
    sink.put(&batch(&events()));
    sink.finish(Duration::from_secs(2));
    let mut records = Vec::new();
    wait("nfcapd has written", || {
        records = nfdump_records(&place.0);
        !records.is_empty()
    });
    drop(nfcapd);
    let text = serde_json::to_string_pretty(&records).unwrap();
    let ids: Vec<&str> = records.iter().map(|r| r["nat_event_id"].as_str().unwrap()).collect();
    let expected = "10 6 7 11 16 17 13 8 4 5 9 16 17 13 3 12 18 18 18 18";
    assert_eq!(ids, expected.split(' ').collect::<Vec<_>>(), "{text}");
    let session = &records[1];
    assert_eq!((&session["src6_addr"], &session["src_port"]), (&"2001:db8:1:4200::7".into(), &3456.into()));
    assert_eq!((&session["src4_xlt_ip"], &session["src_xlt_port"]), (&"203.0.113.7".into(), &"51234".into()));
    assert_eq!((&session["dst4_xlt_ip"], &session["dst_xlt_port"]), (&"198.51.100.9".into(), &"443".into()));
    assert_eq!((&session["nat_event"], &session["proto"]), (&"NAT64 session create".into(), &6.into()));
    assert_eq!(session["t_event"], "2026-01-01T00:00:00.124", "{text}");
    assert_eq!(
        (&records[8]["src4_addr"], &records[8]["nat_event"]),
        (&"100.64.0.7".into(), &"NAT44 session create".into())
    );
}

// proves: LOG-1
#[test]
fn pmacct_collects_the_configured_elements() {
    if let Some(why) = missing(&[("nfacctd", "pmacct")]) {
        return skip(&why);
    }
    let (place, address) = (TestDir::new("pmacct"), free_port());
    let (config, out) = (place.0.join("nfacctd.conf"), place.0.join("out"));
    let text = format!(
        "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {}\nplugins: print[p]\nprint_output[p]: json\n\
         print_output_file[p]: {}\nprint_refresh_time[p]: 1\nprint_history[p]: 1m\nprint_output_file_append[p]: true\n\
         nfacctd_time_new: true\n\
         aggregate[p]: nat_event, src_host, post_nat_src_host, src_port, post_nat_src_port, proto\n",
        address.port(),
        out.display()
    );
    fs::write(&config, text).unwrap();
    let mut command = Command::new(find_program("nfacctd").unwrap());
    command.arg("-f").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let _nfacctd = Running(command.spawn().unwrap());
    wait("nfacctd listens", || is_bound(address));
    let (sink, _) = start(settings(CollectorAddress::Udp(address), IPFIX));
    let mut got = String::new();
    wait("nfacctd has printed", || {
        // Templates must arrive before the data that is counted.
        sink.put(&batch(&events()[..4]));
        std::thread::sleep(Duration::from_millis(200));
        got = fs::read_to_string(&out).unwrap_or_default();
        got.contains("51234")
    });
    let line = got.lines().find(|line| line.contains("51234")).unwrap();
    let record: Value = serde_json::from_str(line).unwrap();
    assert_eq!(record["ip_src"], "2001:db8:1:4200::7", "{line}");
    assert_eq!(
        (&record["post_nat_ip_src"], &record["post_nat_port_src"]),
        (&"203.0.113.7".into(), &51_234.into())
    );
    assert_eq!((&record["port_src"], &record["ip_proto"]), (&3456.into(), &"tcp".into()), "{line}");
}

// proves: LOG-2
#[test]
fn each_tcp_connection_begins_with_templates_and_its_own_sequence() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (sink, _) = start(settings(CollectorAddress::Tcp(listener.local_addr().unwrap()), IPFIX));
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        sink.put(&batch(&events()));
        let mut message = || {
            let mut bytes = vec![0; 4];
            stream.read_exact(&mut bytes).unwrap();
            bytes.resize(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 0);
            stream.read_exact(&mut bytes[4..]).unwrap();
            let sequence = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
            (u16::from_be_bytes([bytes[16], bytes[17]]), sequence, bytes)
        };
        let (set, sequence, templates) = message();
        assert_eq!((set, sequence), (2, 0));
        let (set, sequence, data) = message();
        assert!(set >= 256 && sequence == 0);
        if let Some(why) = missing(&[("tshark", "tshark")]) {
            return skip(&why);
        }
        let place = TestDir::new("tcp");
        let path = place.0.join("tcp.pcap");
        capture(&path, &[templates, data]);
        let text = tshark(&path, &["-V", "-O", "cflow"]);
        assert!(!text.contains("Malformed") && text.contains("FlowSet Id: (Data)"), "{text}");
        assert_eq!(text.matches("Nat Event: ").count(), events().len(), "{text}");
        // The collector disappears, and the sink notices.
        drop(stream);
    }
}
