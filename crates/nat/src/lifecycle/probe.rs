//! The probe of RFC 6146 3.5.2.2, which asks the inside host if a connection that was silent for a long time
//! is still alive. A live host answers, and the session is ESTABLISHED again.

use crate::path::rules::nat44::inside4;
use crate::tables::session::Session;
use gatun_wire::Prefix64;
use gatun_wire::checksum::pseudo;
use gatun_wire::checksum::{add, sum};
use gatun_wire::hdr::{ipv4, ipv6};
use gatun_wire::proto::TCP;

const TCP_HEADER: usize = 20;
const HOPS: u8 = 64;

/// Makes a TCP segment without data, with sequence and acknowledgement numbers of zero and ACK set, as if
/// from the session's remote host.
pub(crate) fn to_inside6(session: &Session, prefix: Prefix64) -> [u8; ipv6::LEN + TCP_HEADER] {
    let src = prefix.embed(session.remote().0);
    let header = ipv6::Header {
        traffic_class: 0,
        payload_len: TCP_HEADER as u16,
        next_header: TCP,
        hop_limit: HOPS,
        src,
        dst: session.inside_addr(),
    };
    let mut p = [0; ipv6::LEN + TCP_HEADER];
    if let Some((ip, tcp)) = p.split_first_chunk_mut()
        && let Some(tcp) = tcp.first_chunk_mut()
    {
        header.write(ip);
        *tcp = segment(session, ip.get(ipv6::ADDRESSES..).unwrap_or_default());
    }
    p
}

/// Same as [`to_inside6`], for an IPv4 host. The packet is atomic, so its identification has no meaning (RFC
/// 6864 4.1).
pub(crate) fn to_inside4(session: &Session) -> [u8; ipv4::LEN + TCP_HEADER] {
    let header = ipv4::Header {
        tos: 0,
        total_len: (ipv4::LEN + TCP_HEADER) as u16,
        id: 0,
        flags: ipv4::DF,
        ttl: HOPS,
        proto: TCP,
        src: session.remote().0,
        dst: inside4(session),
    };
    let mut p = [0; ipv4::LEN + TCP_HEADER];
    if let Some((ip, tcp)) = p.split_first_chunk_mut()
        && let Some(tcp) = tcp.first_chunk_mut()
    {
        header.write(ip);
        *tcp = segment(session, ip.get(ipv4::ADDRESSES..).unwrap_or_default());
    }
    p
}

/// Makes the segment between these addresses.
fn segment(session: &Session, addresses: &[u8]) -> [u8; TCP_HEADER] {
    let mut tcp = [0; TCP_HEADER];
    tcp[0..2].copy_from_slice(&session.remote().1.to_be_bytes());
    tcp[2..4].copy_from_slice(&session.inside_port().to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = 0x10;
    let checksum = !add(pseudo(addresses, TCP_HEADER as u32, TCP), sum(&tcp));
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    tcp
}
