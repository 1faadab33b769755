//! `gatun p4 switch`: a controller of another project, and refusals.

use gatun_testkit::{Namespace, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LISTEN: &str = "127.0.0.1:9559";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Arguments of a switch with small tables.
pub(crate) fn switch(program: &Path, ports: &[&str]) -> Vec<String> {
    let headers = root().join("target/tools/dpdk-headers");
    let mut words: Vec<String> =
        ["p4", "switch", "--memory", "256", "--buffers", "4096", "--headers"].map(str::to_owned).into();
    words.extend([headers.display().to_string(), program.display().to_string()]);
    words.extend(ports.iter().flat_map(|port| ["--port".to_owned(), (*port).to_owned()]));
    words
}

/// Why the controller cannot run here.
fn refusal() -> Option<String> {
    let controllers = root().join("target/tools/p4-controllers/finsy");
    let missing = (!controllers.exists()).then(|| "finsy is missing: scripts/p4-controllers".to_owned());
    gatun_testkit::refusal_but_to_root("DPDK").or(missing)
}

#[test]
fn a_controller_of_another_project_runs_the_switch() {
    gatun_testkit::run_test("p4::a_controller_of_another_project_runs_the_switch", refusal, || {
        let host = Namespace::new("p4").unwrap();
        for number in [1, 2] {
            host.ip(&format!("link add p{number} type veth peer name q{number}")).unwrap();
            for device in [format!("p{number}"), format!("q{number}")] {
                host.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1").unwrap();
                host.ip(&format!("link set {device} up")).unwrap();
            }
        }
        let tests = root().join("crates/p4-server/tests");
        let program = tests.join("switch.spec");
        let log = "/run/switch.log";
        let ports = ["net_af_packet0,iface=p1", "net_af_packet1,iface=p2"];
        let mut command = host.command(env!("CARGO_BIN_EXE_gatun"));
        command
            .args(switch(&program, &ports))
            .stdout(fs::File::create(log).unwrap())
            .stderr(Stdio::inherit());
        let mut process = Process::start(&mut command).unwrap();
        let read = || fs::read_to_string(log).unwrap();
        wait_until("the switch", Duration::from_secs(60), || read().contains("P4Runtime on")).unwrap();

        let p4info = tests.join("switch.p4info.txt");
        let script = root().join("crates/gatun/tests/daemon/p4_controller.py");
        let mut controller = host.command("python3");
        controller.env("PYTHONPATH", root().join("target/tools/p4-controllers")).arg(script);
        controller.arg(LISTEN).args([p4info, program]).args(["q1", "q2"]);
        // The script ends by itself.
        let output = gatun_testkit::output(&mut controller).unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success() && stdout.contains("entries stay until"), "{stdout}{stderr}");

        process.signal(Signal::TERM).unwrap();
        assert!(process.wait(Duration::from_secs(20)).unwrap().success());
        let log = read();
        // Both controllers of one process may share a connection.
        assert!(log.contains("packets: 1 to controllers, 0 lost, 1 from controllers"), "{log}");
        assert!(log.contains(" accepted, 0 refused, 15 updates"), "{log}");
    });
}

#[test]
fn a_switch_that_cannot_start_names_the_reason() {
    gatun_testkit::run_test("p4::a_switch_that_cannot_start_names_the_reason", refusal, || {
        let spec = root().join("crates/p4-server/tests/switch.spec");
        let cases = [
            (switch(Path::new("/nonexistent.spec"), &["net_null0"]), "/nonexistent.spec"),
            (switch(&root().join("README.md"), &["net_null0"]), "Unknown statement"),
            (switch(&spec, &["net_memif7,role=nonsense"]), "net_memif7: opening it"),
            (
                [switch(&spec, &["net_null0"]), vec!["--size".into(), "known".into()]].concat(),
                "write TABLE=ENTRIES",
            ),
            (
                [switch(&spec, &["net_null0"]), vec!["--size".into(), "none=1".into()]].concat(),
                "no table `none`",
            ),
            (
                [switch(&spec, &["net_null0"]), vec!["--listen".into(), "192.0.2.77:1".into()]].concat(),
                "listening on",
            ),
        ];
        for (words, reason) in cases {
            let output =
                gatun_testkit::output(Command::new(env!("CARGO_BIN_EXE_gatun")).args(words)).unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(1) && stderr.contains(reason), "{reason}: {stderr}");
        }
    });
}
