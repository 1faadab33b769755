//! The host of a program: entries, frames, ports, and the cost of an entry.

use gatun_p4_switch::{
    Entry, Environment, EnvironmentConfig, Match, Object, ObjectConfig, PortConfig, Switch, SwitchConfig,
    SwitchError,
};
use std::path::{Path, PathBuf};

const ENTRIES: u32 = 1 << 20;

fn environment() -> Environment {
    Environment::start(&EnvironmentConfig { memory_mb: 768, arguments: Vec::new() }).unwrap()
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn config(sizes: Vec<(String, u32)>) -> ObjectConfig {
    ObjectConfig {
        headers: here("../../target/tools/dpdk-headers"),
        sizes,
        optimisation: 1,
        dpdk_code: false,
    }
}

fn switch(sizes: Vec<(String, u32)>, ports: usize) -> Switch {
    switch_of(config(sizes), ports)
}

/// The host's own code of the program, and DPDK's.
fn both(sizes: &[(String, u32)], ports: usize) -> [Switch; 2] {
    [false, true].map(|dpdk_code| switch_of(ObjectConfig { dpdk_code, ..config(sizes.to_vec()) }, ports))
}

fn switch_of(config: ObjectConfig, ports: usize) -> Switch {
    let environment = environment();
    let object = Object::compile(environment, &here("tests/forward.spec"), &config).unwrap();
    let config = SwitchConfig { ports: vec![PortConfig::default(); ports], buffers: 1024 };
    Switch::new(environment, &object, &config).unwrap()
}

/// IPv4 frame of 14 + `len` bytes whose header says 40.
fn frame(dst: u64, src: u64, len: usize) -> Vec<u8> {
    let mut frame = [&dst.to_be_bytes()[2..], &src.to_be_bytes()[2..], &[8, 0], &vec![0; len]].concat();
    frame[14..18].copy_from_slice(&[0x45, 0, 0, 40]);
    frame
}

fn through(switch: &mut Switch, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
    switch.put(1, frame).unwrap();
    switch.turn();
    (0..4)
        .flat_map(|port| std::iter::from_fn(|| switch.take(port)).map(move |f| (port, f)).collect::<Vec<_>>())
        .collect()
}

/// Sends the frame to this port.
fn forward<'a>(key: &'a [u64; 2], data: &'a [u64; 2]) -> Entry<'a> {
    Entry { key, action: "forward", data }
}

#[test]
fn an_entry_acts_until_it_is_removed() {
    for mut switch in both(&[], 4) {
        let known = switch.table("known").unwrap();
        assert_eq!(switch.arguments(known, "forward").unwrap(), ["port", "type"]);
        assert!(through(&mut switch, &frame(1, 2, 40)).is_empty());
        switch.insert(known, &forward(&[1, 2], &[2, 0x1234])).unwrap();
        let out = through(&mut switch, &frame(1, 2, 40));
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].0, &out[0].1[..14]), (2, &[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0x12, 0x34][..]));
        assert_eq!(out[0].1[14..], frame(1, 2, 40)[14..]);
        assert_eq!(switch.register("forwarded", 2).unwrap(), 1);
        switch.insert(known, &forward(&[1, 2], &[3, 0x5678])).unwrap();
        assert_eq!(through(&mut switch, &frame(1, 2, 40))[0].0, 3);
        assert!(through(&mut switch, &frame(1, 3, 40)).is_empty());
        switch.remove(known, &[&[1, 2], &[7, 7]]).unwrap();
        assert!(through(&mut switch, &frame(1, 2, 40)).is_empty());
    }
}

#[test]
fn the_entry_of_the_highest_priority_wins() {
    for mut switch in both(&[], 4) {
        let ranges = switch.table("ranges").unwrap();
        let entry = |value, mask, priority, port| Match {
            key: vec![(value, mask)],
            priority,
            action: "forward".into(),
            data: vec![port, 0x1234],
        };
        let all = [entry(0x0100, 0xff00, 8, 2), entry(0x0120, 0xfff0, 12, 3)];
        switch.fill(ranges, &all).unwrap();
        assert_eq!(through(&mut switch, &frame(0x0125, 2, 40))[0].0, 3);
        assert_eq!(through(&mut switch, &frame(0x0135, 2, 40))[0].0, 2);
        assert!(through(&mut switch, &frame(0x0235, 2, 40)).is_empty());
        switch.fill(ranges, &all[..1]).unwrap();
        assert_eq!(through(&mut switch, &frame(0x0125, 2, 40))[0].0, 2);
        switch.fill(ranges, &[]).unwrap();
        assert!(through(&mut switch, &frame(0x0125, 2, 40)).is_empty());
    }
}

#[test]
fn padding_is_cut_off_and_a_truncated_frame_goes_to_the_controller() {
    let mut switch = switch(Vec::new(), 3);
    let known = switch.table("known").unwrap();
    switch.insert(known, &forward(&[1, 2], &[2, 0x0800])).unwrap();
    let out = through(&mut switch, &frame(1, 2, 46));
    assert_eq!(out, [(2, frame(1, 2, 40))]);
    let short = frame(1, 2, 39);
    let out = through(&mut switch, &short);
    assert_eq!(out, [(0, [&[17, 0, 0, 1], &short[..]].concat())]);
    assert!(through(&mut switch, &short[..13]).is_empty());
    let counters = switch.counters()[1];
    assert_eq!((counters.received, counters.truncated, counters.runts), (3, 1, 1));
}

