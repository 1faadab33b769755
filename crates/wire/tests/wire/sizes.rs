//! MTUs and fragments: which packets are refused, which are fragmented, and the fragments.

use crate::common::*;
use gatun_wire::rfc7915::{fragment, mtu};
use gatun_wire::{
    Checksum, DropReason, Ipv4View, Ipv6View, Offload, Packet, Ports, Segmentation, Settings, Whole,
};

fn plain() -> Offload {
    Offload::default()
}

/// Translates a packet from the IPv4 side and fragments it if needed. Returns all fragments in order.
fn pieces_4to6(bytes: &[u8], settings: &Settings) -> Vec<Vec<u8>> {
    let (result, out, offload) = four_to_six(bytes, Ports::Keep, settings, plain());
    cut(result, &out, offload)
}

fn pieces_6to4(bytes: &[u8], settings: &Settings) -> Vec<Vec<u8>> {
    let (result, out, offload) = six_to_four(bytes, Ports::Keep, settings, plain());
    cut(result, &out, offload)
}

fn cut(result: Result<Whole, DropReason>, out: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    match result.unwrap() {
        Whole::Yes => vec![out.to_vec()],
        Whole::Split(max) => split(out, offload, max).unwrap(),
    }
}

fn split(bytes: &[u8], offload: Offload, max: u32) -> Result<Vec<Vec<u8>>, DropReason> {
    let mut rest = vec![];
    let emit = |headers: &[u8], payload: &[u8]| {
        rest.push([headers, payload].concat());
        Ok(())
    };
    let (result, first, _) = in_buffer(bytes, offload, |p| match bytes[0] >> 4 {
        4 => fragment::split4(p, max, emit),
        _ => fragment::split6(p, max, emit),
    });
    if result.is_err() {
        assert_eq!(first, bytes, "a refused packet changed");
    }
    result?;
    rest.insert(0, first);
    Ok(rest)
}

/// Reassembles IPv6 fragments like a host. Every fragment must be in its place.
fn reassemble6(pieces: &[Vec<u8>], max: usize) -> Vec<u8> {
    let mut whole = vec![];
    for (n, piece) in pieces.iter().enumerate() {
        let is_last = n + 1 == pieces.len();
        assert!(piece.len() <= max, "{} bytes", piece.len());
        let view = Ipv6View::parse(piece).unwrap();
        let f = view.fragment.unwrap();
        assert_eq!((usize::from(f.offset), f.more, f.id), (whole.len(), !is_last, 0xbeef));
        assert_eq!(view.total_len as usize, piece.len());
        assert_eq!((view.l4_offset, piece[41]), (48, 0), "one Fragment header, reserved bits zero");
        whole.extend_from_slice(&piece[48..]);
    }
    whole
}

// proves: A79-11, A79-12, A79-13, A79-16
#[test]
fn a_packet_without_df_is_cut_to_the_lowest_ipv6_mtu_and_comes_together_again() {
    for lowest_ipv6_mtu in [1280, 1281, 1400, 1500] {
        let settings = Settings { lowest_ipv6_mtu, ..Settings::default() };
        for len in [1232, 1240, 1241, 1300, 1452, 1500, 3000, 65_000] {
            for m in [udp(&payload(len - 8)), tcp(&payload(len - 20)), echo(true, &payload(len - 8))] {
                let pieces = pieces_4to6(&header4().packet(&m), &settings);
                let as6 = m.to_bytes6(SERVER6, CLIENT6);
                let v6 = V6 { hop_limit: 63, ..inbound6() };
                if 40 + len <= lowest_ipv6_mtu as usize {
                    assert_eq!(pieces, [v6.packet(&m)]);
                    continue;
                }
                assert_eq!(reassemble6(&pieces, lowest_ipv6_mtu as usize), as6);
                // Each fragment is full, and identical to one from an IPv6 host.
                let room = (lowest_ipv6_mtu as usize - 48) / 8 * 8;
                for (n, (piece, part)) in pieces.iter().zip(as6.chunks(room)).enumerate() {
                    let more = (n + 1) * room < as6.len();
                    let v6 = V6 { fragment: Some(((n * room) as u16, more, 0xbeef)), ..v6.clone() };
                    assert_eq!(*piece, v6.raw(m.proto6(), part));
                }
            }
        }
    }
}

