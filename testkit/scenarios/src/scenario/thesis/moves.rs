//! Sessions that move into a P4 switch while their numbered datagrams pass without a pause.

use super::super::iperf::switch::RunningSwitch;
use gatun_testkit::topology::SERVER;
use gatun_testkit::{ECHO_PORT, Error, Namespace, Process, echo, wait_until};
use std::process::Stdio;
use std::time::Duration;

/// Sessions, each of which moves in both directions.
const FLOWS: u64 = 16;
/// Seconds of the datagrams: a session without a gap moves after one (decision 0111).
const SECONDS: u64 = 5;
/// Time limit for the sessions to move, and for the datagrams to end.
const READY_MAX: Duration = Duration::from_secs(30);

/// Sends numbered datagrams, four of each flow at a time. Prints how many were sent, returned, and overtaken.
const SCRIPT: &str = "
import json, select, socket, sys, time
server, port, flows, seconds = sys.argv[1], *map(int, sys.argv[2:])
sent, newest, back, overtaken = {}, {}, 0, 0
def open_flow():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.connect((server, port))
    sent[s], newest[s] = 0, -1
    return s
def send(s):
    s.send(b'%d' % sent[s]); sent[s] += 1
# The first ones may go to the MAC of an earlier switch. An answer shows that both hosts are known.
first = open_flow()
first.settimeout(0.5)
for _ in range(40):
    send(first)
    try: first.recv(64); break
    except TimeoutError: pass
else: sys.exit('no answer')
del sent[first]
for s in [open_flow() for _ in range(flows)]:
    for _ in range(4): send(s)
end = time.monotonic() + seconds
while ready := select.select(list(sent), [], [], 2)[0]:
    for s in ready:
        number = int(s.recv(64))
        back += 1
        overtaken += number < newest[s]
        newest[s] = max(newest[s], number)
        if time.monotonic() < end: send(s)
print(json.dumps([sum(sent.values()), back, overtaken]))
";

/// Datagrams of all flows together.
pub(super) struct Moved {
    sent: u64,
    lost: u64,
    overtaken: u64,
}

impl Moved {
    /// Returns true if no datagram was lost or overtaken.
    pub(super) fn is_good(&self) -> bool {
        self.sent > 0 && self.lost == 0 && self.overtaken == 0
    }

    /// Text of the check.
    pub(super) fn check(&self, name: &str) -> String {
        let Moved { sent, lost, overtaken } = self;
        format!(
            "{name}: {FLOWS} sessions move in, and of {sent} datagrams {lost} are lost, {overtaken} overtaken"
        )
    }
}

/// Moves sessions between these hosts into the switch.
///
/// # Errors
/// Returns an error if they do not move as decision 0111 says, or if the switch does not translate them then.
pub(super) fn run(running: &RunningSwitch, client: &Namespace, server: &Namespace) -> Result<Moved, Error> {
    let echo = echo(server)?;
    let arguments = [ECHO_PORT.to_string(), FLOWS.to_string(), SECONDS.to_string()];
    let arguments: Vec<&str> = std::iter::once(SERVER).chain(arguments.iter().map(String::as_str)).collect();
    let flows = Process::start(client.python(SCRIPT, &arguments).stdout(Stdio::piped()))?;
    let has_moved = || {
        running.offload().is_ok_and(|offload| {
            offload["sessions"].as_u64() >= Some(FLOWS) && offload["switches"][0]["moving"] == 0
        })
    };
    wait_until("the move of all sessions", READY_MAX, has_moved)
        .map_err(|Error(why)| Error(format!("{why}: {:?}", running.offload())))?;
    running.has_translated()?;
    let (_, said) = flows.output(READY_MAX)?;
    echo.stop()?;
    let switch = &running.offload()?["switches"][0];
    let counted = |list: &str, name: &str| {
        switch[list].as_array().into_iter().flatten().any(|counter| counter["name"] == name)
    };
    if !counted("to_controller", "pending") || !counted("dropped", "echo") {
        return Err(Error(format!("the sessions have moved without numbers and echoes: {said} {switch}")));
    }
    let [sent, back, overtaken]: [u64; 3] =
        serde_json::from_str(&said).map_err(|e| Error(format!("datagrams of the moves: {e}: {said}")))?;
    Ok(Moved { sent, lost: sent.saturating_sub(back), overtaken })
}
