//! The program on the kernels that users have: Debian 12's and its newer one boot in a virtual machine, where
//! this test program runs the [exactness tests](crate::exactness_tests) and the
//! [test over links](crate::link_tests) again.

use gatun_testkit::{Initramfs, MachineEnd, VirtualMachine, find_program};
use std::time::Duration;

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
unshare -n -m sh -c 'mount -t tmpfs run /run
exec tests --nocapture that_devices_have_joined_as_lists' >/dev/ttyS1 2>&1
echo \"status of lists $?\" >/dev/ttyS1
tests --nocapture over_the_links_that_hosts_have >/dev/ttyS1 2>&1
echo \"status of links $?\" >/dev/ttyS1
poweroff -f
";

fn check(series: &'static str) {
    let words = "no_timer_check".to_owned();
    let (devices, limit) = (Vec::new(), Duration::from_secs(600));
    let machine = VirtualMachine { series, processor: "max", words, devices, limit };
    if let Some(why) = machine.refusal() {
        return gatun_testkit::skip(&format!("Linux {series}: {why}"));
    }
    let mut files = Initramfs::new(INIT.as_bytes());
    files.add_program("bin/tests", &std::env::current_exe().unwrap());
    files.add_program("bin/busybox", &find_program("busybox").unwrap());
    files.add_program("sbin/ip", &find_program("ip").unwrap());
    files.add_program("sbin/ethtool", &find_program("ethtool").unwrap());
    let MachineEnd { report, console } = machine.run(files);
    println!("Linux {series}:\n{report}");
    let random = "random_packets_become_the_bytes_of_the_engine_or_stay_as_they_are ... ok";
    assert!(report.contains("\nstatus 0\n") && report.contains(random), "Linux {series}: {console}");
    assert!(report.contains("\nstatus of lists 0\n"), "Linux {series}: {console}");
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