// proves: A79-11
#[test]
fn the_first_piece_has_1232_bytes_of_payload_at_the_default() {
    let pieces = pieces_4to6(&header4().packet(&udp(&payload(1400))), &Settings::default());
    assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [1280, 48 + 1408 - 1232]);
}

// proves: A79-14
#[test]
fn a_fragment_that_is_cut_again_keeps_its_base_and_its_last_piece() {
    let whole = udp(&payload(4000 - 8)).to_bytes4(SERVER4, CLIENT4);
    let as6 = udp(&payload(4000 - 8)).to_bytes6(SERVER6, CLIENT6);
    let mut all = vec![];
    for (from, to) in [(0, 1480), (1480, 2960), (2960, 4000)] {
        let v4 = V4 { mf: to < 4000, offset: from as u16, ..header4() };
        all.extend(pieces_4to6(&v4.raw(17, &whole[from..to]), &Settings::default()));
    }
    assert_eq!(all.len(), 5);
    assert_eq!(reassemble6(&all, 1280), as6);
}

// proves: A79-10
#[test]
fn df_and_an_ipv6_mtu_that_is_too_small_is_answered_with_that_mtu_less_20() {
    for mtu6 in [1280, 1400, 1500, 9000] {
        let settings = Settings { mtu6, ..Settings::default() };
        for (len, fits) in [(mtu6 - 20, true), (mtu6 - 19, false)] {
            let m = udp(&payload(len as usize - 28));
            let bytes = V4 { df: true, ..header4() }.packet(&m);
            let (result, _, _) = four_to_six(&bytes, Ports::Keep, &settings, plain());
            assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig4) });
            let view = Ipv4View::parse(&bytes).unwrap();
            assert_eq!(u32::from(mtu::fragmentation_needed(&view, &settings)), mtu6 - 20);
        }
    }
}

// proves: A79-10
#[test]
fn options_count_against_the_mtu_by_rfc_7915() {
    let bytes =
        |len: usize| V4 { df: true, options: vec![1; 40], ..header4() }.packet(&udp(&payload(len - 68)));
    let settings = Settings::default();
    assert_eq!(four_to_six(&bytes(1480), Ports::Keep, &settings, plain()).0, Ok(Whole::Yes));
    assert_eq!(four_to_six(&bytes(1481), Ports::Keep, &settings, plain()).0, Err(DropReason::TooBig4));
}

// proves: A79-15
#[test]
fn a_fragment_with_df_that_is_too_large_is_answered_with_room_for_its_fragment_header() {
    let settings = Settings { mtu6: 1400, ..Settings::default() };
    for (payload_len, fits) in [(1352, true), (1360, false)] {
        let v4 = V4 { df: true, offset: 8, ..header4() };
        let bytes = v4.raw(17, &payload(payload_len));
        let (result, out, _) = four_to_six(&bytes, Ports::Keep, &settings, plain());
        assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig4) });
        assert!(!fits || out.len() == 1400);
        let view = Ipv4View::parse(&bytes).unwrap();
        assert_eq!(mtu::fragmentation_needed(&view, &settings), 1400 - 28);
    }
}

// proves: A79-62
#[test]
fn an_ipv6_packet_too_large_for_ipv4_is_answered_with_that_mtu_and_20() {
    for mtu4 in [1260, 1400, 1500] {
        let settings = Settings { mtu4, ..Settings::default() };
        assert_eq!(mtu::packet_too_big(&settings), mtu4 + 20);
        for (len, fits) in [(mtu4 + 20, true), (mtu4 + 21, false)] {
            let bytes = header6().packet(&udp(&payload(len as usize - 48)));
            let (result, _, _) = six_to_four(&bytes, Ports::Keep, &settings, plain());
            assert_eq!(result, if fits { Ok(Whole::Yes) } else { Err(DropReason::TooBig6) });
        }
    }
}

