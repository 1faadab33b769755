//! `gatun web`: browsers cannot open a Unix socket, so this stands between. It serves the page, and gives what the page
//! reads on to the daemon; nothing that changes anything, whatever is asked.
//!
//! Who may read the daemon's socket has started this; who else is on the host, or what other pages are open in the
//! browser, may not. So a question needs the key that is part of the address that was printed; a request has to
//! name this host by its address or a name that was given (another page's name may be made to lead here), and must not
//! be another page's.

use crate::{file, guard};
use bytes::Bytes;
use gatun_api::paths::{self, Method, Needs, Unknown, What};
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

/// Connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_MAX: usize = 16 << 10;
/// How long a request's head may take, and the head of the daemon's answer.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// How long nobody is accepted where the process can open no more files.
const NO_FILES: Duration = Duration::from_millis(200);

/// What is shown to whom.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// What a question has to bring.
    pub key: String,
    /// Names of this host, beside its addresses and `localhost`, that a request may call it.
    pub names: Vec<String>,
}

/// Serves until the process ends.
///
/// # Errors
/// Where the listener is unusable.
pub fn serve(listener: TcpListener, setup: Setup) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (setup, room) = (Arc::new(setup), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        loop {
            // The semaphore is never closed; without a place the next one waits to be accepted.
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
                // Whatever a client does wrong ends its own connection, and nothing else.
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
        Err(_) => return gone(&"it takes too long").response(),
    };
    guard(response.headers_mut());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn gone(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, "no daemon answers", format!("{why}: is `gatun run` running?"))
}

/// What a request is to get.
enum Wanted {
    File(Response<Bytes>),
    /// Who asks: that is decided here, whatever this process may at the daemon's socket.
    Access,
    Daemon,
}

/// Why it gets nothing.
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

/// An answer of our own.
fn json(value: &impl Serialize) -> Response<Answer> {
    // These types have nothing that cannot be written.
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

/// Whether a request may have what it asks for.
fn judge(method: &str, path: &str, headers: &HeaderMap, setup: &Setup) -> Result<Wanted, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // Of two, a proxy may have looked at the other one (RFC 9112 section 3.2).
    if headers.get_all(HOST).iter().count() > 1 {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "there is more than one Host header", ""));
    }
    if !text(HOST.as_str()).is_some_and(|host| is_ours(host, &setup.names)) {
        let hint = "open it by its address, as gatun web prints it; or start gatun web with --name NAME";
        return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "that is not the name of this host", hint));
    }
    let only_reads = || {
        let hint = "this page only reads; the command line on the host can do more";
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "nothing is changed here", hint)
    };
    if method != "GET" {
        return Err(only_reads());
    }
    if let Some(file) = file(path) {
        return Ok(Wanted::File(file));
    }
    // Browsers say whose request it is: no other page has any business here.
    if !matches!(text("sec-fetch-site"), None | Some("same-origin" | "none")) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "another page may not ask", ""));
    }
    let key = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    if !key.is_some_and(|key| is_same(key, &setup.key)) {
        let hint = "open the address that gatun web printed when it was started last";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "this needs the key of the address", hint));
    }
    let nothing = || Refusal::new(StatusCode::NOT_FOUND, "there is nothing at this path", "");
    match paths::find(Method::Get.name(), path) {
        Ok(endpoint) if endpoint.what == What::Access => Ok(Wanted::Access),
        Ok(endpoint) if endpoint.needs() == Needs::Read => Ok(Wanted::Daemon),
        Ok(endpoint) if endpoint.needs() == Needs::Audit => {
            let hint = "`gatun who --at` on the host does, and the page that the API serves (listen_tls)";
            Err(Refusal::new(StatusCode::FORBIDDEN, "this page does not ask the log", hint))
        }
        Ok(_) | Err(Unknown::Method(_)) => Err(only_reads()),
        Err(Unknown::Path) => Err(nothing()),
    }
}

/// Whether a Host header names this host in a way that no other page's name can be made to: by an address,
/// `localhost`, or a name that was given.
fn is_ours(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Compares without telling by the time it takes how much is right.
fn is_same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

/// Asks the daemon the same, on a connection of its own, and passes the answer on as it comes.
async fn forward(
    request: &Request<Incoming>,
    setup: &Setup,
) -> Result<Response<Answer>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = UnixStream::connect(&setup.socket)
        .await
        .map_err(|error| format!("{}: {error}", setup.socket.display()))?;
    let (mut asks, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer, or when nobody wants that any more.
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

/// What is sent: ours, or the daemon's as it comes.
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
    fn the_page_is_for_who_names_this_host_and_the_daemon_for_who_has_the_key() {
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
    fn a_name_that_was_made_to_lead_here_gets_nothing() {
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
    fn two_host_headers_are_refused_whatever_they_are() {
        let (key, ours) = (("authorization", "Bearer 0123abcd"), ("host", "127.0.0.1:8642"));
        for other in ["127.0.0.1:8642", "evil.example"].map(|host| ("host", host)) {
            for hosts in [[ours, other], [other, ours]] {
                assert_eq!(judged("GET", "/v1/status", &[hosts[0], hosts[1], key]), Err(400));
                assert_eq!(judged("GET", "/", &hosts), Err(400));
            }
        }
    }

    #[test]
    fn another_page_may_not_ask_and_nobody_may_change_anything() {
        let (host, key) = (("host", "localhost"), ("authorization", "Bearer 0123abcd"));
        for site in ["cross-site", "same-site", "whatever"] {
            assert_eq!(judged("GET", "/v1/top", &[host, key, ("sec-fetch-site", site)]), Err(403), "{site}");
        }
        for one in paths::ENDPOINTS {
            let may = match one.needs() {
                Needs::Read => Ok(true),
                Needs::Write => Err(405),
                Needs::Audit => Err(403),
            };
            assert_eq!(judged(one.method.name(), one.path, &[host, key]), may, "{}", one.path);
        }
        assert_eq!(judged("HEAD", "/", &[host, key]), Err(405));
    }
}
