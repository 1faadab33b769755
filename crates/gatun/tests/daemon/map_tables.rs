//! Tables of mappings over the API and the command line: replaced as a whole and changed in batches, in the
//! configuration and in the file of `eam_file`, also with failures.

use crate::harness::{CREATE, Daemon, in_lab, network, ping, program};
use crate::tls::API;
use gatun_api::client::{Client, Error};
use gatun_api::paths::with_query;
use gatun_api::types::{Config, ConfigApplied, ConfigPast, ConfigPlan, MapsEdit, MapsTable, StaticMap};
use gatun_testkit::topology::SERVER;
use gatun_testkit::wait_until;
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);
/// File of mappings, in another directory than the configuration.
const FILE: &str = "/run/maps/eam.txt";
/// Text of the file: the client is 192.0.2.1.
const LINES: &str = "# ours\n192.0.2.1 2001:db8:1::2 # the client\n";

/// Configuration of two stateless instances; one has its mappings in the file.
fn config(more: &str) -> String {
    // Neighbouring mappings share routes; a million single routes would take the kernel too long.
    let port = "mtu = 1500\nroutes = [\"192.0.2.0/24\", \"2001:db8:64::/96\"]\n";
    format!(
        "{CREATE}{port}[translator]\nown4 = \"192.0.2.14\"\nown6 = \"2001:db8:ffff::1\"\n[[siit]]\nname = \"dc\"\n\
         pool6 = \"2001:db8:64::/96\"\neam_file = \"{FILE}\"\n[[siit]]\nname = \"office\"\neam = [\n    \
         {{ v4 = \"192.0.2.40\", v6 = \"2001:db8:7::40\" }}, # a printer\n]\n{more}"
    )
}

fn prepare() {
    fs::create_dir_all("/run/maps").unwrap();
    fs::write(FILE, LINES).unwrap();
}

fn client() -> Client {
    Client::new("/run/gatun/api.sock")
}

fn running() -> Config {
    client().get("/v1/config").unwrap()
}

fn on_disk() -> String {
    fs::read_to_string(FILE).unwrap()
}

/// Names in the directory of the file.
fn names() -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir("/run/maps").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn map(inside: &str, outside: &str) -> StaticMap {
    StaticMap { instance: None, protocol: None, inside: inside.to_owned(), outside: outside.to_owned() }
}

/// Mappings of consecutive addresses from 198.18.0.0 to 2001:db8:2::`tag`:0:0.
fn many(count: u32, tag: u16) -> Vec<StaticMap> {
    let one = |n: u32| {
        map(
            &format!("2001:db8:2::{tag:x}:{:x}:{:x}", n >> 16, n & 0xffff),
            &Ipv4Addr::from(0x0b00_0000 + n).to_string(),
        )
    };
    (0..count).map(one).collect()
}

fn put(query: &[(&str, String)], maps: Vec<StaticMap>) -> Result<ConfigApplied, Error> {
    let body = serde_json::to_vec(&MapsTable { maps }).unwrap();
    client().ask("PUT", &with_query("/v1/maps", query), &body)
}

fn patch(add: Vec<StaticMap>, remove: Vec<StaticMap>) -> Result<ConfigApplied, Error> {
    let body = serde_json::to_vec(&MapsEdit { add: Some(add), remove: Some(remove) }).unwrap();
    client().ask("PATCH", "/v1/maps?instance=dc", &body)
}

fn of_dc() -> Vec<(&'static str, String)> {
    vec![("instance", "dc".to_owned())]
}

/// Status and text of a refusal.
fn refusal(refused: Result<ConfigApplied, Error>) -> (u16, String) {
    match refused.unwrap_err() {
        Error::Refused(status, problem) => (status, format!("{}: {}", problem.error, problem.hint)),
        other => panic!("{other}"),
    }
}

