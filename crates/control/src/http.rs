//! HTTP/1.1 server for many clients on one thread. Connections are bounded in number and idle time, requests
//! in size and time.

use crate::Control;
use crate::configure;
use crate::connections::{Busy, Connections, Entry, Source};
use crate::idle_timeout::IdleTimeout;
use crate::remote_access::{ClientRefusal, Denied, RemoteAccess};
use crate::response::{ApiRequest, Body, UNKNOWN_PATH, problem};
use gatun_api::paths::{self, Permission};
use gatun_api::types::LogLevel;
use hyper::body::{Body as _, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::SemaphorePermit;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Factor by which a long body may take longer than other requests.
const LONG_BODY_PATIENCE: u32 = 6;
/// Bytes of a request's head, and its number of lines.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Pause of accepting while the process cannot open more files.
const NO_FILES: Duration = Duration::from_millis(200);

/// Listening sockets.
pub(crate) struct AsyncListeners {
    pub(crate) api: Option<UnixListener>,
    pub(crate) tls: Vec<TcpListener>,
    pub(crate) metrics: Option<TcpListener>,
}

/// Serves forever.
pub(crate) async fn serve(doors: AsyncListeners, control: Arc<Control>) {
    let keeper = Arc::clone(&control);
    tokio::spawn(async move { keeper.keep_history().await });
    if let Some(listener) = doors.metrics {
        tokio::spawn(serve_metrics(listener, Arc::clone(&control)));
    }
    if let Some(remote_access) = &control.setup.remote_access {
        for listener in doors.tls {
            tokio::spawn(serve_tls(listener, Arc::clone(remote_access), Arc::clone(&control)));
        }
    }
    if let Some(listener) = doors.api {
        tokio::spawn(serve_api(listener, control));
    }
    std::future::pending::<()>().await;
}

async fn serve_api(listener: UnixListener, control: Arc<Control>) {
    let connections = Arc::new(Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let uid = stream.peer_cred().ok().map(|cred| cred.uid());
                let who = uid.map_or("somebody".to_owned(), |uid| format!("uid {uid}"));
                let client = Client { control: Arc::clone(&control), who, door: Origin::Socket };
                take_in(&connections, Source::User(uid.unwrap_or(u32::MAX)), stream, client).await;
            }
            Err(_) => sleep(NO_FILES).await,
        }
    }
}

async fn serve_metrics(listener: TcpListener, control: Arc<Control>) {
    let connections = Arc::new(Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let (control, who) = (Arc::clone(&control), from.to_string());
                let client = Client { control, who, door: Origin::Metrics };
                take_in(&connections, Source::of(from), stream, client).await;
            }
            Err(_) => sleep(NO_FILES).await,
        }
    }
}

/// Accepts connections under TLS. Before the handshake nothing is sent: refused clients are hung up on.
async fn serve_tls(listener: TcpListener, remote_access: Arc<RemoteAccess>, control: Arc<Control>) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(NO_FILES).await;
            continue;
        };
        let source = Source::of(from);
        if !remote_access.may_connect(source) {
            continue;
        }
        let door = Origin::Tls(Arc::clone(&remote_access), source, from.ip().to_canonical());
        let client = Client { control: Arc::clone(&control), who: from.to_string(), door };
        let remote_access = Arc::clone(&remote_access);
        Arc::clone(&remote_access.connections)
            .take_in(source, move |entry| shake_hands(stream, remote_access, client, entry));
    }
}

async fn shake_hands(stream: TcpStream, remote_access: Arc<RemoteAccess>, client: Client, entry: Entry) {
    // Answers are written whole or in large parts: waiting for more bytes gains nothing.
    let _ = stream.set_nodelay(true);
    let acceptor = TlsAcceptor::from(Arc::clone(&remote_access.secure().tls));
    match timeout(client.control.setup.patience.request, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => talk(stream, client, entry).await,
        Ok(Err(_)) | Err(_) => remote_access.refuse_client(ClientRefusal::Handshake),
    }
}

/// Client of a connection.
struct Client {
    control: Arc<Control>,
    who: String,
    door: Origin,
}

/// Origin of a connection.
enum Origin {
    /// The API's socket: everything.
    Socket,
    /// The metrics socket: metrics alone.
    Metrics,
    /// TCP under TLS: everything that the request's token allows.
    Tls(Arc<RemoteAccess>, Source, IpAddr),
}

async fn take_in<S>(connections: &Arc<Connections>, source: Source, mut stream: S, client: Client)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    if !connections.make_room() {
        const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: 68\r\n\r\n{\"error\":\"too many connections are busy\",\"hint\":\"try again shortly\"}";
        // The answer fits into the socket's buffer or is not sent.
        let _ = timeout(Duration::from_millis(10), stream.write_all(FULL)).await;
        return;
    }
    connections.take_in(source, |entry| talk(stream, client, entry));
}

