//! Web page in a real browser with real traffic: it shows the same as `gatun show`, and reports when it
//! cannot.

mod tokens;

use crate::browser::{self, Browser};
use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, status_line};
use gatun_testkit::topology::{CLIENT, SERVER, SERVER4};
use gatun_testkit::{Process, Topology, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const BIN: &str = env!("CARGO_BIN_EXE_gatun");

const CONFIG: &str = r#"
[[pool]]
name = "homes"
prefixes = "192.0.2.0/30"
allocation = { kind = "blocks", size = 64, blocks_per_subscriber = 4 }
[[nat64]]
name = "homes"
pool6 = "2001:db8:64::/96"
subscriber = "/128"
[limits]
sessions_max = 4096
[events]
file = "/run/events"
kinds = ["session_created", "session_deleted", "block_assigned"]
[api]
listen_tls = "[2001:db8:1::1]:8443"
certificate = "/run/api.crt"
key = "/run/api.key"
tokens = "/run/tokens"
[log]
directory = "/run/gatun-web-log"
"#;

/// Number of further addresses of the client; each is a subscriber.
const SUBSCRIBERS: u8 = 6;

/// Sends datagrams from each of the client's addresses, repeatedly from the same ports, so that the number of
/// sessions stays the same. The number of datagrams varies a little.
const SEND: &str = "
import math, socket, sys, time
server, addresses = sys.argv[1], sys.argv[2:]
flows = []
for n, address in enumerate(addresses):
    for m in range(3 + 4 * n):
        s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        s.bind((address, 0))
        s.setblocking(False)
        s.connect((server, 7000 + m))
        flows.append(s)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 64)
wave = 0
while True:
    for s in flows:
        try:
            s.send(bytes(int(500 + 400 * math.sin(wave / 200))))
            s.recv(2048)
        except OSError:
            pass
    # One that is on its last hop, for a reason why packets are not forwarded.
    if wave % 3 == 0:
        t = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        t.bind((addresses[0], 5999))
        t.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 2)
        t.sendto(b'late', (server, 7000))
        t.close()
    wave += 1
    time.sleep(0.03)
";

/// Echoes datagrams, and sends some to ports without a binding.
const ANSWER: &str = "
import select, socket
all, asked = [], 0
for port in range(7000, 7040):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('198.51.100.2', port))
    all.append(s)
while True:
    for s in select.select(all, [], [])[0]:
        data, who = s.recvfrom(2048)
        s.sendto(data, who)
        asked += 1
        if asked % 50 == 0:
            s.sendto(b'whose?', ('192.0.2.1', 40001))
";

fn gatun(args: &str) -> Output {
    gatun_testkit::output(Command::new(BIN).args(args.split_whitespace())).unwrap()
}

fn told(args: &str) -> Value {
    let output = gatun(&format!("{args} -o json"));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("gatun {args}: {e}: {output:?}"))
}

/// Creates a token.
pub(crate) fn token(who: &str) -> String {
    let made = gatun(&format!("token add {who} --file /run/tokens"));
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// Starts traffic between all of the client's addresses and the server.
fn traffic(net: &Topology) -> [Process; 2] {
    let addresses: Vec<String> = (0x10..0x10 + SUBSCRIBERS).map(|n| format!("2001:db8:1::{n:x}")).collect();
    for address in &addresses {
        net.client.ip(&format!("-6 address add {address}/64 dev eth0 nodad")).unwrap();
    }
    let server = Process::start(net.server.command("python3").args(["-c", ANSWER])).unwrap();
    let mut client = net.client.command("python3");
    [server, Process::start(client.args(["-c", SEND, SERVER]).args(&addresses)).unwrap()]
}

/// Starts `gatun web`; returns the process and the printed address.
fn serve() -> (Process, String) {
    let file = "/run/web.out";
    let mut command = Command::new(BIN);
    command.args(["web", "--listen", "127.0.0.1:0"]).stdout(std::fs::File::create(file).unwrap());
    let process = Process::start(&mut command).unwrap();
    let printed = || std::fs::read_to_string(file).unwrap();
    wait_until("gatun web", Duration::from_secs(10), || printed().ends_with('\n')).unwrap();
    (process, printed().trim().to_owned())
}

#[test]
fn gatun_web_drops_the_privileges_of_root() {
    in_lab("web::gatun_web_drops_the_privileges_of_root", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        let bound = |web: &Process| {
            let status = |name: &str| status_line(web.id(), name);
            assert_eq!(status("CapPrm").trim_start_matches('0'), "");
            assert_eq!(status("CapEff").trim_start_matches('0'), "");
            assert_eq!((&*status("NoNewPrivs"), &*status("Seccomp")), ("1", "2"));
            status("Uid")
        };
        let (web, url) = serve();
        assert_eq!(bound(&web), "0\t0\t0\t0");
        let (at, key) = url.strip_prefix("http://").unwrap().split_once("/#key=").unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET /v1/status HTTP/1.0\r\nHost: {at}\r\nAuthorization: Bearer {key}\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 200") && answer.contains("\"workers\""), "{answer}");
        drop(web);
        // It switches to the owner of the socket.
        chown(gatun_api::SOCKET, Some(65534), Some(65533)).unwrap();
        let (web, _) = serve();
        assert_eq!(bound(&web), "65534\t65534\t65534\t65534");
        daemon.stop(Signal::TERM);
    });
}

