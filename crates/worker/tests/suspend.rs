//! The clock of the workers while the host is suspended. A program with one thread: others must not enter
//! another namespace of time.

use gatun_testkit::{Process, refusal_but_to_root, skip, wait_until};
use gatun_worker::Clock;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{File, read_to_string};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

const TEST: &str = "the_clock_counts_the_time_of_a_suspension";
/// Length of the sleep, s.
const SLEEP_S: u64 = 3_600;

fn main() {
    match refusal_but_to_root("another namespace of time") {
        Some(why) => skip(&why),
        None => the_clock_counts_the_time_of_a_suspension(),
    }
    println!("test {TEST} ... ok");
    // As libtest does it, for scripts/record-tests.
    let words: Vec<String> = std::env::args().collect();
    if let Some(place) = words.iter().position(|word| word == "--logfile") {
        std::fs::write(&words[place + 1], format!("ok {TEST}\n")).unwrap();
    }
}

fn the_clock_counts_the_time_of_a_suspension() {
    // In this namespace, the clocks are those of a host that was suspended for an hour: CLOCK_BOOTTIME has
    // gone on, and CLOCK_MONOTONIC has not.
    let slept = SLEEP_S.to_string();
    let mut command = Command::new("unshare");
    let later = Process::start(command.args(["--time", "--boottime", &slept, "sleep", "600"])).unwrap();
    let of = |file: &str| format!("/proc/{}/{file}", later.id());
    let is_there = || read_to_string(of("comm")).is_ok_and(|name| name.trim() == "sleep");
    wait_until("the namespace is there", Duration::from_secs(10), is_there).unwrap();
    let namespace = File::open(of("ns/time_for_children")).unwrap();

    let (clock, steady) = (Clock::new(), Instant::now());
    assert!(clock.now().0 < SLEEP_S * 1_000 / 2);
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Time)).unwrap();
    let (now_ms, passed) = (clock.now().0, steady.elapsed());
    assert!(passed < Duration::from_secs(SLEEP_S / 2), "the steady clock has jumped: {passed:?}");
    assert!(now_ms >= SLEEP_S * 1_000, "{now_ms} ms after a sleep of {SLEEP_S} s");
}