async fn talk<S>(stream: S, client: Client, entry: Entry)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let patience = client.control.setup.patience;
    let patient = IdleTimeout::new(stream, entry.activity(), patience.idle);
    let client = Arc::new(client);
    let service = service_fn(|request| {
        let busy = entry.busy();
        let client = Arc::clone(&client);
        async move { Ok::<_, std::convert::Infallible>(respond(request, &client, busy).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.request);
    http.max_headers(HEADERS_MAX).max_buf_size(HEAD_MAX).half_close(false);
    // An error of one client ends only its own connection.
    let _ = http.serve_connection(TokioIo::new(patient), service).await;
}

async fn respond(request: Request<Incoming>, client: &Client, busy: Busy) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.as_str().to_owned(), head.uri.path().to_owned());
    let accepts = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let mut asked = ApiRequest {
        method: &method,
        path: &path,
        query: head.uri.query().unwrap_or_default(),
        openmetrics: accepts.contains("application/openmetrics-text"),
        who: &client.who,
        may_write: matches!(client.door, Origin::Socket),
        may_audit: matches!(client.door, Origin::Socket),
    };
    // The page is public; it asks the API for all that it shows.
    let page = if method == "GET" { gatun_web::file(&path) } else { None };
    if let Some(file) = page.filter(|_| !matches!(client.door, Origin::Metrics)) {
        return file.map(|text| Body::whole(text.into(), busy));
    }
    let by_token;
    match &client.door {
        Origin::Socket => {}
        Origin::Metrics if path == "/metrics" => {}
        Origin::Metrics => {
            let hint = "metrics are at /metrics; the API is at its Unix socket".to_owned();
            return problem(StatusCode::NOT_FOUND, UNKNOWN_PATH.to_owned(), hint, busy);
        }
        Origin::Tls(remote_access, source, address) => {
            let authorization = head.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
            match remote_access.admit((*source, *address), authorization, needs_of(&method, &path)) {
                Ok(admitted) => {
                    busy.by_token(admitted.hash);
                    by_token = format!("{} at {address}", admitted.name);
                    asked.who = &by_token;
                    asked.may_write = admitted.role.allows(Permission::Write);
                    asked.may_audit = admitted.role.allows(Permission::Audit);
                }
                Err(denied) => return deny(denied, client, busy),
            }
        }
    }
    let received = match Control::body_max(&asked) {
        Some(most) => receive(body, most, &client.control).await,
        None => Ok((Vec::new(), None)),
    };
    // `_room` reserves the memory of a long body while the request is in progress.
    let (bytes, _room) = match received {
        Ok(received) => received,
        Err((status, what, hint)) => return problem(status, what, hint.to_owned(), busy),
    };
    let began = Instant::now();
    let response = match client.control.answer(&asked, bytes).await {
        Ok(answer) => answer.response(busy),
        Err(refusal) => refusal.response(busy),
    };
    let setup = &client.control.setup;
    if setup.level.has(LogLevel::Debug) {
        let (status, ms) = (response.status().as_u16(), began.elapsed().as_secs_f64() * 1e3);
        let query = if asked.query.is_empty() { String::new() } else { format!("?{}", asked.query) };
        (setup.log)(&format!("api: {} {method} {path}{query}: {status} in {ms:.1} ms", asked.who));
    }
    response
}

/// Returns the right that a request needs.
fn needs_of(method: &str, path: &str) -> Permission {
    paths::find(method, path).map_or(Permission::Read, |endpoint| endpoint.needs())
}

fn deny(denied: Denied, client: &Client, busy: Busy) -> Response<Body> {
    if let Some(line) = &denied.log {
        (client.control.setup.log)(line);
    }
    let (status, error, hint) = match denied.why {
        ClientRefusal::Role => (
            StatusCode::FORBIDDEN,
            "the role of this token does not allow this request",
            "`gatun token add NAME` makes another token: --write for changes, --audit for questions to the log",
        ),
        ClientRefusal::ManyWrong => (
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens from this address",
            "wait; the Unix socket takes no tokens",
        ),
        ClientRefusal::WrongToken => {
            (StatusCode::UNAUTHORIZED, "unknown token", "`gatun token list` lists the names of known tokens")
        }
        _ => (StatusCode::UNAUTHORIZED, "missing token", "send `authorization: Bearer TOKEN`"),
    };
    let mut response = problem(status, error.to_owned(), hint.to_owned(), busy);
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"gatun\""));
    }
    if let Some(wait) = denied.wait {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
    }
    response
}

/// Refusal of a body: status, error and hint.
type Unreceived = (StatusCode, String, &'static str);

/// Receives a body of at most `most` bytes. A body that may exceed the ordinary limit reserves its share of
/// the memory for long bodies and has more time.
async fn receive(
    body: Incoming,
    most: usize,
    control: &Control,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'_>>), Unreceived> {
    let longest = body.size_hint().upper().map_or(most as u64, |upper| upper.min(most as u64));
    let (mut room, mut patience) = (None, control.setup.patience.request);
    if longest > configure::SHORT_BODY_MAX as u64 {
        let part = u32::try_from(longest).unwrap_or(u32::MAX);
        let taken = control.long_bodies.try_acquire_many(part);
        room = Some(taken.map_err(|_| {
            let what = "too many long requests at a time".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, what, "try again in a moment")
        })?);
        patience *= LONG_BODY_PATIENCE;
    }
    match timeout(patience, read_body(body, most)).await {
        Ok(Ok(bytes)) => Ok((bytes, room)),
        Ok(Err((status, what))) => Err((status, what, "")),
        Err(_) => {
            let what = format!("the body was not received within {} s", patience.as_secs());
            Err((StatusCode::REQUEST_TIMEOUT, what, ""))
        }
    }
}

async fn read_body(mut body: Incoming, most: usize) -> Result<Vec<u8>, (StatusCode, String)> {
    let too_long = || {
        let instead = match most {
            configure::BODY_MAX => "name a file of mappings in the configuration (eam_file)",
            _ => "send the list in parts",
        };
        (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {most} bytes: {instead}"))
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        match frame {
            None => return Ok(bytes),
            Some(Err(error)) => {
                return Err((StatusCode::BAD_REQUEST, format!("incomplete body: {error}")));
            }
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if bytes.len() + data.len() > most {
                    return Err(too_long());
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}
