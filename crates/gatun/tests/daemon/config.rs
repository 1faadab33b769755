//! Changes of the configuration over the API: preview, apply, confirm and rollback, also with failures.

use crate::harness::{CREATE, Daemon, in_lab, network, ping};
use gatun_api::client::{Client, Error};
use gatun_api::paths::with_query;
use gatun_api::types::{Config, ConfigApplied, ConfigPast, ConfigPlan, ConfigText, Session, Status};
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Process, Topology, wait_until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

fn config(addresses: &str, more: &str) -> String {
    format!(
        "# what an operator has written\n{CREATE}[[pool]]\nname = \"res\"\nprefixes = {addresses}\n[[nat64]]\n\
         name = \"lab\"\npool6 = \"2001:db8:64::/96\"\n{more}"
    )
}

fn client() -> Client {
    Client::new("/run/gatun/api.sock")
}

fn gatun(args: &[&str]) -> Output {
    crate::harness::gatun(args.iter().copied())
}

/// Success of a command, and its output on both streams.
fn said(args: &[&str]) -> (bool, String) {
    let output = gatun(args);
    let text = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.success(), text)
}

fn running() -> Config {
    client().get("/v1/config").unwrap()
}

fn body(text: &str) -> Vec<u8> {
    serde_json::to_vec(&ConfigText { text: text.to_owned() }).unwrap()
}

fn apply(revision: &str, text: &str) -> Result<ConfigApplied, Error> {
    let target = with_query("/v1/config/apply", &[("revision", revision.to_owned())]);
    client().ask("POST", &target, &body(text))
}

fn status_of(refused: Result<ConfigApplied, Error>) -> (u16, String) {
    match refused.unwrap_err() {
        Error::Refused(status, problem) => (status, format!("{}: {}", problem.error, problem.hint)),
        other => panic!("{other}"),
    }
}

fn file_of(name: &str, text: &str) -> String {
    let path = format!("/run/{name}.toml");
    fs::write(&path, text).unwrap();
    path
}

/// Sends `count` pings, one every 20 ms.
fn flow(net: &Topology, count: u32) -> Process {
    let line = format!("ping -q -i 0.02 -W 2 -c {count} {SERVER} > /run/flow");
    Process::start(net.client.command("sh").args(["-c", &line])).unwrap()
}

