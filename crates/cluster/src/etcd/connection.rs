//! Endpoints of etcd: connections, certificates, user and password.

use super::api::AuthenticateRequest;
use super::api::auth_client::AuthClient;
use crate::store::StoreError;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

/// Certificates for etcd, PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// Authority of etcd's certificates.
    pub authority: Vec<u8>,
    /// Own certificate and key, if etcd demands one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Settings of the client.
#[derive(Clone)]
pub struct EtcdSettings {
    /// Endpoints, such as `http://192.0.2.1:2379`.
    pub endpoints: Vec<String>,
    /// Certificates, for endpoints with https.
    pub tls: Option<EtcdTls>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// Time for an answer of one endpoint, ms.
    pub timeout_ms: u64,
}

/// Interval of signs of life on a connection, and the time for their answers.
const ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(2));

/// Returns the endpoints.
///
/// # Errors
/// Names the unusable one.
pub(super) fn endpoints(settings: &EtcdSettings) -> Result<Vec<Endpoint>, String> {
    if settings.endpoints.is_empty() {
        return Err("no endpoint of etcd".to_owned());
    }
    let one = |text: &String| {
        let unusable = |error: tonic::transport::Error| format!("endpoint {text} of etcd: {error}");
        let endpoint = Endpoint::from_shared(text.clone()).map_err(unusable)?;
        let is_tls = endpoint.uri().scheme_str() == Some("https");
        let endpoint = endpoint
            .connect_timeout(Duration::from_millis(settings.timeout_ms))
            .http2_keep_alive_interval(ALIVE.0)
            .keep_alive_timeout(ALIVE.1)
            .keep_alive_while_idle(true);
        match &settings.tls {
            Some(tls) if is_tls => {
                let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.authority));
                if let Some((certificate, key)) = &tls.identity {
                    config = config.identity(Identity::from_pem(certificate, key));
                }
                endpoint.tls_config(config).map_err(unusable)
            }
            None if is_tls => {
                Err(format!("endpoint {text} of etcd: https needs the authority's certificate"))
            }
            _ => Ok(endpoint),
        }
    };
    settings.endpoints.iter().map(one).collect()
}

/// Connections to all endpoints.
pub(super) struct Connections {
    channels: Vec<Channel>,
    /// Endpoint of the next request.
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    timeout: Duration,
}

impl Connections {
    /// Creates connections, which connect at the first request.
    ///
    /// # Errors
    /// Names the unusable endpoint.
    pub(super) fn new(settings: EtcdSettings) -> Result<Connections, String> {
        let channels = endpoints(&settings)?.iter().map(Endpoint::connect_lazy).collect();
        let timeout = Duration::from_millis(settings.timeout_ms);
        let (current, token) = (AtomicUsize::new(0), Mutex::new(None));
        Ok(Connections { channels, current, user: settings.user, token, timeout })
    }

    /// Returns the connection for the next request.
    fn channel(&self) -> (usize, Channel) {
        let place = self.current.load(Ordering::Relaxed) % self.channels.len();
        (place, self.channels[place].clone())
    }

    /// The next request goes to another endpoint than this one.
    fn avoid(&self, place: usize) {
        let next = (place + 1) % self.channels.len();
        // Unless another request has found out before.
        let _ = self.current.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Wraps a message, with the token of the user.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let token = self.token.lock().ok().and_then(|token| token.clone());
        if let Some(token) = token.and_then(|token| token.parse::<MetadataValue<_>>().ok()) {
            request.metadata_mut().insert("token", token);
        }
        // A member without a leader must not hold a stream open.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        request
    }

