//! The thesis' table of features, filled by what a P4 switch does here: with its controller, and after the
//! controller was killed.

use super::super::iperf::switch::{RunningSwitch, SwitchProgram};
use super::super::iperf::translator::{Lab, route_ethernet, unroute_ethernet};
use super::moves::{self, Moved};
use crate::report::Table;
use gatun_testkit::topology::SERVER;
use gatun_testkit::{Error, Namespace, Process, wait_until};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;

/// Features with their states for BMv2 and for the NetFPGA card in the thesis.
const FEATURES: [(&str, [&str; 2]); 12] = [
    ("Switch to controller", ["full", "portable"]),
    ("Controller to switch", ["full", "portable"]),
    ("NDP", ["full", "portable"]),
    ("ARP", ["full", "portable"]),
    ("ICMP6", ["full", "portable"]),
    ("ICMP", ["full", "portable"]),
    ("NAT64: TCP", ["full", "full"]),
    ("NAT64: UDP", ["full", "full"]),
    ("NAT64: ICMP/ICMP6", ["full", "portable"]),
    ("NAT64: sessions", ["full", "portable"]),
    ("Delta checksum", ["full", "full"]),
    ("Payload checksum", ["full", "unsupported"]),
];

/// Switch's own addresses inside and outside.
const OWN6: &str = "2001:db8:1::64";
const OWN4: &str = "198.51.100.64";
/// Pings of the server, all of one session.
const PINGS: &str = "-6 -e 4242 2001:db8:64::c633:6402";
/// Time limit for sessions to be in the switch, and for a flow to end.
const READY_MAX: Duration = Duration::from_secs(20);
/// Time of the flows before and after the controller is killed.
const PHASE: Duration = Duration::from_secs(3);

/// Echoes datagrams on 7001, datagrams without a checksum on 7002, and TCP on 7003.
const ECHO: &str = "
import socket, threading
def udp(port, unchecked):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('', port))
    if unchecked: s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
    while True:
        data, who = s.recvfrom(2048)
        s.sendto(data, who)
def echo(c):
    while data := c.recv(2048): c.sendall(data)
for port, unchecked in [(7001, False), (7002, True)]:
    threading.Thread(target=udp, args=(port, unchecked), daemon=True).start()
listener = socket.create_server(('', 7003))
while True:
    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
";

/// Sends to the three ports fifty times a second. Prints how many answers came before SIGUSR1, and how many
/// between it and SIGTERM.
const FLOWS: &str = "
import json, select, signal, socket, sys, time
server, phases, goes_on = sys.argv[1], [], True
counts = [0, 0, 0]
def next_phase(*_):
    global counts
    phases.append(counts); counts = [0, 0, 0]
def end(*_):
    global goes_on
    goes_on = False
signal.signal(signal.SIGUSR1, next_phase)
signal.signal(signal.SIGTERM, end)
udp, unchecked = [socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) for _ in range(2)]
udp.connect((server, 7001)); unchecked.connect((server, 7002))
tcp = socket.create_connection((server, 7003), 10)
flows = [tcp, udp, unchecked]
while goes_on:
    for s in flows: s.send(b'a message of the flow')
    until = time.monotonic() + 0.02
    while (left := until - time.monotonic()) > 0:
        for s in select.select(flows, [], [], left)[0]:
            s.recv(2048); counts[flows.index(s)] += 1
next_phase()
print(json.dumps(phases))
";