const LIVE: &str = "return document.body.dataset.state === 'live'";

#[test]
fn the_page_shows_the_answers_of_the_daemon_and_its_absence() {
    let refusal = || gatun_testkit::refusal().or_else(browser::missing);
    gatun_testkit::run_test("web::the_page_shows_the_answers_of_the_daemon_and_its_absence", refusal, || {
        let net = network();
        gatun("token certificate 127.0.0.1 --certificate /run/api.crt --key /run/api.key");
        let tokens = ["reads --read-only", "writes --write", "asks --audit"].map(token);
        let config = format!("{CREATE}{CONFIG}");
        let daemon = Daemon::start(&net, &config);
        let _traffic = traffic(&net);
        let (_web, url) = serve();
        let browser = Browser::start();
        browser.look(1280, 900, "light");
        browser.open(&url);
        browser.wait("an answer", 10, LIVE);
        assert_eq!(browser.run("return location.hash"), "", "the key is not left in the address");
        figures_change_and_match_the_command_line(&browser);
        drops_are_shown_with_their_meaning(&browser);
        dropped_means_the_same_everywhere(&browser);
        the_verdict_names_the_cause_and_does_not_flap(&browser);
        a_pair_is_shown_as_a_picture(&browser);
        a_cluster_is_shown_with_its_configuration_and_events(&browser);
        switches_are_shown_with_their_fill_and_reasons(&browser);
        the_part_of_a_fast_path_is_shown(&browser);
        the_kernel_fast_path_is_shown_with_its_fill_and_reasons(&browser);
        answers_match_the_command_line(&browser);
        events_are_followed(&browser, &net);
        elements_have_names_and_sufficient_contrast(&browser);
        it_fits_a_phone(&browser);
        pictures(&browser);
        let complaints = complaints(&browser, "explain?source=nonsense");
        assert!(complaints.is_empty(), "the console has nothing to say: {complaints:?}");
        plots_start_with_the_history(&browser);
        let daemon = a_stopped_daemon_is_reported(&browser, daemon, || Daemon::start(&net, &config));
        the_page_contacts_no_other_host(&browser, &url);
        tokens::the_role_of_a_token_limits_the_page(&browser, &net, &tokens);
        daemon.stop(Signal::TERM);
        requests_without_a_key_are_refused(&url);
    });
}

/// Unexpected entries of the page's console. Refusals are logged as well, but expected.
pub(crate) fn complaints(browser: &Browser, expected: &str) -> Vec<String> {
    let lines = browser.log("browser").into_iter().map(|line| line["message"].as_str().unwrap().to_owned());
    // The browser's start page logs that there is no network.
    lines.filter(|line| !line.starts_with("chrome://") && !line.contains(expected)).collect()
}

/// Number displayed in an element.
fn number(browser: &Browser, selector: &str) -> u64 {
    let text = browser.text(selector);
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("'{text}' at {selector} is no number"))
}

