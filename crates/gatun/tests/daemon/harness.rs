//! Daemon in the lab's network, and small programs that communicate through it.

use gatun_testkit::{Namespace, Process, Topology, topology};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program. Scripts that measure name a release build.
pub(crate) fn program() -> String {
    std::env::var("GATUN_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_gatun").to_owned())
}

/// Runs `body` in its own sandbox. `test` is the test's full name.
pub(crate) fn in_lab(test: &str, body: fn()) {
    in_lab_with(test, || None, body);
}

/// Like `in_lab`; `missing` returns a reason why the test cannot run.
pub(crate) fn in_lab_with(test: &str, missing: fn() -> Option<String>, body: fn()) {
    gatun_testkit::run_test(test, || gatun_testkit::refusal().or_else(missing), body);
}

/// True if there are other users than root: a user namespace of one user has none.
pub(crate) fn has_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    map.split_whitespace().nth(2) != Some("1")
}

pub(crate) const SIIT: &str = r#"
[translator]
own4 = "192.0.2.14"
own6 = "2001:db8:ffff::1"
[[siit]]
pool6 = "2001:db8:64::/96"
eam = [{ v4 = "192.0.2.1", v6 = "2001:db8:1::2" }]
"#;

pub(crate) const NAT64: &str = r#"
[[pool]]
prefixes = "192.0.2.1"
[[nat64]]
name = "lab"
pool6 = "2001:db8:64::/96"
static = [{ protocol = "tcp", inside = "[2001:db8:1::2]:5002", outside = "192.0.2.1:5002" }]
"#;

/// Port with a created device, named as the tests expect.
pub(crate) const CREATE: &str = "[[port]]\ndevice = \"nat64\"\n";

/// Running `gatun run` with its output in files.
pub(crate) struct Daemon {
    pub(crate) process: Process,
    dir: PathBuf,
}

