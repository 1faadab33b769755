//! Answers of the API with real workers, and its resistance to clients that misbehave.

use crate::bed::{Bed, CLIENT, HISTORY_EVERY, LONG, MAPS};
use gatun_api::client::Error;
use gatun_api::paths::{ENDPOINTS, Endpoint, Method, with_query};
use gatun_api::types::*;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

fn sessions(bed: &Bed, query: &[(&str, String)]) -> Vec<Session> {
    pages(bed, "/v1/sessions", query)
}

/// Reads a list page by page.
fn pages<T: DeserializeOwned>(bed: &Bed, path: &str, query: &[(&str, String)]) -> Vec<T> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut query = query.to_vec();
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page: Page<T> = bed.client.get(&with_query(path, &query)).unwrap();
        all.extend(page.items);
        cursor = page.next;
        if cursor.is_none() {
            return all;
        }
    }
}

fn stream(bed: &Bed, query: &str) -> Vec<Session> {
    let body = bed.client.open("GET", &format!("/v1/sessions?format=ndjson{query}"), &[]).unwrap();
    BufReader::new(body).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

fn clear(bed: &Bed, target: &str) -> Cleared {
    bed.client.ask("DELETE", target, &[]).unwrap()
}

fn refused(bed: &Bed, method: &str, target: &str) -> (u16, Problem) {
    match bed.client.ask::<Value>(method, target, &[]) {
        Err(Error::Refused(status, problem)) => (status, problem),
        other => panic!("{method} {target}: {other:?}"),
    }
}

#[test]
fn the_web_page_is_served() {
    let bed = Bed::start(1);
    let mut page = String::new();
    bed.client.open("GET", "/", &[]).unwrap().read_to_string(&mut page).unwrap();
    assert!(page.contains("<title>Gatun</title>") && page.contains("/web/app.js"), "{page}");
    bed.client.open("GET", "/web/app.js", &[]).unwrap();
    assert_eq!(refused(&bed, "POST", "/").0, 404);
}

#[test]
fn every_get_endpoint_answers() {
    let bed = Bed::start(2);
    bed.open(1000..1020);
    // Streams without an end have tests of their own, and there is no cluster.
    let others = ["/v1/events", "/v1/trace", "/v1/cluster/revision"];
    let ends = |endpoint: &&Endpoint| !others.contains(&endpoint.path);
    assert_eq!(refused(&bed, "GET", "/v1/cluster/revision?number=1").0, 404);
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.method == Method::Get).filter(ends) {
        let query: Vec<(&str, String)> = endpoint
            .all_parameters()
            .filter(|parameter| parameter.required)
            .map(|parameter| {
                let value = match parameter.name {
                    "port" => "1",
                    "protocol" => "udp",
                    _ => "192.0.2.1",
                };
                (parameter.name, value.to_owned())
            })
            .collect();
        let mut body = bed.client.open("GET", &with_query(endpoint.path, &query), &[]).unwrap();
        let mut text = String::new();
        body.read_to_string(&mut text).unwrap();
        match endpoint.path {
            "/metrics" => assert!(text.starts_with("# HELP "), "{text}"),
            _ => drop(serde_json::from_str::<Value>(&text).unwrap()),
        }
    }
    let status: Status = bed.client.get("/v1/status").unwrap();
    assert_eq!((status.workers, status.workers_silent, status.packets_accounted), (2, 0, true));
    assert_eq!((status.sessions, status.received.packets, status.forwarded.packets), (20, 20, 20));
    assert_eq!(status.config_file, "/etc/gatun.toml");
    let workers: Vec<Worker> = bed.client.get("/v1/workers").unwrap();
    assert_eq!(workers.iter().map(|worker| worker.received.packets).sum::<u64>(), 20);
    let pools: Vec<Pool> = bed.client.get("/v1/pools").unwrap();
    assert_eq!((pools[0].addresses, pools[0].udp.used, pools[0].subscribers), (2, 20, 1));
    let instances: Vec<Instance> = bed.client.get("/v1/instances").unwrap();
    assert_eq!((instances[0].kind, instances[0].udp.sessions.now), (Kind::Nat64, 20));
    assert_eq!((instances[0].matched.packets, instances[0].selectors.pool.as_deref()), (20, Some("p")));
    let drops: Vec<Drop> = bed.client.get("/v1/drops").unwrap();
    assert!(drops.iter().all(|drop| !drop.help.is_empty()) && drops.len() > 20);
    let addresses: Page<Address> = bed.client.get("/v1/addresses").unwrap();
    assert_eq!(addresses.items.iter().map(|address| address.udp.used).sum::<u64>(), 20);
    let subscribers: Page<Subscriber> = bed.client.get("/v1/subscribers").unwrap();
    assert_eq!((subscribers.items.len(), subscribers.items[0].sessions), (1, 20));
    assert_eq!(subscribers.items[0].subscriber, format!("{CLIENT}/128"));
}

