//! The probe of RFC 6146 3.5.2.2: asks the inside host whether a connection that was silent for long is
//! still alive. A live one answers, and the session is ESTABLISHED again.

use crate::session::Session;
use gatun_wire::Prefix64;
use gatun_wire::checksum::pseudo;
use gatun_wire::checksum::{add, sum};
use gatun_wire::proto::TCP;

const IPV6: usize = 40;
const TCP_HEADER: u8 = 20;

/// A TCP segment without data, sequence and acknowledgement numbers zero, ACK set, as if from the
/// session's remote host.
pub(crate) fn to_inside(session: &Session, prefix: Prefix64) -> [u8; IPV6 + TCP_HEADER as usize] {
    let (remote, remote_port) = session.remote();
    let mut p = [0u8; IPV6 + TCP_HEADER as usize];
    p[0] = 0x60;
    p[5] = TCP_HEADER;
    p[6] = TCP;
    p[7] = 64;
    p[8..24].copy_from_slice(&prefix.embed(remote).octets());
    p[24..40].copy_from_slice(&session.inside_addr().octets());
    p[40..42].copy_from_slice(&remote_port.to_be_bytes());
    p[42..44].copy_from_slice(&session.inside_port().to_be_bytes());
    p[52] = 5 << 4;
    p[53] = 0x10;
    let checksum = !add(pseudo(&p[8..40], u32::from(TCP_HEADER), TCP), sum(&p[40..]));
    p[56..58].copy_from_slice(&checksum.to_be_bytes());
    p
}
