//! Collectors that are away, slow, or return: received events and reported losses.

use crate::support::{IPFIX, TestDir, all_kinds, batch, events, settings, start, wait};
use gatun_export::{CollectorAddress, Format, Sink, SinkSettings, SpoolSettings, connect_directly};
use gatun_nat::{Event, EventKind, EventKinds};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

fn nowhere() -> SocketAddr {
    // Bound and released: nobody listens there now.
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Events with distinct inside ports.
fn numbered(from: u16, to: u16) -> Vec<Event> {
    let host = "2001:db8::1".parse().unwrap();
    (from..to).map(|n| events()[1].with_inside(host, n)).collect()
}

fn ports(lines: &[String]) -> Vec<u64> {
    lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["inside_port"].as_u64())
        .collect()
}

/// The kernel queues about ten datagrams of a Unix socket. Pausing whenever it was full limited the rate to
/// 115 events a second.
#[test]
fn a_unix_socket_gets_events_as_fast_as_its_reader_takes_them() {
    const EVENTS: u16 = 5_000;
    let place = TestDir::new("unix-rate");
    let path = place.0.join("log");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (sink, _) = start(settings(CollectorAddress::Unix(path), Format::Json));
    numbered(0, EVENTS).chunks(100).for_each(|events| sink.put(&batch(events)));
    let mut bytes = [0; 2000];
    let begin = Instant::now();
    for n in 0..EVENTS {
        let len = socket.recv(&mut bytes).unwrap();
        assert_eq!(ports(&[str::from_utf8(&bytes[..len]).unwrap().to_owned()]), [u64::from(n)]);
        // Far more time than needed; at the old rate, far too little.
        assert!(begin.elapsed() < Duration::from_secs(20), "{n} events");
    }
    println!("{:.0} events a second", f64::from(EVENTS) / begin.elapsed().as_secs_f64());
    wait("all is counted", || sink.counters().sent == u64::from(EVENTS));
    assert_eq!(sink.counters().lost, 0);
}

// proves: LOG-4
#[test]
fn a_returning_collector_gets_spooled_records_in_order_even_from_the_next_process() {
    let (place, address) = (TestDir::new("spool"), nowhere());
    let spooled = || SinkSettings {
        spool: Some(SpoolSettings { directory: place.0.clone(), len_max: 1 << 20 }),
        ..settings(CollectorAddress::Tcp(address), Format::Json)
    };
    let (sink, said) = start(spooled());
    sink.put(&batch(&numbered(0, 500)));
    wait("spooled", || sink.counters().spooled_bytes > 0 && sink.counters().waiting == 0);
    assert_eq!((sink.counters().sent, sink.counters().lost), (0, 0));
    assert!(said.lock().unwrap()[0].contains("cannot connect to"), "{said:?}");
    sink.finish(Duration::from_secs(5));
    drop(sink);
    // Another process; the collector is still away.
    let (sink, _) = start(spooled());
    sink.put(&batch(&numbered(500, 600)));
    wait("spooled", || sink.counters().waiting == 0);
    let listener = TcpListener::bind(address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream).lines();
    let got: Vec<String> = (&mut lines).take(600).map(Result::unwrap).collect();
    assert_eq!(ports(&got), (0..600).collect::<Vec<u64>>());
    wait("all of it is gone", || sink.counters().spooled_bytes == 0);
    // From then on nothing is spooled.
    sink.put(&batch(&numbered(600, 601)));
    assert_eq!(ports(&[lines.next().unwrap().unwrap()]), [600]);
    wait("all is counted", || sink.counters().sent == 601);
    assert_eq!(sink.counters().lost, 0);
}