/// Output on either stream, and whether the command succeeded.
fn said(args: &str) -> (bool, String) {
    let output = crate::harness::gatun(args.split_whitespace());
    let text = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap()).concat();
    (output.status.success(), text)
}

#[test]
fn a_table_is_replaced_rolled_back_edited_and_kept_over_a_restart() {
    const NAME: &str = "map_tables::a_table_is_replaced_rolled_back_edited_and_kept_over_a_restart";
    in_lab(NAME, || {
        let net = network();
        prepare();
        let daemon = Daemon::start(&net, &config(""));
        net.client.address("eth0", "2001:db8:1::99/64").unwrap();
        let from = |host: u8| format!("-I 2001:db8:1::{host}");
        assert!(ping(&net.client, 1, SERVER, &from(2)) && !ping(&net.client, 1, SERVER, &from(99)));
        let text = running().text;
        // A preview changes nothing, and neither does a command without a confirmation.
        fs::write("/run/new.txt", "192.0.2.9 2001:db8:1::99\n").unwrap();
        let (good, said_) = said("map replace /run/new.txt --instance dc");
        assert!(!good && said_.contains("1 added, 1 removed") && said_.contains("--yes"), "{said_}");
        let plan = MapsTable { maps: vec![map("2001:db8:1::99", "192.0.2.9")] };
        let plan: ConfigPlan =
            client().ask("PUT", "/v1/maps/plan?instance=dc", &serde_json::to_vec(&plan).unwrap()).unwrap();
        assert!(plan.applicable && plan.running == running().revision && plan.revision != plan.running);
        assert_eq!((on_disk(), names()), (LINES.to_owned(), vec!["eam.txt".to_owned()]));
        // With --confirm, the file stays the old one until the confirmation.
        let (good, said_) = said("map replace /run/new.txt --instance dc --yes --confirm 1m");
        assert!(good && said_.contains("unless confirmed: gatun config confirm"), "{said_}");
        assert!(ping(&net.client, 2, SERVER, &from(99)) && !ping(&net.client, 1, SERVER, &from(2)));
        assert_eq!(on_disk(), LINES);
        assert_eq!(refusal(patch(vec![map("2001:db8:1::7", "192.0.2.7")], Vec::new())).0, 409);
        assert!(said("config rollback").0);
        assert!(ping(&net.client, 2, SERVER, &from(2)) && names() == ["eam.txt"]);
        assert!(said("map replace /run/new.txt --instance dc --yes --confirm 1m").0);
        let (good, said_) = said("config confirm");
        assert!(good && said_.contains("confirmed and written to /run/maps/eam.txt"), "{said_}");
        assert_eq!(on_disk(), "192.0.2.9 2001:db8:1::99\n");
        // The previous text is beside the file; the configuration and its history are unchanged.
        assert_eq!(names(), ["eam.txt", "eam.txt.history"]);
        let kept = fs::read_dir("/run/maps/eam.txt.history").unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::read_to_string(kept).unwrap(), LINES);
        let past: Vec<ConfigPast> = client().get("/v1/config/history").unwrap();
        assert_eq!((past.len(), running().text), (0, text.clone()));
        // A batch is one step, in the file and in the configuration.
        let done =
            patch(vec![map("2001:db8:1::2", "192.0.2.1")], vec![map("2001:db8:1::99", "192.0.2.9")]).unwrap();
        assert_eq!((done.file, on_disk()), (FILE.to_owned(), "192.0.2.1 2001:db8:1::2\n".to_owned()));
        fs::write("/run/more.txt", "192.0.2.41 2001:db8:7::41\n192.0.2.42 2001:db8:7::42 # two\n").unwrap();
        assert!(said("map add --file /run/more.txt --instance office --yes").0);
        let edited = running().text;
        assert_eq!(edited, text.replace("# a printer\n", "# a printer\n    { v4 = \"192.0.2.41\", v6 = \"2001:db8:7::41\" },\n    { v4 = \"192.0.2.42\", v6 = \"2001:db8:7::42\" },\n"));
        let past: Vec<ConfigPast> = client().get("/v1/config/history").unwrap();
        assert_eq!(past.len(), 1, "a batch is one revision");
        let (_, listed) = said("map list --instance office -o ndjson");
        assert_eq!(listed.lines().count(), 3, "{listed}");
        // The output of `map list` is accepted as input.
        fs::write("/run/listed.json", &listed).unwrap();
        let (good, said_) = said("map replace /run/listed.json --instance office --yes");
        assert!(good && !said_.contains("removed") || said_.contains("no changes"), "{said_}");
        // The file has the changes of the API: a reload changes nothing, and a restart keeps them.
        let (before, text) = (running(), running().text);
        daemon.process.signal(Signal::HUP).unwrap();
        daemon.says("reload: no changes");
        assert_eq!(running(), before);
        daemon.stop(Signal::TERM);
        let daemon = Daemon::start(&net, &text);
        assert_eq!(running().revision, before.revision);
        assert!(ping(&net.client, 2, SERVER, &from(2)));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn errors_in_a_table_are_reported_with_their_place_without_a_change() {
    in_lab("map_tables::errors_in_a_table_are_reported_with_their_place_without_a_change", || {
        let net = network();
        prepare();
        let daemon = Daemon::start(&net, &config(""));
        let before = running();
        let refused = |status: u16, parts: &[&str], done: Result<ConfigApplied, Error>| {
            let (told, text) = refusal(done);
            assert_eq!(told, status, "{text}");
            parts.iter().for_each(|part| assert!(text.contains(part), "no '{part}' in {text}"));
            assert_eq!(
                (running(), on_disk(), names()),
                (before.clone(), LINES.to_owned(), vec!["eam.txt".to_owned()])
            );
        };
        let changed = |at: usize, one: StaticMap| {
            let mut maps = many(80_000, 1);
            maps[at] = one;
            put(&of_dc(), maps)
        };
        refused(
            422,
            &["mapping 73421 of `maps`: `outside`: \"192.0.2.300\" is not an IPv4 prefix", "203.0.113.5"],
            changed(73_420, map("2001:db8:9::1", "192.0.2.300")),
        );
        // One line per mapping: mapping 73421 is line 73421.
        refused(
            422,
            &["/run/maps/eam.txt:73421:1: error: 11.0.0.5/32 is mapped already", "remove one of the two"],
            changed(73_420, map("2001:db8:9::1", "11.0.0.5")),
        );
        refused(422, &["lies inside 11.0.0.0/24"], changed(73_420, map("2001:db8:9::/120", "11.0.0.0/24")));
        refused(
            422,
            &[
                "/run/maps/eam.txt:1:1: error: 192.0.2.40/32 is mapped in another instance too",
                "instance already",
            ],
            put(&of_dc(), vec![map("2001:db8:9::1", "192.0.2.40")]),
        );
        let other = StaticMap { instance: Some("office".to_owned()), ..map("2001:db8:9::1", "192.0.2.50") };
        refused(400, &["mapping 1 of `maps` is of instance `office`"], put(&of_dc(), vec![other]));
        refused(
            422,
            &["several instances", "name one of dc, office"],
            put(&[], vec![map("2001:db8:9::1", "192.0.2.50")]),
        );
        refused(
            422,
            &["unknown instance `lab`", "dc, office"],
            put(&[("instance", "lab".to_owned())], Vec::new()),
        );
        refused(
            422,
            &["mapping 1 of `remove`: /run/maps/eam.txt has no mapping 2001:db8:9::1 192.0.2.50"],
            patch(Vec::new(), vec![map("2001:db8:9::1", "192.0.2.50")]),
        );
        let body = |json: &str| client().ask("PUT", "/v1/maps?instance=dc", json.as_bytes());
        refused(
            400,
            &["unknown field `maps.0.comment`"],
            body(r#"{"maps":[{"inside":"::1","outside":"192.0.2.1","comment":"x"}]}"#),
        );
        refused(400, &["invalid body", "{\"maps\": [...]}"], body("[]"));
        let (good, text) = {
            fs::write(
                "/run/wrong.txt",
                format!("{}192.0.2.300 2001:db8::1\n", "11.0.0.0 2001:db8::5\n".repeat(9)),
            )
            .unwrap();
            said("map replace /run/wrong.txt --instance dc --yes")
        };
        assert!(!good && text.contains("/run/wrong.txt:10: `outside`: \"192.0.2.300\""), "{text}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn concurrent_changes_conflict_and_an_edited_file_is_not_overwritten() {
    in_lab("map_tables::concurrent_changes_conflict_and_an_edited_file_is_not_overwritten", || {
        let net = network();
        prepare();
        let daemon = Daemon::start(&net, &config(""));
        for round in 0..4 {
            let query = [of_dc(), vec![("revision", running().revision)]].concat();
            let done: Vec<_> = std::thread::scope(|scope| {
                let query = &query;
                let both = [1, 2].map(|n| scope.spawn(move || put(query, many(500, 10 * round + n))));
                both.map(|one| one.join().unwrap()).into()
            });
            let (good, refused): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
            assert_eq!((good.len(), refused.len()), (1, 1));
            assert_eq!(running().revision, good.into_iter().next().unwrap().unwrap().revision);
            let (status, text) = refusal(refused.into_iter().next().unwrap());
            assert!(status == 409 && text.contains("the configuration changed meanwhile"), "{text}");
        }
        // Without a revision, both changes are made one after the other.
        put(&of_dc(), many(3, 90)).unwrap();
        let edited = format!("{}192.0.2.77 2001:db8::77\n", on_disk());
        fs::write(FILE, &edited).unwrap();
        let (status, text) = refusal(put(&of_dc(), many(4, 91)));
        assert!(status == 409 && text.contains("/run/maps/eam.txt has changed since"), "{text}");
        // A change of another table does not load the edited file.
        let (status, text) = refusal(put(&[("instance", "office".to_owned())], Vec::new()));
        assert!(status == 409 && text.contains("/run/maps/eam.txt has changed since"), "{text}");
        assert_eq!(on_disk(), edited);
        let before = running().revision;
        daemon.process.signal(Signal::HUP).unwrap();
        wait_until("the editor's text", SOON, || running().revision != before).unwrap();
        put(&of_dc(), many(4, 91)).unwrap();
        assert_eq!(on_disk().lines().count(), 4);
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_full_disk_and_a_read_only_directory_are_reported_without_a_change() {
    in_lab("map_tables::a_full_disk_and_a_read_only_directory_are_reported_without_a_change", || {
        let net = network();
        fs::create_dir("/run/maps").unwrap();
        gatun_testkit::run(Command::new("mount").args("-t tmpfs -o size=64k tmpfs /run/maps".split(' ')))
            .unwrap();
        prepare();
        let daemon = Daemon::start(&net, &config(""));
        let before = running();
        let unchanged = || {
            assert_eq!(
                (running(), on_disk(), names()),
                (before.clone(), LINES.to_owned(), vec!["eam.txt".to_owned()])
            )
        };
        for query in [of_dc(), [of_dc(), vec![("confirm_seconds", "60".to_owned())]].concat()] {
            let (status, text) = refusal(put(&query, many(20_000, 1)));
            assert!(
                status == 500 && text.contains("No space left") && text.contains("nothing has changed"),
                "{text}"
            );
            unchanged();
        }
        fs::set_permissions("/run/maps", fs::Permissions::from_mode(0o500)).unwrap();
        let (status, text) = refusal(put(&of_dc(), many(2, 1)));
        assert!(status == 500 && text.contains("Permission denied"), "{text}");
        unchanged();
        assert!(ping(&net.client, 1, SERVER, ""));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_killed_during_a_replacement_leaves_a_whole_file() {
    in_lab("map_tables::a_daemon_killed_during_a_replacement_leaves_a_whole_file", || {
        let net = network();
        prepare();
        let mut daemon = Daemon::start(&net, &config(""));
        let mut now = on_disk();
        let mut outcomes = [0, 0];
        for n in 1..=12u16 {
            let pid = rustix::process::Pid::from_raw(daemon.process.id().cast_signed()).unwrap();
            let new = many(5000, n);
            let text = new.iter().fold(String::new(), |mut text, map| {
                writeln!(text, "{} {}", map.outside, map.inside).unwrap();
                text
            });
            let acknowledged = std::thread::scope(|scope| {
                let replaced = scope.spawn(|| put(&of_dc(), new).is_ok());
                std::thread::sleep(Duration::from_millis(8 * u64::from(n)));
                rustix::process::kill_process(pid, Signal::KILL).unwrap();
                replaced.join().unwrap()
            });
            daemon.process.wait(SOON).unwrap();
            let there = on_disk();
            assert!(there == text || (!acknowledged && there == now), "{n}: {} lines", there.lines().count());
            outcomes[usize::from(there == text)] += 1;
            now = there;
            daemon = Daemon::start(&net, &config(""));
            wait_until("a tidy directory", SOON, || !names().contains(&".eam.txt.new".to_owned())).unwrap();
        }
        println!("replaced or not when killed: {outcomes:?}");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_million_mappings_are_replaced_within_seconds_from_another_host_too() {
    in_lab("map_tables::a_million_mappings_are_replaced_within_seconds_from_another_host_too", || {
        let net = network();
        prepare();
        let token = |args: &str| {
            let output = crate::harness::gatun(["token"].into_iter().chain(args.split_whitespace()));
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        token("certificate 2001:db8:1::1 --certificate /run/api.crt --key /run/api.key");
        fs::write("/run/writes", token("add writes --write --file /run/tokens")).unwrap();
        let daemon = Daemon::start(&net, &config(API));
        const MAPPINGS: u32 = 1_000_000;
        let mut maps = many(MAPPINGS - 1, 1);
        maps.push(map("2001:db8:1::2", "192.0.2.1"));
        let begin = Instant::now();
        put(&of_dc(), maps).unwrap();
        let replaced = begin.elapsed();
        assert_eq!(on_disk().lines().count(), MAPPINGS as usize);
        assert!(ping(&net.client, 2, SERVER, ""));
        let begin = Instant::now();
        patch(vec![map("2001:db8:9::1", "192.0.2.50")], vec![map("2001:db8:2::1:0:0", "11.0.0.0")]).unwrap();
        let edited = begin.elapsed();
        // From the client, over TLS, by the command: preview, then apply.
        let lines = on_disk().replace("2001:db8:2::1:", "2001:db8:2::2:");
        fs::write("/run/million.txt", &lines).unwrap();
        let begin = Instant::now();
        let mut command = net.client.command(program());
        command.args(
            "map replace /run/million.txt --instance dc --yes --server https://[2001:db8:1::1]:8443"
                .split(' '),
        );
        command.args("--token-file /run/writes --ca /run/api.crt".split(' '));
        let output = gatun_testkit::output(&mut command).unwrap();
        let by_command = begin.elapsed();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(on_disk(), lines);
        println!(
            "{MAPPINGS} mappings replaced in {replaced:.1?}, two changed in {edited:.1?}, previewed and replaced from another host in {by_command:.1?}"
        );
        // Seconds, even on a busy machine without optimisation.
        assert!(replaced < Duration::from_secs(60), "{replaced:?}");
        assert!(ping(&net.client, 2, SERVER, ""));
        daemon.stop(Signal::TERM);
    });
}
