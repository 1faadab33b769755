//! The daemon on Debian's kernels: Debian 12's own kernel and a newer one boot in a virtual machine (qemu,
//! without KVM). `guest.sh` is the first process, tests the daemon step by step, and reports `ok STEP` or
//! `FAILED STEP reason`.
//!
//! The guest has to report each expected step exactly once, as ok, and no other step. `make test-kernels`
//! runs all groups with the release binary: `GATUN_KERNELS=full`, and the path of the binary in
//! `GATUN_KERNELS_PROGRAM`.

use gatun_testkit::{Initramfs, MachineEnd, VirtualMachine, find_program, missing};
use std::collections::BTreeSet;
use std::path::PathBuf;
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
const FASTPATH_VIRTIO: Group = Group {
    name: "fastpath_virtio",
    steps: &[
        "network",
        "starts",
        "is attached",
        "names a refusal",
        "translates",
        "accounts",
        "returns the cards",
    ],
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
        groups: &[TUN, FASTPATH, FASTPATH_VIRTIO, NATIVE, LIMIT],
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
        groups: &[TUN, FASTPATH, FASTPATH_VIRTIO, QUEUES],
        further: &[TUN_QUEUES, NATIVE, SKB, AMBIENT, VIRTIO],
    }
    .check();
}

#[test]
fn without_ipv6_the_daemon_and_doctor_report_it_and_nat44_works() {
    let words = "ipv6.disable=1";
    Machine { series: "6.1", processor: NEWEST, words, groups: &[IPV6_OFF], further: &[] }.check();
}

/// Two cards with a cable between them, and a third one. The XDP program sees no partial checksums
/// (docs/how-to/xdp.md).
fn cards() -> impl Iterator<Item = String> {
    const OFF: &str =
        "guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,mrg_rxbuf=off";
    (0..3).flat_map(|card| {
        let device = format!("virtio-net-pci,netdev=port{card},mac=02:00:00:00:00:0{card},{OFF}");
        let cable = format!("hubport,id=port{card},hubid={}", card / 2);
        ["-netdev".to_owned(), cable, "-device".to_owned(), device]
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

impl Machine {
    /// Boots the machine and compares its report with the expected steps.
    fn check(&self) {
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
        let machine = self.machine(&names.join(","));
        if let Some(why) =
            machine.refusal().or_else(|| missing(&[("setpriv", "util-linux"), ("ethtool", "ethtool")]))
        {
            return gatun_testkit::skip(&format!("Linux {}: {why}", self.series));
        }
        let MachineEnd { report, console } = machine.run(files());
        println!("Linux {}: {} steps\n{report}", self.series, expected.len());
        let lines: Vec<&str> = report.lines().collect();
        let failed: Vec<&&str> =
            lines.iter().filter(|line| !line.starts_with("ok ") && **line != "end").collect();
        assert!(failed.is_empty(), "Linux {}: {failed:#?}\n{console}", self.series);
        let wanted: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
        let missing: Vec<&&str> = wanted.iter().filter(|step| !lines.contains(step)).collect();
        assert!(missing.is_empty(), "Linux {}: not reported: {missing:#?}\n{console}", self.series);
        assert_eq!(lines, expected, "Linux {}: reported twice, or not expected", self.series);
    }

    fn machine(&self, groups: &str) -> VirtualMachine {
        VirtualMachine {
            series: self.series,
            processor: self.processor,
            words: format!("{} gatun.steps={groups}", self.words),
            devices: if groups.contains(VIRTIO.name) { cards().collect() } else { Vec::new() },
            limit: Duration::from_secs(if is_full() { 900 } else { 420 }),
        }
    }
}

/// Files of all machines.
fn files() -> Initramfs {
    let mut files = Initramfs::new(include_bytes!("guest.sh"));
    files.add_program("bin/gatun", &program());
    files.add_program("bin/busybox", &find_program("busybox").unwrap());
    files.add_program("sbin/ip", &find_program("ip").unwrap());
    files.add_program("sbin/ethtool", &find_program("ethtool").unwrap());
    files.add_program("sbin/setpriv", &find_program("setpriv").unwrap());
    files
}
