//! Chunk of records: columns of differences, compressed.
//!
//! ```text
//!   count  length  LZ4 { attributes: n, n x (kind transports instance pool)
//!                        insides: n, shift, n x ascending difference >> shift
//!                        columns: attribute  outside  first  span  time  inside  inside port }
//! ```
//! Records may have any order; sorted by port they take the fewest bytes.

use crate::record::{Record, RecordKind};
use crate::varint::{Bytes, put, put_signed};
use std::collections::HashMap;

/// Maximum number of records in a chunk.
pub(crate) const CHUNK_RECORDS_MAX: usize = 65_536;
/// Largest uncompressed chunk, in bytes: limits a reader's memory.
const RAW_LEN_MAX: usize = CHUNK_RECORDS_MAX * 80;

/// Encodes up to [`CHUNK_RECORDS_MAX`] records.
pub(crate) fn encode(records: &[Record]) -> Vec<u8> {
    debug_assert!(records.len() <= CHUNK_RECORDS_MAX);
    let mut raw = Vec::with_capacity(records.len() * 12 + 64);
    let attributes = put_attributes(&mut raw, records);
    let insides = put_insides(&mut raw, records);
    let column = |raw: &mut Vec<u8>, of: &dyn Fn(&Record) -> i64| {
        let mut last = 0;
        for record in records {
            let value = of(record);
            put_signed(raw, value.wrapping_sub(last));
            last = value;
        }
    };
    records.iter().for_each(|r| put(&mut raw, attributes[&attribute(r)] as u128));
    column(&mut raw, &|r| u32::from(r.outside).into());
    column(&mut raw, &|r| r.first.into());
    column(&mut raw, &|r| i64::from(r.last) - i64::from(r.first));
    column(&mut raw, &|r| r.at_ms as i64);
    let mut last = None;
    for record in records {
        // A release usually follows its assignment.
        let same = last == Some(record.inside);
        put(&mut raw, if same { 0 } else { insides[&u128::from(record.inside)] as u128 + 1 });
        last = Some(record.inside);
    }
    column(&mut raw, &|r| r.inside_port.into());
    let mut out = Vec::with_capacity(raw.len() / 2 + 16);
    put(&mut out, records.len() as u128);
    put(&mut out, raw.len() as u128);
    out.extend_from_slice(&lz4_flex::block::compress(&raw));
    out
}

/// Decodes a chunk; `None` for bytes that [`encode`] does not write.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Record>> {
    let mut bytes = Bytes(bytes);
    let count: usize = bytes.number().filter(|n| *n <= CHUNK_RECORDS_MAX)?;
    let len: usize = bytes.number().filter(|n| *n <= RAW_LEN_MAX)?;
    // A record has at least seven numbers: allocate only for as many as the bytes can hold.
    if count.saturating_mul(7) > len {
        return None;
    }
    let raw = lz4_flex::block::decompress(bytes.0, len).ok().filter(|raw| raw.len() == len)?;
    let mut raw = Bytes(&raw);
    let attributes = attributes(&mut raw)?;
    let insides = insides(&mut raw)?;
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let &[kind, transports, instance, pool] = attributes.get(raw.number::<usize>()?)?;
        records.push(Record {
            at_ms: 0,
            kind: RecordKind::of(kind)?,
            transports,
            instance,
            pool,
            outside: 0.into(),
            first: 0,
            last: 0,
            inside: 0.into(),
            inside_port: 0,
        });
    }
    column(&mut raw, &mut records, |r, n| u32::try_from(n).map(|n| r.outside = n.into()).is_ok())?;
    column(&mut raw, &mut records, |r, n| u16::try_from(n).map(|n| r.first = n).is_ok())?;
    column(&mut raw, &mut records, |r, n| {
        u16::try_from(n.saturating_add(r.first.into())).map(|n| r.last = n).is_ok()
    })?;
    column(&mut raw, &mut records, |r, n| {
        r.at_ms = n as u64;
        true
    })?;
    let mut last = None;
    for record in &mut records {
        let inside = match raw.number::<usize>()?.checked_sub(1) {
            None => last?,
            Some(at) => *insides.get(at)?,
        };
        record.inside = inside.into();
        last = Some(inside);
    }
    column(&mut raw, &mut records, |r, n| u16::try_from(n).map(|n| r.inside_port = n).is_ok())?;
    raw.0.is_empty().then_some(records)
}

