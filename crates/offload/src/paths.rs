//! Path MTUs that engines know, for the entries of their sessions.

use gatun_nat::feed::PathRecord;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum number of hosts. A host without a place gets larger packets, which routers fragment.
const HOSTS_MAX: usize = 65_536;

/// Path MTUs by worker and remote host. Each engine knows those that it has learnt itself.
#[derive(Default)]
pub(crate) struct Paths {
    /// MTU in bytes, and the time when the engine forgets it.
    known: HashMap<(u8, Ipv4Addr), (u16, Duration)>,
}

impl Paths {
    pub(crate) fn learn(&mut self, worker: u8, path: &PathRecord, now: Duration) {
        let until = now + Duration::from_millis(path.expires_ms.into());
        let place = (worker, path.remote);
        if self.known.len() < HOSTS_MAX || self.known.contains_key(&place) {
            self.known.insert(place, (path.mtu, until));
        }
    }

    /// Forgets the paths that the engines have forgotten.
    pub(crate) fn expire(&mut self, now: Duration) {
        self.known.retain(|_, (_, until)| *until > now);
    }

    /// MTU of the path to a host.
    pub(crate) fn of(&self, worker: u8, remote: Ipv4Addr) -> Option<u16> {
        self.known.get(&(worker, remote)).map(|(mtu, _)| *mtu)
    }

    /// Smallest MTU.
    pub(crate) fn smallest(&self) -> Option<u16> {
        self.known.values().map(|(mtu, _)| *mtu).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_until_its_engine_forgets_it() {
        let (near, far) = (Ipv4Addr::new(203, 0, 113, 1), Ipv4Addr::new(203, 0, 113, 2));
        let path = |remote, mtu| PathRecord { remote, mtu, expires_ms: 1_000 };
        let (mut paths, second) = (Paths::default(), Duration::from_secs(1));
        paths.learn(0, &path(near, 1000), second);
        paths.learn(1, &path(far, 700), second * 2);
        assert_eq!((paths.of(0, near), paths.of(1, near)), (Some(1000), None), "another worker");
        assert_eq!(paths.smallest(), Some(700));
        paths.expire(second * 2);
        assert_eq!((paths.of(0, near), paths.of(1, far)), (None, Some(700)));
        paths.learn(1, &path(far, 800), second * 2);
        paths.expire(second * 3);
        assert_eq!(paths.smallest(), None);
    }
}
