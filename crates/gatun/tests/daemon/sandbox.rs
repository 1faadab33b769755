//! State of the sandbox in a running daemon. Unit tests of the sandbox check what it forbids. All other tests
//! here run with the sandbox on, and check that it allows enough.

use crate::harness::{CREATE, Daemon, NAT64, in_lab, network, ping, status_line, succeeds};
use gatun_api::client::Client;
use gatun_api::types::{Sandbox, SandboxExtent, Status};
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of each thread, with a line of its /proc status.
fn threads(pid: u32, line: &str) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |path: PathBuf| {
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        let status = read("status");
        let value = status.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(':')).unwrap();
        (read("comm").trim().to_owned(), value.trim().to_owned())
    };
    tasks.map(|task| of(task.unwrap().path())).collect()
}

fn doctor() -> String {
    let output = gatun_testkit::output(Command::new(env!("CARGO_BIN_EXE_gatun")).arg("doctor")).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn status() -> Status {
    Client::new(gatun_api::SOCKET).get("/v1/status").unwrap()
}

#[test]
fn every_thread_is_sandboxed_and_none_has_a_capability() {
    in_lab("sandbox::every_thread_is_sandboxed_and_none_has_a_capability", || {
        let net = network();
        let events = "[events]\nfile = \"/run/events/json\"\n[log]\ndirectory = \"/run/log/gatun\"\n";
        fs::create_dir("/run/events").unwrap();
        let daemon = Daemon::start(&net, &format!("{CREATE}{NAT64}{events}"));
        let said = daemon.stderr();
        let line = said.lines().find(|line| line.contains("sandbox: ")).unwrap();
        assert!(line.ends_with(", seccomp") && !line.contains("no seccomp"), "{line}");
        assert!(ping(&net.client, 1, SERVER, ""));
        let pid = daemon.process.id();
        let all = threads(pid, "Seccomp");
        assert!(all.len() > 5, "{all:?}");
        // 2: seccomp filter mode (proc(5)).
        assert!(all.iter().all(|(_, mode)| mode == "2"), "{all:?}");
        assert!(threads(pid, "NoNewPrivs").iter().all(|(_, set)| set == "1"));
        for (name, rights) in threads(pid, "CapEff") {
            assert_eq!(u64::from_str_radix(&rights, 16).unwrap(), 0, "{name}");
        }
        assert!(doctor().contains("the sandbox is on"), "{}", doctor());
        // The API reports the same as the log.
        let told = status().sandbox;
        let has_landlock = line.contains("sandbox: landlock, ");
        assert_eq!(
            told.state,
            if has_landlock { SandboxExtent::Whole } else { SandboxExtent::Partly },
            "{line}"
        );
        assert!(
            told.missing.iter().all(|what| line.contains(what)) && told.missing.is_empty() == has_landlock
        );
        assert!(Path::new("/run/events/json").exists() && Path::new("/run/log/gatun").is_dir());
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_daemon_without_a_sandbox_reports_it() {
    in_lab("sandbox::a_daemon_without_a_sandbox_reports_it", || {
        let net = network();
        let mut daemon = Daemon::spawn(&net, &format!("{CREATE}{NAT64}"), &["--no-sandbox"]);
        while !daemon.stderr().contains("translating with") {
            assert!(daemon.process.ended().is_none(), "{}", daemon.stderr());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(daemon.stderr().contains("sandbox: off (--no-sandbox)"), "{}", daemon.stderr());
        assert_eq!(status_line(daemon.process.id(), "Seccomp"), "0");
        assert!(doctor().contains("without a sandbox"), "{}", doctor());
        assert_eq!(
            status().sandbox,
            Sandbox { state: SandboxExtent::Not, missing: vec!["--no-sandbox".to_owned()] }
        );
        daemon.stop(Signal::TERM);
    });
}

/// Root opens files in a directory of the user before `--user` takes effect.
#[test]
fn root_does_not_follow_links_of_the_user() {
    in_lab("sandbox::root_does_not_follow_links_of_the_user", || {
        let (planted, precious) = (Path::new("/run/planted"), Path::new("/run/precious"));
        fs::create_dir(planted).unwrap();
        assert!(succeeds(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(planted)));
        chown(planted, Some(65534), Some(65533)).unwrap();
        fs::write(precious, "root's").unwrap();
        fs::set_permissions(precious, fs::Permissions::from_mode(0o600)).unwrap();
        let names = ["names.json.new", "names.json", "sessions.0.0", "sessions.1.0", "sessions.2.0"];
        for name in names {
            symlink(precious, planted.join(name)).unwrap();
        }
        symlink("/run/made", planted.join("lock")).unwrap();
        let net = network();
        let config = format!("{CREATE}{NAT64}[state]\ndirectory = \"/run/planted\"\n");
        let refused = Daemon::spawn(&net, &config, &["--user", "65534:65533"]).wait();
        assert!(refused.stderr.contains("cannot write to /run/planted"), "{}", refused.stderr);
        assert!(!Path::new("/run/made").exists());
        fs::remove_file(planted.join("lock")).unwrap();

        let daemon = Daemon::spawn(&net, &config, &["--user", "65534:65533"]);
        daemon.says("translating with");
        assert!(ping(&net.client, 1, SERVER, ""));
        assert!(fs::symlink_metadata(planted.join("names.json")).unwrap().is_file());
        daemon.process.signal(Signal::KILL).unwrap();
        daemon.wait();
        let daemon = Daemon::spawn(&net, &config, &["--user", "65534:65533"]);
        daemon.says("translating with");
        daemon.stop(Signal::TERM);
        assert_eq!(fs::read_to_string(precious).unwrap(), "root's");
        assert_eq!(fs::metadata(precious).unwrap().uid(), 0);
    });
}

#[test]
fn links_in_place_of_logs_and_sockets_lead_root_nowhere() {
    in_lab("sandbox::links_in_place_of_logs_and_sockets_lead_root_nowhere", || {
        let (planted, precious) = (Path::new("/run/planted"), Path::new("/run/precious"));
        fs::create_dir(planted).unwrap();
        assert!(succeeds(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(planted)));
        chown(planted, Some(65534), Some(65533)).unwrap();
        fs::create_dir(precious).unwrap();
        fs::write(precious.join("file"), "root's").unwrap();
        fs::set_permissions(precious, fs::Permissions::from_mode(0o700)).unwrap();
        for (name, target) in [("events", "file"), ("api.sock", "file"), ("log", ""), ("spool", "")] {
            symlink(precious.join(target), planted.join(name)).unwrap();
        }
        let net = network();
        for section in [
            "[events]\nfile = \"/run/planted/events\"\n",
            "[api]\nlisten = \"unix:/run/planted/api.sock\"\n",
            "[log]\ndirectory = \"/run/planted/log\"\n",
            "[[export]]\nto = \"tcp:198.51.100.2:4739\"\nspool = \"/run/planted/spool\"\n",
        ] {
            let ended =
                Daemon::spawn(&net, &format!("{CREATE}{NAT64}{section}"), &["--user", "65534:65533"]).wait();
            assert!(!ended.success && ended.stderr.contains("/run/planted/"), "{section}: {}", ended.stderr);
            let left: Vec<_> = fs::read_dir(precious).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["file"], "{section}");
            assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "root's", "{section}");
        }
    });
}
