//! TLS between controller and switch: what is refused, and in which words.
#![allow(missing_docs)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/memory_switch.rs"]
mod memory_switch;

use certificates::{Authority, Folder, VALID};
use gatun_p4_controller::connection::{Connection, ConnectionConfig, TlsConfig, connect};
use gatun_p4_controller::link::{Event, Link as _, Request};
use gatun_p4_server::{HANDSHAKES_MAX, ServerTls};
use gatun_tls::Directory;
use memory_switch::{ANYWHERE, MemorySwitch, config};
use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A switch with TLS, and the reasons why it refused clients.
struct SecureSwitch {
    switch: MemorySwitch,
    refusals: Arc<Mutex<Vec<String>>>,
}

impl SecureSwitch {
    fn new(folder: &Folder) -> SecureSwitch {
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&refusals);
        let report = move |_: SocketAddr, why: &str| told.lock().unwrap().push(why.to_owned());
        let security = ServerTls::new(Directory::new(&folder.0), report).unwrap();
        SecureSwitch { switch: MemorySwitch::at(ANYWHERE.into(), Some(security)), refusals }
    }

    /// Waits for the reason of the last refusal.
    fn refusal(&self) -> String {
        let begin = Instant::now();
        loop {
            if let Some(refusal) = self.refusals.lock().unwrap().last() {
                return refusal.clone();
            }
            assert!(begin.elapsed() < PATIENCE, "the switch has refused nobody");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn failed(&self) -> u64 {
        self.switch.server.as_ref().unwrap().counters().handshakes_failed
    }
}

fn secure_config(switch: &MemorySwitch, folder: &Folder) -> ConnectionConfig {
    let tls = TlsConfig { directory: Directory::new(&folder.0), server_name: None };
    ConnectionConfig { tls: Some(tls), ..config(switch) }
}

fn open(config: ConnectionConfig) -> Connection {
    connect(vec![config], || ()).unwrap().remove(0).1
}

fn next(connection: &mut Connection) -> Event {
    let begin = Instant::now();
    loop {
        if let Some(event) = connection.receive() {
            return event;
        }
        assert!(begin.elapsed() < PATIENCE, "no event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Reason why a connection cannot be used.
fn reason(config: ConnectionConfig) -> String {
    match next(&mut open(config)) {
        Event::Down(reason) => reason,
        event => panic!("it is connected: {event:?}"),
    }
}

/// Waits until the switch is connected and read, and returns the number of the connection.
fn wait_usable(connection: &mut Connection) -> u64 {
    let mut number = None;
    loop {
        match next(connection) {
            Event::Connected { connection, .. } => number = Some(connection),
            Event::AllFound => return number.unwrap(),
            Event::Down(reason) => panic!("{reason}"),
            _ => {}
        }
    }
}

#[test]
fn controller_and_switch_prove_who_they_are() {
    let authority = Authority::new();
    let [own, other] = ["127.0.0.1", "controller.example"].map(|host| authority.folder(host, VALID));
    let secure = SecureSwitch::new(&own);
    let mut connection = open(secure_config(&secure.switch, &other));
    wait_usable(&mut connection);
    assert!(!secure.switch.memory().arrays.is_empty());
    assert_eq!((secure.failed(), secure.refusals.lock().unwrap().len()), (0, 0));
}

#[test]
fn a_side_without_the_right_certificate_is_refused_in_words() {
    let (authority, foreign) = (Authority::new(), Authority::new());
    let right = authority.folder("127.0.0.1", VALID);
    let with_foreign_authority = foreign.folder("127.0.0.1", VALID);
    let secure = SecureSwitch::new(&right);

    let why = reason(secure_config(&secure.switch, &with_foreign_authority));
    assert!(why.ends_with("its certificate is not from an authority of ca.pem"), "{why}");
    assert!(secure.refusal().contains("it refuses our certificate, which is not from its authority"));

    // The right authority, and an unusable certificate.
    type Case<'c> = (&'c str, fn(&Folder, &Authority), &'c str, &'c str);
    let cases: [Case<'_>; 3] = [
        (
            "another authority's certificate",
            |folder, foreign| foreign.issue(&folder.0, "controller.example", VALID),
            "it refuses our certificate, which is not from its authority",
            "its certificate is not from an authority of ca.pem",
        ),
        (
            "no certificate",
            |folder, _| fs::remove_file(folder.0.join("certificate.pem")).unwrap(),
            "it asks for a certificate, and we have none",
            "it has no certificate",
        ),
        (
            "an expired certificate",
            |_, _| (),
            "it refuses our certificate, which has expired or is not valid yet: check the clocks",
            "its certificate has expired",
        ),
    ];
    for (what, change, of_controller, of_switch) in cases {
        let secure = SecureSwitch::new(&right);
        let end = if what.starts_with("an expired") { 2_020 } else { VALID };
        let folder = authority.folder("controller.example", end);
        change(&folder, &foreign);
        let why = reason(secure_config(&secure.switch, &folder));
        assert!(why.ends_with(of_controller), "{what}: {why}");
        assert_eq!(secure.refusal(), of_switch, "{what}");
    }
}

#[test]
fn a_switch_with_an_expired_certificate_or_another_name_is_refused() {
    let authority = Authority::new();
    let controller = authority.folder("controller.example", VALID);
    let expired = SecureSwitch::new(&authority.folder("127.0.0.1", 2_020));
    let why = reason(secure_config(&expired.switch, &controller));
    assert!(why.ends_with("its certificate has expired"), "{why}");

    let named = SecureSwitch::new(&authority.folder("edge.example", VALID));
    let plain = secure_config(&named.switch, &controller);
    let why = reason(plain.clone());
    let wanted = "its certificate is not for 127.0.0.1: name another one as `server_name`";
    assert!(why.ends_with(wanted), "{why}");
    let directory = Directory::new(&controller.0);
    let tls = Some(TlsConfig { directory, server_name: Some("edge.example".to_owned()) });
    wait_usable(&mut open(ConnectionConfig { tls, ..plain }));
}

#[test]
fn a_side_without_tls_is_told_so() {
    let authority = Authority::new();
    let folder = authority.folder("127.0.0.1", VALID);
    let secure = SecureSwitch::new(&folder);
    let why = reason(config(&secure.switch));
    assert_eq!(why, "it speaks TLS: name `certificates` in [[offload]]");
    assert_eq!(secure.refusal(), "it does not speak TLS 1.3");
    let begin = Instant::now();
    while secure.failed() == 0 {
        assert!(begin.elapsed() < PATIENCE, "nobody counts the refusal");
        std::thread::sleep(Duration::from_millis(1));
    }

    let why = reason(secure_config(&MemorySwitch::new(), &folder));
    assert!(why.ends_with("it does not speak TLS 1.3"), "{why}");
}

/// Refused clients have a while to read the reason. If there are too many, the oldest have less.
#[test]
fn a_refused_client_is_counted_once() {
    const CLIENTS: usize = HANDSHAKES_MAX + 4;
    let authority = Authority::new();
    let [own, other] = ["127.0.0.1", "controller.example"].map(|host| authority.folder(host, VALID));
    let secure = SecureSwitch::new(&own);
    let address = secure.switch.server.as_ref().unwrap().address();
    let client = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"no TLS, and nothing else that is known here").unwrap();
        stream
    };
    let clients: Vec<TcpStream> = (0..CLIENTS).map(client).collect();
    let begin = Instant::now();
    while secure.failed() < CLIENTS as u64 {
        assert!(begin.elapsed() < PATIENCE, "{} of {CLIENTS} are counted", secure.failed());
        std::thread::sleep(Duration::from_millis(1));
    }
    // The next client comes behind all of them.
    wait_usable(&mut open(secure_config(&secure.switch, &other)));
    assert_eq!(secure.failed(), CLIENTS as u64);
    drop(clients);
}

#[test]
fn renewed_certificates_are_used_by_the_next_connection() {
    let authority = Authority::new();
    let [own, other] =
        [("127.0.0.1", 2_020), ("controller.example", 2_020)].map(|(host, end)| authority.folder(host, end));
    let secure = SecureSwitch::new(&own);
    let mut connection = open(secure_config(&secure.switch, &other));
    for (folder, host, wanted) in [
        (None, "", "its certificate has expired"),
        (Some(&own), "127.0.0.1", "it refuses our certificate, which has expired"),
    ] {
        if let Some(folder) = folder {
            authority.issue(&folder.0, host, VALID);
        }
        loop {
            let Event::Down(reason) = next(&mut connection) else { panic!("it is connected") };
            if reason.contains(wanted) {
                break;
            }
        }
    }
    // A file that is being written is not used: the last ones are.
    fs::write(own.0.join("ca.pem"), "").unwrap();
    authority.issue(&other.0, "controller.example", VALID);
    let connected = loop {
        match next(&mut connection) {
            Event::Connected { connection, .. } => break connection,
            Event::Down(_) => {}
            event => panic!("{event:?}"),
        }
    };
    connection.send(connected, Request::Reconnect("test".to_owned()));
    let refusals = secure.refusals.lock().unwrap().join("\n");
    assert!(refusals.contains("the previous certificates stay in use"), "{refusals}");
}

/// Waits for an event.
fn until(connection: &mut Connection, is_it: impl Fn(&Event) -> bool) {
    let begin = Instant::now();
    while !is_it(&next(connection)) {
        assert!(begin.elapsed() < PATIENCE, "no such event");
    }
}

/// Whether a connection still answers.
fn answers(connection: &mut Connection, number: u64) -> bool {
    connection.send(number, Request::Count(vec![0]));
    loop {
        match next(connection) {
            Event::Counted { .. } => return true,
            Event::Down(_) | Event::Standby(_) => return false,
            _ => {}
        }
    }
}

#[test]
fn an_open_connection_goes_on_while_all_certificates_are_replaced() {
    let old = Authority::new();
    let [own, other] = ["127.0.0.1", "controller.example"].map(|host| old.folder(host, VALID));
    let secure = SecureSwitch::new(&own);
    let mut first = open(secure_config(&secure.switch, &other));
    let number = wait_usable(&mut first);

    // Another authority, and certificates of it.
    let new = Authority::new();
    let renewed = new.folder("controller.example", VALID);
    fs::copy(renewed.0.join("ca.pem"), own.0.join("ca.pem")).unwrap();
    new.issue(&own.0, "127.0.0.1", VALID);
    assert!(answers(&mut first, number), "the open connection has ended");
    // The controller's files are still those of the old authority.
    let why = reason(secure_config(&secure.switch, &other));
    assert!(why.ends_with("its certificate is not from an authority of ca.pem"), "{why}");
    assert!(answers(&mut first, number), "the open connection has ended");

    // The switch's new files are being written: those of the last connection stay.
    fs::write(own.0.join("key.pem"), "").unwrap();
    let config = ConnectionConfig { election: 9, ..secure_config(&secure.switch, &renewed) };
    let mut second = open(config);
    let number = wait_usable(&mut second);
    assert!(answers(&mut second, number));
    let refusals = secure.refusals.lock().unwrap().join("\n");
    assert!(refusals.contains("the previous certificates stay in use: "), "{refusals}");
    // It has lost the switch, and has no usable certificate to come back.
    until(&mut first, |event| matches!(event, Event::Down(_)));

    // A controller whose files are unusable says so, and connects as soon as they are usable.
    fs::write(renewed.0.join("certificate.pem"), "").unwrap();
    second.send(number, Request::Reconnect("test".to_owned()));
    until(&mut second, |event| matches!(event, Event::Down(why) if why.contains("certificate")));
    new.issue(&own.0, "127.0.0.1", VALID);
    new.issue(&renewed.0, "controller.example", VALID);
    until(&mut second, |event| matches!(event, Event::AllFound));
}