fn figures_change_and_match_the_command_line(browser: &Browser) {
    browser.wait("rates", 10, "return parseFloat(document.querySelector('#packets').textContent) > 0");
    assert!(browser.text("#bits-unit").ends_with("bit/s"));
    let plotted = "return document.querySelector('#plot-packets .line').getAttribute('d').split('L').length";
    let before = browser.run(plotted).as_u64().unwrap();
    browser.wait("a longer line", 10, &format!("{plotted} > {before} + 1"));
    // The number of sessions is constant, except for a moment.
    let same = || number(browser, "#sessions-now") == told("show status")["sessions"].as_u64().unwrap();
    wait_until("as many sessions as the command line tells of", Duration::from_secs(10), same).unwrap();
    assert!(number(browser, "#sessions-now") > 50);
    let pools = told("show pools");
    let used = pools[0]["udp"]["total"].as_u64().unwrap();
    let words = browser.text("#pools-list .meter-row:nth-of-type(2) .meter-words");
    let words: String = words.chars().filter(|c| !c.is_whitespace()).collect();
    assert!(words.contains(&format!("of{},", gatun_wire::text::group(used))), "{words}");
    let first = told("show subscribers");
    let most = first.as_array().unwrap().iter().max_by_key(|one| one["sessions"].as_u64()).unwrap();
    // The page may be redrawing the list.
    let most = most["subscriber"].as_str().unwrap();
    let is_first = || browser.text("#subscribers-list tbody tr:first-child button") == most;
    wait_until("the largest subscriber at the top", Duration::from_secs(10), is_first).unwrap();
    // Criteria that select an instance, and the number of packets that matched.
    let instance = &told("show instances")[0];
    let row = browser.text("#instances-list tbody tr:first-child");
    for part in [&instance["selectors"]["pool6"][0], &instance["selectors"]["pool"]] {
        assert!(row.contains(part.as_str().unwrap()), "{row}");
    }
    let matched = number(browser, "#instances-list tbody tr:first-child td:nth-child(2) small");
    assert!(
        (1..=told("show instances")[0]["matched"]["packets"].as_u64().unwrap()).contains(&matched),
        "{matched}"
    );
    for (list, what) in
        [("#workers-list", "workers"), ("#instances-list", "instances"), ("#ports-list", "ports")]
    {
        let rows = browser.run(&format!("return document.querySelectorAll('{list} tbody tr').length"));
        assert_eq!(rows.as_u64().unwrap(), told(&format!("show {what}")).as_array().unwrap().len() as u64);
    }
}

/// Sample states of a daemon, and the expected verdicts.
const VERDICTS: &str = include_str!("web/verdicts.js");

fn the_verdict_names_the_cause_and_does_not_flap(browser: &Browser) {
    let good = json!(["good", "Nothing needs attention.", 0]);
    let log = json!(["bad", "Needs attention: the log.", 1]);
    let pool = |level: &str, findings: u8| json!([level, "Needs attention: pool homes.", findings]);
    let verdicts = browser.run(VERDICTS);
    let expected = json!([
        // It appears immediately, counts as one trouble even if its figures change, and stays for half a
        // minute.
        good,
        log,
        log,
        log,
        log,
        good,
        // The threshold to leave a level is lower than the one to enter it.
        pool("bad", 1),
        pool("bad", 1),
        pool("warn", 1),
        pool("warn", 1),
        pool("bad", 2),
        good
    ]);
    assert_eq!(verdicts, expected);
}

/// Sample states of a pair of boxes, and what the picture shows.
const PAIRS: &str = include_str!("web/pairs.js");

fn a_pair_is_shown_as_a_picture(browser: &Browser) {
    let told = "told 1 session, received 2 sessions, refused 3 sessions";
    let nothing = "backs the other box";
    let both = |words: String| {
        json!(["good", "same sessions", ["a: first", nothing], ["b: this box", nothing], words])
    };
    let expected = json!([
        ["good", "same sessions", ["a: first", "192.0.2.0-192.0.2.7"], ["b: this box", "192.0.2.8"], told],
        [
            "bad",
            "not connected",
            ["a: first", "declared gone"],
            ["b: this box", "192.0.2.0"],
            format!("{told}; connection refused")
        ],
        both(format!("{told}; the clock of first is 1\u{a0}s behind; the certificate ends in 3 days")),
        both(format!("{told}; the clock of first is 1\u{a0}d 00:00 ahead; the certificate has ended")),
        both(told.to_owned()),
        null
    ]);
    assert_eq!(browser.run(PAIRS), expected);
}

