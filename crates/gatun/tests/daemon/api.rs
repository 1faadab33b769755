//! Queries to a running daemon, by `gatun show` and other commands, curl and Prometheus, and who may send
//! them.

use crate::harness::{CREATE, Daemon, NAT64, counter, has_users, in_lab, network, ping, succeeds, tcp_copy};
use gatun_testkit::topology::{CLIENT, SERVER, SERVER4};
use gatun_testkit::{Namespace, Process, Topology};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const SOCKET: &str = "/run/gatun/api.sock";
const BIN: &str = env!("CARGO_BIN_EXE_gatun");

fn gatun(args: &str) -> Output {
    crate::harness::gatun(args.split_whitespace())
}

/// Standard output of a successful command.
fn said(args: &str) -> String {
    let output = gatun(args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "gatun {args}: {out}{err}");
    out
}

fn json(args: &str) -> Value {
    let text = said(&format!("{args} -o json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("gatun {args}: {e}: {text}"))
}

/// Error message of a failed command.
fn refused(args: &str) -> String {
    let output = gatun(args);
    assert_eq!(output.status.code(), Some(1), "gatun {args}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub(crate) fn curl(args: &str) -> String {
    gatun_testkit::run(
        Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "10"])
            .args(args.split_whitespace()),
    )
    .unwrap()
}

fn started(network: &Topology, more: &str) -> Daemon {
    Daemon::start(network, &format!("{CREATE}{NAT64}{more}"))
}

/// Sends a datagram from the client to each of these ports of the server.
fn datagrams(client: &Namespace, ports: std::ops::Range<u16>) {
    const SEND: &str = "
import socket, sys
# All of them open until the end, so that no two have the same port.
ports = range(int(sys.argv[2]), int(sys.argv[3]))
sockets = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in ports]
for s, port in zip(sockets, ports):
    s.sendto(b'hello', (sys.argv[1], port))
";
    let (first, end) = (ports.start.to_string(), ports.end.to_string());
    gatun_testkit::run(client.command("python3").args(["-c", SEND, SERVER, &first, &end])).unwrap();
}

/// Waits for sessions, because a sent datagram takes some time to arrive.
fn wait_for_sessions(count: u64) {
    let are_there = || json("show status")["sessions"] == count;
    gatun_testkit::wait_until("the sessions", std::time::Duration::from_secs(5), are_there).unwrap();
}

#[test]
fn the_api_works_without_configuration() {
    in_lab("api::the_api_works_without_configuration", || {
        assert!(
            refused("show status")
                .contains("no daemon answers at /run/gatun/api.sock: is `gatun run` running?")
        );
        let net = network();
        let daemon = started(&net, "");
        assert!(daemon.stderr().contains("API: /run/gatun/api.sock"), "{}", daemon.stderr());
        datagrams(&net.client, 7000..7050);
        assert!(ping(&net.client, 1, SERVER, ""));
        wait_for_sessions(51);
        let status = json("show status");
        assert_eq!(
            (&status["sessions"], &status["packets_accounted"]),
            (&51.into(), &true.into()),
            "{status}"
        );
        let instance = &json("show instances")[0];
        let selectors =
            serde_json::json!({ "ports": [], "pool6": ["2001:db8:64::/96"], "sources": [], "pool": "pool1" });
        assert_eq!(instance["selectors"], selectors);
        let counted = |name: &str| instance[name]["packets"].as_u64().unwrap();
        let all = ["outbound", "inbound", "passed", "echoes", "dropped"].map(counted);
        assert!(counted("outbound") >= 51 && counted("matched") == all.iter().sum::<u64>(), "{instance}");
        for what in [
            "ports",
            "workers",
            "instances",
            "pools",
            "addresses",
            "subscribers",
            "bindings",
            "sessions",
            "counters",
            "drops",
            "blocks",
        ] {
            assert!(json(&format!("show {what}")).is_array(), "{what}");
            said(&format!("show {what}"));
            said(&format!("show {what} -o csv"));
            said(&format!("show {what} -o ndjson"));
        }
        assert_eq!(json("show ports")[0]["device"], "nat64");
        let udp = json("show sessions --protocol udp");
        assert_eq!(udp.as_array().unwrap().len(), 50);
        assert!(
            udp.as_array().unwrap().iter().all(|s| s["inside"] == CLIENT && s["remote"] == SERVER4),
            "{udp}"
        );
        assert_eq!(said("show sessions --remote-port 7007 -o csv").lines().count(), 2);
        assert!(said("show config").contains("pool6 = \"2001:db8:64::/96\""));
        // The holder of a port, and the public addresses of a host.
        let port = udp[7]["outside_port"].to_string();
        let who = said(&format!("who 192.0.2.1:{port}"));
        assert!(who.contains(&format!("is {CLIENT} port {}", udp[7]["inside_port"])), "{who}");
        let whereabouts = said(&format!("where {CLIENT}"));
        assert!(whereabouts.contains("public address 192.0.2.1; 51 sessions"), "{whereabouts}");
        assert_eq!(gatun("who 192.0.2.1:1").status.code(), Some(1));
        assert!(refused("show sessions --instance nope").contains("known: lab"));
        // A cleared session is opened again by the next packet.
        assert!(refused("clear sessions").contains("--all for all sessions"));
        assert!(refused("clear sessions --remote-port 7007").contains("pass --yes"));
        assert_eq!(said("clear sessions --remote-port 7007 --yes"), "ended: 1 session, 1 binding\n");
        assert_eq!(said("clear bindings --protocol udp --yes"), "ended: 49 sessions, 49 bindings\n");
        datagrams(&net.client, 7007..7008);
        wait_for_sessions(2);
        assert_eq!(said("clear sessions --all --yes"), "ended: 2 sessions, 2 bindings\n");
        assert!(
            daemon.stderr().contains("api: uid 0 cleared sessions of 'remote_port=7007'"),
            "{}",
            daemon.stderr()
        );
        let page = curl(&format!("--unix-socket {SOCKET} http://localhost/openapi.json"));
        assert!(page.contains("\"openapi\":\"3.1.0\""));
        let ended = daemon.stop(Signal::TERM);
        assert_eq!(counter(&ended.stdout, "forwarded, IPv6 to IPv4"), 52);
        assert!(!std::path::Path::new(SOCKET).exists(), "the daemon removes its socket");
    });
}