#[test]
fn pages_and_stream_have_each_session_once() {
    for workers in [1, 3] {
        let bed = Bed::start(workers);
        bed.open_for(30, 1000..1020);
        let pages = sessions(&bed, &[("limit", "7".into())]);
        assert_eq!(pages.len(), 600);
        // Only the times differ.
        let keys = |all: &[Session]| all.iter().map(SessionKey::of).collect::<Vec<_>>();
        assert!(keys(&pages) == keys(&stream(&bed, "")) && keys(&pages) == keys(&sessions(&bed, &[])));
        let ends: BTreeSet<_> = pages.iter().map(|session| (session.inside, session.inside_port)).collect();
        assert_eq!(ends.len(), 600);
        let outside: BTreeSet<_> =
            pages.iter().map(|session| (session.outside, session.outside_port)).collect();
        assert_eq!(outside.len(), 600);
        let some = sessions(&bed, &[("inside", pages[0].inside.to_string()), ("limit", "3".into())]);
        assert_eq!(some.len(), 20);
        assert!(some.iter().all(|session| session.inside == pages[0].inside));
        assert_eq!(stream(&bed, "&inside_port=1005").len(), 30);
        let none = sessions(&bed, &[("protocol", "tcp".into())]);
        assert!(none.is_empty() && stream(&bed, "&remote=192.0.2.0/24").is_empty());
        bed.stop();
    }
}

#[test]
fn who_and_where_agree() {
    let bed = Bed::start(2);
    bed.open_for(5, 1000..1010);
    for session in stream(&bed, "&inside_port=1003") {
        let target = format!("/v1/who?address={}&port={}", session.outside, session.outside_port);
        let who: PortHolder = bed.client.get(&target).unwrap();
        assert_eq!((who.sessions.len(), who.bindings.len(), who.more_sessions), (1, 1, false));
        assert_eq!(SessionKey::of(&who.sessions[0]), SessionKey::of(&session));
        assert_eq!(who.pool, Some(Name("p".into())));
        let whereabouts: HostPorts =
            bed.client.get(&format!("/v1/where?address={}", session.inside)).unwrap();
        assert_eq!((whereabouts.bindings.len(), whereabouts.subscribers.len()), (10, 1));
        assert!(whereabouts.bindings.contains(&who.bindings[0]));
        assert_eq!(whereabouts.subscribers[0].address, Some(session.outside));
    }
    let nobody: PortHolder = bed.client.get("/v1/who?address=192.0.2.77&port=1").unwrap();
    assert_eq!((nobody.pool, nobody.sessions.len(), nobody.outcome), (None, 0, Outcome::Nobody));
}