/// Sample states of a cluster, and what the page shows: nodes, configuration, events.
const CLUSTERS: &str = include_str!("web/clusters.js");

fn a_cluster_is_shown_with_its_configuration_and_events(browser: &Browser) {
    let expected: Value = serde_json::from_str(include_str!("web/clusters.json")).unwrap();
    assert_eq!(browser.run(CLUSTERS), expected);
}

/// Sample states of P4 switches, and what the page shows.
const SWITCHES: &str = include_str!("web/switches.js");

fn switches_are_shown_with_their_fill_and_reasons(browser: &Browser) {
    let (given, full) = ("1,200 sessions given to the switches, 250/s", "900 of 1,000, 90\u{a0}%");
    let translated = "5,000 packets translated by the switches";
    let in_use = json!([["good", "edge: in use for 1\u{a0}min 01\u{a0}s", "900 sessions", "2 refused"]]);
    let moving =
        json!([["good", "edge: in use for 1\u{a0}min 01\u{a0}s", "900 sessions", "12 moving", "2 refused"]]);
    let refused = format!("{given}; refused: 7 (table full)");
    let expected = json!([
        [in_use, ["warn", full], refused, translated, [["no_entry", "100", "–", "0", "0"]]],
        [
            moving,
            ["warn", full],
            refused,
            translated,
            [["tcp_flags", "0", "0/s", "400", "0"], ["no_entry", "300", "100/s", "0", "0"]]
        ],
        [
            [[
                "bad",
                "edge: not connected for 1\u{a0}min 01\u{a0}s",
                "0 sessions",
                "900 unknown",
                "connection refused"
            ]],
            ["good", "0 of 1,000, 0\u{a0}%"],
            format!("{given}; refused: none"),
            format!("{translated}; not in use: edge: connection refused"),
            []
        ],
        null
    ]);
    assert_eq!(browser.run(SWITCHES), expected);
}

/// Sample states of a fast path, and what the page shows.
const FAST_PATHS: &str = include_str!("web/fast_paths.js");

fn the_part_of_a_fast_path_is_shown(browser: &Browser) {
    let expected = json!([
        "2.00\u{a0}kB since the start",
        "2.00\u{a0}kB since the start, 25\u{a0}% in the kernel",
        "2.00\u{a0}kB since the start, 75\u{a0}% in the switches"
    ]);
    assert_eq!(browser.run(FAST_PATHS), expected);
}

/// Sample states of the kernel fast path, and what the page shows.
const KERNEL: &str = include_str!("web/kernel.js");

fn the_kernel_fast_path_is_shown_with_its_fill_and_reasons(browser: &Browser) {
    let (given, fill) =
        ("1,200 sessions given to the kernel, 250/s", json!(["warn", "900 of 1,000, 90\u{a0}%"]));
    let full = format!("{given}; refused: 7 (the table is full)");
    let row = |name: &str, device: &str, per_s: &str, xdp: &str| {
        json!([name, format!("Help of {name}."), device, per_s, xdp])
    };
    let first = [("no_entry", "100"), ("pending", "90"), ("fragment", "80")];
    let first = first.map(|(name, device)| row(name, device, "–", "0"));
    let later = [("closing", "270", "100/s"), ("no_entry", "140", "20/s"), ("hop_limit", "10", "5/s")];
    let later = later.map(|(name, device, per_s)| row(name, device, per_s, "0"));
    let xdp = "5,000 packets translated, 4,000 of them by XDP; 1 packet dropped";
    let expected = json!([
        [fill, full, "5,000 packets translated", first],
        [fill, full, "10,000 packets translated", later],
        [fill, format!("{given}; refused: none"), xdp, [row("no_next_hop", "0", "0/s", "12")]],
        [
            ["good", "0 of 1,000, 0\u{a0}%"],
            full,
            "0 packets translated; not in use: somebody has detached it",
            []
        ],
        null,
        null
    ]);
    assert_eq!(browser.run(KERNEL), expected);
}

