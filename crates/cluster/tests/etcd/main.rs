//! The client against real members of etcd: transactions, leases, a watch, and the ways in which etcd fails.
#![allow(missing_docs, unreachable_pub)]

mod coordination;
mod processes;

use gatun_cluster::etcd::{EtcdSettings, EtcdStore};
use gatun_cluster::store::{Answer, Call, Entry, Put, Request, Store, StoreError, Write};
use processes::Etcd;
use std::time::{Duration, Instant};

struct Client {
    store: EtcdStore,
    next: u64,
    /// Answers of the watch.
    changes: Vec<Result<Answer, StoreError>>,
    watch: u64,
}

impl Client {
    fn new(endpoints: Vec<String>) -> Client {
        let settings = EtcdSettings { endpoints, tls: None, user: None, timeout_ms: 1_500 };
        Client::with(settings)
    }

    fn with(settings: EtcdSettings) -> Client {
        let store = EtcdStore::start(settings, || ()).unwrap();
        Client { store, next: 0, changes: vec![], watch: u64::MAX }
    }

    fn submit(&mut self, call: Call) -> u64 {
        self.next += 1;
        self.store.submit(Request { id: self.next, call });
        self.next
    }

    /// Waits for the answer to a request.
    fn answer(&mut self, id: u64, patience: Duration) -> Option<Result<Answer, StoreError>> {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            match self.store.poll() {
                Some(reply) if reply.id == id => return Some(reply.answer),
                Some(reply) if reply.id == self.watch => self.changes.push(reply.answer),
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        None
    }

    fn call(&mut self, call: Call) -> Result<Answer, StoreError> {
        let id = self.submit(call);
        self.answer(id, Duration::from_secs(20)).expect("an answer comes, if only an error")
    }

    fn write(
        &mut self,
        compares: &[(&str, i64)],
        puts: &[(&str, &str)],
        lease: i64,
    ) -> Result<Answer, StoreError> {
        self.call(Call::Write(write(compares, puts, lease)))
    }

    fn read(&mut self) -> Vec<(String, String)> {
        // After a fault, some endpoints may be down.
        let begin = Instant::now();
        loop {
            match self.call(Call::Read("/t/".to_owned())) {
                Ok(Answer::Entries { entries, .. }) => {
                    return entries.into_iter().map(|one| (one.key, one.value.unwrap())).collect();
                }
                other => assert!(begin.elapsed() < Duration::from_secs(30), "{other:?}"),
            }
        }
    }

    fn changes_until(&mut self, is_enough: impl Fn(&[Entry]) -> bool) -> Vec<Entry> {
        let begin = Instant::now();
        let mut all = vec![];
        while !is_enough(&all) {
            assert!(begin.elapsed() < Duration::from_secs(20), "{all:?}");
            let polled = match self.changes.is_empty() {
                true => self.store.poll().map(|reply| reply.answer),
                false => Some(self.changes.remove(0)),
            };
            match polled {
                Some(Ok(Answer::Changes(_, more))) => all.extend(more),
                Some(Err(error)) => panic!("{error}"),
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        all
    }
}

fn write(compares: &[(&str, i64)], puts: &[(&str, &str)], lease: i64) -> Write {
    let compares = compares.iter().map(|(key, revision)| ((*key).to_owned(), *revision)).collect();
    let put = |(key, value): &(&str, &str)| Put { key: (*key).into(), value: (*value).into(), lease };
    Write { compares, puts: puts.iter().map(put).collect(), deletes: vec![] }
}

fn is_written(answer: &Result<Answer, StoreError>) -> bool {
    matches!(answer, Ok(Answer::Written(true, _)))
}

#[test]
fn records_change_by_comparison_alone_and_leases_end() {
    let etcd = Etcd::start(1);
    let mut client = Client::new(etcd.endpoints());
    let Ok(Answer::Written(true, revision)) = client.write(&[("/t/a", 0)], &[("/t/a", "1")], 0) else {
        panic!("the first write");
    };
    assert!(matches!(client.write(&[("/t/a", 0)], &[("/t/a", "2")], 0), Ok(Answer::Written(false, _))));
    client.watch = client.submit(Call::Watch { prefix: "/t/".to_owned(), from: revision + 1 });
    assert!(is_written(&client.write(&[("/t/a", revision)], &[("/t/a", "2")], 0)));
    let Ok(Answer::Granted(lease, ttl_ms)) = client.call(Call::Grant(1_000)) else { panic!("a lease") };
    assert!(ttl_ms >= 1_000, "{ttl_ms}");
    assert!(is_written(&client.write(&[("/t/node", 0)], &[("/t/node", "x")], lease)));
    let renewed = client.call(Call::KeepAlive(lease));
    assert!(matches!(renewed, Ok(Answer::Renewed { revision: at, .. }) if at >= revision), "{renewed:?}");
    let changes =
        client.changes_until(|all| all.iter().any(|one| one.key == "/t/node" && one.value.is_none()));
    let values: Vec<_> = changes.iter().map(|one| (one.key.as_str(), one.value.as_deref())).collect();
    assert_eq!(values, [("/t/a", Some("2")), ("/t/node", Some("x")), ("/t/node", None)]);
    assert_eq!(client.call(Call::KeepAlive(lease)), Ok(Answer::NoLease));
    let Ok(Answer::Granted(lease, _)) = client.call(Call::Grant(60_000)) else { panic!("a lease") };
    assert!(is_written(&client.write(&[], &[("/t/node", "y")], lease)));
    assert_eq!(client.call(Call::Revoke(lease)), Ok(Answer::Revoked));
    assert_eq!(client.call(Call::Revoke(lease)), Ok(Answer::NoLease));
    assert_eq!(client.write(&[], &[("/t/node", "z")], lease), Ok(Answer::NoLease));
    assert_eq!(client.read(), [("/t/a".to_owned(), "2".to_owned())]);
}

#[test]
fn the_cluster_loses_its_leader_and_goes_on() {
    let mut etcd = Etcd::start(3);
    let mut client = Client::new(etcd.endpoints());
    assert!(is_written(&client.write(&[], &[("/t/a", "1")], 0)));
    let leader = etcd.leader();
    etcd.kill(leader);
    let begin = Instant::now();
    // A write that was under way may be done or not: the caller reads, and decides again.
    let mut tries = 0;
    while !is_written(&client.write(&[], &[("/t/a", "2")], 0)) {
        tries += 1;
        assert!(begin.elapsed() < Duration::from_secs(20), "no leader after {tries} tries");
    }
    println!("writes again {} ms after the leader's end, {tries} failures", begin.elapsed().as_millis());
    assert_eq!(client.read(), [("/t/a".to_owned(), "2".to_owned())]);
}

#[test]
fn without_etcd_every_request_fails_in_time_and_works_again_later() {
    let mut etcd = Etcd::start(3);
    let mut client = Client::new(etcd.endpoints());
    assert!(is_written(&client.write(&[], &[("/t/a", "1")], 0)));
    (0..3).for_each(|member| etcd.pause(member));
    let begin = Instant::now();
    let errors = [
        client.write(&[], &[("/t/a", "2")], 0).unwrap_err(),
        client.call(Call::Read("/t/".to_owned())).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| matches!(error, StoreError::Unknown(_))), "{errors:?}");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    println!("{} ms until: {}", begin.elapsed().as_millis(), errors[0]);
    (0..3).for_each(|member| etcd.go_on(member));
    let values = client.read();
    assert!(["1", "2"].contains(&values[0].1.as_str()), "{values:?}");
    (0..3).for_each(|member| etcd.kill(member));
    let error = client.call(Call::Read("/t/".to_owned())).unwrap_err();
    println!("{error}");
    assert!(error.to_string().starts_with("etcd "), "{error}");
}

#[test]
fn a_member_without_the_others_answers_nothing_old() {
    let etcd = Etcd::start(3);
    let mut client = Client::new(etcd.endpoints());
    assert!(is_written(&client.write(&[], &[("/t/a", "1")], 0)));
    let mut lonely = Client::new(vec![etcd.endpoints()[2].clone()]);
    assert_eq!(lonely.read().len(), 1);
    etcd.pause(0);
    etcd.pause(1);
    // What the others had sent before is used up.
    std::thread::sleep(Duration::from_millis(500));
    let answer = lonely.call(Call::Read("/t/".to_owned()));
    assert!(answer.is_err(), "{answer:?}");
    etcd.go_on(0);
    etcd.go_on(1);
    assert_eq!(lonely.read().len(), 1);
}

#[test]
fn a_watch_ends_with_an_error_when_its_member_ends() {
    let mut etcd = Etcd::start(3);
    let mut client = Client::new(etcd.endpoints());
    assert!(is_written(&client.write(&[], &[("/t/a", "1")], 0)));
    client.watch = client.submit(Call::Watch { prefix: "/t/".to_owned(), from: 1 });
    client.changes_until(|all| !all.is_empty());
    etcd.kill(0);
    let begin = Instant::now();
    loop {
        match client.store.poll().map(|reply| reply.answer) {
            Some(Err(StoreError::WatchEnded(why))) => {
                println!("{why}");
                break;
            }
            _ => assert!(begin.elapsed() < Duration::from_secs(10), "nobody says that the watch has ended"),
        }
    }
    client.watch = client.submit(Call::Watch { prefix: "/t/".to_owned(), from: 1 });
    client.changes_until(|all| !all.is_empty());
}

#[test]
fn a_wrong_password_is_refused_in_words() {
    let etcd = Etcd::start(1);
    etcd.demand_password("root", "secret");
    let with = |password: &str| {
        let user = Some(("root".to_owned(), password.to_owned()));
        Client::with(EtcdSettings { endpoints: etcd.endpoints(), tls: None, user, timeout_ms: 3_000 })
    };
    assert!(is_written(&with("secret").write(&[], &[("/t/a", "1")], 0)));
    let error = with("wrong").call(Call::Read("/t/".to_owned())).unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("authentication failed"), "{error}");
    let error = Client::new(etcd.endpoints()).call(Call::Read("/t/".to_owned())).unwrap_err();
    assert!(matches!(error, StoreError::Refused(_)), "{error:?}");
}

#[test]
fn a_client_signs_in_again_when_users_have_changed() {
    let etcd = Etcd::with_signed_tokens();
    etcd.demand_password("root", "secret");
    let user = Some(("root".to_owned(), "secret".to_owned()));
    let mut client =
        Client::with(EtcdSettings { endpoints: etcd.endpoints(), tls: None, user, timeout_ms: 3_000 });
    assert!(is_written(&client.write(&[], &[("/t/a", "1")], 0)));
    etcd.control(&["--user", "root:secret", "user", "add", "other:word"]);
    let answer = client.write(&[], &[("/t/a", "2")], 0);
    assert!(is_written(&answer), "{answer:?}");
}

#[test]
fn a_lease_is_revoked_although_the_client_ends_at_once() {
    let etcd = Etcd::start(1);
    let mut leaving = Client::new(etcd.endpoints());
    let Ok(Answer::Granted(lease, _)) = leaving.call(Call::Grant(60_000)) else { panic!("a lease") };
    assert!(is_written(&leaving.write(&[], &[("/t/node", "x")], lease)));
    leaving.submit(Call::Revoke(lease));
    drop(leaving);
    assert_eq!(Client::new(etcd.endpoints()).read(), []);
}

#[test]
fn a_watch_tells_revisions_in_order_and_none_before_its_changes() {
    let etcd = Etcd::start(1);
    let mut client = Client::new(etcd.endpoints());
    for value in ["1", "2", "3"] {
        assert!(is_written(&client.write(&[], &[("/t/a", value)], 0)));
    }
    assert!(is_written(&client.write(&[], &[("/elsewhere", "1")], 0)));
    client.watch = client.submit(Call::Watch { prefix: "/t/".to_owned(), from: 1 });
    let reply = client.answer(client.watch, Duration::from_secs(20)).expect("changes");
    let Ok(Answer::Changes(revision, entries)) = reply else { panic!("{reply:?}") };
    assert_eq!(entries.last().map(|entry| entry.revision), Some(revision));
}

#[test]
fn unusable_settings_are_refused_at_the_start() {
    let start = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|one| (*one).to_owned()).collect();
        let settings = EtcdSettings { endpoints, tls: None, user: None, timeout_ms: 100 };
        EtcdStore::start(settings, || ()).err().map(|error| error.to_string())
    };
    assert_eq!(start(&[]).unwrap(), "no endpoint of etcd");
    assert!(start(&["not an address"]).unwrap().starts_with("endpoint not an address of etcd"));
    assert!(start(&["https://127.0.0.1:1"]).unwrap().contains("https needs the authority's certificate"));
    assert_eq!(start(&["http://127.0.0.1:1"]), None);
}