#[test]
fn sessions_are_ended_by_filter_and_by_list_and_the_client_is_logged() {
    let bed = Bed::start(2);
    bed.open_for(10, 1000..1010);
    let (status, problem) = refused(&bed, "DELETE", "/v1/sessions");
    assert_eq!((status, problem.error.as_str()), (400, "no filter given"));
    assert!(problem.hint.contains("all=true"), "{problem:?}");
    assert_eq!(clear(&bed, "/v1/sessions?inside_port=1004"), Cleared { sessions: 10, bindings: 10 });
    assert_eq!(clear(&bed, "/v1/bindings?inside_port=1005"), Cleared { sessions: 10, bindings: 10 });
    let keys: Vec<SessionKey> = stream(&bed, "&inside_port=1006").iter().map(SessionKey::of).collect();
    let mut twice = keys.clone();
    twice.extend(keys.iter().cloned());
    let body = serde_json::to_vec(&SessionKeys { sessions: twice }).unwrap();
    let ended: Cleared = bed.client.ask("POST", "/v1/sessions/end", &body).unwrap();
    assert_eq!(ended, Cleared { sessions: 10, bindings: 10 });
    assert_eq!(stream(&bed, "").len(), 70);
    assert_eq!(clear(&bed, "/v1/sessions?all=true"), Cleared { sessions: 70, bindings: 70 });
    assert_eq!(bed.client.get::<Status>("/v1/status").unwrap().sessions, 0);
    let log = bed.log();
    assert!(log[0].contains("uid ") && log[0].contains("'inside_port=1004'"), "{log:?}");
    assert!(log[0].ends_with("10 sessions, 10 bindings"), "{log:?}");
    // The following ones are summed up in one line or more, which together count all.
    let of_line = |line: &String| -> u64 {
        let counts = line.strip_suffix(" bindings").unwrap().rsplit(": ").next().unwrap();
        counts.split(' ').next().unwrap().parse().unwrap()
    };
    let looks = (0..500).take_while(|_| {
        std::thread::sleep(Duration::from_millis(20));
        bed.log().iter().map(of_line).sum::<u64>() < 100
    });
    assert!(looks.count() < 500, "{:?}", bed.log());
    assert!(bed.log().last().unwrap().contains("'all=true'"), "{:?}", bed.log());
    bed.stop();
}

#[test]
fn wrong_requests_are_refused_with_error_and_hint() {
    let bed = Bed::start(1);
    for (method, target, wanted, error, hint) in [
        ("GET", "/v1", 404, "unknown path", "/openapi.json"),
        ("GET", "/v1/sessions/", 404, "unknown path", ""),
        ("PUT", "/v1/sessions", 405, "method not allowed", "GET, DELETE"),
        ("POST", "/v1/status", 405, "method not allowed", "GET"),
        ("GET", "/v1/sessions?insid=::1", 400, "unknown parameter 'insid'", "inside_port"),
        ("GET", "/v1/status?x=1", 400, "unknown parameter 'x'", "no parameters"),
        ("GET", "/v1/sessions?limit=0", 400, "limit: 0 is not from 1", ""),
        ("GET", "/v1/sessions?limit=1&limit=2", 400, "duplicate parameter 'limit'", "once"),
        ("GET", "/v1/sessions?inside=2001:db8::1/64", 400, "bits set after its length", "clear"),
        ("GET", "/v1/sessions?inside=nonsense", 400, "'nonsense' is not an address", ""),
        ("GET", "/v1/sessions?outside=::1", 400, "'::1' is not an IPv4 address", ""),
        ("GET", "/v1/sessions?outside_port=65536", 400, "'65536' is not a port", ""),
        ("GET", "/v1/sessions?protocol=sctp", 400, "'sctp' is not one of tcp, udp, icmp", ""),
        ("GET", "/v1/sessions?instance=x", 400, "unknown instance 'x'", "known: n"),
        ("GET", "/v1/sessions?pool=x", 400, "unknown pool 'x'", "known: p"),
        ("GET", "/v1/sessions?cursor=1-2", 400, "cursor", "next"),
        ("GET", "/v1/sessions?cursor=%zz", 400, "percent-encoded", ""),
        ("GET", "/v1/sessions?format=xml", 400, "unknown format 'xml'", "ndjson"),
        ("GET", "/v1/bindings?remote=192.0.2.1", 400, "unknown parameter 'remote'", ""),
        ("GET", "/v1/who?port=1", 400, "missing parameter 'address'", "Public address"),
        ("GET", "/v1/who?address=1.2.3.4&port=x", 400, "'x' is not a port", ""),
        ("DELETE", "/v1/sessions?all=perhaps", 400, "'perhaps' is not true or false", ""),
    ] {
        let (status, problem) = refused(&bed, method, target);
        assert_eq!(status, wanted, "{target}: {problem:?}");
        assert!(problem.error.contains(error) && problem.hint.contains(hint), "{target}: {problem:?}");
    }
    for body in [&b"not json"[..], b"{}", b"{\"sessions\":[{}]}", b"{\"sessions\":1}", b"\xff\xff"] {
        let error = bed.client.ask::<Cleared>("POST", "/v1/sessions/end", body).unwrap_err();
        assert!(
            matches!(&error, Error::Refused(400, problem) if problem.error.contains("the body")),
            "{error}"
        );
    }
    // A cursor beyond the end leads to an empty page.
    let page: Page<Session> = bed.client.get("/v1/sessions?cursor=9-18446744073709551615-0-0-0").unwrap();
    assert_eq!((page.items.len(), page.next), (0, None));
    for list in ["bindings", "blocks", "addresses", "subscribers", "sessions"] {
        let max = u64::MAX;
        let target = format!("/v1/{list}?cursor=0-{max}-{max}-{max}-{max}");
        let page: Page<Value> = bed.client.get(&target).unwrap();
        assert_eq!((page.items.len(), page.next), (0, None), "{list}");
    }
}