fn drops_are_shown_with_their_meaning(browser: &Browser) {
    let drops = told("show drops");
    for reason in ["ttl", "no_bib"] {
        let drop = drops.as_array().unwrap().iter().find(|drop| drop["reason"] == reason).unwrap();
        let is_there = format!(
            "return [...document.querySelectorAll('#drops-list tbody tr')].some(row => \
             row.querySelector('b').textContent === {reason:?} && \
             row.querySelector('small').textContent === {} && parseFloat(row.cells[1].textContent) > 0)",
            drop["help"]
        );
        browser.wait(reason, 10, &is_there);
    }
}

/// Packets dropped with an ICMP error, silently, and in all.
fn in_status() -> [u64; 3] {
    let status = told("show status");
    ["rejected", "dropped_silently", "dropped"].map(|how| status[how]["packets"].as_u64().unwrap())
}

/// The first number after a text.
fn number_after(text: &str, before: &str) -> u64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in {text}"));
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit() && c != ',').next().unwrap();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number after '{before}' in {text}"))
}

/// The same in the daemon's history, which begins a few seconds after its start.
fn in_history() -> [u64; 3] {
    let curl = "curl --silent --max-time 10 --unix-socket /run/gatun/api.sock http://localhost/v1/history";
    let history = gatun_testkit::run(Command::new("sh").args(["-c", curl])).unwrap();
    let history: Value = serde_json::from_str(&history).unwrap();
    let points = history["points"].as_array().unwrap();
    ["rejected_packets", "dropped_silently_packets", "dropped_packets"]
        .map(|how| points.iter().map(|point| point[how].as_u64().unwrap()).sum())
}

/// Status, its table, `top`, the metrics, the history and the page count the same packets by the same words.
fn dropped_means_the_same_everywhere(browser: &Browser) {
    let said = |args: &str| String::from_utf8(gatun(args).stdout).unwrap();
    let table = || {
        let text = said("show status -o table");
        let rows = text.lines().map(|line| line.split(['│', '┆']).map(str::trim).collect::<Vec<_>>());
        let rows: Vec<_> = rows.filter(|cells| cells.len() > 2).collect();
        ["with an ICMP error", "silently", "dropped"].map(|name| {
            let row = rows.iter().find(|cells| cells[1] == name);
            number_after(row.unwrap_or_else(|| panic!("no {name} in {text}"))[2], "")
        })
    };
    let top = || {
        let text = said("top --once");
        let row = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            number_after(line.unwrap_or_else(|| panic!("no {name} in {text}")), "Mbit/s, ")
        };
        ["with an ICMP error", "silently", "dropped"].map(row)
    };
    let metrics = || {
        let curl = "curl --silent --max-time 10 --unix-socket /run/gatun/api.sock http://localhost/metrics";
        let text = gatun_testkit::run(Command::new("sh").args(["-c", curl])).unwrap();
        let sum = |part: &str| -> u64 {
            let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(part));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        let fate = |fate: &str| sum(&format!("gatun_worker_packets_total{{worker=\"0\",fate=\"{fate}\"}}"));
        [fate("rejected"), fate("dropped_silently"), sum("gatun_drops_total{")]
    };
    let page = || {
        // Both texts at one moment: the page is painted anew while the test reads.
        let texts =
            browser.run("return ['#lost-how', '#lost-sub'].map(s => document.querySelector(s).innerText)");
        let [how, all] = [0, 1].map(|n| texts[n].as_str().unwrap());
        let (answered, silently) =
            how.split_once(',').map(|(a, _)| (a, how.rsplit(", ").next().unwrap())).unwrap();
        [answered, silently, all].map(|text| number_after(text, ""))
    };
    let waited = || in_history().iter().all(|&packets| packets > 0);
    wait_until("drops of both kinds in the history", Duration::from_secs(20), waited).unwrap();
    let kinds: [(&str, &dyn Fn() -> [u64; 3]); 5] =
        [("status", &table), ("top", &top), ("metrics", &metrics), ("page", &page), ("history", &in_history)];
    for (name, read) in kinds {
        let before = in_status();
        // The page shows its last look, the history the last whole interval.
        if name == "page" {
            browser.wait(
                "a newer page",
                10,
                "return (window.seen ??= performance.now()) + 4500 < performance.now()",
            );
        }
        let shown = read();
        let after = in_status();
        for [answered, silently, all] in [before, shown, after] {
            assert!(answered > 0 && silently > 0 && answered + silently == all, "{name}: {shown:?}");
        }
        for kind in 0..3 {
            let least = if name == "history" { 1 } else { before[kind] };
            assert!((least..=after[kind]).contains(&shown[kind]), "{name}: {before:?} {shown:?} {after:?}");
        }
    }
}

