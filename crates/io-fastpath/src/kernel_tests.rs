//! The program on the kernels that users have: Debian 12's and its newer one boot in a virtual machine, where
//! this test program runs the [exactness tests](crate::exactness_tests) and the
//! [test over links](crate::link_tests) again.

#[path = "../../gatun/tests/kernels/archive.rs"]
mod archive;

use archive::Archive;
use gatun_testkit::{Process, find_program};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const QEMU: &str = "qemu-system-x86_64";

/// First process of the machine. The second serial port is for what the tests write.
/// Modules depend on others, so they are loaded in several rounds.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /sbin
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for round in 1 2 3 4; do for module in /modules/*; do insmod $module 2>/dev/null; done; done
PROPTEST_CASES=4 tests exactness_tests:: --skip tests::wire:: --skip tests::nat >/dev/ttyS1 2>&1
echo \"status $?\" >/dev/ttyS1
export GATUN_LAB=guest GATUN_CLIENT_LINK=vlan-on-bond
tests --test-threads=1 --nocapture link_tests:: >/dev/ttyS1 2>&1
echo \"status of links $?\" >/dev/ttyS1
poweroff -f
";

fn kernel(series: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels").join(series)
}

fn refusal(series: &str) -> Option<String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some("the guest is an x86-64".to_owned());
    }
    let programs = [
        (QEMU, "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("ip", "iproute2"),
        ("objcopy", "binutils"),
        ("ldd", "libc-bin"),
    ];
    gatun_testkit::missing(&programs).or_else(|| {
        let kernel = kernel(series).join("vmlinuz");
        (!kernel.exists()).then(|| format!("there is no {} (scripts/setup)", kernel.display()))
    })
}

/// The files of the machine: this program, busybox, `ip`, their libraries, modules of the kernel.
fn files(folder: &Path, series: &str) -> Vec<u8> {
    let program = std::env::current_exe().unwrap();
    let stripped = folder.join("tests");
    gatun_testkit::run(Command::new("objcopy").arg("--strip-debug").arg(&program).arg(&stripped)).unwrap();
    let [busybox, ip] = ["busybox", "ip"].map(|name| find_program(name).unwrap());
    let mut archive = Archive::default();
    archive.add("init", INIT.as_bytes());
    archive.add("bin/tests", &std::fs::read(stripped).unwrap());
    archive.add("bin/busybox", &std::fs::read(&busybox).unwrap());
    archive.add("sbin/ip", &std::fs::read(&ip).unwrap());
    for module in std::fs::read_dir(kernel(series).join("modules")).unwrap().map(Result::unwrap) {
        let name = module.file_name().into_string().unwrap();
        archive.add(&format!("modules/{name}"), &std::fs::read(module.path()).unwrap());
    }
    let libraries: BTreeSet<String> =
        [&program, &busybox, &ip].into_iter().flat_map(|p| archive::libraries(p)).collect();
    for library in libraries {
        archive.add(library.trim_start_matches('/'), &std::fs::read(&library).unwrap());
    }
    archive.finish()
}

fn check(series: &str) {
    if let Some(why) = refusal(series) {
        return gatun_testkit::skip(&format!("Linux {series}: {why}"));
    }
    let folder = std::env::temp_dir().join(format!("gatun-fastpath-{series}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [initramfs, console, report] = ["initramfs", "console", "report"].map(|name| folder.join(name));
    std::fs::write(&initramfs, files(&folder, series)).unwrap();
    let mut qemu = Command::new(QEMU);
    qemu.args("-accel tcg -cpu max -m 512 -smp 2 -display none -no-reboot -nodefaults".split(' '));
    for port in [&console, &report] {
        qemu.arg("-serial").arg(format!("file:{}", port.display()));
    }
    qemu.arg("-kernel").arg(kernel(series).join("vmlinuz")).arg("-initrd").arg(&initramfs);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]).stdin(Stdio::null());
    let ended = Process::start(&mut qemu).unwrap().wait(Duration::from_secs(600));
    let [console, report] = [console, report]
        .map(|port| String::from_utf8_lossy(&std::fs::read(port).unwrap_or_default()).replace('\r', ""));
    std::fs::remove_dir_all(&folder).unwrap();
    println!("Linux {series}: {ended:?}\n{report}");
    let random = "random_packets_become_the_bytes_of_the_engine_or_stay_as_they_are ... ok";
    assert!(report.contains("\nstatus 0\n") && report.contains(random), "Linux {series}: {console}");
    let over_links = report.contains("VlanOnBond, ") && report.ends_with("\nstatus of links 0\n");
    assert!(over_links, "Linux {series}: {console}");
}

#[test]
fn linux_6_1_loads_the_program_and_it_is_exact() {
    check("6.1");
}

#[test]
fn linux_6_12_does_so_too() {
    check("6.12");
}