/// Answers to the features, in their order.
type Answers = [&'static str; FEATURES.len()];

/// A table of the features of these switches, and what became of datagrams while sessions moved into each.
pub(super) fn table(
    programs: &[SwitchProgram],
    lab: &Lab<'_>,
    config: &str,
) -> Result<(Table, Vec<Moved>), Error> {
    let answers = programs.iter().map(|program| answers(*program, lab, config));
    let (answers, moved): (Vec<Answers>, Vec<Moved>) =
        answers.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let fixed = ["feature", "P4/BMV2, 2019", "P4/NetFPGA, 2019"].map(str::to_owned);
    let row = |(at, (feature, published)): (usize, &(&str, [&str; 2]))| {
        let measured = answers.iter().map(|of| of[at]);
        std::iter::once(*feature).chain(*published).chain(measured).map(str::to_owned).collect()
    };
    let table = Table {
        title: "Features".into(),
        header: fixed.into_iter().chain(programs.iter().map(|program| program.name().to_owned())).collect(),
        rows: FEATURES.iter().enumerate().map(row).collect(),
    };
    Ok((table, moved))
}

/// Returns whether a table has every feature.
pub(super) fn has_all(table: &Table) -> bool {
    !table.rows.iter().flatten().any(|cell| cell == NO)
}

const YES: &str = "yes";
const NO: &str = "no";
/// The switch gives the packets to the engine.
const BY_GATUN: &str = "by Gatun";

fn answers(program: SwitchProgram, lab: &Lab<'_>, config: &str) -> Result<(Answers, Moved), Error> {
    let net = lab.net();
    let mut running = RunningSwitch::start(net, lab.programs(), program, config)?;
    route_ethernet(net)?;
    let moved = moves::run(&running, &net.client, &net.server);
    let answers = ask(&mut running, &net.client, &net.server);
    unroute_ethernet(net)?;
    running.stop(net)?;
    Ok((answers?, moved?))
}

fn ask(running: &mut RunningSwitch, client: &Namespace, server: &Namespace) -> Result<Answers, Error> {
    let _echo = Process::start(&mut server.python(ECHO, &[]))?;
    std::thread::sleep(Duration::from_secs(1));
    let flows = Process::start(client.python(FLOWS, &[SERVER]).stdout(Stdio::piped()))?;
    let sessions = || running.offload().ok().and_then(|offload| offload["sessions"].as_u64()).unwrap_or(0);
    let moved = wait_until("sessions in the switch", READY_MAX, || sessions() >= 2);
    std::thread::sleep(PHASE);
    let pings = |host: &Namespace, line: &str| host.run(&format!("ping -c 2 -W 2 {line}")).is_ok();
    let before = sessions();
    // As many as make a session move into the switch.
    let pings_through = pings(client, &format!("-c 20 -i 0.05 {PINGS}"));
    let pings_moved = wait_until("pings in the switch", READY_MAX, || sessions() > before).is_ok();
    let offload = running.offload()?;
    let given = &offload["switches"][0]["to_controller"];
    let given: u64 = given.as_array().into_iter().flatten().filter_map(|of| of["value"].as_u64()).sum();

    running.kill_controller()?;
    flows.signal(Signal::USR1)?;
    client.ip("-6 neigh flush dev eth0")?;
    server.ip("neigh flush dev eth0")?;
    let pings_go_on = pings_moved && pings(client, PINGS);
    let (ping6, ping4) = (pings(client, &format!("-6 {OWN6}")), pings(server, OWN4));
    let knows = |host: &Namespace, line: &str| host.run(line).is_ok_and(|said| said.contains("lladdr"));
    let ndp = knows(client, &format!("ip -6 neigh show {OWN6}"));
    let arp = knows(server, &format!("ip neigh show {OWN4}"));
    std::thread::sleep(PHASE);
    flows.signal(Signal::TERM)?;
    let (_, said) = flows.output(READY_MAX)?;
    let [[_, _, unchecked], [tcp, udp, _]]: [[u64; 3]; 2] =
        serde_json::from_str(&said).map_err(|e| Error(format!("flows of the features: {e}: {said}")))?;
    let yes = |has: bool| if has { YES } else { NO };
    let by_gatun = |has: bool| if has { BY_GATUN } else { NO };
    let [tcp, udp] = [tcp, udp].map(|answers| answers > 0);
    Ok([
        yes(given > 0),
        yes(offload["installed"].as_u64().is_some_and(|n| n > 0)),
        yes(ndp),
        yes(arp),
        yes(ping6),
        yes(ping4),
        yes(tcp),
        yes(udp),
        if pings_go_on { YES } else { by_gatun(pings_through) },
        yes(moved.is_ok()),
        // The hosts drop packets with a wrong one.
        yes(tcp && udp),
        by_gatun(unchecked > 0),
    ])
}