fn column(raw: &mut Bytes<'_>, records: &mut [Record], set: impl Fn(&mut Record, i64) -> bool) -> Option<()> {
    let mut value = 0i64;
    for record in records {
        value = value.wrapping_add(raw.signed()?);
        if !set(record, value) {
            return None;
        }
    }
    Some(())
}

fn attribute(r: &Record) -> [u8; 4] {
    [r.kind as u8, r.transports, r.instance, r.pool]
}

fn put_attributes(raw: &mut Vec<u8>, records: &[Record]) -> HashMap<[u8; 4], usize> {
    let mut all: Vec<[u8; 4]> = records.iter().map(attribute).collect();
    all.sort_unstable();
    all.dedup();
    put(raw, all.len() as u128);
    all.iter().for_each(|attribute| raw.extend_from_slice(attribute));
    all.into_iter().enumerate().map(|(at, attribute)| (attribute, at)).collect()
}

fn attributes(raw: &mut Bytes<'_>) -> Option<Vec<[u8; 4]>> {
    let count: usize = raw.number()?;
    Some(raw.take(count.checked_mul(4)?)?.as_chunks::<4>().0.to_vec())
}

fn put_insides(raw: &mut Vec<u8>, records: &[Record]) -> HashMap<u128, usize> {
    let mut all: Vec<u128> = records.iter().map(|r| r.inside.into()).collect();
    all.sort_unstable();
    all.dedup();
    let shift = all.iter().fold(0u128, |bits, inside| bits | inside).trailing_zeros().min(127);
    put(raw, all.len() as u128);
    put(raw, shift.into());
    let mut last = 0;
    for inside in &all {
        put(raw, (inside >> shift) - last);
        last = inside >> shift;
    }
    all.into_iter().enumerate().map(|(at, inside)| (inside, at)).collect()
}

fn insides(raw: &mut Bytes<'_>) -> Option<Vec<u128>> {
    let count: usize = raw.number().filter(|n| *n <= CHUNK_RECORDS_MAX)?;
    let shift: u32 = raw.number().filter(|n| *n < 128)?;
    let (mut all, mut last) = (Vec::new(), 0u128);
    for _ in 0..count {
        last = last.checked_add(raw.next()?)?;
        all.push(last.checked_shl(shift).filter(|shifted| shifted >> shift == last)?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let ports = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let numbers = (0u8..6, any::<u8>(), any::<u8>(), any::<u8>());
        (any::<u64>(), numbers, any::<u32>(), ports, any::<u128>(), any::<u16>()).prop_map(
            |(at_ms, (kind, transports, instance, pool), outside, (first, last), inside, inside_port)| {
                let kind = RecordKind::of(kind).unwrap();
                let (outside, inside) = (outside.into(), inside.into());
                Record { at_ms, kind, transports, instance, pool, outside, first, last, inside, inside_port }
            },
        )
    }

    proptest! {
        #[test]
        fn encoding_round_trips(records in prop::collection::vec(any_record(), 0..200)) {
            prop_assert_eq!(decode(&encode(&records)), Some(records));
        }

        #[test]
        fn a_changed_byte_gives_other_records_or_an_error(
            records in prop::collection::vec(any_record(), 1..50), at: prop::sample::Index, with in 1u8..
        ) {
            let mut bytes = encode(&records);
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            // No panic and no unbounded memory; the chunk's hash detects changed records.
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn an_impossible_length_takes_no_memory() {
        let mut bytes = Vec::new();
        put(&mut bytes, 60_000);
        put(&mut bytes, 100);
        assert_eq!(decode(&bytes), None);
        bytes.clear();
        put(&mut bytes, 0);
        put(&mut bytes, u128::from(u64::MAX));
        assert_eq!(decode(&bytes), None);
    }
}
