//! The daemon on Debian's kernels: Debian 12's own kernel and a newer one boot in a virtual machine (qemu,
//! without KVM). `guest.sh` is the first process and tests the daemon step by step.
//!
//! ```text
//!   target/kernels/SERIES/{vmlinuz,modules/}   by scripts/setup, out of Debian's packages
//!   archive.rs    the guest's files: guest.sh, gatun, busybox, iproute2, their libraries, the kernel's modules
//!   guest.sh      `ok STEP` or `FAILED STEP reason` on the second serial port
//! ```
//! The guest has to report each expected step exactly once, as ok, and no other step. `make test-kernels`
//! runs all groups with the release binary: `GATUN_KERNELS=full`, and the path of the binary in
//! `GATUN_KERNELS_PROGRAM`.

mod archive;

use archive::Archive;
use gatun_testkit::Process;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Group of steps: `steps_NAME` in guest.sh.
struct Group {
    name: &'static str,
    steps: &'static [&'static str],
}

const TUN: Group = Group {
    name: "tun",
    steps: &[
        "starts",
        "steers",
        "nat64",
        "siit",
        "nat44",
        "sandbox",
        "reload",
        "kill -9",
        "starts again",
        "goes on with its sessions",
        "nat64 again",
        "accounts",
    ],
};
const TUN_QUEUES: Group = Group {
    name: "tun_queues",
    steps: &["starts", "has two workers", "steers", "nat64", "nat44", "accounts"],
};
const FASTPATH: Group = Group {
    name: "fastpath",
    steps: &[
        "starts",
        "is attached",
        "steers",
        "translates",
        "doctor",
        "nat44",
        "clock",
        "kill -9",
        "starts again",
        "translates again",
        "detached",
        "accounts",
    ],
};
const NATIVE: Group = Group {
    name: "native",
    steps: &[
        "starts",
        "runs in its mode",
        "nat64",
        "siit",
        "nat44",
        "rights",
        "reload",
        "kill -9",
        "leaves no program",
        "starts again",
        "nat64 again",
        "accounts",
    ],
};
const SKB: Group = Group {
    name: "skb",
    steps: &["starts", "runs in its mode", "nat64", "siit", "nat44", "rights", "accounts"],
};
const QUEUES: Group = Group {
    name: "queues",
    steps: &["starts", "runs in its mode", "nat64", "siit", "nat44", "rights", "has two workers", "accounts"],
};
const VIRTIO: Group = Group {
    name: "virtio",
    steps: &["network", "starts", "runs in its mode", "nat64", "siit", "nat44", "rights", "accounts"],
};
const AMBIENT: Group = Group { name: "ambient", steps: SKB.steps };
const LIMIT: Group =
    Group { name: "limit", steps: &["group", "refuses", "starts with what fits", "nat64", "accounts"] };
const IPV6_OFF: Group = Group {
    name: "ipv6_off",
    steps: &["run", "doctor", "nat44 starts", "nat44 steers", "nat44 carries", "nat44 accounts"],
};

/// Virtual machine.
struct Machine {
    /// `target/kernels/SERIES`.
    series: &'static str,
    /// Processor model of qemu.
    processor: &'static str,
    /// Further parameters of the kernel's command line.
    words: &'static str,
    groups: &'static [Group],
    /// Groups of the long form only (`GATUN_KERNELS=full`).
    further: &'static [Group],
}

/// Processor with all features of qemu.
const NEWEST: &str = "max";
/// Processor without SSE4 and later features.
const OLD: &str = "Conroe";

#[test]
fn linux_6_1_carries_traffic_through_tun_and_af_xdp_under_the_rights_that_the_daemon_keeps() {
    Machine {
        series: "6.1",
        processor: NEWEST,
        words: "",
        groups: &[TUN, FASTPATH, NATIVE, LIMIT],
        further: &[TUN_QUEUES, SKB, QUEUES, AMBIENT, VIRTIO],
    }
    .check();
}

#[test]
fn linux_6_12_does_so_on_an_old_processor() {
    Machine {
        series: "6.12",
        processor: OLD,
        words: "",
        groups: &[TUN, FASTPATH, QUEUES],
        further: &[TUN_QUEUES, NATIVE, SKB, AMBIENT, VIRTIO],
    }
    .check();
}

#[test]
fn without_ipv6_the_daemon_and_doctor_report_it_and_nat44_works() {
    let words = "ipv6.disable=1";
    Machine { series: "6.1", processor: NEWEST, words, groups: &[IPV6_OFF], further: &[] }.check();
}

/// Two cards with a cable between them. The XDP program sees no partial checksums (docs/how-to/xdp.md).
fn cards() -> impl Iterator<Item = String> {
    const OFF: &str =
        "guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,mrg_rxbuf=off";
    (0..2).flat_map(|card| {
        let device = format!("virtio-net-pci,netdev=port{card},mac=02:00:00:00:00:0{card},{OFF}");
        ["-netdev".to_owned(), format!("hubport,id=port{card},hubid=0"), "-device".to_owned(), device]
    })
}

fn is_full() -> bool {
    std::env::var_os("GATUN_KERNELS").is_some_and(|value| value == "full")
}

/// Binary under test.
fn program() -> PathBuf {
    std::env::var_os("GATUN_KERNELS_PROGRAM")
        .map_or_else(|| env!("CARGO_BIN_EXE_gatun").into(), PathBuf::from)
}

