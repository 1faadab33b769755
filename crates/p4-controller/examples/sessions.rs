//! Rate of sessions that Gatun's controller gives to a running P4 switch and takes from it, for
//! `scripts/bench-p4`. That includes the account of sessions, the end of each move a second after the
//! installation, and the last reading of counters. The engines and their feed are not part of it.
//!
//! ```text
//!   sessions ADDRESS [SESSIONS]
//! ```
//! The switch has to have Gatun's program.

use gatun_nat::feed::{Flow, SessionId};
use gatun_nat::plan::Transport;
use gatun_offload::{OffloadedFlow, Placement, Removal, Target as _};
use gatun_p4_controller::connection::{Connection, ConnectionConfig, connect};
use gatun_p4_controller::program::Limits;
use gatun_p4_controller::{FlowId, Switches};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Sessions that wait for the switch at one time.
const WAITING_MAX: usize = 8_192;
/// Sessions that are offered at one time.
const OFFERED: usize = 1_024;
/// Time without progress after which the run ends.
const PATIENCE: Duration = Duration::from_secs(20);

fn flow(n: u32) -> OffloadedFlow {
    let flow = Flow {
        inside: (Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(n)), 5000),
        outside: (Ipv4Addr::from_bits(0xc000_0200 + (n >> 15)), 1024 + (n & 0x7fff) as u16),
        remote: (Ipv4Addr::new(198, 51, 100, 7), 443),
        transport: Transport::Tcp,
        instance: 0,
    };
    let remote6 = Some(Ipv6Addr::from_bits((0x0064_ff9b << 96) + 0xc633_6407));
    let session = SessionId { record: n + 1, flow };
    OffloadedFlow { session, worker: 0, epoch: 1, remote6, path_mtu: None }
}

struct Controller {
    switches: Switches<Connection>,
    began: Instant,
}

impl Controller {
    fn turn(&mut self) {
        // As the manager's thread does while something is in progress.
        std::thread::sleep(Duration::from_millis(1));
        self.switches.turn(self.began.elapsed());
    }

    fn until(&mut self, what: &str, is: impl Fn(&Switches<Connection>) -> bool) {
        let begin = Instant::now();
        while !is(&self.switches) {
            assert!(begin.elapsed() < PATIENCE, "not {what}: {:?}", self.switches.status().next());
            self.turn();
        }
    }

    /// Installs sessions. Returns their IDs.
    fn install(&mut self, sessions: u32) -> Vec<FlowId> {
        let (mut ids, mut waiting) = (Vec::new(), Vec::new());
        let (mut next, mut last) = (0, Instant::now());
        while next < sessions || !waiting.is_empty() {
            assert!(last.elapsed() < PATIENCE, "the switch is stuck: {:?}", self.switches.status().next());
            while next < sessions && waiting.len() + OFFERED <= WAITING_MAX {
                let end = sessions.min(next + OFFERED as u32);
                let (flows, mut placed): (Vec<_>, _) = ((next..end).map(flow).collect(), Vec::new());
                self.switches.install(&flows, &mut placed);
                waiting.extend(placed.into_iter().map(|id| id.expect("a place")));
                next = end;
            }
            self.turn();
            let mut states = Vec::new();
            self.switches.placed(&waiting, &mut states);
            let before = ids.len();
            let asked = std::mem::take(&mut waiting).into_iter().zip(states);
            for (id, state) in asked {
                match state {
                    Placement::Installed => ids.push(id),
                    Placement::Waiting => waiting.push(id),
                    Placement::Refused(why, _) => panic!("refused: {why:?}"),
                }
            }
            if ids.len() > before {
                last = Instant::now();
            }
        }
        ids
    }

    fn remove(&mut self, ids: Vec<FlowId>) {
        let (mut waiting, mut rest) = (Vec::new(), ids.into_iter());
        let mut last = Instant::now();
        loop {
            waiting.extend(rest.by_ref().take(WAITING_MAX - waiting.len()));
            if waiting.is_empty() {
                return;
            }
            assert!(last.elapsed() < PATIENCE, "the switch is stuck: {:?}", self.switches.status().next());
            let mut removals = Vec::new();
            self.switches.remove(&waiting, &mut removals);
            let before = waiting.len();
            let left = std::mem::take(&mut waiting).into_iter().zip(removals);
            waiting.extend(left.filter(|(_, removal)| *removal == Removal::Waiting).map(|(id, _)| id));
            if waiting.len() < before {
                last = Instant::now();
            }
            self.turn();
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let address = words.first().ok_or("sessions ADDRESS [SESSIONS]")?.clone();
    let sessions: u32 = words.get(1).map_or(Ok(500_000), |word| word.parse())?;
    let config = ConnectionConfig {
        name: "switch".to_owned(),
        address,
        device_id: 1,
        election: 1,
        first_connection: 1,
        pipeline: None,
        limits: Limits::default(),
        controller_limit: None,
        timeout: Duration::from_secs(10),
        tls: None,
    };
    let switches = Switches::new(connect(vec![config], || ())?, sessions);
    let mut controller = Controller { switches, began: Instant::now() };
    controller.until("connected", Switches::is_settled);
    controller.switches.entries(&mut |_, _| ());
    let mut rate = |what: &str, work: &mut dyn FnMut(&mut Controller)| {
        let begin = Instant::now();
        work(&mut controller);
        println!("controller, {what}: {:.0} sessions/s", f64::from(sessions) / begin.elapsed().as_secs_f64());
    };
    let mut ids = Vec::new();
    rate("installs and ends of moves", &mut |controller| {
        ids = controller.install(sessions);
        controller.until("moved", |switches| switches.status().all(|status| status.moving == 0));
    });
    rate("removals", &mut |controller| controller.remove(std::mem::take(&mut ids)));
    Ok(())
}
