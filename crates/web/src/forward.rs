//! `gatun web`: proxy between a browser, which cannot open a Unix socket, and the daemon. It serves the page
//! and forwards the page's read requests to the daemon. It never forwards a request that changes something.
//!
//! The user who started it may read the daemon's socket. Other users of the host, and other pages in the
//! browser, may not. So a request needs the key from the printed address. It must also name this host by its
//! address or by a configured name (DNS rebinding can point another page's name here), and must not come from
//! another page.

use crate::{file, guard};
use bytes::Bytes;
use gatun_api::paths::{self, Method, NoEndpoint, Operation, Permission};
use gatun_api::types::{Access, Problem};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Largest number of connections.
const CONNECTIONS_MAX: usize = 64;
/// Largest request head in bytes.
const HEAD_MAX: usize = 16 << 10;
/// Timeout for a request head, and for the head of the daemon's answer.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause before the next accept if the process has reached its limit of open files.
const NO_FILES: Duration = Duration::from_millis(200);

/// Settings of the proxy.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Socket of the daemon.
    pub socket: PathBuf,
    /// Key that each request must contain.
    pub key: String,
    /// Names of this host that a Host header may contain, besides its addresses and `localhost`.
    pub names: Vec<String>,
}

/// Serves until the process ends.
///
/// # Errors
/// Returns an error if the listener fails.
pub fn serve(listener: TcpListener, setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (setup, room) = (Arc::new(setup), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        loop {
            // The semaphore is never closed. Without a free place, the next connection waits to be accepted.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
            let Ok((stream, _)) = listener.accept().await else {
                sleep(NO_FILES).await;
                continue;
            };
            let setup = Arc::clone(&setup);
            tokio::spawn(async move {
                let service = service_fn(|request| {
                    let setup = Arc::clone(&setup);
                    async move { Ok::<_, std::convert::Infallible>(respond(request, &setup).await) }
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME_MAX);
                http.max_buf_size(HEAD_MAX).half_close(false);
                // A client's error ends only its own connection.
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
                drop(place);
            });
        }
    })
}

async fn respond(request: Request<Incoming>, setup: &Setup) -> Response<Answer> {
    let answered = match judge(request.method().as_str(), request.uri().path(), request.headers(), setup) {
        Ok(Wanted::File(file)) => return file.map(|text| Answer::Whole(Some(text))),
        Ok(Wanted::Access) => return access(),
        Ok(Wanted::Daemon) => timeout(ANSWER_TIME_MAX, forward(&request, setup)).await,
        Err(refusal) => return refusal.response(),
    };
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return gone(&error).response(),
        Err(_) => return gone(&"timeout").response(),
    };
    guard(response.headers_mut());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn gone(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, "no daemon answers", format!("{why}: is `gatun run` running?"))
}

/// Target of a request.
enum Wanted {
    File(Response<Bytes>),
    /// Access information. This process answers it, independent of its own rights at the daemon's socket.
    Access,
    Daemon,
}

/// Reason for refusing a request.
#[derive(Debug)]
struct Refusal {
    status: StatusCode,
    error: &'static str,
    hint: String,
}

impl Refusal {
    fn new(status: StatusCode, error: &'static str, hint: impl Into<String>) -> Refusal {
        Refusal { status, error, hint: hint.into() }
    }

    fn response(self) -> Response<Answer> {
        let mut response = json(&Problem { error: self.error.to_owned(), hint: self.hint });
        *response.status_mut() = self.status;
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        }
        response
    }
}

/// Answer of the proxy itself.
fn json(value: &impl Serialize) -> Response<Answer> {
    // These types can always be serialised.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Answer::Whole(Some(text.into())));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    guard(headers);
    response
}

fn access() -> Response<Answer> {
    json(&Access { name: "gatun web".to_owned(), may_write: false, may_audit: false })
}

/// Decides whether a request is allowed.
fn judge(method: &str, path: &str, headers: &HeaderMap, setup: &Setup) -> Result<Wanted, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // With two Host headers, a proxy may have checked the other one (RFC 9112 section 3.2).
    if headers.get_all(HOST).iter().count() > 1 {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "more than one Host header", ""));
    }
    if !text(HOST.as_str()).is_some_and(|host| is_ours(host, &setup.names)) {
        let hint = "open the address that gatun web printed, or start gatun web with --name NAME";
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "unknown host name", hint));
    }
    let only_reads = || {
        let hint = "gatun web is read-only; use the command line on the host";
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed", hint)
    };
    if method != "GET" {
        return Err(only_reads());
    }
    if let Some(file) = file(path) {
        return Ok(Wanted::File(file));
    }
    // Browsers report the origin of a request. Requests from other pages are refused.
    if !matches!(text("sec-fetch-site"), None | Some("same-origin" | "none")) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "cross-site request refused", ""));
    }
    let key = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    if !key.is_some_and(|key| is_same(key, &setup.key)) {
        let hint = "open the address that gatun web printed at its last start";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "missing or wrong key", hint));
    }
    let nothing = || Refusal::new(StatusCode::NOT_FOUND, "not found", "");
    match paths::find(Method::Get.name(), path) {
        Ok(endpoint) if endpoint.what == Operation::Access => Ok(Wanted::Access),
        Ok(endpoint) if endpoint.needs() == Permission::Read => Ok(Wanted::Daemon),
        Ok(endpoint) if endpoint.needs() == Permission::Audit => {
            let hint = "use `gatun who --at` on the host, or the page served by the API (listen_tls)";
            Err(Refusal::new(StatusCode::FORBIDDEN, "the log is not available here", hint))
        }
        Ok(_) | Err(NoEndpoint::Method(_)) => Err(only_reads()),
        Err(NoEndpoint::Path) => Err(nothing()),
    }
}

