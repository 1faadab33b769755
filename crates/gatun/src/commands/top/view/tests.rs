//! Tests of the screen with sample data.

use super::*;
use gatun_api::types::*;
use std::time::Instant;

const SUBSCRIBER: &str = "2001:db8:1234:5678:9abc:def0:1234:5678/128";

fn count(packets: u64) -> Count {
    Count { packets, bytes: packets * 1000 }
}

fn status(n: u64) -> Status {
    Status {
        version: "1.2.3".into(),
        pid: 4711,
        uptime_seconds: 93_784,
        config_file: "f".into(),
        workers: 2,
        workers_silent: 0,
        sandbox: Sandbox { state: SandboxExtent::Whole, missing: Vec::new() },
        pages: TablePages::default(),
        sessions: 1000,
        sessions_waiting: 0,
        sessions_max: 4000,
        bindings: 900,
        subscribers: 30,
        received: count(n * 3000),
        forwarded: count(n * 2000),
        fast_path: FastPathPlace::None,
        offloaded: count(0),
        refused_by_device: 0,
        echo_replies: count(0),
        passed: count(0),
        dropped: count(n * 1000),
        rejected: count(n * 400),
        dropped_silently: count(n * 600),
        held: 0,
        redirected: count(0),
        redirected_outside: 0,
        packets_accounted: true,
        troubles: Vec::new(),
    }
}

fn subscriber(n: u16) -> Subscriber {
    Subscriber {
        instance: Name("home".into()),
        subscriber: if n == 0 { SUBSCRIBER.into() } else { format!("2001:db8:0:{n:x}::/64") },
        address: Some([203, 0, 113, 255].into()),
        sessions: 1_000_000 - u32::from(n),
        tcp_ports: n * 10,
        udp_ports: 1,
        icmp_ids: 0,
        blocks: 4,
        refused_sessions: u32::from(n % 7),
        refused_rate: 0,
        refused_ports: 0,
        refused_blocks: 0,
        outbound: count(u64::from(n % 11)),
        inbound: count(0),
    }
}

/// Sample of the daemon after `n` seconds.
fn sample(begin: Instant, n: u64) -> Sample {
    let worker = |number| Worker {
        number,
        device: format!("gatun0:{number}"),
        answers: true,
        received: count(n * 1500),
        forwarded: count(n * 1000),
        dropped: count(n * 500),
        bursts: 0,
        idle_waits: 0,
        busy_ns: n * 250_000_000,
        handed_before: 0,
        handed_after: 0,
        handed_lost: 0,
        sessions: 500,
        subscribers: 15,
        device_counters: Vec::new(),
    };
    let usage = |used| Usage { used, total: 1000 };
    let pool = |name: &str, used| Pool {
        name: Name(name.into()),
        addresses: 4,
        tcp: usage(used),
        udp: usage(1),
        icmp: usage(0),
        ports_held: 0,
        blocks: None,
        subscribers: 30,
        ports_allocated: 0,
        ports_released: 0,
        blocks_allocated: 0,
        blocks_released: 0,
        refused: 0,
        pairing_broken: 0,
        outbound: count(0),
        inbound: count(0),
    };
    let drop = |reason: &str, packets| Drop {
        reason: reason.into(),
        help: "A sentence about why packets are dropped that is longer than what is left of a line of 80."
            .into(),
        six_to_four: count(packets),
        four_to_six: count(0),
        four_to_four: count(0),
    };
    Sample {
        at: begin + Duration::from_secs(n),
        status: status(n),
        workers: (0..2).map(worker).collect(),
        pools: vec![pool("wide", 100), pool("narrow", 960)],
        drops: vec![drop("ttl", n * 1000), drop("no_bib", 9_999_999), drop("never", 0)],
        top: (0..100).map(subscriber).collect(),
        switches: Vec::new(),
        boxes: None,
    }
}

/// Two samples of a daemon, and the settings of the view.
struct Scene {
    samples: [Sample; 2],
    trends: Trends,
    order: Order,
    is_reversed: bool,
}

impl Scene {
    fn new() -> Scene {
        let begin = Instant::now();
        let samples = [1, 3].map(|n| sample(begin, n));
        let mut trends = Trends::default();
        let point = |n: u64| HistoryPoint {
            age_ms: 0,
            length_ms: 5000,
            received_packets: n,
            forwarded_packets: n,
            dropped_packets: 0,
            rejected_packets: 0,
            dropped_silently_packets: 0,
            forwarded_bytes: 0,
            sessions_created: 0,
            sessions: 0,
            subscribers: 0,
        };
        trends.begin_with(&History { every_ms: 5000, points: (0..8).map(|n| point(n * 5000)).collect() });
        Scene { samples, trends, order: Order::Sessions, is_reversed: false }
    }

    fn lines(&self, columns: usize, rows: usize) -> Vec<Line> {
        let view = View {
            before: Some(&self.samples[0]),
            now: &self.samples[1],
            trends: &self.trends,
            order: self.order,
            is_reversed: self.is_reversed,
            interval: Duration::from_secs(2),
            gone: None,
        };
        view.lines(columns, rows)
    }