/// Path of a command, also in the system directories.
fn find(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|directory| directory.join(command)).find(|p| p.exists())
}

const QEMU: &str = "qemu-system-x86_64";

impl Machine {
    /// Reason why the test cannot run on this host.
    fn refusal(&self) -> Option<String> {
        if cfg!(not(target_arch = "x86_64")) {
            return Some("the guest is an x86-64".to_owned());
        }
        let commands = [QEMU, "busybox", "ip", "setpriv", "objcopy", "ldd"];
        if let Some(missing) = commands.into_iter().find(|command| find(command).is_none()) {
            return Some(format!("there is no {missing} (scripts/setup)"));
        }
        let kernel = self.kernel().join("vmlinuz");
        (!kernel.exists()).then(|| format!("there is no {} (scripts/setup)", kernel.display()))
    }

    fn kernel(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels").join(self.series)
    }

    /// Boots the machine and compares its report with the expected steps.
    fn check(&self) {
        if let Some(why) = self.refusal() {
            return gatun_testkit::skip(&format!("Linux {}: {why}", self.series));
        }
        let further = if is_full() { self.further } else { &[] };
        let groups: Vec<&Group> = self.groups.iter().chain(further).collect();
        let mut expected: Vec<String> = vec!["ok kernel modules".to_owned(), "ok kernel hosts".to_owned()];
        expected.extend(
            groups
                .iter()
                .flat_map(|group| group.steps.iter().map(|step| format!("ok {} {step}", group.name))),
        );
        expected.push("end".to_owned());
        let names: Vec<&str> = groups.iter().map(|group| group.name).collect();
        let (reported, console) = self.boot(&names.join(","));
        println!("Linux {}: {} steps\n{reported}", self.series, expected.len());
        let lines: Vec<&str> = reported.lines().collect();
        let failed: Vec<&&str> =
            lines.iter().filter(|line| !line.starts_with("ok ") && **line != "end").collect();
        assert!(failed.is_empty(), "Linux {}: {failed:#?}\n{console}", self.series);
        let wanted: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
        let missing: Vec<&&str> = wanted.iter().filter(|step| !lines.contains(step)).collect();
        assert!(missing.is_empty(), "Linux {}: not reported: {missing:#?}\n{console}", self.series);
        assert_eq!(lines, expected, "Linux {}: reported twice, or not expected", self.series);
    }

    /// Boots the machine; returns its report and the end of the kernel's messages.
    fn boot(&self, groups: &str) -> (String, String) {
        // In memory, if there is room: the guest's files are read once.
        let directory = std::env::temp_dir().join(format!("gatun-kernels-{}-{groups}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [files, console, report] = ["initramfs", "console", "report"].map(|name| directory.join(name));
        fs::write(&files, self.files(&directory)).unwrap();
        let mut qemu = Command::new(QEMU);
        qemu.args("-accel tcg -m 512 -smp 2 -display none -no-reboot -nodefaults".split(' '));
        qemu.args(["-cpu", self.processor, "-serial"]).arg(format!("file:{}", console.display()));
        qemu.arg("-serial").arg(format!("file:{}", report.display()));
        if groups.contains(VIRTIO.name) {
            qemu.args(cards());
        }
        qemu.arg("-kernel").arg(self.kernel().join("vmlinuz")).arg("-initrd").arg(&files);
        let words = format!("console=ttyS0 quiet panic=-1 {} gatun.steps={groups}", self.words);
        qemu.args(["-append", &words]).stdin(Stdio::null());
        let mut process = Process::start(&mut qemu).unwrap();
        let ended = process.wait(Duration::from_secs(if is_full() { 900 } else { 420 }));
        let text =
            |file: &Path| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).replace('\r', "");
        let (report, console) = (text(&report), text(&console));
        fs::remove_dir_all(&directory).unwrap();
        let console = format!(
            "qemu: {ended:?}; its console:\n{}",
            console.lines().rev().take(30).collect::<Vec<_>>().join("\n")
        );
        (report, console)
    }

    /// Archive of the guest's files.
    fn files(&self, directory: &Path) -> Vec<u8> {
        let mut archive = Archive::default();
        archive.add("init", include_bytes!("guest.sh"));
        // Debug symbols are two thirds of the file.
        let gatun = directory.join("gatun");
        gatun_testkit::run(Command::new("objcopy").arg("--strip-debug").arg(program()).arg(&gatun)).unwrap();
        archive.add("bin/gatun", &fs::read(gatun).unwrap());
        let programs = ["busybox", "ip", "setpriv"].map(|command| (command, find(command).unwrap()));
        for (name, file) in &programs {
            let place = if *name == "busybox" { "bin" } else { "sbin" };
            archive.add(&format!("{place}/{name}"), &fs::read(file).unwrap());
        }
        let mut libraries = BTreeSet::new();
        for file in programs.iter().map(|(_, file)| file).chain([&program()]) {
            libraries.extend(archive::libraries(file));
        }
        for library in libraries {
            archive.add(library.trim_start_matches('/'), &fs::read(&library).unwrap());
        }
        let modules = fs::read_dir(self.kernel().join("modules")).unwrap();
        for module in modules.map(Result::unwrap) {
            let name = module.file_name().into_string().unwrap();
            archive.add(&format!("modules/{name}"), &fs::read(module.path()).unwrap());
        }
        archive.finish()
    }
}
