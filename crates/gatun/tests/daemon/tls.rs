//! API over TLS, used by curl, openssl and `gatun --server` on other hosts, and flooded by a host.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping};
use gatun_testkit::topology::{CLIENT, SERVER};
use gatun_testkit::{Namespace, Process};
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const BIN: &str = env!("CARGO_BIN_EXE_gatun");
/// Address of the translator at the client.
const URL: &str = "https://[2001:db8:1::1]:8443";
pub(crate) const API: &str = "
[api]
listen_tls = \"[2001:db8:1::1]:8443\"
certificate = \"/run/api.crt\"
key = \"/run/api.key\"
tokens = \"/run/tokens\"
";

fn gatun(args: &str) -> Output {
    gatun_testkit::output(Command::new(BIN).args(args.split_whitespace())).unwrap()
}

fn token(args: &str) -> String {
    let output = gatun(&format!("token {args}"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Creates a certificate, a read token and a write token; returns the certificate's fingerprint and the
/// tokens.
fn prepare() -> (String, String, String) {
    let made = token("certificate 2001:db8:1::1 --certificate /run/api.crt --key /run/api.key");
    let fingerprint = made.lines().find_map(|line| line.strip_prefix("SHA-256 ")).unwrap().to_owned();
    let [reads, writes] =
        ["reads --read-only", "writes --write"].map(|who| token(&format!("add {who} --file /run/tokens")));
    fs::write("/run/reads", &reads).unwrap();
    (fingerprint, reads, writes)
}

/// HTTP status and body of an answer.
fn curl(host: &Namespace, token: &str, args: &str) -> (String, String) {
    let mut command = host.command("curl");
    command.args(["--silent", "--show-error", "--max-time", "10", "--globoff", "--cacert", "/run/api.crt"]);
    command.args(["--write-out", "\n%{http_code}"]);
    if !token.is_empty() {
        command.args(["--header", &format!("authorization: Bearer {token}")]);
    }
    let text = gatun_testkit::run(command.args(args.split_whitespace())).unwrap();
    let (body, status) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    (status.to_owned(), body.to_owned())
}

/// Standard output of `gatun` on that host, or its error message.
fn asked(host: &Namespace, args: &str, environment: &[(&str, &str)]) -> Result<String, String> {
    let mut command = host.command(BIN);
    let output =
        gatun_testkit::output(command.args(args.split_whitespace()).envs(environment.iter().copied()))
            .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn other_hosts_connect_with_a_trusted_certificate_and_a_token() {
    in_lab("tls::other_hosts_connect_with_a_trusted_certificate_and_a_token", || {
        let net = network();
        let (fingerprint, reads, writes) = prepare();
        assert!(!gatun("token certificate x --certificate /run/api.crt --key /run/k").status.success());
        assert!(!gatun("token add reads --file /run/tokens").status.success(), "the name is taken");
        assert_eq!(token("list --file /run/tokens"), "reads read\nwrites write");
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{API}"));
        let line = format!("API: {URL}, certificate SHA-256 {fingerprint}");
        assert!(daemon.stderr().contains(&line), "{}", daemon.stderr());
        let client = &net.client;
        let at = |path: &str| format!("{URL}{path}");
        // With curl.
        let (status, body) = curl(client, &reads, &at("/v1/status"));
        assert!(status == "200" && body.contains("\"packets_accounted\":true"), "{status} {body}");
        assert_eq!(curl(client, "", &at("/v1/status")).0, "401");
        assert_eq!(curl(client, "gatun_1", &at("/v1/status")).0, "401");
        let (status, body) = curl(client, &reads, &format!("-X DELETE {}", at("/v1/sessions?all=true")));
        assert!(status == "403" && body.contains("the role of this token does not allow"), "{status} {body}");
        assert_eq!(curl(client, &writes, &format!("-X DELETE {}", at("/v1/sessions?all=true"))).0, "200");
        assert!(curl(client, &reads, &at("/metrics")).1.contains("gatun_api_clients_refused_total"));
        let plain = gatun_testkit::output(client.command("curl").args([
            "--silent",
            "--globoff",
            "http://[2001:db8:1::1]:8443/",
        ]));
        assert!(!plain.unwrap().status.success(), "nothing is said without TLS");
        // With openssl.
        if let Some(why) = gatun_testkit::missing(&[("openssl", "openssl")]) {
            return gatun_testkit::skip(&why);
        }
        let seen = |flags: &str| {
            let ask = format!(
                "openssl s_client -connect [2001:db8:1::1]:8443 {flags} < /dev/null 2>&1 | tee /run/seen; openssl x509 -noout -fingerprint -sha256 < /run/seen"
            );
            let output = gatun_testkit::output(client.command("sh").args(["-c", &ask])).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let text = seen("-CAfile /run/api.crt -verify_ip 2001:db8:1::1");
        assert!(text.contains("Verify return code: 0 (ok)") && text.contains("TLSv1.3"), "{text}");
        assert!(text.to_lowercase().replace(':', "").contains(&fingerprint), "{text}");
        let older = seen("-tls1_2");
        assert!(older.contains("protocol version"), "{older}");
        // With gatun.
        let by_hash = format!("--server {URL} --token-file /run/reads --fingerprint {fingerprint}");
        let status = asked(client, &format!("show status -o json {by_hash}"), &[]).unwrap();
        assert!(status.contains("\"workers\": 1") || status.contains("\"workers\":1"), "{status}");
        let environment = [("GATUN_SERVER", URL), ("GATUN_TOKEN", &writes[..]), ("GATUN_CA", "/run/api.crt")];
        assert!(ping(client, 1, SERVER, ""));
        let shown = asked(client, "show sessions -o json", &environment).unwrap();
        assert!(shown.contains(CLIENT), "{shown}");
        let ended = asked(client, "clear sessions --all --yes", &environment).unwrap();
        assert_eq!(ended, "ended: 1 session, 1 binding\n");
        let log = daemon.stderr();
        assert!(log.contains("api: writes at 2001:db8:1::2 cleared sessions"), "{log}");
        assert!(log.contains("api: a wrong token from 2001:db8:1::2"), "{log}");
        for (args, wanted) in [
            (format!("--server {URL} --token-file /run/reads"), "pass --ca FILE"),
            (
                format!("--server {URL} --token-file /run/reads --fingerprint {}", "0".repeat(64)),
                "pass --ca FILE",
            ),
            (format!("--server {URL} --ca /run/api.crt"), "requires a token: pass --token-file FILE"),
            (format!("--server {URL} --token-file /run/api.crt --ca /run/api.crt"), "invalid token"),
            (
                "--server https://[2001:db8:1::1]:1 --token-file /run/reads --ca /run/api.crt".into(),
                "is [api] listen_tls set",
            ),
        ] {
            let why = asked(client, &format!("show status {args}"), &[]).unwrap_err();
            assert!(why.contains(wanted), "{args}: {why}");
        }
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_reload_reads_certificate_key_and_tokens_or_keeps_the_old_ones() {
    in_lab("tls::a_reload_reads_certificate_key_and_tokens_or_keeps_the_old_ones", || {
        let net = network();
        for (file, wanted) in
            [("nothing", "/run/api.crt: No such file"), ("key", "/run/tokens: No such file")]
        {
            if file == "key" {
                token("certificate 2001:db8:1::1 --certificate /run/api.crt --key /run/api.key");
            }
            let ended = Daemon::spawn(&net, &format!("{CREATE}{NAT64}{API}"), &[]).wait();
            assert!(!ended.success && ended.stderr.contains(wanted), "{}", ended.stderr);
            assert!(ended.stderr.contains("see `gatun token --help`"), "{}", ended.stderr);
        }
        fs::remove_file("/run/api.crt").unwrap();
        fs::remove_file("/run/api.key").unwrap();
        let (_, reads, writes) = prepare();
        let config = format!("{CREATE}{NAT64}{API}");
        let daemon = Daemon::start(&net, &config);
        let status = |token: &str| curl(&net.client, token, &format!("{URL}/v1/status")).0;
        assert_eq!((status(&reads), status(&writes)), ("200".into(), "200".into()));
        token("remove reads --file /run/tokens");
        assert_eq!(status(&reads), "200", "nothing was read yet");
        // The rest of the configuration is unchanged.
        daemon.reload(&config, "reload: no changes");
        assert_eq!((status(&reads), status(&writes)), ("401".into(), "200".into()));
        let before = fs::read("/run/api.crt").unwrap();
        token("certificate 2001:db8:1::1 --certificate /run/api.crt --key /run/other.key --force");
        let said = daemon.reload(&config, "reload: no changes");
        assert!(said.contains("do not belong together") && said.contains("are unchanged"), "{said}");
        let after = fs::read("/run/api.crt").unwrap();
        fs::write("/run/api.crt", before).unwrap();
        assert_eq!(status(&writes), "200", "the old one is still shown");
        fs::write("/run/api.crt", after).unwrap();
        fs::rename("/run/other.key", "/run/api.key").unwrap();
        daemon.reload(&config, "reload: no changes");
        assert_eq!(status(&writes), "200", "the new one is");
        let said = daemon.reload(&format!("{CREATE}{NAT64}"), "nothing has changed");
        assert!(said.contains("needs a restart: [api]"), "{said}");
        daemon.stop(Signal::TERM);
    });
}

/// Opens connections as fast as possible, each with part of a handshake, and keeps 2000 of them.
const FLOOD: &str = "
import socket, sys, collections
kept = collections.deque()
while True:
    s = socket.socket(socket.AF_INET6)
    s.settimeout(1)
    try:
        s.connect((sys.argv[1], 8443))
        s.send(b'\\x16\\x03\\x01\\x02\\x00\\x01')
    except OSError:
        pass
    kept.append(s)
    if len(kept) > 2000:
        kept.popleft().close()
";

fn memory_kb(pid: u32) -> u64 {
    let line = crate::harness::status_line(pid, "VmRSS");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_flood_of_connections_affects_neither_packets_nor_other_clients() {
    in_lab("tls::a_flood_of_connections_affects_neither_packets_nor_other_clients", || {
        let net = network();
        let (_, reads, _) = prepare();
        let api = API.replace("\"[2001:db8:1::1]:8443\"", "\"[::]:8443\"");
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{api}"));
        let pid = daemon.process.id();
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        assert_eq!(curl(&net.client, &reads, &format!("{URL}/v1/status")).0, "200");
        let (threads_before, memory_before) = (threads(), memory_kb(pid));
        let flood =
            Process::start(net.client.command("python3").args(["-c", FLOOD, "2001:db8:1::1"])).unwrap();
        let begun = Instant::now();
        let mut answers = 0;
        net.translator.ip("link set lo up").unwrap();
        while begun.elapsed() < Duration::from_secs(3) {
            // Another client.
            let (status, body) =
                curl(&net.translator, &reads, &format!("{} -k", "https://[::1]:8443/v1/status"));
            assert!(status == "200" && body.contains("\"workers_silent\":0"), "{status} {body}");
            assert!(gatun("show status").status.success());
            assert!(ping(&net.client, 20, SERVER, ""), "packets are lost");
            answers += 1;
        }
        assert_eq!(threads(), threads_before);
        let grown = memory_kb(pid).saturating_sub(memory_before);
        assert!(grown < 32 << 10, "{grown} KB more");
        let (_, metrics) = curl(&net.translator, &reads, "https://[::1]:8443/metrics -k");
        let turned =
            metrics.lines().find(|line| line.contains("clients_refused_total{reason=\"rate\"}")).unwrap();
        let turned: u64 = turned.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(turned > 100 && answers > 0, "{turned}");
        drop(flood);
        daemon.stop(Signal::TERM);
    });
}

/// Query records of the log, once there are `count`.
fn questions(store: &str, count: usize) -> Vec<serde_json::Value> {
    let found = || -> Vec<serde_json::Value> {
        let out = gatun(&format!("log show --store {store}")).stdout;
        let lines = String::from_utf8(out).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter(|line| line["mark"] == "asked").collect()
    };
    gatun_testkit::wait_until("the log keeps the questions", Duration::from_secs(5), || {
        found().len() >= count
    })
    .unwrap();
    found()
}

#[test]
fn an_audit_token_queries_the_log_and_each_query_is_recorded() {
    in_lab("tls::an_audit_token_queries_the_log_and_each_query_is_recorded", || {
        let net = network();
        let (fingerprint, reads, writes) = prepare();
        let audits = token("add police-desk --audit --file /run/tokens");
        let store = "/run/gatun-log-test/store";
        let pool = NAT64.replacen(
            "prefixes = \"192.0.2.1\"\n",
            "prefixes = \"192.0.2.1\"\nallocation = \"blocks\"\n",
            1,
        );
        let daemon = Daemon::start(&net, &format!("{CREATE}{pool}{API}[log]\ndirectory = \"{store}\"\n"));
        assert!(ping(&net.client, 1, SERVER, ""));
        let block = || {
            let lines = String::from_utf8(gatun(&format!("log show --store {store}")).stdout).unwrap();
            let mut lines =
                lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            lines.find(|line| line["event"] == "block_assigned")
        };
        gatun_testkit::wait_until("the log has a block", Duration::from_secs(5), || block().is_some())
            .unwrap();
        let block = block().unwrap();
        let (time, port) = (block["time"].as_str().unwrap(), block["outside_ports"][0].as_u64().unwrap());
        let question = format!("who 192.0.2.1:{port} --at {time} -o json");
        let ask = |question: &str, token: &str| {
            let server = format!("{question} --server {URL} --fingerprint {fingerprint}");
            asked(&net.client, &server, &[("GATUN_TOKEN", token)])
        };
        for token in [&reads, &writes] {
            let refused = ask(&question, token).unwrap_err();
            assert!(refused.contains("the role of this token does not allow"), "{refused}");
        }
        // The same answer as from the files.
        let read = |text: &str| {
            let mut answer: serde_json::Value = serde_json::from_str(text).unwrap();
            // The time of the last write differs.
            let end = answer["holders"][0]["end"].take();
            assert!(end.as_str().unwrap().starts_with("open when the log was last written, "), "{end}");
            answer
        };
        let answer = read(&ask(&question, &audits).unwrap());
        let by_files = gatun(&format!("{question} --store {store}")).stdout;
        assert_eq!(answer, read(&String::from_utf8(by_files).unwrap()));
        assert_eq!(answer["holders"][0]["subscriber"], "2001:db8:1::/64", "{answer}");
        // An audit token can read like others, but not make changes.
        assert!(ask("show status", &audits).is_ok());
        assert!(ask("clear sessions --all --yes", &audits).is_err());
        // The local socket needs no token; it records the user.
        let socket = gatun(&format!("who 192.0.2.1:1 --at {time} --socket /run/gatun/api.sock"));
        assert_eq!(socket.status.code(), Some(1), "{socket:?}");
        let unreadable = ask("who 192.0.2.1:1 --at 2h", &audits).unwrap_err();
        assert!(unreadable.contains("2h"), "{unreadable}");
        let kept = questions(store, 2);
        assert_eq!(
            (kept.len(), &kept[0]["outcome"], &kept[1]["outcome"]),
            (2, &"who".into(), &"nobody".into())
        );
        assert!(kept[0]["by"].as_str().unwrap().starts_with("police-desk at 2001:db8:1::2"), "{kept:?}");
        assert!(
            kept[0]["question"].as_str().unwrap().starts_with(&format!("192.0.2.1:{port} at ")),
            "{kept:?}"
        );
        assert_eq!(kept[1]["by"], "uid 0");
        assert!(daemon.stderr().contains("asked who had 192.0.2.1:"), "{}", daemon.stderr());
        daemon.stop(Signal::TERM);
        assert!(gatun(&format!("log verify --store {store}")).status.success());
    });
}