// proves: A79-62
#[test]
fn an_ipv4_mtu_below_1260_cuts_packets_whose_sender_could_not_act_on_packet_too_big() {
    for mtu4 in [68, 576, 1000, 1259] {
        let settings = Settings { mtu4, ..Settings::default() };
        assert_eq!(mtu::packet_too_big(&settings), 1280);
        let too_big = header6().packet(&udp(&payload(1281 - 48)));
        assert_eq!(six_to_four(&too_big, Ports::Keep, &settings, plain()).0, Err(DropReason::TooBig6));

        for m in [udp(&payload(1232)), tcp(&payload(1220)), echo(false, &payload(1232))] {
            let pieces = pieces_6to4(&header6().packet(&m), &settings);
            let as4 = m.to_bytes4(CLIENT4, SERVER4);
            let room = (mtu4 as usize - 20) / 8 * 8;
            assert_eq!(pieces.len(), as4.len().div_ceil(room));
            for (n, (piece, part)) in pieces.iter().zip(as4.chunks(room)).enumerate() {
                let mf = (n + 1) * room < as4.len();
                let v4 = V4 { id: ID, ttl: 63, mf, offset: (n * room) as u16, ..outbound4() };
                assert_eq!(*piece, v4.raw(m.proto4(), part));
            }
        }
    }
}

// proves: A79-62
#[test]
fn a_fragment_from_ipv6_is_cut_again_for_a_small_ipv4_mtu() {
    let settings = Settings { mtu4: 576, ..Settings::default() };
    let as4 = udp(&payload(2400 - 8)).to_bytes4(CLIENT4, SERVER4);
    let as6 = udp(&payload(2400 - 8)).to_bytes6(CLIENT6, SERVER6);
    let mut whole = vec![];
    for (from, to) in [(0, 1200), (1200, 2400)] {
        let v6 = V6 { fragment: Some((from as u16, to < 2400, 0x77_0001)), ..header6() };
        for piece in pieces_6to4(&v6.raw(17, &as6[from..to]), &settings) {
            let view = Ipv4View::parse(&piece).unwrap();
            let f = view.fragment.unwrap();
            assert_eq!((usize::from(f.offset), view.id, view.dont_fragment), (whole.len(), 1, false));
            assert!(piece.len() <= 576);
            whole.extend_from_slice(&piece[20..]);
            assert_eq!(f.more, whole.len() < 2400);
        }
    }
    assert_eq!(whole, as4);
}

#[test]
fn packets_that_cannot_be_cut_are_refused_and_fitting_ones_unchanged() {
    let plain4 = header4().packet(&udp(&payload(1000)));
    let df = V4 { df: true, ..header4() }.packet(&udp(&payload(1000)));
    let plain6 = header6().packet(&udp(&payload(1000)));
    let fragment6 = V6 { fragment: Some((0, false, 1)), ..header6() }.packet(&udp(&payload(1000)));
    for bytes in [&df, &plain6] {
        assert_eq!(split(bytes, plain(), 576), Err(DropReason::Unfragmentable));
    }
    for bytes in [&plain4, &fragment6] {
        assert_eq!(split(bytes, plain(), 1500), Ok(vec![bytes.clone()]));
        assert_eq!(split(bytes, plain(), 27), Err(DropReason::Unfragmentable));
        let checksum = Checksum::Partial { start: 20, offset: 6 };
        let offload = Offload { checksum, ..plain() };
        assert_eq!(split(bytes, offload, 576), Err(DropReason::Unfragmentable));
        let offload = Offload { segmentation: Segmentation::Udp { size: 100 }, ..plain() };
        assert_eq!(split(bytes, offload, 576), Err(DropReason::Unfragmentable));
    }
}

#[test]
fn a_full_emit_leaves_the_packet_whole() {
    let bytes = header4().packet(&udp(&payload(2000)));
    let (result, out, _) = in_buffer(&bytes, plain(), |p: &mut Packet<'_>| {
        fragment::split4(p, 576, |_, _| Err(DropReason::EmitFull))
    });
    assert_eq!((result, out), (Err(DropReason::EmitFull), bytes));
}
