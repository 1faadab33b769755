//! Answers of the coordinator that the registration and the watch have to understand.

use super::*;
use crate::store::{Entry, Put, Reply, Write};
use gatun_peer::ownership::Timing;

/// Coordinator whose answers the test gives.
#[derive(Default)]
struct Scripted {
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
}

impl Store for Scripted {
    fn submit(&mut self, request: Request) {
        self.requests.push_back(request);
    }

    fn poll(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }
}

struct Nothing;

impl Holdings for Nothing {
    fn relation(&self, _shard: u8, _other: &NodeName) -> RelationFacts {
        RelationFacts::default()
    }

    fn has_state(&self, _shard: u8) -> bool {
        true
    }

    fn has_dropped(&self, _shard: u8) -> bool {
        true
    }
}

struct Test {
    node: Coordination,
    store: Scripted,
    now_ms: u64,
}

impl Test {
    fn new() -> Test {
        let timing = Timing { lease_ms: 2_000, kernel_ms: 100, drift_ms: 100 };
        let settings = CoordinationSettings {
            cluster: "test".to_owned(),
            me: "a".into(),
            nodes: vec![Candidate { node: "a".into(), name: "a".to_owned(), weight: 1 }],
            instance: "i".to_owned(),
            shards: 1,
            timing: ClusterTiming { timing, hold_ms: 20_000 },
            moves_max: 1,
            rules: ClusterRules::default(),
        };
        let node = Coordination::new(settings, 0, &[]);
        Test { node, store: Scripted::default(), now_ms: 0 }
    }

    /// Runs until the node makes a certain request, and returns its number.
    fn asked(&mut self, mut is_it: impl FnMut(&Call) -> bool) -> u64 {
        for _ in 0..100 {
            self.now_ms += 50;
            self.node.turn(self.now_ms, &mut self.store, &Nothing);
            while let Some(request) = self.store.requests.pop_front() {
                if is_it(&request.call) {
                    return request.id;
                }
            }
        }
        panic!("no such request within 5 s");
    }

    fn answer(&mut self, id: u64, answer: Result<Answer, StoreError>) {
        self.store.replies.push_back(Reply { id, answer });
    }

    fn reads(&mut self, revision: i64) {
        self.reads_entries(revision, vec![]);
    }

    fn reads_entries(&mut self, revision: i64, entries: Vec<Entry>) {
        let id = self.asked(|call| matches!(call, Call::Read(_)));
        self.answer(id, Ok(Answer::Entries { store: 1, revision, entries }));
    }
}

#[test]
fn a_registration_with_a_lease_that_has_ended_begins_with_another_lease() {
    let mut test = Test::new();
    test.reads(1);
    let id = test.asked(|call| matches!(call, Call::Grant(_)));
    test.answer(id, Ok(Answer::Granted(5, 2_000)));
    let id = test.asked(|call| matches!(call, Call::Write(_)));
    test.answer(id, Ok(Answer::NoLease));
    test.reads(1);
    test.asked(|call| matches!(call, Call::Grant(_)));
}

#[test]
fn the_end_of_a_watch_that_was_replaced_is_no_error() {
    let mut test = Test::new();
    test.reads(1);
    let first = test.asked(|call| matches!(call, Call::Watch { .. }));
    test.answer(first, Err(StoreError::WatchEnded("the stream has ended".to_owned())));
    test.reads(2);
    let second = test.asked(|call| matches!(call, Call::Watch { from: 3, .. }));
    test.answer(second, Ok(Answer::Changes(3, vec![])));
    // Reads again without an end of the second watch, as after a registration.
    test.node.read_again(test.now_ms, 0);
    test.reads(4);
    let third = test.asked(|call| matches!(call, Call::Watch { from: 5, .. }));
    test.node.take_events();
    test.answer(second, Err(StoreError::WatchEnded("another one has begun".to_owned())));
    test.answer(third, Ok(Answer::Changes(5, vec![])));
    test.node.turn(test.now_ms, &mut test.store, &Nothing);
    let waits = |id: u64| test.node.waiting.contains_key(&id);
    assert_eq!((waits(second), waits(third)), (false, true));
    assert_eq!(test.node.take_events(), []);
}

