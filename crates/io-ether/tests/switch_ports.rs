//! A host behind a P4 switch: frames with the switch's header, through the whole backend.
#![allow(missing_docs)]

use gatun_ether::{Ether, Limits, Mac, PortSettings, Prefix, Settings, StaticNeighbour};
use gatun_io::{Backend as _, Stats, Waker};
use gatun_io_ether::{EtherQueues, FrameSink, Frames, SwitchPort, backends};
use gatun_wire::{HEADROOM, Packet};
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

const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// Ports 5 and 6 of a switch, with 192.0.2.1 and 192.0.3.1.
fn backend(script: &Shared) -> EtherQueues<Shared> {
    let port = |device, last| PortSettings {
        name: format!("port{device}"),
        device,
        mac: OWN,
        tags: Vec::new(),
        mtu: 1500,
        addresses: vec![Prefix { addr: [192, 0, last, 1].into(), len: 24 }],
        answers: Vec::new(),
        routes: Vec::new(),
        neighbours: vec![StaticNeighbour { addr: [192, 0, last, 9].into(), mac: OTHER }],
        realms: [0; 2],
    };
    let ports = vec![port(128, 2), port(129, 3)];
    let settings = Settings { ports, engine: Vec::new(), announces: false, shares: false };
    let ether = Ether::new(&settings, &Limits::default(), [1, 2, 3, 4]).unwrap();
    let switch_ports = [(128, 5), (129, 6)].map(|(device, port)| SwitchPort { device, behind: 0, port });
    let devices = [("cpu", false)];
    backends(vec![script.clone()], &devices, &switch_ports, vec![ether]).unwrap().remove(0)
}

fn counted(backend: &EtherQueues<Shared>, name: &str) -> Option<u64> {
    backend.stats().named.iter().find(|counter| counter.name == name).map(|counter| counter.count)
}

#[test]
fn an_arp_request_from_a_port_of_the_switch_is_answered_by_that_port() {
    let script = Shared(Arc::default());
    let mut backend = backend(&script);
    // Who has 192.0.3.1? Through port 6 of the switch, with reason 12.
    let mut request = vec![12, 0, 0, 6];
    request.extend([0xff; 6]);
    request.extend(OTHER.0);
    request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    request.extend(OTHER.0);
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
    assert_eq!((&reply[4..10], &reply[10..16]), (&OTHER.0[..], &OWN.0[..]));
    assert_eq!((&reply[24..26], &reply[32..36]), (&[0, 2][..], &[192, 0, 3, 1][..]));
    let counted = |name| counted(&backend, name);
    assert_eq!((counted("switch_arp"), counted("switch_unknown_port")), (Some(2), Some(1)));
}

#[test]
fn the_echo_of_a_pending_sessions_packet_leaves_behind_what_became_of_the_packet() {
    let script = Shared(Arc::default());
    let mut backend = backend(&script);
    // To 192.0.3.9, through port 6, with a number.
    let mut frame = vec![18, 0, 0, 6, 0, 0, 0, 77, 9, 0, 0, 1];
    frame.extend(OWN.0);
    frame.extend(OTHER.0);
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 7, 192, 0, 3, 9]);
    frame.extend([0, 53, 0, 53, 0, 8, 0, 0]);
    gatun_wire::hdr::ipv4::set_checksum(&mut frame[26..46]);
    script.0.lock().unwrap().waiting.push_back(frame.clone());
    let received = backend.receive(&mut |burst, transmit| {
        assert_eq!(burst[0].bytes(), &frame[26..]);
        transmit.forward(0, &mut burst[0]);
    });
    assert_eq!(received.unwrap(), 1);
    // A packet that the engine has held until now is before the echo, too.
    let mut buffer = [&[0; HEADROOM][..], &frame[26..]].concat();
    let len = frame.len() - 26;
    backend.transmit().send(&mut Packet::new(&mut buffer, HEADROOM, len).unwrap());
    backend.wait(&Waker::new().unwrap(), None).unwrap();
    let sent = std::mem::take(&mut script.0.lock().unwrap().sent);
    // Without the ARP of the host.
    let sent: Vec<_> = sent.iter().filter(|(_, frame)| frame.get(16..18) != Some(&[8, 6])).collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert_eq!([0, 1].map(|at| &sent[at].1[..10]), [&[0, 0, 0, 6, 2, 0, 0, 0, 0, 9][..]; 2]);
    assert_eq!(*sent[2], (0, vec![0, 1, 0, 0, 0, 0, 0, 77, 9, 0, 0, 1, 0, 0, 0, 0]));
    assert_eq!((counted(&backend, "switch_pending"), counted(&backend, "switch_echoes")), (Some(1), Some(1)));
    assert_eq!(backend.receive(&mut |_, _| ()).unwrap(), 0);
    assert_eq!(counted(&backend, "switch_echoes"), Some(1));
}
