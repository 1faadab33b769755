//! The kernel's own vxlan device as the other end of the tunnel, in a namespace.

use gatun_testkit::Namespace;
use gatun_wire::vxlan::{self, Inner, Outer};
use gatun_wire::{HEADROOM, Ipv4View, Ipv6View, Packet, icmp_error};
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

/// Copies packets between a TUN device and its own input and output, each after its length. The first length
/// is zero: the device exists.
const RELAY: &str = "
import fcntl, os, select, struct
tun = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'tunnel', 0x1001))
os.write(1, bytes(2))
while True:
    ready = select.select([0, tun], [], [])[0]
    if tun in ready:
        packet = os.read(tun, 65535)
        os.write(1, struct.pack('!H', len(packet)) + packet)
    if 0 in ready:
        length = os.read(0, 2)
        if len(length) < 2: break
        length, packet = struct.unpack('!H', length)[0], b''
        while len(packet) < length: packet += os.read(0, length - len(packet))
        os.write(tun, packet)
";

const ENDS: [(&str, &str); 2] = [("198.18.0.1", "198.18.0.2"), ("2001:db8::1", "2001:db8::2")];

#[test]
fn the_kernel_pings_through_the_tunnel() {
    let test = "vxlan_kernel::the_kernel_pings_through_the_tunnel";
    gatun_testkit::run_test(test, gatun_testkit::refusal, ping);
}

fn ping() {
    let peer = Namespace::new("peer").unwrap();
    let mut relay = peer.python(RELAY, &[]);
    let mut relay = relay.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (input, mut output) = (relay.stdin.take().unwrap(), relay.stdout.take().unwrap());
    assert_eq!(next(&mut output), Some(Vec::new()));
    peer.ip("addr add 198.18.0.2/24 dev tunnel").unwrap();
    peer.ip("link set tunnel mtu 1600 up").unwrap();
    peer.ip("addr add 2001:db8::2/64 dev tunnel nodad").unwrap();
    let mac = "02:67:61:74:75:6e";
    for (name, id, (to, from), more, inside) in [
        ("four", 4660, ENDS[0], "", ["10.9.0.1", "10.9.0.2/24"]),
        ("six", 4661, ENDS[1], "udp6zerocsumrx", ["2001:db8:9::1", "2001:db8:9::2/64"]),
    ] {
        let device = format!("link add {name} address {mac} type vxlan id {id}");
        peer.ip(&format!("{device} local {from} remote {to} dstport 4789 nolearning {more}")).unwrap();
        peer.ip(&format!("link set {name} up")).unwrap();
        peer.ip(&format!("addr add {} dev {name}", inside[1])).unwrap();
        peer.ip(&format!("neigh add {} lladdr {mac} dev {name}", inside[0])).unwrap();
    }
    let answers = std::thread::spawn(move || answer(output, input));
    for address in ["10.9.0.1", "2001:db8:9::1"] {
        // The longest packet that fits, and a short one.
        for size in ["8", "1400"] {
            peer.run(&format!("ping -c 3 -i 0.2 -W 5 -s {size} {address}")).unwrap();
        }
    }
    relay.kill().unwrap();
    relay.wait().unwrap();
    assert_eq!(answers.join().unwrap(), [6, 6]);
}

/// Reads a packet; `None` at the end.
fn next(from: &mut ChildStdout) -> Option<Vec<u8>> {
    let mut len = [0; 2];
    from.read_exact(&mut len).ok()?;
    let mut packet = vec![0; u16::from_be_bytes(len).into()];
    from.read_exact(&mut packet).ok()?;
    Some(packet)
}

/// Answers pings in the tunnel. Returns their number, over IPv4 and over IPv6.
fn answer(mut from: ChildStdout, mut to: ChildStdin) -> [u32; 2] {
    let mut answered = [0; 2];
    while let Some(bytes) = next(&mut from) {
        let mut buffer = vec![0; HEADROOM];
        buffer.extend_from_slice(&bytes);
        let mut packet = Packet::new(&mut buffer, HEADROOM, bytes.len()).unwrap();
        for (n, (own, peer)) in ENDS.iter().enumerate() {
            let (own, peer) = (own.parse().unwrap(), peer.parse().unwrap());
            if !vxlan::is_to(packet.bytes(), own, vxlan::PORT) {
                continue;
            }
            // The kernel sends group messages, too, to other Ethernet receivers.
            let sender = vxlan::sender(packet.bytes());
            let Ok(vni) = vxlan::decapsulate(&mut packet) else { continue };
            assert_eq!((sender, vni), (Some(peer), 4660 + n as u32));
            let inner = match n {
                0 => {
                    let view = Ipv4View::parse(packet.bytes()).unwrap();
                    icmp_error::echo_reply4(&mut packet, &view).unwrap();
                    Inner::of4(packet.bytes(), &Ipv4View::parse(packet.bytes()).unwrap())
                }
                _ => {
                    let view = Ipv6View::parse(packet.bytes()).unwrap();
                    icmp_error::echo_reply6(&mut packet, &view).unwrap();
                    Inner::of6(packet.bytes(), &Ipv6View::parse(packet.bytes()).unwrap())
                }
            };
            let outer = Outer { ends: (own, peer), port: vxlan::PORT, vni };
            outer.encapsulate(&mut packet, &inner).unwrap();
            to.write_all(&(packet.len() as u16).to_be_bytes()).unwrap();
            to.write_all(packet.bytes()).unwrap();
            answered[n] += 1;
            break;
        }
    }
    answered
}