    fn text(&self, columns: usize, rows: usize) -> Vec<String> {
        let text = |line: &Line| line.0.iter().map(|(_, text)| &text[..]).collect::<String>();
        self.lines(columns, rows).iter().map(text).collect()
    }
}

#[test]
fn the_screen_fits_terminals_of_any_size() {
    let scene = Scene::new();
    for columns in (1..200).step_by(3) {
        for rows in [1, 2, 5, 10, 24, 50, 200] {
            let text = scene.text(columns, rows);
            assert_eq!(text.len(), rows);
            assert!(text.iter().all(|line| line.chars().count() <= columns), "{columns}x{rows}: {text:#?}");
        }
    }
}

#[test]
fn a_small_terminal_shows_all_panels_and_whole_addresses() {
    let scene = Scene::new();
    let text = scene.text(80, 24);
    let has = |part: &str| text.iter().any(|line| line.contains(part));
    for part in [
        " gatun 1.2.3  up 1 d 02:03  process 4711",
        "nothing needs attention",
        "sessions 1,000 of 4,000 (25.0 %)   bindings 900   subscribers 30",
        "received          3,000 packets/s      24.0 Mbit/s",
        "dropped           1,000 packets/s       8.0 Mbit/s",
        "  with an ICMP error 400/s, silently 600/s",
        "gatun0:1  25 %",
        "narrow  96.0 %",
        "ttl              1,000",
        "no_bib               0",
        "1,000,000",
        "q quit",
    ] {
        assert!(has(part), "{part}: {text:#?}");
    }
    assert!(
        text.iter().any(|line| line.starts_with(&format!("{SUBSCRIBER}  203.0.113.255   1,000,000"))),
        "{text:#?}"
    );
    assert!(!has("never") && has(" +9"), "{text:#?}");
    // Columns that do not fit are left out; a wide terminal shows them.
    assert!(!has("home") && scene.text(140, 24).iter().any(|line| line.contains("home")));
}

#[test]
fn colours_mark_problems() {
    let mut scene = Scene::new();
    let style = |scene: &Scene, part: &str| {
        let lines = scene.lines(80, 40);
        let line = lines.iter().find(|line| line.0.iter().any(|(_, text)| text.contains(part)));
        line.unwrap_or_else(|| panic!("no {part}: {lines:#?}")).0[0].0
    };
    assert_eq!(style(&scene, "nothing needs attention"), Style::Good);
    assert_eq!([style(&scene, "wide"), style(&scene, "narrow")], [Style::Plain, Style::Bad]);
    assert_eq!([style(&scene, "ttl"), style(&scene, "no_bib")], [Style::Warning, Style::Plain]);
    assert_eq!([style(&scene, "received "), style(&scene, "dropped ")], [Style::Plain, Style::Warning]);
    let trouble = |urgency| Trouble { urgency, part: Part::Log, what: "the log cannot be written".into() };
    scene.samples[1].status.troubles = vec![trouble(Urgency::Bad), trouble(Urgency::Warning)];
    assert_eq!(style(&scene, "NEEDS ATTENTION: (1 of 2) the log cannot be written"), Style::Bad);
}

#[test]
fn keys_select_the_sort_order() {
    let mut scene = Scene::new();
    let mut first = |key: u8, is_reversed| {
        (scene.order, scene.is_reversed) = (Order::of_key(key).unwrap(), is_reversed);
        let text = scene.text(80, 24);
        let title = text.iter().position(|line| line.starts_with("subscriber")).unwrap();
        let mark = if is_reversed { '▲' } else { '▼' };
        let sorted = text[title].split_whitespace().find(|word| word.ends_with(mark)).unwrap().to_owned();
        (sorted, text[title + 1].split_whitespace().next().unwrap().to_owned())
    };
    let told = |title: &str, first: &str| (title.to_owned(), first.to_owned());
    assert_eq!(first(b's', false), told("sessions▼", SUBSCRIBER));
    assert_eq!(first(b's', true), told("sessions▲", "2001:db8:0:63::/64"));
    assert_eq!(first(b'p', false), told("ports▼", "2001:db8:0:63::/64"));
    assert_eq!(first(b'b', false).0, "blocks▼");
    assert_eq!(first(b't', false), told("traffic▼", "2001:db8:0:a::/64"));
    assert_eq!(first(b'r', false), told("refused▼", "2001:db8:0:6::/64"));
    assert_eq!(first(b'a', false), told("subscriber▼", "2001:db8:0:10::/64"));
    assert_eq!(Order::of_key(b'x'), None);
}

#[test]
fn bars_scale_to_the_highest_shown() {
    let scene = Scene::new();
    assert_eq!(scene.trends.bars(0, 100), "▁▂▃▄▅▆▇█");
    assert_eq!((scene.trends.bars(0, 2), scene.trends.bars(2, 3)), ("▇█".to_owned(), "▁▁▁".to_owned()));
    let mut many = Trends::default();
    (0..1000).for_each(|n| many.push([f64::from(n); 3]));
    assert_eq!(many.0.len(), TRENDS_MAX);
}
