//! Access over TCP: handshake rate per source, tokens and their roles, counts of refused clients.

use crate::connections::{Connections, Source};
use crate::rate_limit::RateLimiter;
use crate::secure::Secure;
use crate::tokens::{Hash, Role};
use gatun_api::paths::Permission;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Handshakes of a source at once, and the interval of further ones: one costs about 0.1 ms of the API's
/// thread.
const HANDSHAKES_AT_ONCE: u32 = 100;
const HANDSHAKE_EVERY: Duration = Duration::from_millis(20);
/// Wrong tokens of a source at once, and the interval of further ones.
const WRONG_AT_ONCE: u32 = 10;
const WRONG_EVERY: Duration = Duration::from_secs(1);
/// Interval between log lines about wrong tokens.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Reason for turning a client away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRefusal {
    /// The source opens connections too fast.
    Rate,
    /// All connections are busy.
    Full,
    /// The TLS handshake failed or timed out.
    Handshake,
    /// A request without a token.
    NoToken,
    /// Unknown token.
    WrongToken,
    /// The source sent too many wrong tokens.
    ManyWrong,
    /// The token's role does not allow the request.
    Role,
}

impl ClientRefusal {
    /// All reasons.
    pub const ALL: [ClientRefusal; 7] = [
        ClientRefusal::Rate,
        ClientRefusal::Full,
        ClientRefusal::Handshake,
        ClientRefusal::NoToken,
        ClientRefusal::WrongToken,
        ClientRefusal::ManyWrong,
        ClientRefusal::Role,
    ];

    /// Returns the reason's name as a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            ClientRefusal::Rate => "rate",
            ClientRefusal::Full => "full",
            ClientRefusal::Handshake => "handshake",
            ClientRefusal::NoToken => "no_token",
            ClientRefusal::WrongToken => "wrong_token",
            ClientRefusal::ManyWrong => "many_wrong_tokens",
            ClientRefusal::Role => "role",
        }
    }
}

/// Last log line about wrong tokens.
struct TokenWarning {
    at: Instant,
    /// Wrong tokens since that line.
    since: u64,
}

/// Access over TCP.
pub struct RemoteAccess {
    secure: RwLock<Arc<Secure>>,
    pub(crate) connections: Arc<Connections>,
    handshakes: Mutex<RateLimiter>,
    wrong: Mutex<RateLimiter>,
    clients_refused: [AtomicU64; ClientRefusal::ALL.len()],
    last_warning: Mutex<Option<TokenWarning>>,
}

/// Accepted client.
pub(crate) struct Admitted {
    pub(crate) name: String,
    pub(crate) hash: Hash,
    pub(crate) role: Role,
}

/// Refused client.
#[derive(Debug)]
pub(crate) struct Denied {
    pub(crate) why: ClientRefusal,
    /// Time to wait before the next attempt.
    pub(crate) wait: Option<Duration>,
    /// Line for the log.
    pub(crate) log: Option<String>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteAccess {
    /// Creates access with these files.
    pub fn new(secure: Secure) -> RemoteAccess {
        RemoteAccess {
            secure: RwLock::new(Arc::new(secure)),
            connections: Arc::default(),
            handshakes: Mutex::new(RateLimiter::new(HANDSHAKES_AT_ONCE, HANDSHAKE_EVERY)),
            wrong: Mutex::new(RateLimiter::new(WRONG_AT_ONCE, WRONG_EVERY)),
            clients_refused: Default::default(),
            last_warning: Mutex::default(),
        }
    }

    /// Replaces the files and ends connections whose token was removed.
    pub fn set(&self, secure: Secure) {
        let secure = Arc::new(secure);
        *self.secure.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&secure);
        self.connections.end_where(|hash| !secure.tokens.contains(hash));
    }

    pub(crate) fn secure(&self) -> Arc<Secure> {
        Arc::clone(&self.secure.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of clients refused for a reason.
    pub fn clients_refused(&self, why: ClientRefusal) -> u64 {
        self.clients_refused.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn all_refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ClientRefusal::ALL.into_iter().map(|why| (why.name(), self.clients_refused(why)))
    }

    pub(crate) fn refuse_client(&self, why: ClientRefusal) {
        if let Some(count) = self.clients_refused.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns true if a source may open a connection now and one is free.
    pub(crate) fn may_connect(&self, source: Source) -> bool {
        if !locked(&self.handshakes).take(source, Instant::now()) {
            self.refuse_client(ClientRefusal::Rate);
            return false;
        }
        let has_room = self.connections.make_room();
        if !has_room {
            self.refuse_client(ClientRefusal::Full);
        }
        has_room
    }

    /// Checks the `authorization` of a request. After many wrong tokens, every token of the source is refused
    /// for a while, even a correct one: the source must not learn which are.
    pub(crate) fn admit(
        &self,
        from: (Source, IpAddr),
        authorization: Option<&[u8]>,
        needs: Permission,
    ) -> Result<Admitted, Denied> {
        let denied = |why, wait, log| {
            self.refuse_client(why);
            Err(Denied { why, wait, log })
        };
        let Some(secret) = authorization.and_then(bearer) else {
            return denied(ClientRefusal::NoToken, None, None);
        };
        let now = Instant::now();
        if let Some(wait) = locked(&self.wrong).wait(from.0, now) {
            return denied(ClientRefusal::ManyWrong, Some(wait), None);
        }
        let secure = self.secure();
        match secure.tokens.find(secret) {
            None => {
                locked(&self.wrong).count(from.0, now);
                denied(ClientRefusal::WrongToken, None, self.wrong_token_line(from.1, now))
            }
            Some(token) if !token.role.allows(needs) => denied(ClientRefusal::Role, None, None),
            Some(token) => Ok(Admitted { name: token.name.clone(), hash: token.hash, role: token.role }),
        }
    }

    /// Log line about a wrong token, unless there was one a moment ago.
    fn wrong_token_line(&self, from: IpAddr, now: Instant) -> Option<String> {
        let mut last_warning = locked(&self.last_warning);
        let since = match last_warning.as_mut() {
            Some(last) if now.saturating_duration_since(last.at) < TELL_EVERY => {
                last.since += 1;
                return None;
            }
            Some(last) => last.since,
            None => 0,
        };
        *last_warning = Some(TokenWarning { at: now, since: 0 });
        let others = if since > 0 { format!(", and {since} more before") } else { String::new() };
        Some(format!("api: a wrong token from {from}{others}"))
    }
}

impl fmt::Debug for RemoteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAccess").finish_non_exhaustive()
    }
}

/// Token after `Bearer` (RFC 6750 2.1), in any case (RFC 7235 2.1).
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, secret) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(secret.trim_ascii()).filter(|secret| !secret.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_is_recognised_in_any_case() {
        for (text, wanted) in [
            ("Bearer gatun_1", Some("gatun_1")),
            ("bearer  gatun_1 ", Some("gatun_1")),
            ("BEARER x", Some("x")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearerx", None),
            ("Basic eDp5", None),
            ("", None),
        ] {
            assert_eq!(bearer(text.as_bytes()), wanted.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn each_reason_has_its_own_count() {
        for (n, why) in ClientRefusal::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, n, "{}", why.name());
        }
    }
}
