//! Links between two members, over TCP and TLS on loopback. Time is an argument: each turn is one ms.
#![allow(missing_docs)]

mod pki;
mod support;

use gatun_peer::link::{Acceptor, Link, LinkSettings, LinkState};
use gatun_peer::ownership::Member;
use gatun_peer::tls::{SERVER_NAME, server_name};
use gatun_peer::wire::{Exchange, Frame, Hello, PeerRecord, Received};
use pki::{Authority, Files};
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;
use support::{session, settings};

/// Time in ms without bytes of the peer after which a link closes.
const DEAD_AFTER_MS: u64 = 1_000;
/// Turns in which a step must be done. Each takes a ms of real time, or more.
const TURNS_MAX: u64 = 20_000;

struct End {
    link: Link,
    exchange: Exchange,
    received: Vec<Received>,
    now_ms: u64,
    /// True if it refuses each greeting.
    refuses: bool,
}

impl End {
    fn new(member: Member, files: &Files, listen: Option<TcpListener>, connect: Option<SocketAddr>) -> End {
        End::to(SERVER_NAME, member, files, (listen, connect))
    }

    /// End of a link to the box with this name in its certificate.
    fn to(
        name: &str,
        member: Member,
        files: &Files,
        (listen, connect): (Option<TcpListener>, Option<SocketAddr>),
    ) -> End {
        let process = if member == Member::First { 1 } else { 2 };
        let (files, name) = (files.paths(), name.to_owned());
        let settings_ = LinkSettings { member, listen, connect, files, name, dead_after_ms: DEAD_AFTER_MS };
        End {
            link: Link::new(settings_).unwrap(),
            exchange: Exchange::new(settings(member, process)),
            received: Vec::new(),
            now_ms: 0,
            refuses: false,
        }
    }

    fn turn(&mut self) -> LinkState {
        self.now_ms += 1;
        self.exchange.turn(self.now_ms);
        let state = self.link.turn(self.now_ms, &mut self.exchange, true, &mut self.received, true).clone();
        if self.refuses && self.exchange.is_open() {
            self.exchange.forget_peer(self.now_ms, "no");
            self.link.close(self.now_ms, &mut self.exchange, "no");
        }
        self.exchange.accept_greeting(self.now_ms);
        if self.exchange.needs_walk() {
            self.exchange.push(self.now_ms, PeerRecord::StateBegins);
            self.exchange.push(self.now_ms, PeerRecord::StateEnds);
        }
        state
    }

    fn state(&self) -> &LinkState {
        self.link.state()
    }

    fn is_up(&self) -> bool {
        self.state().is_up
    }

    fn why(&self) -> String {
        self.state().why.clone().unwrap_or_default()
    }

    /// Number of sessions that it has received.
    fn sessions(&self) -> usize {
        let records = self.received.iter().filter_map(|one| match one {
            Received::Records(records) => Some(&records.records),
            _ => None,
        });
        records.flatten().filter(|record| matches!(record, PeerRecord::Session(_))).count()
    }

