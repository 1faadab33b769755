//! UDP without checksum (RFC 7915 4.5), and checksums of zero.

use crate::common::*;
use gatun_wire::rfc7915::ZeroChecksum;
use gatun_wire::{DropReason, Offload, Ports, Settings, Whole};

const UDP_CHECKSUM_4: std::ops::Range<usize> = 26..28;
const UDP_CHECKSUM_6: std::ops::Range<usize> = 46..48;

fn with(udp_zero_checksum: ZeroChecksum) -> Settings {
    Settings { udp_zero_checksum, ..Settings::default() }
}

fn without_checksum(v4: &V4, len: usize) -> Vec<u8> {
    let mut bytes = v4.packet(&udp(&payload(len)));
    let at = v4.options.len();
    bytes[UDP_CHECKSUM_4.start + at..UDP_CHECKSUM_4.end + at].fill(0);
    bytes
}

fn translate(bytes: &[u8], settings: &Settings) -> (Result<Whole, DropReason>, Vec<u8>) {
    let (result, out, _) = four_to_six(bytes, Ports::Keep, settings, Offload::default());
    (result, out)
}

// proves: A79-17
#[test]
fn a_missing_checksum_is_computed_over_the_whole_datagram() {
    let v6 = V6 { hop_limit: 63, ..inbound6() };
    for len in [0, 1, 2, 3, 99, 1200] {
        for options in [vec![], vec![1; 8]] {
            let bytes = without_checksum(&V4 { options, ..header4() }, len);
            let out = translate(&bytes, &with(ZeroChecksum::Compute));
            assert_eq!(out, (Ok(Whole::Yes), v6.packet(&udp(&payload(len)))));
        }
    }
}

// proves: A79-17
#[test]
fn a_missing_checksum_is_computed_with_the_new_ports() {
    let ports = Ports::Set { src: 9, dst: 10 };
    let bytes = without_checksum(&header4(), 99);
    let (result, out, _) = four_to_six(&bytes, ports, &with(ZeroChecksum::Compute), Offload::default());
    assert_eq!(result, Ok(Whole::Yes));
    let m = with_ports(&udp(&payload(99)), ports);
    assert_eq!(out, V6 { hop_limit: 63, ..inbound6() }.packet(&m));
}

// proves: A79-17, A79-11
#[test]
fn a_missing_checksum_is_computed_before_fragmentation() {
    let bytes = without_checksum(&header4(), 1400);
    let (result, out) = translate(&bytes, &with(ZeroChecksum::Compute));
    assert_eq!(result, Ok(Whole::Split(1280)));
    let v6 = V6 { hop_limit: 63, fragment: Some((0, false, 0xbeef)), ..inbound6() };
    assert_eq!(out, v6.packet(&udp(&payload(1400))));
}

// proves: A79-17
#[test]
fn a_datagram_without_checksum_is_dropped_or_forwarded_as_configured() {
    let bytes = without_checksum(&header4(), 99);
    assert_eq!(translate(&bytes, &with(ZeroChecksum::Drop)).0, Err(DropReason::ZeroUdpChecksum));
    let mut expected = V6 { hop_limit: 63, ..inbound6() }.packet(&udp(&payload(99)));
    expected[UDP_CHECKSUM_6].fill(0);
    assert_eq!(translate(&bytes, &with(ZeroChecksum::Forward)), (Ok(Whole::Yes), expected));
}

// proves: A79-18
#[test]
fn a_first_fragment_without_checksum_is_dropped_and_later_fragments_pass() {
    let first = without_checksum(&V4 { mf: true, ..header4() }, 1000);
    let (result, _) = translate(&first, &with(ZeroChecksum::Compute));
    assert_eq!(result, Err(DropReason::FragmentZeroChecksum));
    assert_eq!(translate(&first, &with(ZeroChecksum::Drop)).0, Err(DropReason::ZeroUdpChecksum));
    let later = V4 { offset: 1008, ..header4() }.raw(17, &[0; 40]);
    let v6 = V6 { hop_limit: 63, fragment: Some((1008, false, 0xbeef)), ..inbound6() };
    assert_eq!(translate(&later, &with(ZeroChecksum::Compute)), (Ok(Whole::Yes), v6.raw(17, &[0; 40])));
}

#[test]
fn a_wrong_length_cannot_be_summed() {
    for len in [0u16, 7, 108, 65_535] {
        let mut bytes = without_checksum(&header4(), 99);
        bytes[24..26].copy_from_slice(&len.to_be_bytes());
        let (result, _) = translate(&bytes, &with(ZeroChecksum::Compute));
        assert_eq!(result, Err(DropReason::BadLength), "{len}");
    }
    // A datagram shorter than its packet is summed as far as it goes.
    let mut bytes = without_checksum(&header4(), 99);
    bytes[24..26].copy_from_slice(&58u16.to_be_bytes());
    let (result, out) = translate(&bytes, &with(ZeroChecksum::Compute));
    assert_eq!(result, Ok(Whole::Yes));
    let short = V6 { hop_limit: 63, ..inbound6() }.packet(&udp(&payload(50)));
    assert_eq!((&out[40..98], &out[98..]), (&short[40..], &payload(99)[50..]));
}

// proves: A79-63
#[test]
fn a_datagram_without_checksum_from_ipv6_stays_without_one() {
    let mut bytes = header6().packet(&udp(&payload(99)));
    bytes[UDP_CHECKSUM_6].fill(0);
    let mut expected = V4 { id: ID, ttl: 63, ..outbound4() }.packet(&udp(&payload(99)));
    expected[UDP_CHECKSUM_4].fill(0);
    assert_eq!(ok_6to4(&bytes), expected);
}

// proves: A79-19, A79-20
#[test]
fn a_sum_of_zero_is_sent_as_all_ones_updated_or_computed() {
    // One word takes all values: for one of them, each family's checksum is zero.
    let (mut ones4, mut ones6) = (0, 0);
    for word in 0..=0xffffu16 {
        let m = udp(&word.to_be_bytes());
        let (v4, v6) = (header4().packet(&m), header6().packet(&m));
        let out4 = ok_6to4(&v6);
        let out6 = ok_4to6(&v4);
        let expected4 = m.to_bytes4(CLIENT4, SERVER4);
        let expected6 = m.to_bytes6(SERVER6, CLIENT6);
        assert_eq!((&out4[20..], &out6[40..]), (&expected4[..], &expected6[..]));
        ones4 += u32::from(out4[UDP_CHECKSUM_4] == [0xff, 0xff]);
        ones6 += u32::from(out6[UDP_CHECKSUM_6] == [0xff, 0xff]);

        let mut zero = v4;
        zero[UDP_CHECKSUM_4].fill(0);
        assert_eq!(ok_4to6(&zero)[40..], expected6);
    }
    assert_eq!((ones4, ones6), (1, 1));
}
