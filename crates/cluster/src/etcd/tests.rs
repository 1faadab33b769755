//! Limits of the client, and its end.

use super::*;
use std::net::TcpListener;

/// Starts a client whose endpoint accepts connections and never answers.
fn silent(timeout_ms: u64) -> (TcpListener, EtcdStore) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoints = vec![format!("http://{}", listener.local_addr().unwrap())];
    let settings = EtcdSettings { endpoints, tls: None, user: None, timeout_ms };
    (listener, EtcdStore::start(settings, || ()).unwrap())
}

/// Waits for an answer.
fn answer(store: &mut EtcdStore) -> Reply {
    let begin = Instant::now();
    loop {
        if let Some(reply) = store.poll() {
            return reply;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "no answer");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn read(id: u64) -> Request {
    Request { id, call: Call::Read("/t/".to_owned()) }
}

#[test]
fn requests_that_the_thread_has_taken_count_until_they_are_answered() {
    let (_listener, mut store) = silent(1_000);
    let max = REQUESTS_MAX as u64;
    for id in 0..max {
        store.submit(read(id));
        if id % 64 == 0 {
            // The thread takes them.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let begin = Instant::now();
    while store.requests.as_ref().unwrap().capacity() < REQUESTS_MAX {
        assert!(begin.elapsed() < Duration::from_secs(5), "the thread takes nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
    store.submit(read(max));
    let Reply { id, answer: refused } = answer(&mut store);
    assert_eq!((id, refused), (max, Err(StoreError::Busy)));
    // Each answer makes room for another request.
    assert!(matches!(answer(&mut store).answer, Err(StoreError::Unknown(_))));
    store.submit(read(max + 1));
    assert!(store.own.is_empty());
}

#[test]
fn a_watch_ends_when_the_caller_does_not_take_its_changes() {
    let (sender, answers) = mpsc::channel();
    let changes = Arc::new(AtomicUsize::new(0));
    let to = Answers { sender, changes: Arc::clone(&changes), wake: Arc::new(|| ()) };
    let (requests, _requests) = tasks::channel(1);
    let mut store = EtcdStore::new(requests, answers, changes);
    let one = || Answer::Changes(1, vec![]);
    for _ in 0..CHANGES_MAX {
        assert_eq!(to.send_changes(7, one()), Ok(()));
    }
    assert!(to.send_changes(7, one()).is_err());
    assert!(store.poll().is_some());
    assert_eq!(to.send_changes(7, one()), Ok(()));
    assert!(to.send_changes(7, one()).is_err());
    assert_eq!(std::iter::from_fn(|| store.poll()).count(), CHANGES_MAX);
}

#[test]
fn another_watch_ends_the_previous_one() {
    let (_listener, mut store) = silent(60_000);
    for id in [1, 2] {
        store.submit(Request { id, call: Call::Watch { prefix: "/t/".to_owned(), from: 1 } });
    }
    let Reply { id, answer } = answer(&mut store);
    assert_eq!((id, answer), (1, Err(StoreError::WatchEnded("another one has begun".to_owned()))));
    assert_eq!(store.waiting.len(), 1);
}

#[test]
fn a_client_that_has_ended_says_so() {
    let (requests, received) = tasks::channel(REQUESTS_MAX);
    let (sender, answers) = mpsc::channel();
    let mut store = EtcdStore::new(requests, answers, Arc::default());
    store.submit(read(1));
    store.submit(Request { id: 2, call: Call::Watch { prefix: "/t/".to_owned(), from: 1 } });
    assert_eq!(store.poll(), None);
    drop((received, sender));
    store.submit(read(3));
    assert_eq!(store.poll(), Some(Reply { id: 3, answer: Err(StoreError::Ended) }));
    // What was handed over before may have been done.
    let mut left: Vec<Reply> = std::iter::from_fn(|| store.poll()).collect();
    left.sort_by_key(|reply| reply.id);
    let why = "the client of etcd has ended: restart gatun".to_owned();
    assert_eq!(left[0], Reply { id: 1, answer: Err(StoreError::Unknown(why.clone())) });
    assert_eq!(left[1], Reply { id: 2, answer: Err(StoreError::WatchEnded(why)) });
    assert_eq!(left.len(), 2);
}

#[test]
fn the_end_waits_for_revocations_alone_and_not_for_ever() {
    let (_listener, mut store) = silent(60_000);
    store.submit(read(1));
    let begin = Instant::now();
    drop(store);
    assert!(begin.elapsed() < REVOKE_MAX, "{:?}", begin.elapsed());
    let (_listener, mut store) = silent(60_000);
    store.submit(Request { id: 1, call: Call::Revoke(1) });
    let begin = Instant::now();
    drop(store);
    assert!(begin.elapsed() >= REVOKE_MAX, "{:?}", begin.elapsed());
    // The limit of the request itself.
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}