/// Fills in a form and waits for the answer, which has `part` in it.
fn ask(browser: &Browser, form: &str, fields: &[(&str, &str)], answer: &str, part: &str) {
    for (name, value) in fields {
        browser.run(&format!("document.querySelector('#{form}').elements[{name:?}].value = {value:?}"));
    }
    browser.run(&format!("document.querySelector('#{form} button').click()"));
    let script = format!("return document.querySelector('{answer}').innerText.includes({part:?})");
    browser.wait(&format!("{part} of {form}"), 10, &script);
}

fn answers_match_the_command_line(browser: &Browser) {
    let (from, to) = (format!("[{CLIENT}]:5000"), format!("{SERVER4}:443"));
    let fields = [("source", from.as_str()), ("destination", &to), ("protocol", "tcp")];
    ask(browser, "explain-form", &fields, "#explain-answer", "it opens a session");
    let why = || {
        browser
            .run("return [...document.querySelectorAll('#explain-answer .why li')].map(li => li.textContent)")
    };
    let explained = told(&format!("explain {from} {to} tcp"));
    assert_eq!((why(), &explained["fate"]), (explained["why"].clone(), &json!("forwarded")));
    ask(
        browser,
        "explain-form",
        &[("destination", "192.0.2.1:40001"), ("source", "198.51.100.2:7"), ("protocol", "udp")],
        "#explain-answer",
        "Dropped: no_bib",
    );
    assert_eq!(why(), told("explain 198.51.100.2:7 192.0.2.1:40001 udp")["why"]);
    ask(browser, "explain-form", &[("source", "nonsense")], "#explain-answer", "nonsense");
    assert_eq!(browser.run("return document.querySelectorAll('#explain-answer [role=alert]').length"), 1);

    let session = &told("show sessions --inside 2001:db8:1::12")[0];
    let outside = format!("{}:{}", session["outside"].as_str().unwrap(), session["outside_port"]);
    ask(browser, "who-form", &[("outside", &outside)], "#look-up-answer", "2001:db8:1::12");
    ask(browser, "where-form", &[("address", "2001:db8:1::12")], "#look-up-answer", "public address");
    assert!(browser.text("#look-up-answer").contains(session["outside"].as_str().unwrap()));
    // A subscriber links to its sessions.
    browser.run("document.querySelector('#subscribers-list tbody tr:first-child button').click()");
    let subscriber = browser.text("#subscribers-list tbody tr:first-child button");
    let count = told(&format!("show sessions --inside {subscriber}")).as_array().unwrap().len();
    let listed = format!("return document.querySelectorAll('#sessions-list tbody tr').length === {count}");
    browser.wait("as many sessions as the subscriber has", 10, &listed);
}

fn events_are_followed(browser: &Browser, net: &Topology) {
    browser.run("document.querySelector('#events-follow').click()");
    let one = "return [...document.querySelectorAll('#events-list li')].some(li => \
               li.innerText.includes('session_created') && li.innerText.includes('icmp ['))";
    let seen = || {
        crate::harness::ping(&net.client, 1, SERVER, "");
        browser.run(one) == true
    };
    wait_until("an event on the page", Duration::from_secs(10), seen).unwrap();
    browser.run("document.querySelector('#events-follow').click()");
}