/// Exit status and output of an ended daemon.
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Daemon {
    /// Starts it in the translator's namespace and waits until it translates.
    pub(crate) fn start(network: &Topology, config: &str) -> Daemon {
        Daemon::start_in(&network.translator, config)
    }

    /// The same in any namespace.
    pub(crate) fn start_in(host: &Namespace, config: &str) -> Daemon {
        Daemon::start_by(host.command(program()), config, &[])
    }

    /// The same by a command, to which the arguments are added.
    pub(crate) fn start_by(command: Command, config: &str, flags: &[&str]) -> Daemon {
        let mut daemon = Daemon::spawn_by(command, config, flags, (None, None));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !daemon.stderr().contains("translating with") {
            assert!(daemon.process.ended().is_none(), "gatun ended: {}", daemon.stderr());
            assert!(Instant::now() < deadline, "gatun is not up: {}", daemon.stderr());
            std::thread::sleep(Duration::from_millis(2));
        }
        daemon
    }

    pub(crate) fn spawn(network: &Topology, config: &str, flags: &[&str]) -> Daemon {
        Daemon::spawn_to(network, config, flags, None, None)
    }

    /// Starts it with the given streams, without waiting. Other streams go to files.
    pub(crate) fn spawn_to(
        network: &Topology,
        config: &str,
        flags: &[&str],
        out: Option<Stdio>,
        err: Option<Stdio>,
    ) -> Daemon {
        Daemon::spawn_in(network, config, flags, (out, err), &[])
    }

    /// Like [`Daemon::spawn_to`], with further environment variables.
    pub(crate) fn spawn_in(
        network: &Topology,
        config: &str,
        flags: &[&str],
        (out, err): (Option<Stdio>, Option<Stdio>),
        environment: &[(&str, &str)],
    ) -> Daemon {
        let mut command = network.translator.command(program());
        command.envs(environment.iter().copied());
        Daemon::spawn_by(command, config, flags, (out, err))
    }

    /// Like [`Daemon::spawn`], started by a wrapper program.
    pub(crate) fn spawn_under(network: &Topology, wrapper: &[&str], config: &str) -> Daemon {
        let mut command = network.translator.command(wrapper[0]);
        command.args(&wrapper[1..]).arg(program());
        Daemon::spawn_by(command, config, &[], (None, None))
    }

    fn spawn_by(
        mut command: Command,
        config: &str,
        flags: &[&str],
        (out, err): (Option<Stdio>, Option<Stdio>),
    ) -> Daemon {
        // The sandbox has its own /run.
        let dir = PathBuf::from(format!("/run/gatun-{:x}", Instant::now().elapsed().as_nanos() ^ rand()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("gatun.toml");
        fs::write(&file, config).unwrap();
        let [out_file, err_file] = ["out", "err"].map(|name| fs::File::create(dir.join(name)).unwrap());
        command.arg("run").arg(&file).args(flags);
        command.stdout(out.unwrap_or(out_file.into())).stderr(err.unwrap_or(err_file.into()));
        Daemon { process: Process::start(&mut command).unwrap(), dir }
    }

    /// Writes another configuration and reloads it. Waits for `answer` in the log, and returns the log since
    /// the reload.
    pub(crate) fn reload(&self, config: &str, answer: &str) -> String {
        let before = self.stderr().len();
        fs::write(self.dir.join("gatun.toml"), config).unwrap();
        self.process.signal(Signal::HUP).unwrap();
        self.says_from(before, answer)
    }

    /// Waits until it has logged `text`, and returns the whole log.
    pub(crate) fn says(&self, text: &str) -> String {
        self.says_from(0, text)
    }

    fn says_from(&self, before: usize, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let said = self.stderr()[before..].to_owned();
            if said.contains(text) {
                return said;
            }
            assert!(Instant::now() < deadline, "no '{text}' in {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Configuration file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("gatun.toml")
    }

    pub(crate) fn stdout(&self) -> String {
        for_people(fs::read_to_string(self.dir.join("out")).unwrap())
    }

    pub(crate) fn stderr(&self) -> String {
        for_people(fs::read_to_string(self.dir.join("err")).unwrap())
    }

    /// Waits for a daemon that ends by itself.
    pub(crate) fn wait(mut self) -> Ended {
        let status = self.process.wait(Duration::from_secs(10)).unwrap();
        Ended { success: status.success(), stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Stops it by a signal and checks that it ends cleanly.
    pub(crate) fn stop(self, signal: Signal) -> Ended {
        self.process.signal(signal).unwrap();
        let ended = self.wait();
        assert!(ended.success, "{}", ended.stderr);
        assert!(ended.stdout.contains("every packet received is accounted for"), "{}", ended.stdout);
        ended
    }
}

/// Runs a command of `gatun` with these arguments.
pub(crate) fn gatun<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = Command::new(program());
    gatun_testkit::output(command.args(arguments).stdin(Stdio::null())).unwrap()
}

/// The text, which is written for people.
fn for_people(text: String) -> String {
    let fault = gatun_testkit::unreadable(&text);
    assert!(fault.is_none(), "{}", fault.unwrap_or_default());
    text
}

fn rand() -> u128 {
    use std::hash::{BuildHasher, RandomState};
    u128::from(RandomState::new().hash_one(0))
}

/// Number in a row of a counter table.
pub(crate) fn counter(table: &str, row: &str) -> u64 {
    let line = table.lines().find(|l| l.contains(row)).unwrap_or_else(|| panic!("no row '{row}' in {table}"));
    let cell = line.split(['│', '┆', '|']).map(str::trim).skip_while(|c| !c.contains(row)).nth(1).unwrap();
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("'{cell}' in row '{row}'"))
}

/// Line of /proc/PID/status.
pub(crate) fn status_line(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

/// Sends 20 MB through a TCP connection from one host to another and compares the hashes at both ends.
pub(crate) fn tcp_copy(
    from: &gatun_testkit::Namespace,
    to: &gatun_testkit::Namespace,
    listen: &str,
    connect: &str,
) {
    let received = format!("/run/received-{:x}", rand());
    let sent = format!("/run/sent-{:x}", rand());
    gatun_testkit::run(Command::new("sh").args(["-c", &format!("head -c 20000000 /dev/urandom > {sent}")]))
        .unwrap();
    let mut server =
        Process::start(to.command("socat").args(["-u", listen, &format!("CREATE:{received}")])).unwrap();
    wait_for_listener(to, listen);
    gatun_testkit::run(from.command("timeout").args(["20", "socat", "-u", &format!("OPEN:{sent}"), connect]))
        .unwrap();
    assert!(server.wait(Duration::from_secs(10)).unwrap().success());
    assert_eq!(hash(&sent), hash(&received), "the content changed on its way");
}

fn hash(file: &str) -> String {
    let text = gatun_testkit::run(Command::new("sha256sum").arg(file)).unwrap();
    text.split_whitespace().next().unwrap().to_owned()
}

fn wait_for_listener(host: &gatun_testkit::Namespace, listen: &str) {
    let port = listen.split([':', ',']).nth(1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !host.run("ss -Hltn").unwrap().contains(&format!(":{port} ")) {
        assert!(Instant::now() < deadline, "nobody listens on {port}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program without its output; true if it succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Pings a host; true if `ping` succeeds.
pub(crate) fn ping(from: &gatun_testkit::Namespace, count: u32, target: &str, flags: &str) -> bool {
    let line = format!("-c {count} -i 0.01 -W 2 -q {flags} {target}");
    succeeds(from.command("ping").args(line.split_whitespace()))
}

pub(crate) fn network() -> Topology {
    let network = Topology::new().unwrap();
    network.client.run(&format!("ping -c 1 -W 2 {}", "2001:db8:1::1")).unwrap();
    assert_eq!(topology::SERVER, "2001:db8:64::c633:6402");
    network
}
