//! Each scenario in its brief form, as a user runs it. No test judges times.
//!
//! The tests need `gatun` beside them; a run of all tests of the workspace builds it.

use gatun_testkit::{processes_about, wait_until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A program that was built beside this test.
fn beside(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_gatun-scenarios")).with_file_name(name)
}

/// The daemon.
fn gatun() -> PathBuf {
    beside("gatun")
}

fn refusal() -> Option<String> {
    gatun_testkit::refusal_but_to_root("AF_XDP").or_else(|| {
        let mut programs = ["gatun", "gatun-bench"].into_iter();
        let missing = programs.find(|name| !beside(name).is_file())?;
        Some(format!("{} is missing: cargo build --package {missing}", beside(missing).display()))
    })
}

/// Held by each test that sends: in parallel, they would compete for processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A folder that is removed with the test.
struct Output(PathBuf);

impl Output {
    fn new(name: &str) -> Output {
        Output(std::env::temp_dir().join(format!("gatun-lab-test-{name}-{}", std::process::id())))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn lab(output: &Output, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatun-scenarios"));
    command.args(words.split_whitespace()).arg("--gatun").arg(gatun()).arg("--output").arg(&output.0);
    command
}

/// Runs a scenario that must succeed, and returns its report.
fn report(name: &str, words: &str) -> Option<Value> {
    if let Some(why) = refusal() {
        gatun_testkit::skip(&why);
        return None;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Output::new(name);
    let scenario = words.split(' ').next().unwrap();
    let run = lab(&output, words).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{}: {said}\n{}", run.status, String::from_utf8_lossy(&run.stderr));
    for ending in ["md", "html"] {
        let text = fs::read_to_string(output.0.join(format!("{scenario}.{ending}"))).unwrap();
        assert!(text.contains("Machine"), "{text}");
    }
    let json = fs::read(output.0.join(format!("{scenario}.json"))).unwrap();
    let report: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["scenario"], scenario);
    Some(report)
}

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {report}"))
}

/// Checks the accounts of a report with packets.
fn is_accounted_for(report: &Value) {
    let [tx, rx, lost, explained] = ["tx", "rx", "lost", "explained"].map(|key| number(report, key));
    assert_eq!((tx - rx, lost), (lost, explained), "{report}");
    let by: u64 = report["explained_by"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(by, explained);
    let damage = ["reordered", "duplicates", "corrupted"].map(|key| number(report, key));
    assert_eq!(damage, [0, 0, 0]);
}

fn has_figures(report: &Value) {
    for key in ["pps", "reference_pps"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{report}");
    }
    let quantiles = ["p50", "p99", "p999"].map(|key| report["latency_us"][key].as_f64().unwrap());
    assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{quantiles:?}");
}

#[test]
fn packets_take_the_other_box_of_a_pair_during_each_fault() {
    if let Some(why) = gatun_testkit::missing(&[("bird", "bird2")]) {
        return gatun_testkit::skip(&why);
    }
    let former = Output::new("former-of-pair");
    let Some(report) = report("pair", &format!("pair --brief --former {}", former_build(&former))) else {
        return;
    };
    // Without sessions, and with sessions that the boxes tell each other.
    for (table, faults) in [(0, 1), (1, 7)] {
        let rows = report["tables"][table]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), faults, "{report}");
        assert!(rows.iter().all(|row| row[6] == "0"), "{report}");
    }
    has_lag(&report, 2);
    has_upgrade(&report);
}

/// Makes another build with the same version, and returns its path.
fn former_build(output: &Output) -> String {
    let path = output.0.join("gatun");
    if gatun().is_file() {
        fs::create_dir_all(&output.0).unwrap();
        // The kernel ignores what follows the program.
        fs::write(&path, [fs::read(gatun()).unwrap(), b"former".to_vec()].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    path.display().to_string()
}

/// Checks that the boxes of a pair or a cluster were upgraded.
fn has_upgrade(report: &Value) {
    let is_made = |check: &Value| {
        check["ok"] == true && check["what"].as_str().unwrap().starts_with("all boxes ran the former program")
    };
    assert!(report["checks"].as_array().unwrap().iter().any(is_made), "{report}");
    assert_eq!(report["not_run"].as_array().unwrap().len(), 0, "{report}");
}

/// Checks that a table has times until a second box has a session.
fn has_lag(report: &Value, table: usize) {
    let lag = &report["tables"][table]["rows"][0];
    let [p50, p99] = [1, 2].map(|cell| lag[cell].as_str().unwrap().parse::<f64>().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{report}");
}

#[test]
fn each_run_of_a_pair_plays_the_faults_with_the_kernel_fast_path() {
    if let Some(why) = gatun_testkit::missing(&[("bird", "bird2"), ("nft", "nftables")]) {
        return gatun_testkit::skip(&why);
    }
    let words = "pair --brief --fastpath --runs 2 --rows kill";
    let Some(report) = report("pair", words) else { return };
    for (table, kind) in [(0, "SIIT"), (1, "NAT64")] {
        let of_kind = &report["tables"][table];
        let title = of_kind["title"].as_str().unwrap();
        assert!(title.starts_with(kind) && title.contains("kernel fast path"), "{report}");
        let rows = of_kind["rows"].as_array().unwrap();
        assert!(rows.len() == 1 && rows[0][6] == "0", "{report}");
        // Two runs send different numbers of packets: the median has its range.
        let sent = rows[0][1].as_str().unwrap();
        assert!(sent.contains('(') && sent.contains('-'), "{report}");
    }
    let checks = report["checks"].as_array().unwrap();
    for what in ["the kernel translated, and had all sessions", "no public port had two users"] {
        let is_made = |check: &Value| check["ok"] == true && check["what"].as_str().unwrap().contains(what);
        assert!(checks.iter().any(is_made), "{what}: {report}");
    }
}

#[test]
fn connections_outlive_faults_of_a_cluster() {
    let programs = [("bird", "bird2"), ("etcd", "etcd-server"), ("etcdctl", "etcd-client")];
    if let Some(why) = gatun_testkit::missing(&programs) {
        return gatun_testkit::skip(&why);
    }
    let former = Output::new("former-of-cluster");
    let words = format!("cluster --brief --former {}", former_build(&former));
    let Some(report) = report("cluster", &words) else { return };
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    assert!(rows.len() == 6 && rows.iter().all(|row| row[6] == "0"), "{report}");
    // Some two thirds of the packets from inside arrive at another node than that of their shard.
    let redirected = |row: &Value| row[7].as_str().unwrap().parse::<u8>().unwrap();
    assert!(rows.iter().all(|row| (50..90).contains(&redirected(row)) && row[8] == "0"), "{report}");
    has_lag(&report, 1);
    has_upgrade(&report);
}

#[test]
fn a_small_carrier_accounts_for_every_packet() {
    let Some(report) = report("carrier", "carrier --brief") else { return };
    is_accounted_for(&report);
    has_figures(&report);
    // Some of the last ended sessions have not reopened.
    let sessions = number(&report, "sessions");
    assert!(sessions > 0 && sessions <= 128 * 16, "{report}");
    assert!(report["kills_per_s"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["samples"].as_array().unwrap().len() > 1);
}

/// Like `report`, for a scenario that runs testpmd.
#[cfg(feature = "dpdk")]
fn report_with_testpmd(name: &str, words: &str) -> Option<Value> {
    match gatun_testkit::missing(&[(gatun_testkit::testpmd::PROGRAM, "dpdk-dev")]) {
        Some(why) => {
            gatun_testkit::skip(&why);
            None
        }
        None => report(name, words),
    }
}

#[cfg(feature = "dpdk")]
#[test]
fn a_small_carrier_over_memif_with_testpmd_accounts_for_every_packet() {
    let words = "carrier --brief --over memif --reflector testpmd --seconds 0.6";
    let Some(report) = report_with_testpmd("memif", words) else { return };
    is_a_carrier_over_memif(&report);
    assert!(is_noted(&report, "The reflector is testpmd"), "{report}");
}

#[cfg(feature = "dpdk")]
#[test]
fn a_small_carrier_over_memif_with_its_own_reflector_accounts_for_every_packet() {
    let words = "carrier --brief --over memif --reflector own --nat44 --frame imix --seconds 0.6";
    let Some(report) = report_with_testpmd("own", words) else { return };
    is_a_carrier_over_memif(&report);
    assert!(is_noted(&report, "The reflector is the generator's own thread"), "{report}");
}

#[cfg(feature = "dpdk")]
#[test]
fn a_small_carrier_through_a_switch_accounts_for_every_packet_when_programs_are_killed() {
    let words = "carrier --brief --over memif --switch --reflector own";
    let Some(report) = report("switch", words) else { return };
    let [tx, rx, lost, explained] = ["tx", "rx", "lost", "explained"].map(|key| number(&report, key));
    assert_eq!((tx - rx, lost), (lost, explained), "{report}");
    assert!(rx > 1000 && report["kills_per_s"].as_f64().unwrap() > 0.0, "{report}");
    let is_checked = |what: &str| {
        let mut checks = report["checks"].as_array().unwrap().iter();
        checks.any(|check| check["ok"] == true && check["what"].as_str().unwrap().contains(what))
    };
    let of_gatun = ["counters of switch and engine", "moved into the switch", "took", "no Gatun"];
    let of_switch = ["switch killed: ", "switch again: ", "both killed: ", "both again: "];
    let of_moves = ["reloads moved all sessions", "moves lose no packet", "moves reorder at most"];
    let of_opening = ["first packets opened sessions and returned"];
    for what in of_gatun.into_iter().chain(of_switch).chain(of_moves).chain(of_opening) {
        assert!(is_checked(what), "{what}: {report}");
    }
    let tables = report["tables"].as_array().unwrap();
    let is_opening = |table: &&Value| table["title"].as_str().unwrap().starts_with("First packets");
    let opening = tables.iter().find(is_opening).unwrap();
    for (row, way) in opening["rows"].as_array().unwrap().iter().zip(["Gatun alone", "switch and Gatun"]) {
        // A quantile is there.
        assert!(row[0] == way && row[2] != "-", "{opening}");
    }
}

#[cfg(feature = "dpdk")]
fn is_a_carrier_over_memif(report: &Value) {
    is_accounted_for(report);
    has_figures(report);
    assert!(number(report, "sessions") > 0, "{report}");
    // Processor time per packet, as Gatun and testpmd report it.
    for key in ["core_ns", "reference_core_ns", "core_share"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!((0.0..=1.0).contains(&report["generator_behind"].as_f64().unwrap()), "{report}");
    let quantiles = ["p50", "p99", "p999"].map(|key| report["reference_latency_us"][key].as_f64().unwrap());
    assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{quantiles:?}");
}

#[cfg(feature = "dpdk")]
fn is_noted(report: &Value, what: &str) -> bool {
    report["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(what))
}

#[cfg(feature = "dpdk")]
#[test]
fn every_step_of_the_ladder_over_memif_carries_packets() {
    let words = "ladder --brief --over memif --reflector own --seconds 0.2";
    let Some(report) = report_with_testpmd("rungs", words) else { return };
    is_accounted_for(&report);
    has_figures(&report);
    has_rungs(&report, 4);
}

#[cfg(feature = "dpdk")]
#[test]
fn rfc8219_over_memif_measures_single_and_dual_translation() {
    let Some(report) = report_with_testpmd("rates", "rfc8219 --brief --over memif --reflector own") else {
        return;
    };
    is_accounted_for(&report);
    assert_eq!(report["tables"].as_array().unwrap().len(), 3);
    // CLAT and PLAT carried at least the packets that opened the connections.
    let dual = &report["tables"][2]["rows"][0];
    assert_ne!(dual[4], "0", "{report}");
}

/// Checks the number of steps, and the two of the hand-over between workers, which need two processors.
fn has_rungs(report: &Value, steps: usize) {
    let rows = report["tables"][0]["rows"].as_array().unwrap().len();
    let has_two = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
    assert_eq!(rows, steps + if has_two { 2 } else { 0 }, "{report}");
    assert_eq!(report["handover_ns"].is_number(), has_two, "{report}");
}

#[test]
fn an_overload_loses_only_counted_packets() {
    let words = "carrier --brief --nat44 --frame imix --rate 5000000 --seconds 0.5";
    let Some(report) = report("flood", words) else { return };
    is_accounted_for(&report);
    assert!(number(&report, "lost") > 0, "{report}");
}

#[test]
fn every_step_of_the_ladder_carries_packets() {
    let Some(report) = report("ladder", "ladder --brief --seconds 0.3") else { return };
    is_accounted_for(&report);
    has_figures(&report);
    has_rungs(&report, 4);
}

#[test]
fn rfc8219_searches_a_rate_without_loss() {
    let Some(report) = report("rfc8219", "rfc8219 --brief") else { return };
    is_accounted_for(&report);
    // A busy machine may have no such rate.
    assert!(report["pps"].as_f64().unwrap() >= 0.0);
    assert_eq!(report["tables"].as_array().unwrap().len(), 3);
}

/// Like `report`, for `iperf`.
fn report_with_iperf(name: &str, words: &str) -> Option<Value> {
    match gatun_testkit::missing(&[("iperf3", "iperf3")]) {
        Some(why) => {
            gatun_testkit::skip(&why);
            None
        }
        None => report(name, words),
    }
}

/// The results of a row, each with a rate.
fn row<'r>(report: &'r Value, path: &str) -> Vec<&'r Value> {
    let results = report["throughput"].as_array().unwrap();
    let of_row: Vec<&Value> = results.iter().filter(|result| result["path"] == path).collect();
    assert!(!of_row.is_empty(), "no {path} in {report}");
    assert!(of_row.iter().all(|result| result["gbit_s"].as_f64().unwrap() > 0.0), "{report}");
    of_row
}

#[test]
fn iperf_transfers_data_over_every_path_of_gatun() {
    let Some(report) = report_with_iperf("iperf", "iperf --brief") else { return };
    for path in ["NAT64: Gatun, TUN", "NAT44: Gatun, TUN", "NAT64: Gatun, AF_XDP", "NAT44: Gatun, AF_XDP"] {
        let of_row = row(&report, path);
        assert_eq!(of_row.len(), 1, "{report}");
        assert!(of_row[0]["processor_ms_per_gbit"].as_f64().unwrap() > 0.0, "{report}");
    }
}

#[test]
fn runs_of_iperf_alternate_and_are_compared_with_a_translator_of_the_user() {
    let output = Output::new("beside");
    fs::create_dir_all(&output.0).unwrap();
    let script = output.0.join("plain");
    // The kernel forwards already; the command only has to name the address.
    fs::write(
        &script,
        "#!/bin/sh\nip link show inside >/dev/null && echo ready 198.51.100.2\nexec sleep 60\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let words =
        format!("iperf --brief --runs 2 --rows untranslated,TUN,bare --beside bare={}", script.display());
    let Some(report) = report_with_iperf("alternating", &words) else { return };
    for path in ["kernel, untranslated", "NAT64: Gatun, TUN", "bare"] {
        assert_eq!(row(&report, path)[0]["runs_gbit_s"].as_array().unwrap().len(), 2, "{report}");
    }
    let tables = report["tables"].as_array().unwrap();
    let ratios = tables.iter().find(|table| table["title"] == "Ratios, TCP").unwrap();
    let pairs: Vec<&str> =
        ratios["rows"].as_array().unwrap().iter().filter_map(|row| row[0].as_str()).collect();
    for pair in [
        "NAT64: Gatun, TUN / kernel, untranslated",
        "NAT64: Gatun, TUN / bare",
        "bare / kernel, untranslated",
    ] {
        assert!(pairs.contains(&pair), "{pairs:?}");
    }
    let is_other = |result: &Value| result["path"].as_str().unwrap().contains("AF_XDP");
    assert!(!report["throughput"].as_array().unwrap().iter().any(is_other), "{report}");
}

#[test]
fn iperf_searches_the_highest_rate_of_datagrams_with_little_loss() {
    let words = "iperf --brief --rows untranslated --parts offered";
    let Some(report) = report_with_iperf("offered", words) else { return };
    let results = report["throughput"].as_array().unwrap();
    assert_eq!(results.len(), 2, "IPv4 and IPv6: {report}");
    for result in results {
        assert_eq!(result["protocol"], "UDP offered", "{report}");
        // A busy machine may have no such rate.
        assert!(result["lost_percent"].as_f64().unwrap() <= 0.1, "{report}");
    }
}

#[test]
fn both_sides_open_connections_in_the_benchmark_of_the_thesis() {
    let kept = Output::new("kept");
    fs::create_dir_all(&kept.0).unwrap();
    let words = |more: &str| format!("thesis --brief --keep {}/thesis.jsonl{more}", kept.0.display());
    // Without time, everything is left to the next run.
    let Some(report) = report_with_iperf("left", &words(" --minutes 0")) else { return };
    assert_eq!(
        (number(&report, "left"), report["throughput"].as_array().unwrap().len()),
        (4 * 4, 0),
        "{report}"
    );
    let Some(report) = report_with_iperf("thesis", &words("")) else { return };
    assert_eq!(number(&report, "left"), 0, "{report}");
    for way in ["TUN, stateful", "TUN, stateless", "fast path, stateful", "fast path, stateless"] {
        for opener in ["IPv6", "IPv4"] {
            let of_row = row(&report, &format!("Gatun, {way}, opened from {opener}"));
            assert_eq!(of_row.len(), 2, "TCP and UDP: {report}");
        }
    }
    // Rates and loads.
    assert_eq!(report["tables"].as_array().unwrap().len(), 2 * 4, "{report}");
}

#[cfg(feature = "dpdk")]
#[test]
fn a_switch_has_the_features_of_the_thesis_by_itself_or_by_gatun() {
    let words = "thesis --brief --rows P4-DPDK --parts udp";
    let Some(report) = report_with_iperf("features", words) else { return };
    let tables = report["tables"].as_array().unwrap();
    let features = tables.iter().find(|table| table["title"] == "Features").unwrap();
    let rows = features["rows"].as_array().unwrap();
    for row in rows {
        let by_gatun = row[0] == "Payload checksum";
        assert_eq!(row[3], if by_gatun { "by Gatun" } else { "yes" }, "{features}");
    }
    assert_eq!(rows.len(), 12, "{features}");
}

#[test]
fn faults_under_load_lose_and_reorder_no_packet_of_the_fast_path() {
    let Some(report) = report("fastpath", "fastpath --brief") else { return };
    let tables = report["tables"].as_array().unwrap();
    let faults = tables.iter().find(|table| table["title"] == "Faults under load").unwrap();
    let rows = faults["rows"].as_array().unwrap();
    for name in ["kill -9 and restart", "device down and up", "all sessions ended at once"] {
        let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name} in {report}"));
        assert_ne!(row[1], "0", "{report}");
    }
}

#[test]
fn small_packets_pass_every_backend() {
    let Some(report) = report("backends", "backends --brief") else { return };
    let rows = report["tables"][0]["rows"].as_array().unwrap();
    for frame in [64, 128] {
        for way in
            ["kernel, untranslated", "TUN", "TUN + fast path", "TUN + fast path, XDP", "AF_XDP on veth"]
        {
            let name = format!("{frame} bytes: {way}");
            let row = rows.iter().find(|row| row[0] == name.as_str());
            assert_ne!(row.unwrap_or_else(|| panic!("no {name} in {report}"))[1], "0", "{report}");
        }
    }
}

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn a_lab_that_is_killed_leaves_nothing_running() {
    if let Some(why) = refusal() {
        return gatun_testkit::skip(&why);
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Output::new("killed");
    let needle = output.0.to_string_lossy().into_owned();
    let mut lab = lab(&output, "carrier --brief --seconds 60").stdout(Stdio::null()).spawn().unwrap();
    wait_until("the lab begins", PATIENCE, || {
        processes_about(&needle)
            .unwrap()
            .iter()
            .any(|line| line.contains(" run ") && line.contains("gatun.toml"))
    })
    .unwrap();
    lab.kill().unwrap();
    lab.wait().unwrap();
    wait_until("nothing is left", PATIENCE, || processes_about(&needle).unwrap().is_empty()).unwrap();
}

#[test]
fn an_unknown_scenario_is_refused_with_the_known_ones() {
    let output = Output::new("wrong");
    let run = lab(&output, "nosuch").output().unwrap();
    assert!(!run.status.success());
    assert!(String::from_utf8_lossy(&run.stderr).contains("carrier"), "{run:?}");
}