// proves: LOG-4
#[test]
fn lost_events_are_counted_and_reported_in_the_stream() {
    let address = nowhere();
    let (sink, _) = start(settings(CollectorAddress::Tcp(address), Format::Json));
    sink.put(&batch(&numbered(0, 70)));
    wait("lost", || sink.counters().lost == 70);
    let listener = TcpListener::bind(address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let loss: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!((&loss["event"], &loss["value"]), (&"events_lost".into(), &70.into()));
    sink.put(&batch(&numbered(70, 71)));
    assert_eq!(ports(&[lines.next().unwrap()]), [70]);
    // A full queue.
    drop(sink);
    let small = SinkSettings { queue_max: 10, ..settings(CollectorAddress::Tcp(address), Format::Json) };
    let (sink, _) = start(small);
    sink.put(&batch(&numbered(0, 11)));
    assert_eq!(sink.counters().lost, 11);
}

// proves: LOG-4
#[test]
fn a_slow_collector_fills_the_spool_and_gets_all_records_once_it_reads() {
    let place = TestDir::new("slow");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let spool = Some(SpoolSettings { directory: place.0.clone(), len_max: 1 << 30 });
    let target = CollectorAddress::Tcp(listener.local_addr().unwrap());
    let (sink, _) = start(SinkSettings { spool, queue_max: 1 << 20, ..settings(target, Format::Json) });
    let (stream, _) = listener.accept().unwrap();
    for n in 0..60u16 {
        sink.put(&batch(&numbered(n * 1000, n * 1000 + 1000)));
    }
    wait("spooled", || sink.counters().spooled_bytes > 1 << 20);
    let got: Vec<String> = BufReader::new(stream).lines().take(60_000).map(Result::unwrap).collect();
    let mut ports = ports(&got);
    // Records that waited in memory may follow those that were spooled.
    ports.sort_unstable();
    assert_eq!(ports, (0..60_000).collect::<Vec<u64>>());
    wait("accounted", || sink.counters().sent == 60_000);
    assert_eq!(sink.counters().lost, 0);
}

// proves: LOG-5
#[test]
fn syslog_follows_rfc_5424_in_datagrams_and_counted_frames() {
    let place = TestDir::new("syslog");
    let path = place.0.join("log");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (sink, _) = start(settings(CollectorAddress::Unix(path), Format::Syslog));
    sink.put(&batch(&events()[4..5]));
    let mut bytes = [0; 2000];
    let len = socket.recv(&mut bytes).unwrap();
    let message = str::from_utf8(&bytes[..len]).unwrap();
    let parts: Vec<&str> = message.splitn(8, ' ').collect();
    // local0.info, version 1.
    assert_eq!((parts[0], parts[1]), ("<134>1", "2026-01-01T00:00:00.123Z"));
    assert_eq!((parts[3], parts[5], parts[6]), ("gatun", "block_assigned", "[gatun@32473"));
    assert_eq!(
        parts[7],
        "worker=\"1\" instance=\"home\" pool=\"res\" protocols=\"tcp,udp,icmp\" subscriber=\"2001:db8:1:4200::/56\" \
         outside=\"203.0.113.7\" outsidePorts=\"51200-51455\"]"
    );
    // RFC 6587 3.4.1: each message follows its length.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = CollectorAddress::Tcp(listener.local_addr().unwrap());
    let (sink, _) = start(SinkSettings { destinations: true, ..settings(target, Format::Syslog) });
    sink.put(&batch(&events()));
    let mut reader = BufReader::new(listener.accept().unwrap().0);
    let mut kinds = Vec::new();
    for _ in 0..events().len() {
        let mut len = Vec::new();
        reader.read_until(b' ', &mut len).unwrap();
        let len: usize = str::from_utf8(&len).unwrap().trim().parse().unwrap();
        let mut message = vec![0; len];
        reader.read_exact(&mut message).unwrap();
        let message = String::from_utf8(message).unwrap();
        assert!(message.starts_with('<') && message.ends_with(']'), "{message}");
        let kind = message.split(' ').nth(5).unwrap().to_owned();
        assert_eq!(
            message.contains("remote=\"198.51.100.9\" remotePort=\"443\""),
            kind.starts_with("session")
        );
        kinds.push(kind);
    }
    let expected: Vec<&str> = events().iter().map(|e| e.kind.name()).collect();
    assert_eq!(kinds, expected);
}

// proves: LOG-2
#[test]
fn templates_come_first_and_again_over_udp_and_sequence_numbers_go_on() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let format = Format::Ipfix { domain: 42, templates_ms: 1_500 };
    let (sink, _) = start(settings(CollectorAddress::Udp(socket.local_addr().unwrap()), format));
    let receive = || {
        let mut bytes = vec![0; 2000];
        let len = socket.recv(&mut bytes).unwrap();
        bytes.truncate(len);
        assert_eq!((bytes[..2].to_vec(), &bytes[12..16]), (vec![0, 10], &42u32.to_be_bytes()[..]));
        let sequence = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        (u16::from_be_bytes([bytes[16], bytes[17]]), sequence, bytes)
    };
    sink.put(&batch(&events()));
    let (set, sequence, _) = receive();
    assert_eq!((set, sequence), (2, 0), "templates");
    let (set, sequence, _) = receive();
    assert!(set >= 256 && sequence == 0, "data");
    std::thread::sleep(Duration::from_millis(1_600));
    sink.put(&batch(&events()[..3]));
    let (set, sequence, _) = receive();
    assert_eq!((set, sequence), (2, events().len() as u32), "templates again, which do not count");
    let (set, sequence, _) = receive();
    assert!(set >= 256 && sequence == events().len() as u32);
}

