//! The program on the kernels that users have: Debian 12's and its newer one boot in a virtual machine, where
//! this test program runs the [exactness tests](crate::exactness_tests) again.

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
const INIT: &str = "#!/bin/busybox sh
b=/bin/busybox
for d in proc sys dev tmp; do $b mkdir -p /$d; done
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
PROPTEST_CASES=4 /bin/tests exactness_tests:: >/dev/ttyS1 2>&1
$b echo \"status $?\" >/dev/ttyS1
$b poweroff -f
";

fn kernel(series: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernels").join(series).join("vmlinuz")
}

fn refusal(series: &str) -> Option<String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some("the guest is an x86-64".to_owned());
    }
    let programs = [
        (QEMU, "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("objcopy", "binutils"),
        ("ldd", "libc-bin"),
    ];
    gatun_testkit::missing(&programs).or_else(|| {
        let kernel = kernel(series);
        (!kernel.exists()).then(|| format!("there is no {} (scripts/setup)", kernel.display()))
    })
}

/// The files of the machine: this program, its libraries, busybox.
fn files(folder: &Path) -> Vec<u8> {
    let program = std::env::current_exe().unwrap();
    let stripped = folder.join("tests");
    gatun_testkit::run(Command::new("objcopy").arg("--strip-debug").arg(&program).arg(&stripped)).unwrap();
    let busybox = find_program("busybox").unwrap();
    let mut archive = Archive::default();
    archive.add("init", INIT.as_bytes());
    archive.add("bin/tests", &std::fs::read(stripped).unwrap());
    archive.add("bin/busybox", &std::fs::read(&busybox).unwrap());
    let libraries: BTreeSet<String> =
        [&program, &busybox].into_iter().flat_map(|p| archive::libraries(p)).collect();
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
    std::fs::write(&initramfs, files(&folder)).unwrap();
    let mut qemu = Command::new(QEMU);
    qemu.args("-accel tcg -cpu max -m 512 -smp 2 -display none -no-reboot -nodefaults".split(' '));
    for port in [&console, &report] {
        qemu.arg("-serial").arg(format!("file:{}", port.display()));
    }
    qemu.arg("-kernel").arg(kernel(series)).arg("-initrd").arg(&initramfs);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1"]).stdin(Stdio::null());
    let ended = Process::start(&mut qemu).unwrap().wait(Duration::from_secs(300));
    let [console, report] = [console, report]
        .map(|port| String::from_utf8_lossy(&std::fs::read(port).unwrap_or_default()).replace('\r', ""));
    std::fs::remove_dir_all(&folder).unwrap();
    println!("Linux {series}: {ended:?}\n{report}");
    let random = "random_packets_become_the_bytes_of_the_engine_or_stay_as_they_are ... ok";
    assert!(report.ends_with("\nstatus 0\n") && report.contains(random), "Linux {series}: {console}");
}

#[test]
fn linux_6_1_loads_the_program_and_it_is_exact() {
    check("6.1");
}

#[test]
fn linux_6_12_does_so_too() {
    check("6.12");
}
