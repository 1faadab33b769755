//! A daemon allocates all memory before its first packet, as much as `gatun check` predicts. Without that
//! memory it does not start.

use crate::fastpath::{show, wait};
use crate::harness::{CREATE, Daemon, NAT64, SIIT, in_lab, network, ping};
#[cfg(feature = "xdp")]
use crate::xdp::{self, in_xdp_lab, xdp_network};
use gatun_testkit::Topology;
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output};

const STATE: &str = "/run/gatun/state";

/// Bytes used by the daemon alone: private memory, reserved huge pages, its files in memory, DPDK's, and the
/// kernel's maps.
fn taken(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    };
    value("Anonymous:") + value("Private_Hugetlb:") + files() + files_without_names(pid) + maps(pid)
}

/// Bytes of mapped memory files without a name in the file system.
fn files_without_names(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mappings = text.split_inclusive("VmFlags:").filter(|mapping| mapping.contains("/memfd:"));
    let resident = mappings.filter_map(|mapping| mapping.split_once("Rss:")?.1.split_whitespace().next());
    resident.map(|kilobytes| kilobytes.parse::<u64>().unwrap() * 1024).sum()
}

/// Bytes of kernel memory of the daemon's maps.
fn maps(pid: u32) -> u64 {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    // A file may be closed meanwhile.
    let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    // Several files can be the same map.
    let of_map = |text: &String| {
        let value = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().parse().ok()
        };
        Some((value("map_id")?, value("memlock")?))
    };
    let maps: std::collections::BTreeMap<u64, u64> = texts.iter().filter_map(of_map).collect();
    maps.values().sum()
}

/// Bytes of memory of the session files.
fn files() -> u64 {
    let entries = fs::read_dir(STATE).map(|all| all.flatten().collect::<Vec<_>>()).unwrap_or_default();
    // A file may be removed meanwhile.
    entries.iter().filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}

fn gatun(net: &Topology, args: &[&str]) -> Output {
    gatun_testkit::output(net.translator.command(env!("CARGO_BIN_EXE_gatun")).args(args)).unwrap()
}