#[test]
fn a_full_table_refuses_an_entry_and_takes_it_after_a_removal() {
    for mut switch in both(&[("known".into(), 4)], 3) {
        let known = switch.table("known").unwrap();
        for n in 0..4 {
            switch.insert(known, &forward(&[1, n], &[2, 0])).unwrap();
        }
        let refused = switch.insert(known, &forward(&[1, 4], &[2, 0])).unwrap_err();
        assert!(matches!(refused, SwitchError::Full(_)), "{refused}");
        switch.remove(known, &[&[1, 0]]).unwrap();
        switch.insert(known, &forward(&[1, 4], &[2, 0])).unwrap();
        assert_eq!(through(&mut switch, &frame(1, 4, 40)).len(), 1);
        assert!(through(&mut switch, &frame(1, 0, 40)).is_empty());
    }
}

#[test]
fn entries_are_read_from_a_text() {
    let mut switch = switch(Vec::new(), 4);
    let text = "# known hosts\nknown 1 0x2 forward port=2 type=0x0800\n\n\
                ranges 0x0100/0xff00 priority 8 forward port=3 type=0x0800 # by range\n";
    assert_eq!(switch.load(text).unwrap(), 2);
    assert_eq!(through(&mut switch, &frame(1, 2, 40))[0].0, 2);
    assert_eq!(through(&mut switch, &frame(0x0199, 2, 40))[0].0, 3);
    for (line, fault) in [
        ("none 1 2 forward", "no table `none`"),
        ("known 1", "each field of the key"),
        ("known 1 x forward port=2 type=0", "not a number"),
        ("known 1 0x1000000000000 forward port=2 type=0", "does not fit"),
        ("known 1 2", "needs an action"),
        ("known 1 2 drop", "no action of the table `drop`"),
        ("known 1 2 forward type=2 port=0", "no value for the argument `port`"),
        ("known 1 2 forward port=2 type=0 more", "last argument"),
        ("ranges 1 priority x forward port=2 type=0", "priority"),
    ] {
        let error = switch.load(&format!("\n{line}")).unwrap_err().to_string();
        assert!(error.starts_with("line 2: ") && error.contains(fault), "{line}: {error}");
    }
}

/// Chains of buckets grow and shrink: few chains, and changes by chance.
#[test]
fn a_table_has_the_entries_of_a_map_after_random_changes() {
    const KEYS: u64 = 96;
    let mut switch = switch(vec![("known".into(), 64)], 4);
    let known = switch.table("known").unwrap();
    let (mut model, mut state) = (std::collections::BTreeMap::new(), 1u64);
    for step in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (key, port) = ((state >> 33) % KEYS, 2 + (state >> 60) % 2);
        if state >> 63 == 0 {
            let result = switch.insert(known, &forward(&[key, 2], &[port, 0x0800]));
            assert_eq!(result.is_ok(), model.len() < 64 || model.contains_key(&key), "{step}");
            if result.is_ok() {
                model.insert(key, port);
            }
        } else {
            switch.remove(known, &[&[key, 2]]).unwrap();
            model.remove(&key);
        }
        let seen = (state >> 20) % KEYS;
        let out: Vec<u64> =
            through(&mut switch, &frame(seen, 2, 40)).iter().map(|(port, _)| *port as u64).collect();
        assert_eq!(out.first(), model.get(&seen), "{step}");
    }
}

/// DPDK's control library looks through all entries for each new one. Here, an entry costs a look at a bucket
/// to see if its key exists, and another look to find a free place. A full bucket costs two more.
#[test]
fn an_entry_costs_the_same_at_a_thousand_and_at_a_million_entries() {
    const ROUND: u64 = 20_000;
    let mut switch = switch(vec![("known".into(), ENTRIES)], 3);
    let known = switch.table("known").unwrap();
    let mut insert = |from: u64, to: u64| {
        let before = switch.insertion_steps(known).unwrap();
        for n in from..to {
            switch.insert(known, &forward(&[n, 2], &[2, 0x0800])).unwrap();
        }
        (switch.insertion_steps(known).unwrap() - before) as f64 / (to - from) as f64
    };
    let first = insert(0, 1_000);
    let few = insert(1_000, 1_000 + ROUND);
    insert(1_000 + ROUND, 1_000_000);
    let many = insert(1_000_000, 1_000_000 + ROUND);
    println!("steps for an entry: {first:.3}, {few:.3} at a thousand entries, {many:.3} at a million");
    assert!(first >= 2.0 && few < 2.01, "{first} {few}");
    // Four entries for each chain, and eight places in a bucket.
    assert!(many < 2.25, "{many} steps for each entry at a million");
    for n in [0, 1_000_000 + ROUND - 1] {
        assert_eq!(through(&mut switch, &frame(n, 2, 40))[0].0, 2);
    }
    assert_eq!(
        switch_of(ObjectConfig { dpdk_code: true, ..config(Vec::new()) }, 3).insertion_steps(known),
        None
    );
}

#[test]
fn errors_name_the_place_and_the_repair() {
    let environment = environment();
    let without = ObjectConfig { headers: "/nonexistent".into(), ..config(Vec::new()) };
    let error = Object::compile(environment, &here("tests/forward.spec"), &without).unwrap_err().to_string();
    assert!(error.contains("scripts/dpdk-headers"), "{error}");
    let error =
        Object::compile(environment, &here("src/lib.rs"), &config(Vec::new())).unwrap_err().to_string();
    assert!(error.contains("src/lib.rs:") && error.ends_with("Unknown statement."), "{error}");
    let error = switch(Vec::new(), 3).table("none").unwrap_err().to_string();
    assert_eq!(error, "the program has no table `none`");
}