/// Key of the cluster, with a value and the revision of its last change.
fn entry(key: &str, value: &str, revision: i64) -> Entry {
    Entry { key: format!("/gatun/test/{key}"), value: Some(value.to_owned()), revision }
}

#[test]
fn the_first_node_writes_the_division_and_registers_only_under_it() {
    let mut test = Test::new();
    test.node.set_division("shards=1\nown_ports=5".to_owned());
    test.reads(1);
    let mut written = None;
    let id = test.asked(|call| {
        assert!(!matches!(call, Call::Grant(_)), "it registers without a division");
        let Call::Write(write) = call else { return false };
        written.get_or_insert(write.clone());
        true
    });
    let put = Put { key: "/gatun/test/division".into(), value: "shards=1\nown_ports=5".into(), lease: 0 };
    let compares = vec![("/gatun/test/division".to_owned(), 0)];
    assert_eq!(written, Some(Write { compares, puts: vec![put], deletes: vec![] }));
    test.answer(id, Ok(Answer::Written(true, 2)));
    test.reads_entries(2, vec![entry("division", "shards=1\nown_ports=5", 2)]);
    let id = test.asked(|call| matches!(call, Call::Grant(_)));
    test.answer(id, Ok(Answer::Granted(5, 2_000)));
    let condition = ("/gatun/test/division".to_owned(), 2);
    let under = |call: &Call| matches!(call, Call::Write(write) if write.compares.contains(&condition));
    let id = test.asked(|call| under(call));
    test.answer(id, Ok(Answer::Written(true, 3)));
    let registered = ["nodes/a", "names/a"].map(|key| entry(key, "instance=i number=1", 3));
    let division = entry("division", "shards=1\nown_ports=5", 2);
    test.reads_entries(3, [vec![division], registered.to_vec()].concat());
    let id = test.asked(|call| matches!(call, Call::KeepAlive(_)));
    test.answer(id, Ok(Answer::Renewed { store: 1, revision: 3 }));
    // Records, too.
    test.asked(|call| under(call));
}