/// Bytes that `gatun check` predicts.
fn said(net: &Topology, file: &str) -> u64 {
    let output = gatun(net, &["check", "--json", file]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    json["summary"]["memory_bytes"].as_u64().unwrap()
}

/// True if they differ by at most 2 %, or by 2 MiB if they are small.
fn agree(said: u64, taken: u64) -> bool {
    said.abs_diff(taken) <= (said / 50).max(2 << 20)
}

fn configurations() -> Vec<(&'static str, String)> {
    let two = "[[port]]\ndevice = \"nat64\"\nqueues = 2\n";
    let pool = "[[pool]]\nname = \"p\"\nprefixes = \"192.0.2.0/28\"\n";
    let nat44 = "[[nat44]]\ninside = \"100.64.0.0/10\"\npool = \"p\"\n";
    let blocks = format!("{pool}allocation = \"blocks\"\n{nat44}");
    let large = "[limits]\nsessions_max = 2000000\nsubscribers_max = 100000\n";
    let nat64 = "[[nat64]]\npool6 = \"2001:db8:64::/96\"\npool = \"p\"\n";
    vec![
        ("defaults", format!("{CREATE}{NAT64}")),
        ("not kept", format!("{CREATE}{NAT64}[state]\ndirectory = \"off\"\n")),
        ("two workers", format!("{two}{pool}{nat64}{large}")),
        ("blocks", format!("{CREATE}{blocks}{large}")),
        ("siit", format!("{CREATE}{}", SIIT)),
        ("fast path", format!("{CREATE}{NAT64}[fastpath]\nkernel = \"auto\"\n")),
        (
            "large fast path",
            format!("{two}{pool}{nat64}[fastpath]\nkernel = \"auto\"\nsessions_max = 1000000\n"),
        ),
    ]
}

/// Difference between the prediction and the memory of a ready daemon, as text if it is too large.
pub(crate) fn difference(net: &Topology, name: &str, config: &str) -> Option<String> {
    let daemon = Daemon::start(net, config);
    if config.contains("[fastpath]") {
        wait("the manager of the kernel's sessions", 5, || {
            show("fastpath")["sessions_max"].as_u64() > Some(0)
        });
    }
    let taken = taken(daemon.process.id());
    let said = said(net, daemon.file().to_str().unwrap());
    let logged = daemon.stderr();
    assert!(logged.contains("memory: ") && logged.contains(" on small pages"), "{logged}");
    daemon.stop(Signal::TERM);
    assert!(files() < 5 << 20, "{name}: {} bytes are left", files());
    // The next daemon starts without sessions.
    fs::read_dir(STATE).into_iter().flatten().flatten().for_each(|e| fs::remove_file(e.path()).unwrap());
    println!("{name}: check says {said}, the daemon has {taken}");
    (!agree(said, taken)).then(|| format!("{name}: check says {said}, the daemon has {taken}"))
}

#[test]
fn a_ready_daemon_uses_the_memory_that_check_predicts() {
    in_lab("memory::a_ready_daemon_uses_the_memory_that_check_predicts", || {
        let net = network();
        let all = configurations();
        let wrong: Vec<String> =
            all.iter().filter_map(|(name, config)| difference(&net, name, config)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Packet buffers are part of the figure. Their size depends on the interfaces' MTU.
#[cfg(feature = "xdp")]
#[test]
fn a_ready_daemon_on_af_xdp_uses_the_memory_that_check_predicts() {
    in_xdp_lab("memory::a_ready_daemon_on_af_xdp_uses_the_memory_that_check_predicts", || {
        let net = xdp_network();
        let usual = difference(&net, "AF_XDP", xdp::CONFIG);
        net.translator.ip("link set inside mtu 3000").unwrap();
        let large = difference(&net, "AF_XDP, large MTU", xdp::CONFIG);
        let wrong: Vec<String> = [usual, large].into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

#[test]
fn a_daemon_after_a_killed_one_uses_no_more_memory() {
    in_lab("memory::a_daemon_after_a_killed_one_uses_no_more_memory", || {
        let net = network();
        let config = format!("{CREATE}{NAT64}");
        let mut first = Daemon::start(&net, &config);
        let alone = files();
        first.process.signal(Signal::KILL).unwrap();
        let _ = first.process.wait(std::time::Duration::from_secs(5)).unwrap();
        let second = Daemon::start(&net, &config);
        // The one before had no session: a thread beside the workers removes its file, which counts until
        // then.
        gatun_testkit::wait_until(
            "the files of the one before go",
            std::time::Duration::from_secs(5),
            || files() == alone,
        )
        .unwrap();
        let said = said(&net, second.file().to_str().unwrap());
        let taken = taken(second.process.id());
        assert!(agree(said, taken), "check says {said}, the daemon has {taken}");
        second.stop(Signal::TERM);
    });
}

/// Wrapper for the daemon: it may not mount, so it uses the existing file system.
const WITHOUT_MOUNTING: &[&str] = &["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];

/// Mounts a tmpfs of `kib` KiB at /run/small.
fn small_memory(kib: u32) {
    fs::create_dir_all("/run/small").unwrap();
    let options = format!("size={kib}k,mode=700");
    gatun_testkit::run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs", "/run/small"]))
        .unwrap();
}

/// Runs a daemon that cannot start, and returns its messages.
fn refused(net: &Topology, wrapper: &[&str], config: &str) -> String {
    let ended = Daemon::spawn_under(net, wrapper, config).wait();
    assert!(!ended.success, "{}", ended.stderr);
    ended.stderr
}

/// Number after these words.
fn number_behind(text: &str, words: &str) -> u32 {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("no '{words}' in {text}"));
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

#[test]
fn a_daemon_without_memory_for_its_sessions_names_the_possible_number() {
    in_lab("memory::a_daemon_without_memory_for_its_sessions_names_the_possible_number", || {
        let net = network();
        small_memory(8 << 10);
        let state = "[state]\ndirectory = \"/run/small/state\"\n";
        let config = |sessions: u32| format!("{CREATE}{NAT64}{state}[limits]\nsessions_max = {sessions}\n");
        let said = refused(&net, WITHOUT_MOUNTING, &config(1_000_000));
        let fit = number_behind(&said, "each worker has no more than ");
        assert!((10_000..200_000).contains(&fit), "{said}");
        assert_eq!(
            fs::read_dir("/run/small/state").unwrap().flatten().count(),
            1,
            "nothing but the lock is left"
        );
        let daemon = Daemon::spawn_under(&net, WITHOUT_MOUNTING, &config(fit * 3 / 4));
        daemon.says("translating with");
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_above_a_memory_limit_names_the_possible_number() {
    in_lab("memory::a_daemon_above_a_memory_limit_names_the_possible_number", || {
        let net = network();
        let config = |sessions: u32| format!("{CREATE}{NAT64}[limits]\nsessions_max = {sessions}\n");
        let said = refused(&net, &["prlimit", "--data=1000000000"], &config(20_000_000));
        assert!(said.contains("the process (RLIMIT_AS, RLIMIT_DATA) has "), "{said}");
        let fit = number_behind(&said, "`sessions_max = ");
        assert!((1_000_000..15_000_000).contains(&fit), "{said}");
    });
}

/// Fills a file system.
fn fill(directory: &str) {
    let path = format!("{directory}/full");
    let output =
        gatun_testkit::output(Command::new("dd").args(["if=/dev/zero", "bs=64k", &format!("of={path}")]))
            .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("No space left"), "{said}");
}

#[test]
fn sessions_continue_on_a_full_file_system() {
    in_lab("memory::sessions_continue_on_a_full_file_system", || {
        let net = network();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}"));
        fill(STATE);
        let script = "
import socket, sys
for port in range(20000, 20300):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(('', port)); s.sendto(b'hello', (sys.argv[1], 9000 + port % 7)); s.close()
";
        gatun_testkit::run(net.client.command("python3").args(["-c", script, SERVER])).unwrap();
        assert!(ping(&net.client, 2, SERVER, ""), "{}", daemon.stderr());
        let ended = daemon.stop(Signal::TERM);
        assert!(ended.stdout.contains("forwarded"), "{}", ended.stdout);
    });
}

/// Snapshot of `workers` workers without sessions.
fn snapshot(workers: u32) -> String {
    format!(
        "{{\"gatun_snapshot\":1,\"names\":{{\"generation\":0,\"workers\":{workers},\"instances\":[],\
         \"steering\":[1,2,3,4]}},\"sessions\":0}}\n"
    )
}

#[test]
fn a_snapshot_of_too_many_workers_or_without_space_is_refused() {
    in_lab("memory::a_snapshot_of_too_many_workers_or_without_space_is_refused", || {
        let net = network();
        small_memory(4 << 10);
        let load = |workers: u32| {
            fs::write("/run/saved", snapshot(workers)).unwrap();
            let mut command = net.translator.command(WITHOUT_MOUNTING[0]);
            command.args(&WITHOUT_MOUNTING[1..]).arg(env!("CARGO_BIN_EXE_gatun"));
            command.args(["snapshot", "load", "/run/saved", "--state", "/run/small/state"]);
            let output = gatun_testkit::output(&mut command).unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, said) = load(65_535);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("invalid snapshot: 65,535 workers, at most 256 are possible"), "{said}");
        // Each worker's file is slightly larger than 2 MiB.
        assert_eq!(load(1).0, Some(0));
        let before = fs::read_to_string("/run/small/state/names.json").unwrap();
        let (code, said) = load(200);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("no room for 2.0 MiB of sessions"), "{said}");
        assert_eq!(fs::read_to_string("/run/small/state/names.json").unwrap(), before);
        assert_eq!(fs::read_dir("/run/small/state").unwrap().flatten().count(), 3, "lock, names, one file");
    });
}