/// Contrast ratio (WCAG 2) of each text colour on each possible background.
const CONTRASTS: &str = "
const style = getComputedStyle(document.documentElement);
const light = (name) => {
  const hex = style.getPropertyValue(name).trim().slice(1);
  const part = (n) => parseInt(hex.slice(2 * n, 2 * n + 2), 16) / 255;
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(part(0)) + 0.7152 * linear(part(1)) + 0.0722 * linear(part(2));
};
const pairs = [['--on-accent', '--accent'], ['--good', '--good-soft'], ['--bad', '--bad-soft']];
for (const text of ['--text', '--muted', '--accent', '--good', '--warn', '--bad']) pairs.push([text, '--card'], [text, '--ground']);
for (const ground of ['--good-soft', '--warn-soft', '--bad-soft', '--note-soft']) pairs.push(['--text', ground]);
return pairs.map(([text, ground]) => {
  const [a, b] = [light(text), light(ground)];
  return [text + ' on ' + ground, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
});
";

fn elements_have_names_and_sufficient_contrast(browser: &Browser) {
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let of = |role: &'static str| {
        nodes.iter().filter(move |n| n["role"]["value"] == role && n["ignored"] == false)
    };
    for (role, least) in
        [("textbox", 8), ("button", 6), ("combobox", 2), ("slider", 3), ("table", 5), ("meter", 4)]
    {
        assert!(of(role).count() >= least, "{role}: {}", of(role).count());
        for node in of(role) {
            assert!(node["name"]["value"].as_str().is_some_and(|name| !name.is_empty()), "{node}");
        }
    }
    let twice = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size";
    assert_eq!(browser.run(twice), 0);
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        browser.look(1280, 900, scheme);
        grounds.push(browser.run("return getComputedStyle(document.body).backgroundColor"));
        let contrasts = browser.run(CONTRASTS);
        for pair in contrasts.as_array().unwrap() {
            assert!(pair[1].as_f64().unwrap() >= 4.5, "{scheme}: {pair}");
        }
    }
    assert_ne!(grounds[0], grounds[1], "light and dark");
    // Keys move the cursor in a plot.
    browser.run("document.querySelector('#plot-bits svg').focus()");
    browser.run(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowLeft', bubbles: true }))",
    );
    assert_eq!(browser.text("#plot-sessions .when").len(), "03:12:59".len(), "all plots show the moment");
    browser.run("document.activeElement.blur()");
}

fn it_fits_a_phone(browser: &Browser) {
    browser.look(360, 780, "dark");
    let width = browser.run("return document.documentElement.scrollWidth");
    assert_eq!(width, 360, "nothing is wider than the screen");
    let wide = "return [...document.querySelectorAll('main *')].filter(e => !e.closest('svg, .unseen, thead, #events-list') \
                && e.getBoundingClientRect().right > 361).map(e => e.tagName + '.' + e.className + '#' + e.id)";
    assert_eq!(browser.run(wide), json!([]));
    let small = "return [...document.querySelectorAll('.ask button, .ask input, .ask select')]\
                 .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 40).length";
    assert_eq!(browser.run(small), 0, "a thumb finds it");
    browser.look(1280, 900, "light");
}

/// Takes the pictures of docs/how-to/web.md if requested, after more traffic than a test needs.
fn pictures(browser: &Browser) {
    if std::env::var_os("GATUN_BLESS").is_none() {
        assert!(browser.picture().starts_with(b"\x89PNG\r\n"));
        return;
    }
    let fields =
        [("source", "[2001:db8:1::10]:5000"), ("destination", "198.51.100.2:443"), ("protocol", "tcp")];
    ask(browser, "explain-form", &fields, "#explain-answer", "it opens a session");
    std::thread::sleep(Duration::from_secs(100));
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, width, height, scheme, at) in [
        ("web", 1280, 860, "light", "#now"),
        ("web-dark", 1280, 860, "dark", "#now"),
        ("web-explain", 1280, 560, "light", "#explain"),
        ("web-phone", 360, 720, "dark", "#now"),
    ] {
        browser.look(width, height, scheme);
        browser.run(&format!("document.querySelector('{at}').scrollIntoView()"));
        if at == "#now" {
            browser.run("window.scrollTo(0, 0)");
        }
        std::thread::sleep(Duration::from_millis(500));
        std::fs::write(folder.join(format!("{name}.png")), browser.picture()).unwrap();
    }
    browser.look(1280, 900, "light");
}

