//! Quick forms of `gatun-bench`, run as by a user. The commands check every packet and answer themselves;
//! these tests check the figures' shape, not times.

use serde_json::Value;
use std::process::Command;

fn bench(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_gatun-bench")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&bench(args)).unwrap()
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|value| value > 0.0)
}

const SMALL: [&str; 9] =
    ["engine", "--sessions", "20000", "--subscribers", "1000", "--buffers", "4096", "--rounds", "3"];

#[test]
fn the_engine_is_measured_for_every_kind_with_the_same_fields() {
    let mut fields = Vec::new();
    for kind in ["siit", "nat64", "nat44"] {
        let report = json(&[&SMALL[..], &["--kind", kind, "--json"]].concat());
        assert!(positive(&report["ns_outbound"]) && positive(&report["ns_inbound"]), "{report}");
        assert_eq!(report["allocations_per_packet"], 0.0);
        assert_eq!(positive(&report["ns_new_session"]), kind != "siit");
        fields.push(report.as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    }
    assert!(fields.iter().all(|of_kind| *of_kind == fields[0]));
}

#[test]
fn engine_measures_workers_blocks_a_full_pool_and_events() {
    let report =
        json(&[&SMALL[..], &["--workers", "2", "--events", "all", "--pool-fill", "100", "--json"]].concat());
    assert!(report["allocations_per_packet"].is_null());
    // At least the creation and deletion of sessions and bindings.
    assert!(report["events"].as_u64().unwrap() >= 4 * 20_000, "{report}");
    let log = json(&[&SMALL[..], &["--json"]].concat());
    // The default is the events of a log: bindings created, deleted, and created again.
    assert_eq!((log["logged"].as_str(), log["events"].as_u64()), (Some("log"), Some(60_000)), "{log}");
    let none = json(&[&SMALL[..], &["--events", "none", "--json"]].concat());
    assert_eq!(none["events"], 0, "{none}");
    let blocks = ["--allocation", "blocks", "--block-size", "32", "--json"];
    assert!(positive(&json(&[&SMALL[..], &blocks].concat())["bytes_per_session"]));
}

#[test]
fn churn_ends_sessions_and_opens_them_again() {
    for kind in ["nat64", "nat44"] {
        let args = ["--kind", kind, "--rounds", "7", "--kills-per-second", "20000", "--json"];
        let report = json(&[&SMALL[..7], &args].concat());
        let churn = &report["churn"];
        let count = |name: &str| churn[name].as_u64().unwrap();
        assert!(count("killed") > 0 && count("reopened") > 0, "{churn}");
        assert!(count("reopened") < count("killed"), "the last sessions must stay away");
        assert!(positive(&churn["ns_with"]) && positive(&churn["ns_without"]));
        assert!(churn["throughput_cost_percent"].is_number());
    }
}

#[test]
fn the_study_writes_a_table_a_csv_file_and_a_drawing() {
    let dir = std::env::temp_dir().join(format!("gatun-study-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (csv, svg) = (dir.join("study.csv"), dir.join("study.svg"));
    let args = ["study", "--quick", "--largest", "1024", "--threads", "2", "--entries-per-thread", "1024"];
    let files = ["--csv", csv.to_str().unwrap(), "--svg", svg.to_str().unwrap()];
    let screen = bench(&[&args[..], &files].concat());
    let (csv, svg) = (std::fs::read_to_string(csv).unwrap(), std::fs::read_to_string(svg).unwrap());
    for structure in
        ["linear search", "binary tree", "red-black tree", "BTreeMap", "chained hash", "lines of 3", "Gatun"]
    {
        assert!(screen.contains(structure) && csv.contains(structure), "{structure}: {screen}");
        assert!(svg.contains(&format!(">{structure}</text>")), "{structure}");
    }
    // Twelve structures, four sizes, two numbers of threads.
    assert_eq!(csv.lines().count(), 1 + 12 * 4 + 12 * 2);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn connections_are_established_validated_and_torn_down() {
    let report = json(&["connections", "--quick", "--json"]);
    let points = report["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    for point in points {
        assert_eq!(point["capacity"], point["connections"]);
        for rate in
            ["establishments", "outbound", "inbound", "tear_downs", "expiries", "bytes_per_connection"]
        {
            assert!(positive(&point[rate]), "{rate}: {point}");
        }
    }
}

#[test]
fn scale_measures_sessions_workers_pools_and_memory() {
    let report = json(&["scale", "--quick", "--kind", "nat44", "--addresses", "1", "--json"]);
    let last = |list: &str| report[list].as_array().unwrap().last().unwrap().clone();
    assert!(positive(&last("sizes")["times_the_smaller"]), "{report}");
    assert!(positive(&last("workers")["times_one"]), "{report}");
    for pool in report["pools"].as_array().unwrap() {
        assert!(pool["usable_percent"].as_f64().unwrap() >= 95.0, "{pool}");
    }
    assert!(positive(&report["bytes_per_session"]));
}

#[test]
fn every_session_survives_each_of_several_restarts() {
    for (kind, more) in [("nat64", &["--blocks"][..]), ("nat44", &[])] {
        let args = ["restart", "--sessions", "20000", "--subscribers", "1000", "--rounds", "2", "--json"];
        let report = json(&[&args[..], &["--kind", kind], more].concat());
        assert!(positive(&report["take_over_ms"]) && positive(&report["ns_session"]), "{report}");
        assert!(report["verified_packets"].as_u64().unwrap() >= 3 * 20_000, "{report}");
    }
}

#[test]
fn a_pair_of_boxes_is_synchronised_and_follows_sessions() {
    let sync = ["--sessions", "20000", "--subscribers", "1000", "--packets-s", "0.2", "--workers", "2"];
    let steady = ["--per-second", "2000", "--lifetime-s", "0.5", "--seconds", "1"];
    let takeover = ["--sizes", "2000,20000", "--runs", "1"];
    let report = json(&[&["peer", "--json"], &sync[..], &steady[..], &takeover[..]].concat());
    for (size, takeover) in [2_000, 20_000].into_iter().zip(report["takeover"].as_array().unwrap()) {
        assert_eq!((&takeover["sessions"], &takeover["untranslated"]), (&size.into(), &0.into()), "{report}");
        for figure in ["release_ms", "owner_us", "first_packet_us", "owner_port_us", "packets", "first_ns"] {
            assert!(positive(&takeover[figure]), "{figure}: {report}");
        }
    }
    assert_eq!(report["takeover"].as_array().unwrap().len(), 2);
    let (sync, steady) = (&report["sync"], &report["steady"]);
    assert!(sync["sessions"].as_u64().unwrap() >= 20_000, "{report}");
    for figure in ["seconds", "ns_member", "ns_empty_member", "ns_empty_worker", "ns_packet"] {
        assert!(positive(&sync[figure]), "{figure}: {report}");
    }
    // A session takes 35 bytes, and its end 14: in a short time, ends may come before or after it. Small groups
    // have some more for each.
    let bytes = |of: &Value| of["bytes_per_session"].as_f64().unwrap();
    assert!((35.0..40.0).contains(&bytes(sync)), "{report}");
    assert!((35.0..120.0).contains(&bytes(steady)), "{report}");
    assert!(positive(&steady["owner_member_percent"]) && positive(&steady["backup_percent"]), "{report}");
}
