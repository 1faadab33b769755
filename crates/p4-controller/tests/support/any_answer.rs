//! Arbitrary messages of a switch to its controller.

use gatun_offload::Target as _;
use gatun_p4_controller::Switches;
use gatun_p4_controller::connection::write_results;
use gatun_p4_controller::link::{Event, Link, ProgramCounts, Request};
use gatun_p4_controller::program::{Limits, Program};
use gatun_p4runtime::google::rpc::Status;
use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::{CounterEntry, TableEntry};
use prost::Message as _;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

/// Maximum number of flows of the account.
const FLOWS: u32 = 64;

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let text = include_str!("../../../../p4/psa.p4info.txt");
        Program::new(gatun_p4runtime::p4info_from_text(text).unwrap(), Limits::default()).unwrap()
    })
}

/// Connection whose answers are the fuzzer's.
#[derive(Default)]
struct Scripted(VecDeque<Event>);

impl Link for Scripted {
    fn send(&mut self, _: u64, _: Request) {}

    fn receive(&mut self) -> Option<Event> {
        self.0.pop_front()
    }
}

/// Messages: a byte for the kind, two for the length, the message. An account that takes entries over gets
/// them.
pub(crate) fn run(mut input: &[u8]) {
    let mut switches = Switches::new(vec![("any".to_owned(), Scripted::default())], FLOWS);
    let mut own = ProgramCounts::default();
    let mut now = Duration::ZERO;
    while let Some((head, rest)) = input.split_at_checked(3) {
        let len = usize::from(u16::from_be_bytes([head[1], head[2]])).min(rest.len());
        let (message, rest) = rest.split_at(len);
        input = rest;
        if let Some(event) = event(head[0], message, &mut own) {
            switches.link_mut(0).0.push_back(event);
        }
        now += Duration::from_millis(700);
        switches.turn(now);
        let mut entries = Vec::new();
        if head[0] & 0x80 != 0 && switches.is_settled() {
            switches.entries(&mut |id, _| entries.push(id));
        }
        let mut used = Vec::new();
        switches.take_use(&entries, &mut used);
        assert_eq!(used.len(), entries.len());
    }
    assert!(switches.status().all(|status| status.flows <= FLOWS));
}

fn event(kind: u8, message: &[u8], own: &mut ProgramCounts) -> Option<Event> {
    match kind % 8 {
        0 => Some(Event::Connected { connection: 1, is_empty: kind & 8 != 0, capacity: FLOWS }),
        1 => Some(Event::Found(vec![found(&TableEntry::decode(message).ok()?)?])),
        2 => Some(Event::AllFound),
        3 => {
            let entry = CounterEntry::decode(message).ok()?;
            program().own_counted(&entry, own);
            let _ = program().stateless_counted(&entry);
            Some(Event::Counted {
                counters: program().counted(&entry).into_iter().collect(),
                is_last: kind & 8 != 0,
            })
        }
        4 => {
            let status = Status::decode(message).ok()?;
            Some(Event::Written(write_results(&status.encode_to_vec(), status.details.len())?))
        }
        5 | 6 => {
            let _ = P4Info::decode(message).map(|info| Program::new(info, Limits::default()));
            None
        }
        _ => Some(Event::Down(String::from_utf8_lossy(message).into_owned())),
    }
}

/// Reads an entry. One that counts as Gatun's is exactly what Gatun would write.
fn found(entry: &TableEntry) -> Option<gatun_p4_controller::link::Found> {
    let found = program().found(entry)?;
    if let Some(of) = &found.entry {
        let written = program().entry(of);
        assert_eq!(written.table_id, entry.table_id);
        assert_eq!(program().found(&written), Some(found));
    }
    Some(found)
}
