//! Mappings of a running daemon as lines of its configuration; log level, export and log commands.

use crate::harness::{CREATE, Daemon, NAT64, SIIT, in_lab, network, ping};
use gatun_api::client::{Client, Error};
use gatun_api::types::{Page, StaticMap};
use gatun_testkit::topology::SERVER;
use gatun_testkit::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// Success of a command, and its output on both streams.
fn said(args: &str) -> (bool, String) {
    let output = crate::harness::gatun(args.split_whitespace());
    let text = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.success(), text)
}

fn json(args: &str) -> Value {
    let (good, text) = said(&format!("{args} -o json"));
    assert!(good, "{args}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args}: {e}: {text}"))
}

#[test]
fn a_binding_is_added_and_removed_in_the_file_while_sessions_continue() {
    in_lab("map::a_binding_is_added_and_removed_in_the_file_while_sessions_continue", || {
        let net = network();
        let text = format!("# ours\n{CREATE}{NAT64}# the end\n");
        let daemon = Daemon::start(&net, &text);
        assert!(ping(&net.client, 1, SERVER, ""));
        let line = format!("ping -q -i 0.02 -W 2 -c 60 {SERVER} > /run/flow");
        let mut flow = gatun_testkit::Process::start(net.client.command("sh").args(["-c", &line])).unwrap();
        let listed = |port: &str| {
            json("map list").as_array().unwrap().iter().any(|m| m["outside"] == format!("192.0.2.1:{port}"))
        };
        assert!(listed("5002") && !listed("5003"));
        const MAP: &str = "--protocol tcp [2001:db8:1::2]:5003 192.0.2.1:5003";
        let (good, text_of) = said(&format!("map add {MAP}"));
        assert!(!good && text_of.contains("--yes") && text_of.contains("1 added, 0 removed"), "{text_of}");
        let (good, text_of) = said(&format!("map add {MAP} --yes"));
        assert!(good && text_of.contains("written to /run/gatun-"), "{text_of}");
        assert!(listed("5003"));
        let on_disk = fs::read_to_string(daemon.file()).unwrap();
        assert!(on_disk.starts_with("# ours\n") && on_disk.ends_with("# the end\n"), "{on_disk}");
        assert!(
            on_disk.contains("\"192.0.2.1:5002\" }, { protocol = \"tcp\", inside = \"[2001:db8:1::2]:5003\""),
            "{on_disk}"
        );
        // The server behind the translator is reachable from outside.
        let mut server = gatun_testkit::Process::start(net.client.command("socat").args([
            "-u",
            "TCP6-LISTEN:5003",
            "CREATE:/run/got",
        ]))
        .unwrap();
        let send = || {
            crate::harness::succeeds(
                net.server.command("sh").args(["-c", "echo hello | socat -u - TCP:192.0.2.1:5003"]),
            )
        };
        wait_until("the server", Duration::from_secs(5), send).unwrap();
        assert!(server.wait(Duration::from_secs(5)).unwrap().success());
        assert_eq!(fs::read_to_string("/run/got").unwrap(), "hello\n");
        assert!(said(&format!("map add {MAP} --yes")).1.contains("already"));
        let (good, text_of) = said(&format!("map remove {MAP} --yes"));
        assert!(good && text_of.contains("ends:"), "{text_of}");
        assert_eq!((listed("5003"), fs::read_to_string(daemon.file()).unwrap()), (false, text));
        let (good, text_of) = said(&format!("map remove {MAP} --yes"));
        assert!(!good && text_of.contains("has no mapping"), "{text_of}");
        let (good, text_of) = said("map add --protocol tcp [2001:db8:1::2]:80 192.0.2.77:80 --yes");
        assert!(!good && text_of.contains("nothing has changed"), "{text_of}");
        assert!(flow.wait(Duration::from_secs(20)).unwrap().success());
        assert!(fs::read_to_string("/run/flow").unwrap().contains("60 received"));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn an_address_mapping_is_rolled_back_and_the_log_level_applies() {
    in_lab("map::an_address_mapping_is_rolled_back_and_the_log_level_applies", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(ping(&net.client, 1, SERVER, ""));
        net.client.address("eth0", "2001:db8:1::99/64").unwrap();
        let from = "-I 2001:db8:1::99";
        assert!(!ping(&net.client, 1, SERVER, from));
        let (good, text) = said("map add 2001:db8:1::99 192.0.2.9 --yes --confirm 1m");
        assert!(good && text.contains("unless confirmed: gatun config confirm"), "{text}");
        wait_until("the mapping", Duration::from_secs(10), || ping(&net.client, 1, SERVER, from)).unwrap();
        assert!(said("map list --instance siit-1").1.contains("192.0.2.9"));
        let (good, text) = said("map list --instance office");
        assert!(
            !good && text.contains("unknown instance `office`") && text.contains("instances: siit-1"),
            "{text}"
        );
        // A page of a list that has changed meanwhile is refused.
        let client = Client::new(gatun_api::SOCKET);
        let page: Page<StaticMap> = client.get("/v1/maps?limit=1").unwrap();
        assert_eq!((page.items.len(), &page.items[0].outside[..]), (1, "192.0.2.1"));
        let next = format!("/v1/maps?limit=1&cursor={}", page.next.unwrap());
        let last: Page<StaticMap> = client.get(&next).unwrap();
        assert_eq!((&last.items[0].outside[..], last.next), ("192.0.2.9", None));
        assert!(said("config rollback").0 && !said("map list").1.contains("192.0.2.9"));
        assert!(matches!(client.get::<Page<StaticMap>>(&next), Err(Error::Refused(409, _))));
        assert!(!ping(&net.client, 1, SERVER, from) && ping(&net.client, 1, SERVER, "-I 2001:db8:1::2"));
        // Log level, collectors and log.
        assert_eq!(said("log-level"), (true, "info\n".to_owned()));
        assert!(!daemon.stderr().contains("GET /v1/"));
        assert_eq!(said("log-level debug"), (true, "debug\n".to_owned()));
        said("show status");
        let has =
            |part: &str| wait_until(part, Duration::from_secs(5), || daemon.stderr().contains(part)).unwrap();
        has("GET /v1/status: 200 in ");
        assert!(said("map add 2001:db8:1::99 192.0.2.9 --yes").0);
        has("config: read after ");
        assert!(
            said("log-level error").0 && said("log-level loud").1.contains("not one of error, info, debug")
        );
        let before = daemon.stderr().len();
        assert!(said("map remove 2001:db8:1::99 192.0.2.9 --yes").0);
        assert_eq!(daemon.stderr().len(), before, "{}", daemon.stderr());
        assert_eq!(json("show export"), Value::Array(Vec::new()));
        assert_eq!(json("show log")["kept"], false);
        assert!(said("log-level info").0);
        daemon.stop(Signal::TERM);
    });
}