fn plots_start_with_the_history(browser: &Browser) {
    let kept = "return (async () => { const { read } = await import('/web/api.js'); \
                return (await read('/v1/history')).points.length >= 5; })()";
    browser.wait("five points that the daemon has kept", 40, kept);
    browser.run("window.isOld = true; location.reload()");
    browser.wait("the page anew", 10, "return !window.isOld && document.body.dataset.state === 'live'");
    // The page alone would need two samples, several seconds apart.
    for plot in ["bits", "packets", "sessions"] {
        let points = browser.run(&format!(
            "return document.querySelector('#plot-{plot} .line').getAttribute('d').split(/[ML]/).length - 1"
        ));
        assert!(points.as_u64().unwrap() >= 5, "{plot}: {points}");
    }
}

fn a_stopped_daemon_is_reported(browser: &Browser, daemon: Daemon, again: impl FnOnce() -> Daemon) -> Daemon {
    daemon.process.signal(Signal::KILL).unwrap();
    drop(daemon);
    browser.wait("that nobody answers", 15, "return document.body.dataset.state === 'gone'");
    let said = browser.text("#gone");
    for part in ["No answer since", "no daemon answers", "is `gatun run` running?", "The data shown is from"]
    {
        assert!(said.contains(part), "'{part}' is not in {said}");
    }
    assert!(number(browser, "#sessions-now") > 0, "the last data is no longer shown");
    assert_eq!(browser.run("return document.title"), "No answer – Gatun");
    let daemon = again();
    browser.wait("the daemon's return", 15, LIVE);
    browser.wait("rates", 10, "return parseFloat(document.querySelector('#packets').textContent) > 0");
    assert_eq!(browser.run("return document.querySelector('#gone').checkVisibility()"), false);
    let complaints = complaints(browser, "(Bad Gateway)");
    assert!(complaints.is_empty(), "{complaints:?}");
    daemon
}

fn the_page_contacts_no_other_host(browser: &Browser, url: &str) {
    let ours = &url[..url.find("#").unwrap()];
    let mut asked = 0;
    for line in browser.log("performance") {
        let message: Value = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
        let message = &message["message"];
        let (parameters, method) = (&message["params"], &message["method"]);
        // The tab starts with a page of the browser.
        let is_ours = parameters["documentURL"].as_str().is_some_and(|page| page.starts_with(ours));
        if is_ours && method == "Network.requestWillBeSent" {
            let to = parameters["request"]["url"].as_str().unwrap();
            assert!(to.starts_with(ours), "{to}");
            asked += 1;
        }
    }
    assert!(asked > 50, "{asked}");
}

/// Checks that requests of other pages, or without a key, are refused.
fn requests_without_a_key_are_refused(url: &str) {
    let (address, key) = url.split_once("#key=").unwrap();
    let status = |more: &[&str], path: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--output",
            "/run/stranger",
            "--write-out",
            "%{http_code}",
            "--max-time",
            "10",
        ]);
        let out = gatun_testkit::run(curl.args(more).arg(format!("{address}{path}"))).unwrap();
        (out.trim().to_owned(), std::fs::read_to_string("/run/stranger").unwrap())
    };
    let with_key = format!("authorization: Bearer {key}");
    assert_eq!(status(&["-H", &with_key], "openapi.json").0, "502", "the daemon is gone");
    assert_eq!(status(&[], "").0, "200");
    assert_eq!(status(&[], "v1/status").0, "401");
    assert_eq!(status(&["-H", &with_key, "-H", "host: evil.example"], "v1/status").0, "421");
    assert_eq!(status(&["-H", &with_key, "-H", "sec-fetch-site: cross-site"], "v1/status").0, "403");
    assert_eq!(status(&["-H", &with_key, "-X", "DELETE"], "v1/sessions?all=true").0, "405");
    let refused = gatun("web --listen 0.0.0.0:0");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("pass --unencrypted"), "{said}");
}