/// Sends datagrams from one of the client's addresses, each after the answer to the previous one. Returns
/// their number, the bytes sent, and the bytes received; the daemon receives the latter as IPv4.
fn exchange(client: &Namespace, from: &str, count: u64) -> [u64; 3] {
    const EXCHANGE: &str = "
import socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.settimeout(10)
packets = sent = received = 0
for n in range(int(sys.argv[3])):
    question = b'?' * (100 + n)
    s.sendto(question, (sys.argv[2], 5006))
    packets += 1
    sent += 40 + 8 + len(question)
    received += 20 + 8 + len(s.recv(9000))
print(packets, sent, received)
";
    let mut command = client.command("python3");
    command.args(["-c", EXCHANGE, from, SERVER, &count.to_string()]);
    let said = gatun_testkit::run(&mut command).unwrap();
    let numbers: Vec<u64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Packets and bytes of a row, outbound and inbound.
fn traffic(row: &Value) -> [u64; 4] {
    ["/outbound/packets", "/outbound/bytes", "/inbound/packets", "/inbound/bytes"]
        .map(|field| row.pointer(field).and_then(Value::as_u64).unwrap_or_else(|| panic!("{field}: {row}")))
}

fn sum(rows: &Value) -> [u64; 4] {
    let all = rows.as_array().unwrap().iter().map(traffic);
    all.fold([0; 4], |sum, one| std::array::from_fn(|at| sum[at] + one[at]))
}

#[test]
fn subscribers_addresses_and_pools_count_the_traffic_of_hosts() {
    in_lab("api::subscribers_addresses_and_pools_count_the_traffic_of_hosts", || {
        const ANSWER: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5006))
while True:
    data, who = s.recvfrom(9000)
    s.sendto(data + data, who)
";
        const OTHER: &str = "2001:db8:1::3";
        let net = network();
        net.client.address("eth0", &format!("{OTHER}/64")).unwrap();
        let hosts = NAT64.replace("name = \"lab\"", "name = \"lab\"\nsubscriber = \"/128\"");
        let daemon = Daemon::start(&net, &format!("{CREATE}{hosts}"));
        let _server = Process::start(net.server.command("python3").args(["-c", ANSWER])).unwrap();
        let listens = || net.server.run("ss -Hlun").unwrap().contains(":5006 ");
        gatun_testkit::wait_until("the server", std::time::Duration::from_secs(10), listens).unwrap();
        let exchanged = [(CLIENT, 9), (OTHER, 4)].map(|(host, count)| {
            let [packets, sent, received] = exchange(&net.client, host, count);
            assert_eq!(packets, count);
            (host, [packets, sent, packets, received])
        });
        let subscribers = json("show subscribers");
        for (host, wanted) in exchanged {
            let is_host = |row: &&Value| row["subscriber"].as_str().unwrap().split('/').next() == Some(host);
            let row = subscribers.as_array().unwrap().iter().find(is_host);
            assert_eq!(row.map(traffic), Some(wanted), "{host}: {subscribers}");
        }
        let [(_, one), (_, other)] = exchanged;
        let all: [u64; 4] = std::array::from_fn(|at| one[at] + other[at]);
        for what in ["pools", "addresses", "instances"] {
            assert_eq!(sum(&json(&format!("show {what}"))), all, "{what}");
        }
        let most = json(&format!("show subscribers --inside {CLIENT}"));
        assert_eq!(sum(&most), one, "{most}");
        // The daemon counts super-packets, so its counters only have to agree with each other.
        tcp_copy(&net.client, &net.server, "TCP4-LISTEN:5001,reuseaddr", &format!("TCP6:[{SERVER}]:5001"));
        let after = sum(&json("show instances"));
        assert!(after[1] - all[1] > 20_000_000, "{after:?}");
        for what in ["pools", "addresses", "subscribers"] {
            assert_eq!(sum(&json(&format!("show {what}"))), after, "{what}");
        }
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn no_packet_is_lost_while_sessions_are_listed_and_cleared() {
    in_lab("api::no_packet_is_lost_while_sessions_are_listed_and_cleared", || {
        let net = network();
        let daemon = started(&net, "");
        static DONE: AtomicBool = AtomicBool::new(false);
        let asking = std::thread::spawn(|| {
            let mut rounds = 0;
            while !DONE.load(Ordering::Relaxed) {
                said("show sessions --limit 0 -o ndjson");
                said("show bindings -o csv");
                // All sessions except that of the copy.
                said("clear sessions --protocol udp --yes");
                said("show status");
                rounds += 1;
            }
            rounds
        });
        for round in 0..3 {
            datagrams(&net.client, 7000..7400);
            tcp_copy(
                &net.client,
                &net.server,
                &format!("TCP4-LISTEN:{}", 5010 + round),
                &format!("TCP6:[{SERVER}]:{}", 5010 + round),
            );
        }
        DONE.store(true, Ordering::Relaxed);
        assert!(asking.join().unwrap() > 0);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn the_group_of_the_socket_decides_access() {
    in_lab("api::the_group_of_the_socket_decides_access", || {
        let net = network();
        let place = "/run/elsewhere/gatun.sock";
        let daemon = started(&net, &format!("[api]\nlisten = \"unix:{place}\"\ngroup = \"0\"\n"));
        assert_eq!(std::fs::metadata(place).unwrap().permissions().mode() & 0o7777, 0o660);
        assert_eq!(json(&format!("show status --socket {place}"))["workers"], 1);
        assert!(refused("show status").contains("pass --socket PATH"));
        // Another user, if the user namespace has one.
        if has_users() {
            let other = |gid: &str| {
                let ids = [
                    "--reuid",
                    "65534",
                    "--regid",
                    gid,
                    "--clear-groups",
                    BIN,
                    "show",
                    "status",
                    "--socket",
                    place,
                ];
                gatun_testkit::output(Command::new("setpriv").args(ids)).unwrap()
            };
            let nobody = other("65534");
            let why = String::from_utf8_lossy(&nobody.stderr).into_owned();
            assert!(!nobody.status.success() && why.contains("permission denied: run as root, or"), "{why}");
            assert!(other("0").status.success(), "a member of the group");
        }
        // A second daemon cannot use the same path.
        let second = Daemon::spawn(
            &net,
            &format!(
                "[[port]]\ndevice = \"other\"\nroutes = false\n{NAT64}[api]\nlisten = \"unix:{place}\"\n"
            ),
            &[],
        );
        let ended = second.wait();
        assert!(!ended.success && ended.stderr.contains("another gatun listens at"), "{}", ended.stderr);
        assert_eq!(json(&format!("show status --socket {place}"))["workers"], 1);
        daemon.stop(Signal::TERM);
    });
}

/// The kernel may close the sockets of a killed process after its devices.
#[test]
fn a_daemon_waits_for_the_sockets_of_a_killed_process() {
    in_lab("api::a_daemon_waits_for_the_sockets_of_a_killed_process", || {
        const HOLD: &str = "
import socket, sys, time
t = socket.create_server(('127.0.0.1', 9464))
u = socket.socket(socket.AF_UNIX); u.bind(sys.argv[1]); u.listen(); time.sleep(60)
";
        let net = network();
        std::fs::create_dir_all("/run/gatun").unwrap();
        net.translator.ip("link set lo up").unwrap();
        let held = Process::start(&mut net.translator.python(HOLD, &[SOCKET])).unwrap();
        let is_held = || std::os::unix::net::UnixStream::connect(SOCKET).is_ok();
        gatun_testkit::wait_until("the socket", Duration::from_secs(10), is_held).unwrap();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            held.signal(Signal::KILL).unwrap();
        });
        let daemon = started(&net, "[metrics]\nlisten = \"127.0.0.1:9464\"\n");
        assert!(!daemon.stderr().contains("no API"), "{}", daemon.stderr());
        assert_eq!(json("show status")["workers"], 1);
        killer.join().unwrap();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_second_daemon_runs_without_the_default_socket_and_reports_it() {
    in_lab("api::a_second_daemon_runs_without_the_default_socket_and_reports_it", || {
        let net = network();
        let first = started(&net, "");
        let second = Daemon::start(&net, &format!("[[port]]\ndevice = \"other\"\nroutes = false\n{NAT64}"));
        assert!(
            second.stderr().contains("no API, so `gatun show` does not work: another gatun listens"),
            "{}",
            second.stderr()
        );
        let pid = json("show status")["pid"].clone();
        second.stop(Signal::TERM);
        assert_eq!(json("show status")["pid"], pid, "the socket of the first daemon stays");
        // A killed daemon leaves its socket; the next one replaces it.
        first.process.signal(Signal::KILL).unwrap();
        first.wait();
        assert!(refused("show status").contains("no daemon answers"));
        let off = started(&net, "[api]\nlisten = \"off\"\n");
        assert!(refused("show status").contains("no daemon answers"));
        off.stop(Signal::TERM);
        let third = started(&net, "");
        assert_eq!(json("show status")["workers"], 1);
        third.stop(Signal::TERM);
    });
}

#[test]
fn a_reload_updates_answers_and_another_socket_needs_a_restart() {
    in_lab("api::a_reload_updates_answers_and_another_socket_needs_a_restart", || {
        let net = network();
        let daemon = started(&net, "");
        let config = format!("{CREATE}{NAT64}");
        daemon.reload(&format!("{config}[timeouts]\nudp = \"7m\"\n"), "reload: done");
        assert!(said("show config").contains("udp = \"7m\""));
        datagrams(&net.client, 7000..7001);
        wait_for_sessions(1);
        let left = json("show sessions")[0]["expires_ms"].as_u64().unwrap();
        assert!((400_000..420_064).contains(&left), "{left}");
        let answer = daemon.reload(&format!("{config}[api]\nlisten = \"off\"\n"), "nothing has changed");
        assert!(answer.contains("needs a restart: [api]"), "{answer}");
        assert!(said("show config").contains("udp = \"7m\""));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn prometheus_reads_metrics_on_the_socket_and_on_tcp() {
    in_lab("api::prometheus_reads_metrics_on_the_socket_and_on_tcp", || {
        let net = network();
        let daemon = started(&net, "[metrics]\nlisten = \"[::1]:9464\"\n");
        datagrams(&net.client, 7000..7010);
        let at_socket = curl(&format!("--unix-socket {SOCKET} http://localhost/metrics"));
        for line in [
            "gatun_instance_sessions{kind=\"nat64\",name=\"lab\",protocol=\"udp\"} 10\n",
            "gatun_translated_packets_total{direction=\"v6>v4\"} 10\n",
            "gatun_worker_packets_accounted{worker=\"0\"} 1\n",
        ] {
            assert!(at_socket.contains(line), "{line} in {at_socket}");
        }
        net.translator.ip("link set lo up").unwrap();
        let on_tcp = |path: &str| {
            net.translator
                .run(&format!("curl --silent --max-time 10 --globoff http://[::1]:9464{path}"))
                .unwrap()
        };
        assert!(on_tcp("/metrics").contains("gatun_build_info{version="));
        // Other paths are not served on this port.
        assert!(on_tcp("/v1/sessions").contains("metrics are at /metrics"));
        daemon.stop(Signal::TERM);
        let Some(promtool) = gatun_testkit::find_program("promtool") else {
            return gatun_testkit::skip("the program `promtool` is missing (Debian: prometheus)");
        };
        std::fs::write("/run/metrics", &at_socket).unwrap();
        let mut check = Command::new("sh");
        check.args(["-c", "exec \"$0\" check metrics < /run/metrics"]).arg(promtool);
        gatun_testkit::run(&mut check).unwrap();
    });
}

#[test]
fn the_socket_exists_after_a_change_of_user() {
    in_lab("api::the_socket_exists_after_a_change_of_user", || {
        if !has_users() {
            return gatun_testkit::skip("a user namespace with one user cannot switch: run it as root");
        }
        let net = network();
        for _ in 0..2 {
            // The second daemon finds the socket that the first one could not remove.
            let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{NAT64}"), &["--user", "65534:65533"]);
            while !daemon.stderr().contains("translating with") {
                assert!(daemon.process.ended().is_none(), "{}", daemon.stderr());
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            assert_eq!(json("show status")["workers"], 1);
            assert!(succeeds(Command::new(BIN).args(["clear", "sessions", "--all", "--yes"])));
            daemon.stop(Signal::TERM);
        }
    });
}

/// Output on a terminal with 80 columns.
fn on_a_terminal(args: &str) -> String {
    let line = format!("stty cols 80; {BIN} {args}");
    let output = gatun_testkit::output(Command::new("script").args(["-qec", &line, "/dev/null"])).unwrap();
    let text = String::from_utf8(output.stdout).unwrap().replace('\r', "");
    assert!(output.status.success(), "gatun {args}: {text}");
    text
}

/// Rows of a CSV file, by a reader that is not Gatun's.
fn rows(csv: &str) -> Vec<Vec<String>> {
    const READ: &str =
        "import csv, json, sys; print(json.dumps(list(csv.reader(open(sys.argv[1], newline='')))))";
    std::fs::write("/run/rows.csv", csv).unwrap();
    let rows = gatun_testkit::run(Command::new("python3").args(["-c", READ, "/run/rows.csv"])).unwrap();
    serde_json::from_str(&rows).unwrap()
}

/// Fields of an object, nested ones by their path.
fn leaves(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let dot = if path.is_empty() { "" } else { "." };
            leaves(&format!("{path}{dot}{name}"), value, found);
        }),
        value => found.push((path.to_owned(), value.clone())),
    }
}

/// Compares a list as CSV with the same list as JSON.
fn csv_has_what_json_has(what: &str) {
    let (listed, csv) = (json(&format!("show {what}")), said(&format!("show {what} -o csv")));
    let listed = if listed.is_array() { listed } else { Value::Array(vec![listed]) };
    let listed = listed.as_array().unwrap();
    let rows = rows(&csv);
    let (header, rows) = rows.split_first().unwrap_or_else(|| panic!("show {what}: no header: {csv}"));
    assert_eq!(rows.len(), listed.len(), "show {what}: {csv}");
    for (row, object) in rows.iter().zip(listed) {
        assert_eq!(row.len(), header.len(), "show {what}: {csv}");
        let mut fields = Vec::new();
        leaves("", object, &mut fields);
        for (name, value) in fields {
            let column = header.iter().position(|column| *column == name);
            let Some(column) = column else {
                // An object that is not there has its columns all the same.
                assert!(
                    value.is_null() && header.iter().any(|c| c.starts_with(&format!("{name}."))),
                    "{name}: {csv}"
                );
                continue;
            };
            let cell = &row[column];
            match &value {
                Value::Null => assert_eq!(cell, "", "{name}: {csv}"),
                Value::String(text) => assert_eq!(cell, text, "{name}: {csv}"),
                // Times and rates go on between the two answers.
                Value::Number(_) => assert!(cell.parse::<f64>().is_ok(), "{name}: {csv}"),
                Value::Array(items) if items.iter().any(Value::is_object) => {
                    let names: Vec<&str> =
                        cell.split(' ').map(|pair| pair.split_once('=').unwrap().0).collect();
                    assert!(
                        items.iter().all(|item| {
                            let name = item.get("name").or(item.get("part"));
                            names.contains(&name.and_then(Value::as_str).unwrap())
                        }),
                        "{name}: {csv}"
                    );
                }
                Value::Array(items) => {
                    assert!(items.iter().all(|item| cell.contains(item.as_str().unwrap())), "{csv}")
                }
                value => assert_eq!(cell, &value.to_string(), "{name}: {csv}"),
            }
        }
    }
}

#[test]
fn csv_has_a_column_for_each_field_and_the_values_of_json() {
    in_lab("api::csv_has_a_column_for_each_field_and_the_values_of_json", || {
        const CONFIG: &str = "
[[pool]]
name = \"homes\"
prefixes = \"192.0.2.0/30\"
allocation = { kind = \"blocks\", size = 64, blocks_per_subscriber = 4 }
[[nat64]]
name = \"lab\"
pool6 = \"2001:db8:64::/96\"
[limits]
sessions_per_subscriber = 3
sessions_max = 4096
[log]
directory = \"/run/log\"
";
        const EXPORT: &str = "[[export]]\nname = \"siem\"\nto = \"tcp:127.0.0.1:7001\"\nformat = \"json\"\n";
        const ALL: &str = "status ports workers instances pools addresses blocks subscribers bindings sessions counters \
            drops export log config";
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{CONFIG}"));
        // No collector, but a header.
        assert_eq!(said("show export -o csv"), "name,connected,sent,lost,waiting,spooled_bytes\n");
        assert_eq!(said("show sessions -o csv").lines().count(), 1);
        daemon.stop(Signal::TERM);
        let daemon = Daemon::start(&net, &format!("{CREATE}{CONFIG}{EXPORT}"));
        datagrams(&net.client, 7000..7004);
        wait_for_sessions(3);
        let refused = || json("show instances")[0]["drops"].as_array().is_some_and(|drops| !drops.is_empty());
        gatun_testkit::wait_until("a refused session", std::time::Duration::from_secs(5), refused).unwrap();
        ALL.split_whitespace().for_each(csv_has_what_json_has);
        let instances = rows(&said("show instances -o csv"));
        let drops = instances[0].iter().position(|name| name == "drops").unwrap();
        assert_eq!(instances[1][drops], "sub_sess_quota=1");
        assert!(instances[0].contains(&"tcp.sessions.now".to_owned()), "{instances:?}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn lists_fit_a_terminal_of_80_columns_and_a_file_has_a_line_for_each_row() {
    in_lab("api::lists_fit_a_terminal_of_80_columns_and_a_file_has_a_line_for_each_row", || {
        let net = network();
        let daemon = started(&net, "");
        datagrams(&net.client, 7000..7003);
        wait_for_sessions(3);
        for what in
            ["status", "instances", "pools", "addresses --outside 192.0.2.1", "sessions", "drops --zeros"]
        {
            let screen = on_a_terminal(&format!("show {what}"));
            for line in screen.lines() {
                assert!(line.chars().count() <= 80, "show {what}: {line}");
            }
            assert!(!screen.trim().is_empty(), "show {what}");
        }
        // As wide a row as of a large daemon.
        let status = on_a_terminal("show status");
        let rows = status.lines().filter(|line| line.starts_with('│')).map(|line| {
            let cells: Vec<&str> = line.split(['│', '┆']).map(str::trim).collect();
            (cells[1].to_owned(), cells[2].to_owned())
        });
        let rows: Vec<(String, String)> = rows.collect();
        let names = ["version", "memory", "sessions", "dropped", "with an ICMP error", "silently", "held"];
        for name in names {
            let value = rows.iter().find(|(of, _)| of == name).map(|(_, value)| &value[..]);
            assert!(value.is_some_and(|value| !value.is_empty()), "{name} has no value beside it: {status}");
        }
        let sessions = rows.iter().find(|(name, _)| name == "sessions").unwrap();
        assert_eq!(sessions.1, "3 of 262,144", "{status}");
        let place = |name: &str| rows.iter().position(|(of, _)| of == name).unwrap();
        assert_eq!(place("silently"), place("dropped") + 2, "{status}");
        // A value of more than one line has no further lines but its own.
        let further = rows.iter().filter(|(name, _)| name.is_empty()).count();
        assert!(further <= 4 && rows.len() <= 22 + further, "{status}");
        // Each end stands whole on its line, for whoever copies it or searches for it.
        for text in [on_a_terminal("show sessions"), said("show sessions")] {
            for port in 7000..7003 {
                let end = format!("198.51.100.2:{port}");
                assert!(text.lines().any(|line| line.contains(&end)), "{end} in {text}");
            }
        }
        let rows = said("show sessions").lines().filter(|line| line.contains("198.51.100.2:70")).count();
        assert_eq!(rows, 3);
        daemon.stop(Signal::TERM);
    });
}