#[test]
fn a_node_with_another_division_takes_no_part_and_says_what_differs() {
    let mut test = Test::new();
    test.node.set_division("shards=1\nown_ports=5".to_owned());
    let others = vec![
        entry("division", "shards=1\nown_ports=7", 2),
        entry("nodes/b", "instance=x number=1", 3),
        entry("shards/016", "epoch=1 owner=b@1", 4),
    ];
    test.reads_entries(4, others);
    for _ in 0..40 {
        test.now_ms += 50;
        test.node.turn(test.now_ms, &mut test.store, &Nothing);
    }
    let is_read = |call: &Call| matches!(call, Call::Read(_) | Call::Watch { .. });
    assert!(test.store.requests.iter().all(|request| is_read(&request.call)), "{:?}", test.store.requests);
    let why = test.node.difference().unwrap();
    assert!(why.contains("own_ports: etcd has 7, this node 5") && !why.contains("shards:"), "{why}");
    assert!(why.contains("/gatun/test/division"), "{why}");
    let told = test.node.take_events();
    assert_eq!(told.iter().filter(|event| event.text == why).count(), 1, "{told:?}");
    // A shard that this node does not have is no node.
    let names: Vec<_> = test.node.nodes(test.now_ms).into_iter().map(|node| node.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
}

/// Runs until the node is registered, with a store at revision 3, and renews for the first time.
fn registered(test: &mut Test) -> u64 {
    test.reads(1);
    let id = test.asked(|call| matches!(call, Call::Grant(_)));
    test.answer(id, Ok(Answer::Granted(5, 2_000)));
    let id = test.asked(|call| matches!(call, Call::Write(_)));
    test.answer(id, Ok(Answer::Written(true, 3)));
    test.reads_entries(3, ["nodes/a", "names/a"].map(|key| entry(key, "instance=i number=1", 3)).to_vec());
    test.asked(|call| matches!(call, Call::KeepAlive(5)))
}

#[test]
fn a_lease_that_a_store_without_the_latest_data_renews_gives_no_right() {
    for (store, revision) in [(1, 2), (2, 3)] {
        let mut test = Test::new();
        let id = registered(&mut test);
        test.answer(id, Ok(Answer::Renewed { store: 1, revision: 3 }));
        let id = test.asked(|call| matches!(call, Call::KeepAlive(5)));
        let until_ms = test.node.lease_until();
        assert!(until_ms > test.now_ms, "no right after {until_ms}");
        // The store is another one, or was restored from a backup, where the lease is, too.
        test.answer(id, Ok(Answer::Renewed { store, revision }));
        let id = test.asked(|call| matches!(call, Call::Read(_)));
        assert_eq!(test.node.lease_until(), until_ms, "the right is longer");
        assert!(!test.node.may_write());
        test.answer(id, Ok(Answer::Entries { store, revision, entries: vec![] }));
        let id = test.asked(|call| matches!(call, Call::KeepAlive(5)));
        assert_eq!(test.node.lease_until(), until_ms);
        let why = test.node.error().unwrap().to_string();
        assert!(why.contains("lost data") || why.contains("another one"), "{why}");
        assert!(test.node.take_events().iter().any(|event| event.text == why));
        // The data are there again.
        test.answer(id, Ok(Answer::Renewed { store: 1, revision: 3 }));
        let id = test.asked(|call| matches!(call, Call::KeepAlive(5)));
        test.reads_entries(
            4,
            ["nodes/a", "names/a"].map(|key| entry(key, "instance=i number=1", 3)).to_vec(),
        );
        test.answer(id, Ok(Answer::Renewed { store: 1, revision: 4 }));
        test.node.turn(test.now_ms, &mut test.store, &Nothing);
        assert!(test.node.lease_until() > until_ms);
        assert!(test.node.may_write() && test.node.error().is_none());
    }
}

#[test]
fn a_process_knows_the_data_that_the_one_before_has_seen() {
    let mut test = Test::new();
    test.node.set_seen(Some((1, 7)));
    test.reads(6);
    for _ in 0..10 {
        test.now_ms += 50;
        test.node.turn(test.now_ms, &mut test.store, &Nothing);
    }
    assert!(test.store.requests.iter().all(|request| matches!(request.call, Call::Read(_))));
    assert!(test.node.error().is_some_and(|error| error.to_string().contains("it had revision 7")));
    assert_eq!(test.node.seen(), Some((1, 7)));
}

#[test]
fn an_order_waits_while_the_node_reads_the_map_again() {
    let mut test = Test::new();
    test.reads(1);
    test.asked(|call| matches!(call, Call::Grant(_)));
    let undrain = ClusterOrder::Undrain("a".into());
    // As after a registration.
    test.node.read_again(test.now_ms, 0);
    let id = test.node.order(test.now_ms, &mut test.store, &undrain).unwrap();
    assert!(test.store.requests.is_empty());
    test.reads(2);
    let is_undrain =
        |call: &Call| matches!(call, Call::Write(write) if write.deletes == ["/gatun/test/drains/a"]);
    assert_eq!(test.asked(is_undrain), id);
    test.answer(id, Ok(Answer::Written(true, 3)));
    test.node.turn(test.now_ms, &mut test.store, &Nothing);
    assert_eq!(test.node.take_ordered(), [(id, Ok(()))]);
    // It does not wait for an etcd that is away.
    test.node.read_again(test.now_ms, 0);
    let id = test.node.order(test.now_ms, &mut test.store, &undrain).unwrap();
    let read = test.asked(|call| matches!(call, Call::Read(_)));
    test.answer(read, Err(StoreError::Unreachable("no answer".to_owned())));
    test.node.turn(test.now_ms, &mut test.store, &Nothing);
    let away = Err("etcd cannot be reached: try again".to_owned());
    assert_eq!(test.node.take_ordered(), [(id, away.clone())]);
    assert_eq!(test.node.order(test.now_ms, &mut test.store, &undrain).map(|_| ()), away);
}