    /// Calls etcd, at one endpoint after the other. `is_safe`: the request may be done twice.
    pub(super) async fn try_all<T, F>(
        &self,
        is_safe: bool,
        call: impl Fn(Channel) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = StoreError::Unreachable("no endpoint".to_owned());
        let signs_in = self.user.is_some();
        let mut may_sign_in_again = signs_in;
        let mut tries = self.channels.len();
        while tries > 0 {
            tries -= 1;
            let (place, channel) = self.channel();
            if signs_in
                && self.token.lock().is_ok_and(|token| token.is_none())
                && let Err(error) = self.sign_in(channel.clone()).await
            {
                if matches!(error, StoreError::Refused(_)) {
                    return Err(error);
                }
                self.avoid(place);
                last = error;
                continue;
            }
            let status = match tokio::time::timeout(self.timeout, call(channel)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            last = error_of(&status);
            if signs_in && is_of_token(&status) {
                self.forget_token();
                if may_sign_in_again {
                    may_sign_in_again = false;
                    tries += 1;
                    continue;
                }
            }
            if matches!(last, StoreError::Refused(_)) {
                return Err(last);
            }
            self.avoid(place);
            if matches!(last, StoreError::Unknown(_)) && !is_safe {
                return Err(last);
            }
        }
        Err(last)
    }

    fn forget_token(&self) {
        if let Ok(mut token) = self.token.lock() {
            *token = None;
        }
    }

    async fn sign_in(&self, channel: Channel) -> Result<(), StoreError> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let mut client = AuthClient::new(channel);
        let asked = client.authenticate(AuthenticateRequest { name, password });
        let answer = match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer.map_err(|status| error_of(&status))?,
            Err(_) => return Err(StoreError::Unreachable("no answer in time".to_owned())),
        };
        if let Ok(mut token) = self.token.lock() {
            *token = Some(answer.into_inner().token);
        }
        Ok(())
    }
}

/// Users and rights have changed since the token was made. etcd says this before it does anything.
const OLD_TOKEN: &str = "revision of auth store is old";

/// Returns whether a request was refused for its token, and another token may help.
fn is_of_token(status: &Status) -> bool {
    let is_old = status.code() == Code::InvalidArgument && status.message().contains(OLD_TOKEN);
    is_old || status.code() == Code::Unauthenticated
}

/// Returns what a status means for a request.
///
/// Without space, etcd refuses writes. But the write that exceeds the space is done, and has the same status
/// as those that are refused: so this status tells nothing about a write.
pub(super) fn error_of(status: &Status) -> StoreError {
    let text = shown(status);
    match status.code() {
        Code::InvalidArgument if status.message().contains(OLD_TOKEN) => StoreError::Unreachable(text),
        Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument | Code::FailedPrecondition => {
            StoreError::Refused(text)
        }
        // etcd says this before it does anything.
        Code::Unavailable if status.message().contains("no leader") => StoreError::Unreachable(text),
        Code::Unavailable if status.message().contains("tcp connect error") => StoreError::Unreachable(text),
        _ => StoreError::Unknown(text),
    }
}

/// Returns a status with its causes: tonic's own text does not have them.
fn shown(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_whether_something_was_done() {
        let of = |code: Code, text: &str| error_of(&Status::new(code, text));
        let old = of(Code::InvalidArgument, "etcdserver: revision of auth store is old");
        assert!(matches!(old, StoreError::Unreachable(_)), "{old:?}");
        let wrong =
            of(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password");
        assert!(matches!(wrong, StoreError::Refused(_)), "{wrong:?}");
        // The write that exceeds the space is done, and has this status, too.
        let full = of(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, StoreError::Unknown(_)), "{full:?}");
        let text = "etcd gave no certain answer: etcdserver: mvcc: database space exceeded";
        assert_eq!(full.to_string(), text);
    }

    #[test]
    fn another_token_is_needed_after_a_change_of_rights() {
        let is = |code: Code, text: &str| is_of_token(&Status::new(code, text));
        assert!(is(Code::InvalidArgument, "etcdserver: revision of auth store is old"));
        assert!(is(Code::Unauthenticated, "etcdserver: invalid auth token"));
        assert!(!is(Code::InvalidArgument, "etcdserver: user name is empty"));
        assert!(!is(Code::PermissionDenied, "etcdserver: permission denied"));
    }
}
