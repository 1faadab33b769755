//! `gatun p4 switch`: controllers of other projects, and refusals.

#[path = "../../../p4-controller/tests/support/certificates.rs"]
mod certificates;

use certificates::{Authority, VALID};
use gatun_testkit::{Namespace, Process, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LISTEN: &str = "127.0.0.1:9559";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Arguments of a switch with small tables, which leaves the processor to others while it is idle.
pub(crate) fn switch(program: &Path, ports: &[&str]) -> Vec<String> {
    let headers = root().join("target/tools/dpdk-headers");
    let words = ["p4", "switch", "--memory", "256", "--buffers", "4096", "--idle-sleep", "200", "--headers"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.extend([headers.display().to_string(), program.display().to_string()]);
    words.extend(ports.iter().flat_map(|port| ["--port".to_owned(), (*port).to_owned()]));
    words
}

/// Folder of another project's controller, and a package in it.
type Controller = [&'static str; 2];

const FINSY: Controller = ["target/tools/p4-controllers", "finsy"];
const SHELL: Controller = ["target/tools/p4-shell", "p4runtime_sh"];

/// Why a controller cannot run here.
fn refusal_of([folder, package]: Controller) -> Option<String> {
    let is_missing = !root().join(folder).join(package).exists();
    let missing = is_missing.then(|| format!("{package} is missing: scripts/p4-controllers"));
    gatun_testkit::refusal_but_to_root("DPDK").or(missing)
}

fn refusal() -> Option<String> {
    refusal_of(FINSY)
}

fn refusal_of_shell() -> Option<String> {
    refusal_of(SHELL)
}

/// Switch in a namespace, with ports p1 and p2, whose other ends are q1 and q2.
struct Switch {
    host: Namespace,
    process: Process,
}

/// Output of the switch, within its namespace.
const LOG: &str = "/run/switch.log";

impl Switch {
    fn start(program: &Path, more: &[String]) -> Switch {
        let host = Namespace::new("p4").unwrap();
        for number in [1, 2] {
            host.ip(&format!("link add p{number} type veth peer name q{number}")).unwrap();
            for device in [format!("p{number}"), format!("q{number}")] {
                host.sysctl(&format!("net.ipv6.conf.{device}.disable_ipv6"), "1").unwrap();
                host.ip(&format!("link set {device} up")).unwrap();
            }
        }
        let ports = ["net_af_packet0,iface=p1", "net_af_packet1,iface=p2"];
        let mut command = host.command(env!("CARGO_BIN_EXE_gatun"));
        let log = fs::File::create(LOG).unwrap();
        command.args(switch(program, &ports)).args(more);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let process = Process::start(&mut command).unwrap();
        let switch = Switch { host, process };
        wait_until("the switch", Duration::from_secs(60), || switch.log().contains("P4Runtime")).unwrap();
        switch
    }

    fn log(&self) -> String {
        fs::read_to_string(LOG).unwrap()
    }

    /// Lets the other project's controller run, and returns whether it succeeded, and its output.
    fn control(&self, certificates: Option<&Path>) -> (bool, String) {
        let certificates = certificates.map(Path::to_owned).into_iter().collect::<Vec<_>>();
        let (is_done, text) = self.run(FINSY, "p4_controller.py", &files(), &certificates);
        (is_done && text.contains("entries stay until"), text)
    }

    /// Lets a script of another project's controller run with the files of a program.
    fn run(
        &self,
        [folder, _]: Controller,
        script: &str,
        files: &[PathBuf; 2],
        more: &[PathBuf],
    ) -> (bool, String) {
        let script = root().join("crates/gatun/tests/daemon").join(script);
        let mut controller = self.host.command("python3");
        controller.env("PYTHONPATH", root().join(folder)).arg("-B").arg(script);
        controller.arg(LISTEN).args(files).args(["q1", "q2"]).args(more);
        // The script ends by itself.
        let output = gatun_testkit::output(&mut controller).unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.success(), text)
    }

    /// Ends the switch, and returns its output.
    fn end(mut self) -> String {
        self.process.signal(Signal::TERM).unwrap();
        assert!(self.process.wait(Duration::from_secs(20)).unwrap().success());
        self.log()
    }
}

/// Description and program of the server's tests.
fn files() -> [PathBuf; 2] {
    ["switch.p4info.txt", "switch.spec"].map(|name| root().join("crates/p4-server/tests").join(name))
}

#[test]
fn a_controller_of_another_project_runs_the_switch() {
    gatun_testkit::run_test("p4::a_controller_of_another_project_runs_the_switch", refusal, || {
        let switch = Switch::start(&files()[1], &[]);
        let (is_done, text) = switch.control(None);
        assert!(is_done, "{text}");
        let log = switch.end();
        // Both controllers of one process may share a connection.
        assert!(log.contains("packets: 1 to controllers, 0 lost, 1 from controllers"), "{log}");
        assert!(log.contains(" accepted, 0 refused, 0 without a certificate, 15 updates"), "{log}");
    });
}

/// Lets a controller give a session to Gatun's program, and take it away.
fn gives_a_session(controller: Controller, script: &str, updates: u32) {
    let program = ["psa.p4info.txt", "gatun.spec"].map(|name| root().join("p4").join(name));
    let switch = Switch::start(&program[1], &[]);
    let (is_done, text) = switch.run(controller, script, &program, &[]);
    assert!(is_done && text.contains("a session came and went"), "{text}");
    let log = switch.end();
    assert!(log.contains("packets: 2 to controllers, 0 lost, 1 from controllers"), "{log}");
    assert!(log.contains(&format!(", {updates} updates")), "{log}");
}

#[test]
fn a_controller_of_another_project_gives_a_session_to_gatuns_program() {
    gatun_testkit::run_test(
        "p4::a_controller_of_another_project_gives_a_session_to_gatuns_program",
        refusal,
        // Interfaces and next hops of two ports; two entries inserted, changed and deleted.
        || gives_a_session(FINSY, "p4_gatun_program.py", 10),
    );
}

#[test]
fn the_shell_of_p4runtime_gives_a_session_to_gatuns_program() {
    gatun_testkit::run_test(
        "p4::the_shell_of_p4runtime_gives_a_session_to_gatuns_program",
        refusal_of_shell,
        // Three more, which are refused.
        || gives_a_session(SHELL, "p4_shell.py", 13),
    );
}

#[test]
fn a_controller_of_another_project_runs_the_switch_over_tls() {
    gatun_testkit::run_test("p4::a_controller_of_another_project_runs_the_switch_over_tls", refusal, || {
        let authority = Authority::new();
        let [of_switch, of_controller] =
            ["127.0.0.1", "controller.example"].map(|host| authority.folder(host, VALID));
        let more = ["--certificates".to_owned(), of_switch.0.display().to_string()];
        let switch = Switch::start(&files()[1], &more);
        assert!(switch.log().contains("P4Runtime over TLS on 127.0.0.1:9559"), "{}", switch.log());
        let (is_done, text) = switch.control(Some(&of_controller.0));
        assert!(is_done, "{text}");
        assert!(!switch.log().contains("gatun: controller"), "{}", switch.log());

        let refused_in_words = |certificates: Option<&Path>, why: &str| {
            // The switch writes one refusal a second: another one may have taken the line.
            let is_written = (0..10).any(|_| {
                let (is_done, text) = switch.control(certificates);
                assert!(!is_done, "{text}");
                let log = switch.log();
                log.contains("gatun: controller 127.0.0.1:") && log.contains(why)
            });
            assert!(is_written, "{}", switch.log());
        };
        fs::remove_file(of_controller.0.join("certificate.pem")).unwrap();
        refused_in_words(Some(&of_controller.0), "it has no certificate");
        refused_in_words(None, "it does not speak TLS 1.3");
        let log = switch.end();
        assert!(log.contains(" without a certificate, 15 updates"), "{log}");
        assert!(!log.contains(", 0 without a certificate"), "{log}");
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
                [switch(&spec, &["net_null0"]), vec!["--certificates".into(), "/nonexistent".into()]]
                    .concat(),
                "--certificates: /nonexistent/ca.pem: No such file",
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