/// Checks whether a Host header names this host in a way that DNS rebinding cannot imitate: by an address,
/// `localhost`, or a configured name.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Compares in constant time.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

/// Forwards the request to the daemon on a new connection, and streams the answer.
async fn forward(
    request: &Request<Incoming>,
    setup: &Setup,
) -> Result<Response<Answer>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = UnixStream::connect(&setup.socket)
        .await
        .map_err(|error| format!("{}: {error}", setup.socket.display()))?;
    let (mut asks, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The task ends with the answer, or when the receiver is dropped.
    tokio::spawn(connection);
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let asked = Request::get(target).header(HOST, "localhost").body(Answer::Whole(None))?;
    let (head, body) = asks.send_request(asked).await?.into_parts();
    let mut response = Response::new(Answer::Forwarded(body));
    *response.status_mut() = head.status;
    if let Some(kind) = head.headers.get(CONTENT_TYPE) {
        response.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    Ok(response)
}

/// Body of an answer: the proxy's own, or the daemon's as a stream.
enum Answer {
    Whole(Option<Bytes>),
    Forwarded(Incoming),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Answer::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Answer::Forwarded(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Whole(text) => text.is_none(),
            Answer::Forwarded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Whole(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Answer::Forwarded(body) => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> Setup {
        Setup { socket: "/nonexistent".into(), key: "0123abcd".into(), names: vec!["nat.example".into()] }
    }

    fn judged(method: &str, path: &str, headers: &[(&'static str, &str)]) -> Result<bool, u16> {
        let headers = headers.iter().map(|(name, value)| {
            (hyper::header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        match judge(method, path, &headers.collect(), &setup()) {
            Ok(wanted) => Ok(!matches!(wanted, Wanted::File(_))),
            Err(refusal) => Err(refusal.status.as_u16()),
        }
    }

    #[test]
    fn the_page_needs_this_hosts_name_and_the_daemon_needs_the_key() {
        let host = ("host", "127.0.0.1:8642");
        let key = ("authorization", "Bearer 0123abcd");
        assert_eq!(judged("GET", "/", &[host]), Ok(false));
        assert_eq!(judged("GET", "/web/app.js", &[host]), Ok(false));
        assert_eq!(judged("GET", "/v1/status", &[host, key]), Ok(true));
        assert_eq!(judged("GET", "/v1/status", &[host, key, ("sec-fetch-site", "same-origin")]), Ok(true));
        for wrong in ["Bearer 0123abce", "Bearer 0123abc", "Bearer 0123abcd0", "Bearer ", "0123abcd"] {
            assert_eq!(judged("GET", "/v1/status", &[host, ("authorization", wrong)]), Err(401), "{wrong}");
        }
        assert_eq!(judged("GET", "/v1/status", &[host]), Err(401));
        assert_eq!(judged("GET", "/etc/passwd", &[host, key]), Err(404));
    }

    #[test]
    fn dns_rebinding_is_refused() {
        let key = ("authorization", "Bearer 0123abcd");
        for host in ["127.0.0.1", "[::1]:80", "localhost:8642", "LOCALHOST", "nat.example:1", "192.0.2.7"] {
            assert_eq!(judged("GET", "/v1/status", &[("host", host), key]), Ok(true), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8642", "localhost.evil.example", "", "127.0.0.1.evil.example"]
        {
            assert_eq!(judged("GET", "/v1/status", &[("host", host), key]), Err(421), "{host}");
            assert_eq!(judged("GET", "/", &[("host", host)]), Err(421), "{host}");
        }
        assert_eq!(judged("GET", "/v1/status", &[key]), Err(421));
    }

    #[test]
    fn two_host_headers_are_refused() {
        let (key, ours) = (("authorization", "Bearer 0123abcd"), ("host", "127.0.0.1:8642"));
        for other in ["127.0.0.1:8642", "evil.example"].map(|host| ("host", host)) {
            for hosts in [[ours, other], [other, ours]] {
                assert_eq!(judged("GET", "/v1/status", &[hosts[0], hosts[1], key]), Err(400));
                assert_eq!(judged("GET", "/", &hosts), Err(400));
            }
        }
    }

    #[test]
    fn cross_site_requests_and_changes_are_refused() {
        let (host, key) = (("host", "localhost"), ("authorization", "Bearer 0123abcd"));
        for site in ["cross-site", "same-site", "whatever"] {
            assert_eq!(judged("GET", "/v1/top", &[host, key, ("sec-fetch-site", site)]), Err(403), "{site}");
        }
        for one in paths::ENDPOINTS {
            let may = match one.needs() {
                Permission::Read => Ok(true),
                Permission::Write => Err(405),
                Permission::Audit => Err(403),
            };
            assert_eq!(judged(one.method.name(), one.path, &[host, key]), may, "{}", one.path);
        }
        assert_eq!(judged("HEAD", "/", &[host, key]), Err(405));
    }
}