    fn tell(&mut self, n: u32) {
        self.exchange.push(self.now_ms, PeerRecord::Session(session(n, true))).unwrap();
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Turns boxes until a condition holds.
fn until<const N: usize>(what: &str, mut boxes: [&mut End; N], is: impl Fn(&[&mut End; N]) -> bool) {
    for _ in 0..TURNS_MAX {
        boxes.iter_mut().for_each(|one| drop(one.turn()));
        if is(&boxes) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    let states: Vec<_> = boxes.iter().map(|one| one.state().clone()).collect();
    panic!("{what}: {states:?}");
}

/// Two boxes: the second one connects.
fn pair(first: &Files, second: &Files) -> (End, End) {
    let (listener, address) = listen();
    let first = End::new(Member::First, first, Some(listener), None);
    (first, End::new(Member::Second, second, None, Some(address)))
}

fn connected(authority: &Authority) -> (End, End) {
    let (mut first, mut second) = pair(&authority.files(), &authority.files());
    until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
    (first, second)
}

#[test]
fn records_pass_in_both_directions() {
    let (mut first, mut second) = connected(&Authority::new());
    first.tell(1);
    second.tell(2);
    second.tell(3);
    until("records arrive", [&mut first, &mut second], |[first, second]| {
        (first.sessions(), second.sessions()) == (2, 1)
    });
    let remote = second.state().remote.unwrap();
    assert!(remote.ip().is_loopback() && second.link.timeout_ms(second.now_ms) <= DEAD_AFTER_MS);
}

#[test]
fn one_connection_remains_if_both_connect() {
    let authority = Authority::new();
    for begins in [[0, 0], [0, 40], [40, 0]] {
        let ((one, of_first), (other, of_second)) = (listen(), listen());
        let mut first = End::new(Member::First, &authority.files(), Some(one), Some(of_second));
        let mut second = End::new(Member::Second, &authority.files(), Some(other), Some(of_first));
        // One of them may start later.
        for turn in 0..80 {
            let [at_first, at_second] = begins;
            (turn >= at_first).then(|| first.turn());
            (turn >= at_second).then(|| second.turn());
            thread::sleep(Duration::from_millis(1));
        }
        until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
        let connections = [first.state().connections, second.state().connections];
        first.tell(1);
        second.tell(2);
        let end_ms = first.now_ms + 2 * DEAD_AFTER_MS;
        until("time passes", [&mut first, &mut second], |[first, _]| first.now_ms > end_ms);
        assert!(first.is_up() && second.is_up(), "{:?} {:?}", first.state(), second.state());
        assert_eq!([first.state().connections, second.state().connections], connections);
        assert_eq!((first.sessions(), second.sessions()), (1, 1));
    }
}

#[test]
fn strangers_are_refused_in_words() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let stranger = Files { authority: ours.pem(), ..theirs.files() };
    for (first, second, at_first, at_second) in [
        (ours.files(), theirs.files(), "", "not from the authority of this pair"),
        (
            ours.files(),
            stranger,
            "not from the authority of this pair",
            "refuses the certificate of this box",
        ),
        (ours.expired(), ours.files(), "", "has expired: run `gatun peer renew`"),
        (ours.files(), ours.expired(), "has expired", "which has expired, or is not valid yet"),
        (ours.files(), ours.early(), "is not valid yet", "and check the clocks of both boxes"),
    ] {
        let (mut first, mut second) = pair(&first, &second);
        until("both say why", [&mut first, &mut second], |[first, second]| {
            assert!(!first.is_up() && !second.is_up());
            first.why().contains(at_first) && !first.why().is_empty() && second.why().contains(at_second)
        });
        // It does not try in a loop.
        assert!(second.link.timeout_ms(second.now_ms) >= 1);
    }
}

#[test]
fn boxes_that_refuse_each_other_try_again_more_and_more_slowly() {
    let authority = Authority::new();
    let ((one, of_first), (other, of_second)) = (listen(), listen());
    let mut first = End::new(Member::First, &authority.files(), Some(one), Some(of_second));
    let mut second = End::new(Member::Second, &authority.files(), Some(other), Some(of_first));
    (first.refuses, second.refuses) = (true, true);
    until("they have tried", [&mut first, &mut second], |[first, second]| {
        assert!(!first.is_up() && !second.is_up());
        first.state().connections >= 14
    });
    assert!(first.why().contains("no"), "{}", first.why());
    // Both try: after 50 ms, 100 ms, and so on.
    assert!(first.now_ms > 2_000, "{} connections in {} ms", first.state().connections, first.now_ms);
    (first.refuses, second.refuses) = (false, false);
    until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
}

#[test]
fn a_silent_stranger_does_not_delay_the_own_connection() {
    let ((listener, own), (closed, dead)) = (listen(), listen());
    drop(closed);
    let mut one = End::new(Member::First, &Authority::new().files(), Some(listener), Some(dead));
    let _stranger = TcpStream::connect(own).unwrap();
    until("the stranger is given up", [&mut one], |[one]| one.why().contains("does not finish"));
    // The next attempt was due after half of the usual time.
    let wait_ms = one.link.timeout_ms(one.now_ms);
    assert!(wait_ms < 900, "{wait_ms} ms");
}

#[test]
fn a_connection_that_is_no_peer_ends_in_words_and_the_peer_can_connect() {
    let authority = Authority::new();
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    let mut web = TcpStream::connect(address).unwrap();
    web.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until("it says so", [&mut first], |[first]| first.why().contains("does not speak TLS"));
    // Strangers that say nothing do not keep the peer out.
    let silent: Vec<_> = (0..9).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut second = End::new(Member::Second, &authority.files(), None, Some(address));
    until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
    let end_ms = first.now_ms + 4_000;
    until("time passes", [&mut first, &mut second], |[first, _]| first.now_ms > end_ms);
    for mut stranger in silent {
        // Closed by the link.
        stranger.set_nonblocking(true).unwrap();
        assert!(!matches!(stranger.read(&mut [0; 8]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock));
    }
    assert!(first.is_up() && second.is_up());
}

/// Peer of which a test writes each byte.
struct Raw(StreamOwned<ClientConnection, TcpStream>);

impl Raw {
    /// Connects to a box, which does its turns meanwhile.
    fn connect(first: &mut End, address: SocketAddr, files: &Files) -> Raw {
        let tls = files.identity(|identity| identity.client().unwrap());
        let connecting = thread::spawn(move || {
            let socket = TcpStream::connect(address).unwrap();
            let mut stream = StreamOwned::new(ClientConnection::new(tls, server_name()).unwrap(), socket);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            stream
        });
        let before = first.state().connections;
        until("it connects", [first], |[first]| first.state().connections > before);
        Raw(connecting.join().unwrap())
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
        self.0.flush().unwrap();
    }

    fn greeting() -> Hello {
        Hello::new(Member::Second, "raw", 7)
    }

    fn greet(&mut self) {
        self.send(&[frame(&Frame::Hello(Raw::greeting())), frame(&Frame::Alive(0))].concat());
    }
}

fn frame(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.put(&mut bytes);
    bytes
}

#[test]
fn frames_that_are_wrong_close_the_connection_in_words() {
    let authority = Authority::new();
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    let later = Hello { layouts: (900, 901), ..Raw::greeting() };
    let same = Hello { member: Member::First, ..Raw::greeting() };
    let long = [0xff; 64];
    let cases: [(Vec<u8>, &str); 5] = [
        (frame(&Frame::Hello(later)), "the peer uses layouts 900 to 901"),
        (frame(&Frame::Hello(same)), "the peer is member a, too"),
        (long.to_vec(), "frame of 4294967295 bytes"),
        (frame(&Frame::Alive(0)), "frame before the greeting"),
        ([frame(&Frame::Hello(Raw::greeting())), vec![0, 0, 0, 1, 99]].concat(), "unknown frame of kind 99"),
    ];
    for (bytes, why) in cases {
        let mut raw = Raw::connect(&mut first, address, &authority.files());
        raw.send(&bytes);
        until(why, [&mut first], |[first]| first.why().contains(why) && !first.is_up());
    }
    // A frame without its end, and a connection that ends within it.
    let mut raw = Raw::connect(&mut first, address, &authority.files());
    raw.greet();
    until("it is up", [&mut first], |[first]| first.is_up());
    raw.send(&[0, 0, 0, 9, 1]);
    drop(raw);
    until("it ends", [&mut first], |[first]| first.why().contains("has closed the connection"));
    assert_eq!(first.sessions(), 0);
}

#[test]
fn a_group_that_comes_again_is_not_received_again() {
    let authority = Authority::new();
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    let mut raw = Raw::connect(&mut first, address, &authority.files());
    // The peer's exchange, whose bytes the test has.
    let mut peer = Exchange::new(settings(Member::Second, 7));
    peer.open(0, true);
    let mut output = Vec::new();
    peer.take_output(&mut output);
    raw.send(&output);
    let hello = frame(&Frame::Hello(Hello::new(Member::First, "first", 1)));
    peer.receive(0, &hello, &mut Vec::new()).unwrap();
    let mut groups = Vec::new();
    peer.push(0, PeerRecord::StateBegins);
    peer.push(0, PeerRecord::Session(session(3, true)));
    peer.push(0, PeerRecord::StateEnds);
    peer.turn(100);
    peer.take_output(&mut groups);
    raw.send(&groups);
    until("it arrives", [&mut first], |[first]| first.sessions() == 1);
    let end_ms = first.now_ms + 50;
    raw.send(&groups);
    until("time passes", [&mut first], |[first]| first.now_ms > end_ms);
    assert_eq!(first.sessions(), 1);
    assert!(first.is_up(), "{:?}", first.state());
}

#[test]
fn the_streams_go_on_after_a_break() {
    let (mut first, mut second) = connected(&Authority::new());
    first.tell(1);
    until("it arrives", [&mut first, &mut second], |[_, second]| second.sessions() == 1);
    let now_ms = second.now_ms;
    second.link.close(now_ms, &mut second.exchange, "test");
    assert!(!second.is_up() && second.why() == "test");
    // Said while there is no connection.
    first.tell(2);
    until("they connect again", [&mut first, &mut second], |[first, second]| {
        first.is_up() && second.is_up() && second.state().connections == 2
    });
    until("it arrives", [&mut first, &mut second], |[_, second]| second.sessions() == 2);
    let walks = |one: &End| {
        let records = one.received.iter().filter_map(|one| match one {
            Received::Records(records) => Some(&records.records),
            _ => None,
        });
        records.flatten().filter(|record| **record == PeerRecord::StateBegins).count()
    };
    assert_eq!(walks(&second), 1, "the log has what is missing");
}

#[test]
fn a_silent_peer_is_noticed_and_replaced_by_a_new_connection() {
    let authority = Authority::new();
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    let mut second = End::new(Member::Second, &authority.files(), None, Some(address));
    until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
    // The second box stops, as after a power failure: its connection stays half-open.
    let stopped_ms = first.now_ms;
    while first.turn().is_up {
        assert!(first.now_ms <= stopped_ms + DEAD_AFTER_MS, "{:?}", first.state());
    }
    assert!(first.now_ms >= stopped_ms + DEAD_AFTER_MS - 10, "{}", first.now_ms);
    assert!(first.why().contains("is silent for 1000 ms"), "{}", first.why());
    // It comes back as another process, whose connection replaces a half-open one at once.
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    let mut old = End::new(Member::Second, &authority.files(), None, Some(address));
    until("they connect", [&mut first, &mut old], |[first, old]| first.is_up() && old.is_up());
    let mut new = End::new(Member::Second, &authority.files(), None, Some(address));
    until("the new one connects", [&mut first, &mut new], |[first, new]| {
        first.is_up() && new.is_up() && first.state().connections == 2
    });
}

#[test]
fn a_peer_that_does_not_read_is_noticed_and_takes_bounded_memory() {
    let authority = Authority::new();
    let (listener, address) = listen();
    let mut first = End::new(Member::First, &authority.files(), Some(listener), None);
    first.exchange =
        Exchange::new(gatun_peer::wire::Settings { log_max: 4_096, ..settings(Member::First, 1) });
    let mut raw = Raw::connect(&mut first, address, &authority.files());
    raw.greet();
    until("it is up", [&mut first], |[first]| first.is_up());
    let mut n = 0;
    until("it is noticed", [&mut first], |_| true);
    for _ in 0..TURNS_MAX {
        // It lives, and never reads.
        let _ = raw.0.write_all(&frame(&Frame::Alive(0)));
        for _ in 0..5_000 {
            n += 1;
            let _ = first.exchange.push(first.now_ms, PeerRecord::Session(session(n, true)));
        }
        if !first.turn().is_up {
            break;
        }
    }
    assert!(first.why().contains("has not read for 1000 ms"), "{}", first.why());
}

#[test]
fn a_renewed_certificate_is_used_by_the_next_connection() {
    let authority = Authority::new();
    let files = authority.files();
    let (mut first, mut second) = pair(&files, &authority.files());
    until("they connect", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
    let end = first.state().certificate_end;
    files.replace(&authority.ending(2_090));
    first.link.reread().unwrap();
    assert!(first.state().certificate_end > end);
    first.tell(1);
    until("the connection goes on", [&mut first, &mut second], |[_, second]| second.sessions() == 1);
    assert_eq!(first.state().connections, 1);
    let now_ms = first.now_ms;
    first.link.close(now_ms, &mut first.exchange, "test");
    until("they connect again", [&mut first, &mut second], |[first, second]| first.is_up() && second.is_up());
    // Files that are unusable change nothing.
    files.spoil();
    assert!(first.link.reread().unwrap_err().contains("certificate.pem"));
    first.tell(2);
    until("it goes on", [&mut first, &mut second], |[_, second]| second.sessions() == 2);
}

#[test]
fn connections_to_one_socket_reach_the_link_whose_peer_has_the_name() {
    let (authority, (listener, address)) = (Authority::new(), listen());
    let files = authority.named("c.test");
    let mut acceptor = Acceptor::new(listener, files.paths(), 2).unwrap();
    let mut to_a = End::to("a.test", Member::Second, &files, (None, None));
    let mut to_b = End::to("b.test", Member::Second, &files, (None, None));
    let mut open = |name: &str, expects: &str, mut dialer: End| {
        let mut strangers = Vec::new();
        for _ in 0..TURNS_MAX {
            let links =
                [&mut to_a, &mut to_b].into_iter().map(|end| (&mut end.link, &mut end.exchange, true));
            strangers.extend(acceptor.distribute(dialer.now_ms, links));
            [&mut to_a, &mut to_b, &mut dialer].into_iter().for_each(|end| drop(end.turn()));
            if dialer.is_up() && to_a.is_up() | to_b.is_up() || !strangers.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let up = [to_a.is_up(), to_b.is_up()];
        assert_eq!(dialer.is_up(), up.contains(&true), "{name} {expects}: {}", dialer.why());
        // Its connection ends with it.
        drop(dialer);
        for _ in 0..TURNS_MAX {
            let are_up = [&mut to_a, &mut to_b].map(|end| end.turn().is_up);
            if !are_up.contains(&true) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        (up, strangers.pop().unwrap_or_default())
    };
    let mut dial = |name: &str, expects: &str| {
        let end = End::to(expects, Member::First, &authority.named(name), (None, Some(address)));
        open(name, expects, end)
    };
    assert_eq!(dial("a.test", "c.test"), ([true, false], String::new()));
    assert_eq!(dial("b.test", "c.test"), ([false, true], String::new()));
    let (up, why) = dial("z.test", "c.test");
    assert!(up == [false; 2] && why.contains("has the name of no other box"), "{why}");
    // The side that connects finds another box than it expects.
    let (up, why) = dial("a.test", "d.test");
    assert!(up == [false; 2] && !why.is_empty(), "{why}");
}
