//! Processor affinity of the daemon's threads.

use crate::harness::{CREATE, Daemon, SIIT, in_lab, network, ping};
use gatun_testkit::topology::SERVER;
use rustix::process::Signal;
use std::fs;

/// Processors that this process may use.
pub(crate) fn mine() -> Vec<usize> {
    allowed(&fs::read_to_string("/proc/self/status").unwrap())
}

fn allowed(status: &str) -> Vec<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().unwrap()..=last.parse().unwrap()
    };
    line.trim().split(',').flat_map(range).collect()
}

/// Allowed processors of the daemon's workers, by number, and of its other threads.
fn of(daemon: &Daemon) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.process.id())).unwrap();
    let (mut workers, mut others) = (Vec::new(), Vec::new());
    for task in tasks {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap();
        let may = allowed(&fs::read_to_string(task.join("status")).unwrap());
        match name.trim().strip_prefix("worker-") {
            Some(number) => workers.push((number.parse::<usize>().unwrap(), may)),
            None => others.push(may),
        }
    }
    workers.sort();
    (workers.into_iter().map(|worker| worker.1).collect(), others)
}

/// Checks that one worker has a processor that no other thread may use.
pub(crate) fn assert_alone(daemon: &Daemon) {
    let (workers, others) = of(daemon);
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    let [own] = worker[..] else { panic!("{workers:?}") };
    assert!(others.len() > 3 && !others.iter().any(|may| may.contains(&own)), "{own}, {others:?}");
}

/// True if there is a processor for a worker and another for the rest; otherwise the test is skipped.
pub(crate) fn are_several() -> bool {
    let several = mine().len() > 1;
    if !several {
        gatun_testkit::skip("it needs two processors, and there is one");
    }
    several
}

#[test]
fn workers_use_the_configured_processors_and_other_threads_the_rest() {
    in_lab("processors::workers_use_the_configured_processors_and_other_threads_the_rest", || {
        if !are_several() {
            return;
        }
        let net = network();
        let (first, last) = (mine()[0], *mine().last().unwrap());
        let named = |cores: &str| format!("{CREATE}{SIIT}[workers]\ncores = {cores}\n");

        let daemon = Daemon::start(&net, &named(&format!("[{first}]")));
        assert!(ping(&net.client, 1, SERVER, ""));
        assert_alone(&daemon);
        assert_eq!(of(&daemon).0, [[first]]);
        daemon.reload(&named(&format!("[{last}]")), "needs a restart; nothing has changed");
        daemon.stop(Signal::TERM);

        // By default, there is one worker per configured processor, in order.
        let daemon = Daemon::start(&net, &named(&format!("[{last}, {first}]")));
        assert!(ping(&net.client, 1, SERVER, ""));
        assert_eq!(of(&daemon).0, [[last], [first]]);
        daemon.stop(Signal::TERM);

        // Without configured processors, the kernel chooses.
        let daemon = Daemon::start(&net, &format!("{CREATE}{SIIT}"));
        assert!(of(&daemon).0.iter().chain(&of(&daemon).1).all(|may| *may == mine()));
        daemon.stop(Signal::TERM);
    });
}

#[test]
fn a_missing_processor_stops_the_daemon_with_a_correction() {
    in_lab("processors::a_missing_processor_stops_the_daemon_with_a_correction", || {
        let net = network();
        let config = format!("{CREATE}{SIIT}[workers]\ncores = [1023]\n");
        let ended = Daemon::spawn(&net, &config, &[]).wait();
        assert!(!ended.success);
        assert!(ended.stderr.contains("processor 1023 is not available"), "{}", ended.stderr);
        assert!(net.translator.run("ip link show nat64").is_err(), "the device exists despite the error");
    });
}