#[test]
fn a_configuration_is_applied_and_rolled_back_while_sessions_continue() {
    in_lab("config::a_configuration_is_applied_and_rolled_back_while_sessions_continue", || {
        let net = network();
        let one = config("[\"192.0.2.1\"]", "");
        let daemon = Daemon::start(&net, &one);
        assert!(ping(&net.client, 1, SERVER, ""));
        let mut pings = flow(&net, 150);
        let (good, text) = said(&["config", "show"]);
        assert!(good && text == one, "{text}");
        // A preview changes nothing.
        let two = config("[\"192.0.2.1\", \"192.0.2.4\"]", "[limits]\nsubscribers_max = 300\n[log]\n");
        let (good, text) = said(&["config", "diff", &file_of("two", &two)]);
        assert!(!good && text.contains("needs a restart") && text.contains("[log]"), "{text}");
        assert!(text.contains("log per day, at most: 0 B -> "), "{text}");
        let two = config("[\"192.0.2.1\", \"192.0.2.4\"]", "[limits]\nsubscribers_max = 300\n");
        let file = file_of("two", &two);
        let (good, text) = said(&["config", "diff", &file]);
        assert!(good, "{text}");
        for part in [
            "pool \"res\": added 192.0.2.4",
            "device nat64: its",
            "would end no session",
            "memory with full tables",
        ] {
            assert!(text.contains(part), "no '{part}' in {text}");
        }
        assert_eq!(running().text, one);
        // Neither does `apply` without a terminal to confirm on.
        let (good, text) = said(&["config", "apply", &file]);
        assert!(!good && text.contains("--yes") && running().text == one, "{text}");
        let (good, text) = said(&["config", "apply", &file, "--yes"]);
        assert!(good && text.contains("written to /run/gatun-"), "{text}");
        assert!(text.contains("ended: 0 sessions, 0 bindings, 0 port blocks"), "{text}");
        assert_eq!((running().text, fs::read_to_string(daemon.file()).unwrap()), (two.clone(), two.clone()));
        let routes = || net.translator.run("ip route show dev nat64").unwrap();
        wait_until("the route", SOON, || routes().contains("192.0.2.4")).unwrap();
        // Roll back and forth; earlier configurations are in the history.
        let (good, text) = said(&["config", "rollback", "--yes"]);
        assert!(good && text.contains("removed 192.0.2.4"), "{text}");
        assert_eq!(fs::read_to_string(daemon.file()).unwrap(), one);
        let past: Vec<ConfigPast> = client().get("/v1/config/history").unwrap();
        assert_eq!(past.len(), 2);
        let (good, text) = said(&["config", "show", "--revision", &past[0].revision[..8]]);
        assert!(good && text == two, "{text}");
        assert!(said(&["config", "history"]).1.contains(&past[1].revision[..12]));
        assert!(said(&["config", "rollback", &past[0].revision[..9], "--yes"]).0);
        assert_eq!(fs::read_to_string(daemon.file()).unwrap(), two);
        assert!(
            said(&["config", "apply", &file, "--yes"])
                .1
                .contains("no changes: /run/two.toml is the running configuration")
        );
        // Errors are reported with their line and a correction, and nothing changes.
        let wrong = file_of("wrong", &two.replace("300", "\"many\"").replace("pool6", "pol6"));
        let (good, text) = said(&["config", "apply", &wrong, "--yes"]);
        assert!(!good && text.contains("/run/wrong.toml:9:1: error:"), "{text}");
        assert!(
            text.contains("pool6") && text.contains("subscribers_max") && text.contains("help:"),
            "{text}"
        );
        assert!(text.contains("nothing has changed") && running().text == two, "{text}");
        assert!(pings.wait(Duration::from_secs(20)).unwrap().success());
        let text = fs::read_to_string("/run/flow").unwrap();
        assert!(text.contains("150 received"), "{text}");
        // Only sessions of a removed address end.
        let moved = file_of("moved", &config("[\"192.0.2.4\"]", "[limits]\nsubscribers_max = 300\n"));
        let (good, text) = said(&["config", "apply", &moved, "--yes"]);
        assert!(
            good && text.contains("ends:\n  pool \"res\": all sessions and bindings of 192.0.2.1"),
            "{text}"
        );
        assert!(!text.contains(" 0 sessions"), "{text}");
        // As many sessions end as the plan has predicted.
        let after = |before: &str| {
            let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no '{before}' in {text}"));
            rest.split(' ').next().unwrap_or_default().to_owned()
        };
        assert_eq!(after("would end "), after("; ended: "), "{text}");
        assert!(text.contains(" of 1 subscriber (at this moment)"), "{text}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn an_unconfirmed_configuration_is_rolled_back_and_never_in_the_file() {
    const NAME: &str = "config::an_unconfirmed_configuration_is_rolled_back_and_never_in_the_file";
    in_lab(NAME, || {
        let net = network();
        let one = config("[\"192.0.2.1\"]", "");
        let daemon = Daemon::start(&net, &one);
        assert!(ping(&net.client, 1, SERVER, ""));
        let two = config("[\"192.0.2.1\"]", "[limits]\nsessions_per_subscriber = 7\n");
        let file = file_of("two", &two);
        let on_disk = || fs::read_to_string(daemon.file()).unwrap();
        let (good, text) = said(&["config", "apply", &file, "--yes", "--confirm", "1s"]);
        assert!(
            good && text.contains("in 1 s, or at a restart, unless confirmed: gatun config confirm"),
            "{text}"
        );
        assert_eq!((running().text, on_disk()), (two.clone(), one.clone()));
        assert!(running().unconfirmed.is_some());
        // Other changes are refused meanwhile.
        let (status, text) = status_of(apply(&running().revision, &one));
        assert!(status == 409 && text.contains("awaits confirmation"), "{text}");
        wait_until("the end of patience", SOON, || running().text == one).unwrap();
        assert!(
            daemon
                .stderr()
                .contains("config: not confirmed in time; rolling back to the previous configuration")
        );
        assert_eq!((running().unconfirmed, on_disk()), (None, one.clone()));
        assert!(!said(&["config", "confirm"]).0);
        // A confirmed configuration stays.
        assert!(said(&["config", "apply", &file, "--yes", "--confirm", "1m"]).0);
        let (good, text) = said(&["config", "confirm"]);
        assert!(good && text.contains("confirmed and written to"), "{text}");
        assert_eq!((running().text, running().unconfirmed, on_disk()), (two.clone(), None, two.clone()));
        // A rollback does not wait for the time limit.
        let three = file_of("three", &config("[\"192.0.2.1\"]", "[limits]\nsessions_per_subscriber = 9\n"));
        assert!(said(&["config", "apply", &three, "--yes", "--confirm", "1h"]).0);
        assert!(said(&["config", "rollback"]).0);
        assert_eq!((running().text, on_disk()), (two.clone(), two));
        // SIGHUP loads the file, even while a configuration awaits confirmation.
        assert!(said(&["config", "apply", &three, "--yes", "--confirm", "1h"]).0);
        daemon.process.signal(Signal::HUP).unwrap();
        wait_until("the file", SOON, || running().unconfirmed.is_none()).unwrap();
        assert_eq!(running().text, on_disk());
        assert!(ping(&net.client, 1, SERVER, ""));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn concurrent_changes_conflict_and_an_edited_file_is_not_overwritten() {
    in_lab("config::concurrent_changes_conflict_and_an_edited_file_is_not_overwritten", || {
        let net = network();
        let one = config("[\"192.0.2.1\"]", "");
        let daemon = Daemon::start(&net, &one);
        let limit = |n: u32| config("[\"192.0.2.1\"]", &format!("[limits]\nsessions_per_subscriber = {n}\n"));
        for round in 0..8 {
            let revision = running().revision;
            let done: Vec<Result<ConfigApplied, Error>> = std::thread::scope(|scope| {
                let revision = &revision;
                let both = [1, 2].map(|n| scope.spawn(move || apply(revision, &limit(100 * round + n))));
                both.map(|one| one.join().unwrap()).into()
            });
            let (good, refused): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
            assert_eq!((good.len(), refused.len()), (1, 1));
            let good = good.into_iter().next().unwrap().unwrap();
            assert_eq!((good.before, running().revision), (revision, good.revision));
            let (status, text) = status_of(refused.into_iter().next().unwrap());
            assert!(status == 409 && text.contains("the configuration changed meanwhile"), "{text}");
        }
        // Edit the file without a reload.
        fs::write(daemon.file(), limit(5000)).unwrap();
        let (status, text) = status_of(apply(&running().revision, &limit(6000)));
        assert!(status == 409 && text.contains("has changed since"), "{text}");
        assert_eq!(fs::read_to_string(daemon.file()).unwrap(), limit(5000));
        assert_ne!(running().text, limit(6000));
        // The edited text can be previewed and applied.
        let (good, text) = said(&["config", "diff"]);
        assert!(good && text.contains("-> 5000"), "{text}");
        apply(&running().revision, &limit(5000)).unwrap();
        apply(&running().revision, &limit(6000)).unwrap();
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_full_disk_and_a_read_only_directory_are_reported_without_a_change() {
    in_lab("config::a_full_disk_and_a_read_only_directory_are_reported_without_a_change", || {
        let net = network();
        fs::create_dir("/run/small").unwrap();
        gatun_testkit::run(Command::new("mount").args("-t tmpfs -o size=64k tmpfs /run/small".split(' ')))
            .unwrap();
        let one = config("[\"192.0.2.1\"]", "");
        fs::write("/run/small/gatun.toml", &one).unwrap();
        let mut daemon = start_on(&net, Path::new("/run/small/gatun.toml"));
        assert!(ping(&net.client, 1, SERVER, ""));
        let long = format!("{one}# {}\n", "x".repeat(100_000));
        let unchanged = || {
            assert_eq!(
                (running().text, &fs::read_to_string("/run/small/gatun.toml").unwrap()),
                (one.clone(), &one)
            );
            let there: Vec<_> = fs::read_dir("/run/small").unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(there, ["gatun.toml"]);
        };
        let (status, text) = status_of(apply(&running().revision, &long));
        assert!(
            status == 500 && text.contains("No space left") && text.contains("nothing has changed"),
            "{text}"
        );
        unchanged();
        let confirmed = [("revision", running().revision), ("confirm_seconds", "60".to_owned())];
        let target = with_query("/v1/config/apply", &confirmed);
        let (status, text) = status_of(client().ask("POST", &target, &body(&long)));
        assert!(status == 500 && text.contains("No space left"), "{text}");
        unchanged();
        fs::set_permissions("/run/small", fs::Permissions::from_mode(0o500)).unwrap();
        let (status, text) = status_of(apply(&running().revision, &format!("{one}# short\n")));
        assert!(status == 500 && text.contains("Permission denied"), "{text}");
        unchanged();
        // SIGHUP needs no permission to write.
        fs::write("/run/small/gatun.toml", format!("{one}# short\n")).unwrap();
        daemon.signal(Signal::HUP).unwrap();
        wait_until("the file", SOON, || running().text.ends_with("# short\n")).unwrap();
        daemon.signal(Signal::TERM).unwrap();
        assert!(daemon.wait(SOON).unwrap().success());
    });
}

/// Starts a daemon with an existing file and waits until it answers.
fn start_on(net: &Topology, file: &Path) -> Process {
    let mut command = net.translator.command(env!("CARGO_BIN_EXE_gatun"));
    command.arg("run").arg(file).stdout(Stdio::null()).stderr(fs::File::create("/run/err").unwrap());
    let daemon = Process::start(&mut command).unwrap();
    let answers = || client().get::<Status>("/v1/status").is_ok_and(|status| status.pid == daemon.id());
    wait_until("a daemon", SOON, answers)
        .unwrap_or_else(|e| panic!("{e}: {}", fs::read_to_string("/run/err").unwrap()));
    daemon
}

#[test]
fn a_daemon_killed_during_apply_restarts_with_the_acknowledged_file() {
    const NAME: &str = "config::a_daemon_killed_during_apply_restarts_with_the_acknowledged_file";
    in_lab(NAME, || {
        let net = network();
        let file = PathBuf::from("/run/killed/gatun.toml");
        fs::create_dir("/run/killed").unwrap();
        let text =
            |n: u64| config("[\"192.0.2.1\"]", &format!("[limits]\nsessions_per_subscriber = {}\n", 100 + n));
        fs::write(&file, text(0)).unwrap();
        let mut daemon = start_on(&net, &file);
        assert!(ping(&net.client, 1, SERVER, ""));
        let (mut outcomes, mut runs) = ([0, 0], 0);
        for n in 1..=16 {
            let before = running();
            let pid = rustix::process::Pid::from_raw(daemon.id().cast_signed()).unwrap();
            let acknowledged = std::thread::scope(|scope| {
                let applied = scope.spawn(|| apply(&before.revision, &text(n)).is_ok());
                // Times from the first byte of the request until after its answer.
                std::thread::sleep(Duration::from_micros(250 * n));
                rustix::process::kill_process(pid, Signal::KILL).unwrap();
                applied.join().unwrap()
            });
            daemon.wait(SOON).unwrap();
            daemon = start_on(&net, &file);
            let after = running();
            assert_eq!(after.text, fs::read_to_string(&file).unwrap());
            assert!(
                after.text == text(n) || (!acknowledged && after.text == text(runs)),
                "{n}: {}",
                after.text
            );
            outcomes[usize::from(acknowledged)] += 1;
            runs = if after.text == text(n) { n } else { runs };
            // Temporary files do not interfere, and the session still exists.
            let names = fs::read_dir("/run/killed").unwrap().map(|entry| entry.unwrap().file_name());
            assert!(names.into_iter().all(|name| name != ".gatun.toml.new"));
            let sessions: gatun_api::types::Page<Session> = client().get("/v1/sessions").unwrap();
            assert_eq!(sessions.items.len(), 1);
        }
        println!("acknowledged {} of 16, the file was replaced up to {runs}", outcomes[1]);
        // Killed before the confirmation, it restarts with the old configuration.
        let waits = [("revision", running().revision), ("confirm_seconds", "60".to_owned())];
        let done: Result<ConfigApplied, Error> =
            client().ask("POST", &with_query("/v1/config/apply", &waits), &body(&text(99)));
        assert_eq!(done.unwrap().confirm_within_seconds, Some(60));
        daemon.signal(Signal::KILL).unwrap();
        daemon.wait(SOON).unwrap();
        let mut daemon = start_on(&net, &file);
        assert_eq!((running().text, running().unconfirmed), (text(runs), None));
        daemon.signal(Signal::TERM).unwrap();
        assert!(daemon.wait(SOON).unwrap().success());
    });
}

#[test]
fn plans_over_http_match_and_invalid_requests_are_refused() {
    in_lab("config::plans_over_http_match_and_invalid_requests_are_refused", || {
        let net = network();
        let one = config("[\"192.0.2.1\"]", "");
        let daemon = Daemon::start(&net, &one);
        let plan = |text: &str| client().ask::<ConfigPlan>("POST", "/v1/config/plan", &body(text)).unwrap();
        let same = plan(&one);
        assert!(same.applicable && same.revision == running().revision && same.changes.is_empty());
        let grown = plan(&config("[\"192.0.2.0/26\"]", ""));
        assert!(grown.applicable && grown.memory_bytes.after > grown.memory_bytes.before, "{grown:?}");
        let wrong = plan("[[pool]]\nprefixes = 3\n");
        assert!(!wrong.applicable && wrong.revision.is_empty() && wrong.problems[0].line > 0, "{wrong:?}");
        assert!(!plan("").applicable && !plan("\0").applicable && !plan("[").applicable);
        for garbled in [&b""[..], b"{}", b"{\"text\": 3}", b"{\"text\": \"\", \"more\": 1}", b"\xff"] {
            let refused = client().ask::<ConfigPlan>("POST", "/v1/config/plan", garbled).unwrap_err();
            assert!(matches!(refused, Error::Refused(400, _)), "{refused}");
        }
        for (target, status) in [
            ("/v1/config/apply", 400),
            ("/v1/config/apply?revision=1&confirm_seconds=0", 400),
            ("/v1/config/apply?revision=1&confirm_seconds=x", 400),
            ("/v1/config/apply?revision=1", 409),
            ("/v1/config/apply?revision=", 409),
        ] {
            let refused = client().ask::<ConfigApplied>("POST", target, &body(&one)).unwrap_err();
            assert!(matches!(refused, Error::Refused(s, _) if s == status), "{target}: {refused}");
        }
        let unknown = client().get::<Config>("/v1/config?revision=00ff").unwrap_err();
        assert!(matches!(unknown, Error::Refused(404, _)), "{unknown}");
        let current = [("revision", running().revision)];
        let (status, _) = status_of(client().ask("POST", &with_query("/v1/config/rollback", &current), &[]));
        assert_eq!(status, 404);
        // A body above the limit of 40 MiB is refused.
        let refused = client().ask::<ConfigPlan>("POST", "/v1/config/plan", &vec![b' '; (40 << 20) + 1]);
        assert!(matches!(refused.unwrap_err(), Error::Refused(413, _) | Error::Broken(_)));
        assert_eq!(running().text, one);
        daemon.stop(Signal::TERM);
    });
}