#[test]
fn a_sink_gets_only_its_kinds_and_refused_datagrams_are_counted() {
    let kinds = EventKinds::NONE.with(EventKind::QuotaHit);
    let address = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (sink, said) = start(SinkSettings { kinds, ..settings(CollectorAddress::Udp(address), IPFIX) });
    assert!(all_kinds().has(EventKind::QuotaHit));
    for _ in 0..20 {
        sink.put(&batch(&events()));
        std::thread::sleep(Duration::from_millis(20));
    }
    wait("refused", || sink.counters().lost > 0);
    let counters = sink.counters();
    assert!(
        counters.lost + counters.sent + counters.waiting <= 40 + 20,
        "two of each batch, and reports: {counters:?}"
    );
    let refusals = said.lock().unwrap().iter().filter(|line| line.contains("refused")).count();
    assert_eq!(refusals, 1, "{said:?}");
}

// proves: LOG-4
#[test]
fn an_ending_sink_sends_its_records_and_its_successor_takes_over_the_spool() {
    let (place, old_address) = (TestDir::new("goes"), nowhere());
    let at = |address, spool: bool| SinkSettings {
        spool: spool.then(|| SpoolSettings { directory: place.0.clone(), len_max: 1 << 20 }),
        ..settings(CollectorAddress::Tcp(address), Format::Json)
    };
    let (old, said) = start(at(old_address, true));
    old.put(&batch(&numbered(0, 200)));
    wait("spooled", || old.counters().spooled_bytes > 0 && old.counters().waiting == 0);
    // A prepared sink that is dropped sends nothing.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let new_address = listener.local_addr().unwrap();
    drop(Sink::prepare(at(new_address, true), connect_directly(), |_| ()).unwrap());
    let prepared = Sink::prepare(at(new_address, true), connect_directly(), |_| ()).unwrap();
    let new = prepared.begin(vec![old.ended()]);
    new.put(&batch(&numbered(300, 301)));
    // While the old sink exists, the spool is its own.
    old.put(&batch(&numbered(200, 300)));
    let ended = old.ended();
    assert!(!ended.wait(Duration::from_millis(300)));
    drop(old);
    assert!(ended.wait(Duration::from_secs(10)));
    assert!(said.lock().unwrap().iter().any(|line| line.contains("remain in the spool in")), "{said:?}");
    let (stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let got: Vec<String> = (&mut lines).take(301).collect();
    assert_eq!(ports(&got), (0..301).collect::<Vec<u64>>());
    // Other events, the same connection.
    let other = new.with(EventKinds::NONE.with(EventKind::QuotaHit), 10);
    drop(new);
    other.put(&batch(&numbered(301, 302)));
    other.put(&batch(&events()[6..7]));
    assert!(lines.next().unwrap().contains("\"event\":\"quota_hit\""));
    // A connected sink sends everything it has, however soon it is dropped.
    let all = other.with(all_kinds(), 100_000);
    drop(other);
    (0..20u16).for_each(|n| all.put(&batch(&numbered(n * 1_000, n * 1_000 + 1_000))));
    drop(all);
    assert_eq!(ports(&lines.collect::<Vec<_>>()), (0..20_000).collect::<Vec<u64>>());
}

#[test]
fn an_unwritable_spool_is_refused() {
    let spool = |directory: &str| SinkSettings {
        spool: Some(SpoolSettings { directory: directory.into(), len_max: 1 << 20 }),
        ..settings(CollectorAddress::Tcp(nowhere()), Format::Json)
    };
    for directory in ["/proc/gatun", "/proc/self", "/proc/version"] {
        assert!(Sink::start(spool(directory), |_| ()).is_err(), "{directory}");
    }
}