#[test]
fn an_ended_worker_is_reported() {
    let bed = Bed::start(2);
    bed.open(1000..1010);
    bed.handles[1].stop();
    let deadline = std::time::Instant::now() + LONG;
    while bed.client.get::<Status>("/v1/status").unwrap().workers_silent != 1 {
        assert!(std::time::Instant::now() < deadline);
    }
    assert_eq!(refused(&bed, "GET", "/v1/pools").0, 503);
    let error =
        bed.client.open("GET", "/v1/sessions?format=ndjson", &[]).unwrap().read_to_end(&mut Vec::new());
    assert!(error.is_err(), "an incomplete list is an error");
    let workers: Vec<Worker> = bed.client.get("/v1/workers").unwrap();
    assert_eq!(workers.iter().map(|worker| worker.answers).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn the_tcp_socket_serves_only_metrics() {
    let bed = Bed::start(1);
    bed.open(1000..1005);
    let ask = |path: &str, accept: &str| {
        let mut stream = TcpStream::connect(bed.metrics).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let plain = ask("/metrics", "*/*");
    assert!(plain.starts_with("HTTP/1.1 200") && plain.contains("text/plain; version=0.0.4"), "{plain}");
    assert!(plain.contains("gatun_worker_sessions{worker=\"0\"} 5\n") && !plain.contains("# EOF"));
    let open = ask("/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(open.contains("application/openmetrics-text") && open.ends_with("# EOF\n"), "{open}");
    for path in ["/v1/sessions", "/openapi.json", "/"] {
        assert!(ask(path, "*/*").starts_with("HTTP/1.1 404"), "{path}");
    }
}

fn explain(bed: &Bed, query: &str) -> Explanation {
    bed.client.get(&format!("/v1/explain?{query}")).unwrap()
}

#[test]
fn explain_asks_the_flows_worker_and_changes_nothing() {
    let bed = Bed::start(2);
    bed.open_for(8, 5000..5001);
    let before = bed.client.get::<Vec<Counter>>("/v1/counters").unwrap();
    let known = sessions(&bed, &[]);
    assert_eq!(known.len(), 8);
    let mut workers = BTreeSet::new();
    for session in &known {
        let Session { inside, inside_port, remote, remote_port, .. } = session;
        let of_flow = format!("source={inside}&source_port={inside_port}&destination={remote}");
        let told = explain(&bed, &format!("{of_flow}&destination_port={remote_port}&protocol=udp"));
        assert_eq!(told.fate, Fate::Forwarded, "{told:?}");
        let mine = told.session.as_ref().unwrap();
        assert_eq!((mine.outside, mine.outside_port), (session.outside, session.outside_port));
        let becomes = told.becomes.as_ref().unwrap();
        assert_eq!(becomes.source, std::net::IpAddr::from(session.outside));
        assert_eq!((becomes.source_port, becomes.bytes), (Some(session.outside_port), 80));
        workers.insert(told.worker);
        // Another remote host uses the same binding; another port of the host gets a new one.
        let other = explain(&bed, &format!("{of_flow}&destination_port=9&protocol=udp"));
        let opening = other.opening.unwrap();
        assert_eq!((opening.from, opening.port), (PortFrom::Binding, Some(session.outside_port)));
        let new = explain(&bed, &format!("source={inside}&destination={remote}&protocol=tcp"));
        let opening = new.opening.as_ref().unwrap();
        assert_eq!((opening.from, opening.address, opening.port), (PortFrom::Address, session.outside, None));
        assert_eq!(new.becomes.unwrap().source_port, None);
        // The answer back in.
        let back = format!("source={remote}&source_port={remote_port}&destination={}", session.outside);
        let port = session.outside_port;
        let back = explain(&bed, &format!("{back}&destination_port={port}&protocol=udp"));
        assert_eq!(back.becomes.as_ref().unwrap().destination, *inside, "{back:?}");
        assert_eq!(back.worker, told.worker);
    }
    assert_eq!(workers.len(), 2);
    assert_eq!(bed.client.get::<Vec<Counter>>("/v1/counters").unwrap(), before, "no counter moved");
    let mut after = sessions(&bed, &[]);
    after.iter_mut().zip(&known).for_each(|(a, b)| a.expires_ms = b.expires_ms);
    assert_eq!(after, known);
    bed.stop();
}

#[test]
fn a_drop_is_explained_by_its_reason_its_rule_and_its_answer() {
    let bed = Bed::start(1);
    let told = explain(&bed, &format!("source={CLIENT}&destination=203.0.113.7&protocol=tcp&flags=A"));
    assert_eq!((told.fate, told.reason.as_deref()), (Fate::Dropped, Some("non_syn_closed")));
    assert!(told.rule.as_ref().unwrap().starts_with("RFC 6146 3.5.2.2"), "{told:?}");
    assert!(told.why.iter().any(|sentence| sentence.contains("64:ff9b::/96 of nat64 'n'")), "{told:?}");
    let told = explain(&bed, &format!("source={CLIENT}&destination=203.0.113.7&protocol=udp&bytes=1600"));
    assert_eq!((told.fate, told.mtu), (Fate::Dropped, Some(1520)), "{told:?}");
    let told = explain(&bed, "source=2001:db8::1&destination=2001:db8::2&protocol=icmp");
    assert_eq!((told.reason.as_deref(), &told.instance), (Some("dst_not_pref64"), &None));
    let (status, problem) = refused(&bed, "GET", "/v1/explain?source=192.0.2.1&destination=::1&protocol=udp");
    assert!(status == 400 && problem.error.contains("different families"), "{problem:?}");
    bed.stop();
}

#[test]
fn subscribers_addresses_pools_and_instances_have_the_same_packets_and_bytes() {
    let bed = Bed::start(2);
    bed.open_for(6, 5000..5003);
    bed.open_for(2, 6000..6004);
    let sum = |all: &mut dyn Iterator<Item = Count>| {
        all.fold((0, 0), |(packets, bytes), one| (packets + one.packets, bytes + one.bytes))
    };
    let instances: Vec<Instance> = bed.client.get("/v1/instances").unwrap();
    let wanted = sum(&mut instances.into_iter().map(|one| one.outbound));
    assert_eq!(wanted.0, 6 * 3 + 2 * 4);
    let subscribers = bed.client.get::<Page<Subscriber>>("/v1/subscribers").unwrap().items;
    assert_eq!(sum(&mut subscribers.iter().map(|one| one.outbound.clone())), wanted);
    let addresses = bed.client.get::<Page<Address>>("/v1/addresses").unwrap().items;
    assert_eq!(sum(&mut addresses.into_iter().map(|one| one.outbound)), wanted);
    let pools: Vec<Pool> = bed.client.get("/v1/pools").unwrap();
    assert_eq!(sum(&mut pools.into_iter().map(|one| one.outbound)), wanted);
    let top: Vec<Subscriber> = bed.client.get("/v1/top?count=3&by=bytes").unwrap();
    assert_eq!(top.iter().map(|one| one.outbound.packets).collect::<Vec<_>>(), [7, 7, 3]);
    assert!(refused(&bed, "GET", "/v1/top?by=age").1.error.contains("bytes"));
    let mut metrics = String::new();
    bed.client.open("GET", "/metrics", &[]).unwrap().read_to_string(&mut metrics).unwrap();
    let is_there = |metric: &str, value: u64| {
        metrics.lines().any(|line| {
            line.starts_with(metric)
                && line.contains("direction=\"outbound\"")
                && line.ends_with(&format!(" {value}"))
        })
    };
    assert!(is_there("gatun_pool_packets_total{", wanted.0), "{metrics}");
    assert!(is_there("gatun_pool_bytes_total{", wanted.1), "{metrics}");
    assert!(metrics.contains("gatun_top_subscriber_bytes_total{"), "{metrics}");
    bed.stop();
}

#[test]
fn the_subscribers_with_most_sessions_come_first() {
    let bed = Bed::start(2);
    bed.open_for(6, 5000..5003);
    bed.open_for(2, 6000..6004);
    let top: Vec<Subscriber> = bed.client.get("/v1/top?count=3").unwrap();
    assert_eq!(top.iter().map(|s| s.sessions).collect::<Vec<_>>(), [7, 7, 3]);
    assert_eq!(bed.client.get::<Vec<Subscriber>>("/v1/top").unwrap().len(), 6);
    assert_eq!(refused(&bed, "GET", "/v1/top?count=0").0, 400);
    assert!(refused(&bed, "GET", "/v1/events").1.error.contains("events are switched off"));
    assert!(refused(&bed, "GET", "/v1/trace?count=0").1.error.contains("count: 0 is not from 1"));
    bed.stop();
}

#[test]
fn a_trace_has_only_matching_packets_and_does_not_delay_others() {
    let bed = Bed::start(2);
    let body = bed.client.open("GET", "/v1/trace?protocol=udp&count=5&port=7003", &[]).unwrap();
    // The next trace has to wait for the end of this one.
    assert!(refused(&bed, "GET", "/v1/trace").1.error.contains("another trace is running"));
    bed.open_for(8, 7000..7010);
    let lines: Vec<TracedPacket> =
        BufReader::new(body).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    for packet in &lines {
        let (before, after) = (packet.packet.as_ref().unwrap(), packet.becomes.as_ref().unwrap());
        assert_eq!((packet.fate, packet.lost), (Fate::Forwarded, 0));
        assert!(before.source_port == Some(7003) || before.destination_port == Some(7003), "{packet:?}");
        assert_eq!(after.destination, std::net::IpAddr::from(crate::bed::REMOTE));
        assert!(packet.why.iter().any(|sentence| sentence.contains("it opens a session")), "{packet:?}");
        assert_eq!(packet.before_bytes, packet.after_bytes + 20);
    }
    assert_eq!(bed.client.get::<Status>("/v1/status").unwrap().sessions, 80);
    bed.stop();
}

#[test]
fn an_order_reaches_its_receiver_and_the_result_the_client() {
    let bed = Bed::start(1);
    let target = "/v1/config/apply?revision=ab&confirm_seconds=60";
    let refused = bed.client.ask::<ConfigApplied>("POST", target, b"{\"text\": \"[[pool]]\"}").unwrap_err();
    let Error::Refused(409, problem) = refused else { panic!("{refused}") };
    assert!(
        problem.error.starts_with("Apply(ApplyOptions { revision: \"ab\", confirm: Some(60s), who: \"uid "),
        "{problem:?}"
    );
    assert!(problem.error.ends_with("\"[[pool]]\")"), "{problem:?}");
    bed.stop();
}

#[test]
fn a_member_of_a_pair_releases_and_its_refusal_has_the_reason() {
    let bed = Bed::start(1);
    let peer: Peer = bed.client.get("/v1/peer").unwrap();
    assert_eq!((peer.state, peer.member), (PeerState::Synced, Some(PeerMember::B)));
    let after: Peer = bed.client.ask("POST", "/v1/peer/release", &[]).unwrap();
    assert_eq!(after, peer);
    let (status, problem) = refused(&bed, "POST", "/v1/peer/takeover");
    assert_eq!((status, problem.error.as_str()), (409, "the peer is connected"));
    assert!(problem.hint.contains("gatun peer status"), "{problem:?}");
    let log = bed.log();
    let lines: Vec<_> = log.iter().filter(|line| line.contains("peer")).collect();
    assert!(lines.len() == 1 && lines[0].ends_with("gives the public addresses to the peer"), "{lines:?}");
    bed.stop();
}

#[test]
fn a_request_with_an_unknown_field_is_refused_and_changes_nothing() {
    let bed = Bed::start(1);
    bed.open(1..3);
    let keys: Vec<SessionKey> = sessions(&bed, &[]).iter().map(SessionKey::of).collect();
    let mut body = serde_json::to_value(SessionKeys { sessions: keys }).unwrap();
    body["sessions"][1]["only_tcp"] = true.into();
    let map = r#"{"instance": null, "protocol": null, "inside": "::1", "outside": "192.0.2.1"}"#;
    let odd = map.replace('}', r#", "x": 1}"#);
    for (method, target, body, field) in [
        ("POST", "/v1/sessions/end", body.to_string(), "sessions.1.only_tcp"),
        ("POST", "/v1/config/plan", r#"{"text": "", "dry": true}"#.to_owned(), "dry"),
        ("PUT", "/v1/maps", format!(r#"{{"maps": [{map}, {odd}]}}"#), "maps.1.x"),
        ("PATCH", "/v1/maps", format!(r#"{{"remove": [{odd}]}}"#), "remove.?.0.x"),
        ("PATCH", "/v1/maps/plan", format!(r#"{{"maps": [{map}]}}"#), "maps"),
    ] {
        match bed.client.ask::<Value>(method, target, body.as_bytes()) {
            Err(Error::Refused(400, problem)) => {
                assert!(problem.error.contains(&format!("unknown field `{field}`")), "{problem:?}");
            }
            other => panic!("{target}: {other:?}"),
        }
    }
    assert_eq!(sessions(&bed, &[]).len(), 2);
    bed.stop();
}

#[test]
fn the_history_is_recorded_without_requests() {
    let bed = Bed::start(2);
    let history = || bed.client.get::<History>("/v1/history").unwrap();
    let until = |what: &str, is_so: &dyn Fn(&History) -> bool| {
        let is_so = || is_so(&history());
        gatun_testkit::wait_until(what, LONG, is_so).unwrap();
    };
    until("points", &|history| history.points.len() >= 3);
    bed.open_for(2, 1..11);
    let sum = |history: &History, of: fn(&HistoryPoint) -> u64| history.points.iter().map(of).sum::<u64>();
    until("the sessions", &|history| sum(history, |point| point.sessions_created) == 20);
    let told = history();
    assert_eq!(told.every_ms, HISTORY_EVERY.as_millis() as u64);
    assert_eq!(sum(&told, |point| point.forwarded_packets), 20);
    assert_eq!(sum(&told, |point| point.received_packets), 20);
    assert!(sum(&told, |point| point.forwarded_bytes) >= 20 * 58);
    let last = told.points.last().unwrap();
    assert_eq!((last.sessions, last.subscribers, told.points[0].sessions), (20, 2, 0));
    assert!(told.points.windows(2).all(|two| two[0].age_ms > two[1].age_ms), "{told:?}");
    bed.stop();
}

#[test]
fn pages_and_stream_have_the_same_mappings() {
    let bed = Bed::start(1);
    let all: Vec<StaticMap> = pages(&bed, "/v1/maps", &[("limit", "999".to_owned())]);
    assert_eq!((all.len(), &all[MAPS - 1].outside[..]), (MAPS, "198.18.39.15"));
    let body = bed.client.open("GET", "/v1/maps?format=ndjson", &[]).unwrap();
    let lines = BufReader::new(body).lines();
    assert_eq!(
        lines.map(|l| serde_json::from_str::<StaticMap>(&l.unwrap()).unwrap()).collect::<Vec<_>>(),
        all
    );
    let page: Page<StaticMap> = bed.client.get("/v1/maps").unwrap();
    assert_eq!((page.items.len(), page.next.as_deref()), (1000, Some("r-1000")));
    for (query, wanted) in
        [("cursor=r", "not a cursor of this list"), ("limit=10001", "limit"), ("inside=::1", "inside")]
    {
        match bed.client.get::<Page<StaticMap>>(&format!("/v1/maps?{query}")) {
            Err(Error::Refused(400, problem)) => assert!(problem.error.contains(wanted), "{problem:?}"),
            other => panic!("{query}: {other:?}"),
        }
    }
}
