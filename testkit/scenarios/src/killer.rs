//! The session killer: ends random sessions of the running daemon through its API, in lists of keys, at a
//! steady rate.

use crate::middle::SOCKET;
use gatun_api::client::Client;
use gatun_api::types::{Cleared, Name, Protocol, SessionKey, SessionKeys};
use gatun_testkit::traffic::{Family, Pace, Traffic};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Sessions of one request; each takes some 80 bytes.
const LIST_MAX: usize = 1000;
/// Pause between requests, because each takes processor time from the generator.
const PAUSE: Duration = Duration::from_millis(1);

/// Ends `rate` sessions a second until `over` is set, and adds those that existed to `killed`.
///
/// # Errors
/// Returns an error if the API refuses or fails.
pub(crate) fn kill(
    traffic: &Traffic,
    rate: f64,
    killed: &AtomicU64,
    over: &AtomicBool,
) -> Result<(), gatun_api::client::Error> {
    let client = Client::new(SOCKET);
    let clock = Instant::now();
    let now_ns = || clock.elapsed().as_nanos() as u64;
    let mut pace = Pace::new(Some(rate), now_ns());
    let mut random = Random(traffic.spec().seed);
    while !over.load(Ordering::Relaxed) {
        let due = pace.due(now_ns(), LIST_MAX);
        if due == 0 {
            std::thread::sleep(PAUSE);
            continue;
        }
        let sessions = (0..due).map(|_| key(traffic, random.below(traffic.flows()))).collect();
        let body = serde_json::to_vec(&SessionKeys { sessions }).unwrap_or_default();
        let cleared: Cleared = client.ask("POST", "/v1/sessions/end", &body)?;
        killed.fetch_add(cleared.sessions, Ordering::Relaxed);
        pace.sent(due);
        // When it is behind, the next full list is sent at once.
        if due < LIST_MAX {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// The key of a flow's session.
fn key(traffic: &Traffic, number: u32) -> SessionKey {
    let flow = traffic.flow(number);
    let remote = match flow.server.0 {
        IpAddr::V4(server) => server,
        // RFC 6052 2.2: a /96 has the IPv4 address in its last 32 bits.
        IpAddr::V6(server) => Ipv4Addr::from(u128::from(server) as u32),
    };
    SessionKey {
        instance: Name(if traffic.spec().family == Family::V6 { "nat64-1" } else { "nat44-1" }.into()),
        protocol: match flow.protocol {
            gatun_testkit::traffic::Protocol::Tcp => Protocol::Tcp,
            gatun_testkit::traffic::Protocol::Udp => Protocol::Udp,
        },
        inside: flow.inside.0,
        inside_port: flow.inside.1,
        remote,
        remote_port: flow.server.1,
    }
}

/// A random number generator good enough to choose flows (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flow_is_chosen_about_as_often() {
        let mut random = Random(7);
        let mut counts = [0u32; 16];
        (0..16_000).for_each(|_| counts[random.below(16) as usize] += 1);
        assert!(counts.iter().all(|n| (800..1200).contains(n)), "{counts:?}");
    }
}
