//! A host behind a P4 switch: frames with the switch's header, through the whole backend.
#![allow(missing_docs)]

use gatun_ether::{Ether, Limits, Mac, PortSettings, Prefix, Settings};
use gatun_io::{Backend as _, Stats, Waker};
use gatun_io_ether::{FrameSink, Frames, SwitchPort, backends};
use gatun_wire::Packet;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Frames of one device.
#[derive(Default)]
struct Script {
    waiting: VecDeque<Vec<u8>>,
    sent: Vec<(usize, Vec<u8>)>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Script>>);

impl FrameSink for Shared {
    fn send_frame(&mut self, _: usize, device: usize, packet: &Packet<'_>, _: bool) {
        self.send_copy(device, packet.bytes(), false);
    }

    fn send_copy(&mut self, device: usize, frame: &[u8], _: bool) {
        self.0.lock().unwrap().sent.push((device, frame.to_vec()));
    }

    fn admitted(&self) -> usize {
        0
    }

    fn take_returned(&mut self) -> Option<Vec<(usize, Mac)>> {
        None
    }
}

impl Frames for Shared {
    type Out = Shared;

    fn receive(
        &mut self,
        mut admit: impl FnMut(usize, &mut Packet<'_>, &mut Shared) -> bool,
        handle: impl FnOnce(&mut [Packet<'_>], &mut Shared),
    ) -> usize {
        let Some(frame) = self.0.lock().unwrap().waiting.pop_front() else { return 0 };
        let mut buffer = vec![0xa5; 2048];
        buffer[256..256 + frame.len()].copy_from_slice(&frame);
        let mut packet = Packet::new(&mut buffer, 256, frame.len()).unwrap();
        if admit(0, &mut packet, self) {
            handle(&mut [packet], self);
        }
        1
    }

    fn outbox(&mut self) -> &mut Shared {
        self
    }

    fn wait(&mut self, _: &Waker, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

#[test]
fn an_arp_request_from_a_port_of_the_switch_is_answered_by_that_port() {
    let (own, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 9]));
    let port = |device, last| PortSettings {
        name: format!("port{device}"),
        device,
        mac: own,
        tags: Vec::new(),
        mtu: 1500,
        addresses: vec![Prefix { addr: [192, 0, last, 1].into(), len: 24 }],
        answers: Vec::new(),
        routes: Vec::new(),
        neighbours: Vec::new(),
        realms: [0; 2],
    };
    let ports = vec![port(128, 2), port(129, 3)];
    let settings = Settings { ports, engine: Vec::new(), announces: false, shares: false };
    let ether = Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).unwrap();
    let script = Shared(Arc::default());
    let switch_ports = [(128, 5), (129, 6)].map(|(device, port)| SwitchPort { device, behind: 0, port });
    let devices = [("cpu", false)];
    let mut backend = backends(vec![script.clone()], &devices, &switch_ports, vec![ether]).unwrap().remove(0);

    // Who has 192.0.3.1? Through port 6 of the switch, with reason 12.
    let mut request = vec![12, 0, 0, 6];
    request.extend([0xff; 6]);
    request.extend(other.0);
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend(other.0);
    request.extend([192, 0, 3, 9, 0, 0, 0, 0, 0, 0, 192, 0, 3, 1]);
    script.0.lock().unwrap().waiting.push_back(request.clone());
    // The same through port 5, whose addresses are others, and through a port that nobody knows.
    for port in [5, 7] {
        request[3] = port;
        script.0.lock().unwrap().waiting.push_back(request.clone());
    }
    for _ in 0..3 {
        assert_eq!(backend.receive(&mut |_, _| panic!("no packet for the engine")).unwrap(), 1);
    }
    let sent = std::mem::take(&mut script.0.lock().unwrap().sent);
    let replies: Vec<_> = sent.iter().filter(|(_, frame)| frame[16..18] == [8, 6]).collect();
    assert_eq!(replies.len(), 1, "{sent:?}");
    let (device, reply) = replies[0];
    assert_eq!((*device, &reply[..4]), (0, &[0, 0, 0, 6][..]));
    assert_eq!((&reply[4..10], &reply[10..16]), (&other.0[..], &own.0[..]));
    assert_eq!((&reply[24..26], &reply[32..36]), (&[0, 2][..], &[192, 0, 3, 1][..]));
    let counted = |name: &str| {
        backend.stats().named.iter().find(|counter| counter.name == name).map(|counter| counter.count)
    };
    assert_eq!((counted("switch_arp"), counted("switch_unknown_port")), (Some(2), Some(1)));
}
