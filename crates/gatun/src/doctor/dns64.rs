//! DNS64 check: a name server's answer for ipv4only.arpa must be in a translation prefix (RFC 7050).

use super::Finding;
use gatun_config::Config;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const CHECK: &str = "dns64";
/// Time limit of each query.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 2;
/// ipv4only.arpa, AAAA, IN.
const QUESTION: &[u8] = b"\x08ipv4only\x04arpa\x00\x00\x1c\x00\x01";
const ID: [u8; 2] = [0x47, 0x4e];

pub(super) fn examine(config: &Config, server: Option<IpAddr>) -> Vec<Finding> {
    if config.plan.nat64.is_empty() {
        return Vec::new();
    }
    let is_named = server.is_some();
    let Some(server) = server.or_else(resolver) else { return Vec::new() };
    let found = ask(server);
    let prefixes = || {
        let all = config.plan.nat64.iter().flat_map(|nat| &nat.pool6);
        all.map(|prefix| format!("{}/{}", prefix.address(), prefix.len())).collect::<Vec<_>>().join(", ")
    };
    let fix = || {
        format!(
            "configure DNS64 with {}: Unbound `module-config: \"dns64 iterator\"`, `dns64-prefix:`; BIND `dns64`",
            prefixes()
        )
    };
    let finding = match found {
        Ok(addresses) if addresses.is_empty() => {
            let what = format!("{server} is not a DNS64: no AAAA record for ipv4only.arpa");
            Finding { check: CHECK, state: state(is_named), what, fix: Some(fix()) }
        }
        Ok(addresses) => {
            let nat64 = &config.plan.nat64;
            let foreign = addresses.iter().find(|address| {
                !nat64.iter().flat_map(|nat| &nat.pool6).any(|prefix| prefix.contains(**address))
            });
            match foreign {
                None => Finding::ok(CHECK, format!("{server} synthesises addresses in {}", prefixes())),
                Some(address) => {
                    let what = format!("{server} synthesises {address}, which is in none of the prefixes");
                    Finding { check: CHECK, state: state(is_named), what, fix: Some(fix()) }
                }
            }
        }
        Err(error) => {
            let fix = "pass --dns64 ADDRESS with the name server of your hosts".to_owned();
            let what = format!("{server} does not answer: {error}");
            Finding { check: CHECK, state: state(is_named), what, fix: Some(fix) }
        }
    };
    vec![finding]
}

/// Severity: clients may use another name server than this host.
fn state(is_named: bool) -> super::State {
    if is_named { super::State::Wrong } else { super::State::Note }
}

/// First name server of this host.
fn resolver() -> Option<IpAddr> {
    let text = fs::read_to_string("/etc/resolv.conf").ok()?;
    text.lines().find_map(|line| line.trim().strip_prefix("nameserver")?.trim().parse().ok())
}

/// Queries a name server for the AAAA records of ipv4only.arpa.
fn ask(server: IpAddr) -> io::Result<Vec<Ipv6Addr>> {
    let any: SocketAddr =
        if server.is_ipv6() { (Ipv6Addr::UNSPECIFIED, 0).into() } else { ([0, 0, 0, 0], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((server, 53))?;
    let [a, b] = ID;
    // One question, recursion desired.
    let mut question = vec![a, b, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    question.extend(QUESTION);
    let mut answer = [0; 1500];
    let mut last = io::ErrorKind::TimedOut.into();
    for _ in 0..TRIES {
        let answered = socket.send(&question).and_then(|_| socket.recv(&mut answer));
        match answered {
            Ok(len) => {
                let bytes = answer.get(..len).unwrap_or_default();
                return read(bytes)
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "invalid DNS answer"));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => last = io::ErrorKind::TimedOut.into(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// AAAA records of an answer; `None` if it does not match the question.
fn read(answer: &[u8]) -> Option<Vec<Ipv6Addr>> {
    let word = |at: usize| Some(u16::from_be_bytes(*answer.get(at..)?.first_chunk()?));
    let [first, second] = *answer.first_chunk()?;
    // The query's id and the response bit.
    if [first, second] != ID || word(2)? & 0x8000 == 0 {
        return None;
    }
    let (questions, records) = (word(4)?, word(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = behind_name(answer, at)? + 4;
    }
    let mut found = Vec::new();
    for _ in 0..records {
        at = behind_name(answer, at)?;
        let (kind, len) = (word(at)?, usize::from(word(at + 8)?));
        let data = answer.get(at + 10..at + 10 + len)?;
        if kind == 28 {
            found.push(Ipv6Addr::from(*data.first_chunk::<16>()?));
        }
        at += 10 + len;
    }
    Some(found)
}

/// Offset behind a name: labels or a compression pointer.
fn behind_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            len if len & 0xc0 == 0xc0 => return Some(at + 2),
            len => at += 1 + usize::from(len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![ID[0], ID[1], 0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
        bytes.extend(QUESTION);
        for (kind, data) in records {
            bytes.extend([0xc0, 12]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 60]);
            bytes.extend((data.len() as u16).to_be_bytes());
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn answers_are_parsed_and_malformed_ones_rejected() {
        let address: Ipv6Addr = "64:ff9b::c000:aa".parse().unwrap();
        let whole = answer(&[(5, b"\x01x\x00"), (28, &address.octets())]);
        assert_eq!(read(&whole), Some(vec![address]));
        assert_eq!(read(&answer(&[])), Some(vec![]));
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]), None, "{len}");
        }
        let mut other = whole.clone();
        other[0] ^= 1;
        assert_eq!(read(&other), None);
        // Labels without an end.
        assert_eq!(read(&[&whole[..12], &[63; 200]].concat()), None);
    }
}
