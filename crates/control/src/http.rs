//! HTTP/1.1 for many clients on one thread, whatever they do: connections are bounded in number and in the time that
//! they may do nothing, requests in size and time. Where all connections are taken, the one that has been idle
//! longest makes room; one whose request is worked on never does.

use crate::Control;
use crate::answers::{Asked, problem};
use crate::ask::Unanswered;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::ACCEPT;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Connections at a time.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's body.
pub(crate) const BODY_MAX: usize = 1 << 20;
/// Bytes of its head, and lines of it.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// How long nobody is accepted where the process can open no more files.
const NO_FILES: Duration = Duration::from_millis(200);

/// Serves for ever.
pub(crate) async fn serve(api: Option<UnixListener>, metrics: Option<TcpListener>, control: Arc<Control>) {
    if let Some(listener) = metrics {
        tokio::spawn(serve_metrics(listener, Arc::clone(&control)));
    }
    if let Some(listener) = api {
        tokio::spawn(serve_api(listener, control));
    }
    std::future::pending::<()>().await;
}

async fn serve_api(listener: UnixListener, control: Arc<Control>) {
    let connections = Arc::new(Connections::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let who =
                    stream.peer_cred().map_or("somebody".to_owned(), |cred| format!("uid {}", cred.uid()));
                connections.take_in(stream, Serves { control: Arc::clone(&control), who, all: true }).await;
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
                let serves = Serves { control: Arc::clone(&control), who: from.to_string(), all: false };
                connections.take_in(stream, serves).await;
            }
            Err(_) => sleep(NO_FILES).await,
        }
    }
}

/// What a connection gets.
struct Serves {
    control: Arc<Control>,
    who: String,
    /// Everything, or metrics alone.
    all: bool,
}

/// A connection as others see it.
struct Connection {
    /// Whether a request is worked on, or its answer sent.
    busy: AtomicBool,
    /// When it was busy last, ms since the first.
    since_ms: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// Those there are.
struct Connections {
    began: Instant,
    all: Mutex<Vec<Arc<Connection>>>,
}

impl Default for Connections {
    fn default() -> Self {
        Connections { began: Instant::now(), all: Mutex::new(Vec::with_capacity(CONNECTIONS_MAX)) }
    }
}

impl Connections {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether there is room for one more, after the one that is idle longest has made some.
    fn make_room(&self) -> bool {
        let mut all = self.all();
        if all.len() < CONNECTIONS_MAX {
            return true;
        }
        let idle = all.iter().enumerate().filter(|(_, one)| !one.busy.load(Ordering::Relaxed));
        let longest = idle.min_by_key(|(_, one)| one.since_ms.load(Ordering::Relaxed)).map(|(at, _)| at);
        let Some(longest) = longest else { return false };
        if let Some(task) = all.swap_remove(longest).task.get() {
            task.abort();
        }
        true
    }

    async fn take_in<S>(self: &Arc<Self>, mut stream: S, serves: Serves)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if !self.make_room() {
            const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\ncontent-length: 68\r\n\r\n{\"error\":\"too many connections are busy\",\"hint\":\"try again shortly\"}";
            // It fits into the socket's buffer, or is not sent.
            let _ = timeout(Duration::from_millis(10), stream.write_all(FULL)).await;
            return;
        }
        let connection = Arc::new(Connection {
            busy: AtomicBool::new(false),
            since_ms: AtomicU64::new(self.now_ms()),
            task: OnceLock::new(),
        });
        self.all().push(Arc::clone(&connection));
        let left = Left { connections: Arc::clone(self), connection: Arc::clone(&connection) };
        let task = tokio::spawn(async move {
            talk(stream, serves, &left).await;
        });
        let _ = connection.task.set(task.abort_handle());
    }
}

/// Takes a connection out of the list when its task ends, however that is.
struct Left {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.connections.all().retain(|other| !Arc::ptr_eq(other, &self.connection));
    }
}

async fn talk<S>(stream: S, serves: Serves, left: &Left)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let patience = serves.control.setup.patience;
    let patient = Patient::new(stream, Arc::clone(&left.connection), patience.idle);
    let serves = Arc::new(serves);
    let service = service_fn(|request| {
        let busy = Busy::new(left);
        let serves = Arc::clone(&serves);
        async move { Ok::<_, std::convert::Infallible>(respond(request, &serves, busy).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience.request);
    http.max_headers(HEADERS_MAX).max_buf_size(HEAD_MAX).half_close(false);
    // Whatever a client does wrong ends its own connection, and nothing else.
    let _ = http.serve_connection(TokioIo::new(patient), service).await;
}

async fn respond(request: Request<Incoming>, serves: &Serves, busy: Busy) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.as_str().to_owned(), head.uri.path().to_owned());
    let accepts = head.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let asked = Asked {
        method: &method,
        path: &path,
        query: head.uri.query().unwrap_or_default(),
        openmetrics: accepts.contains("application/openmetrics-text"),
        who: &serves.who,
    };
    if !serves.all && path != "/metrics" {
        let hint = "metrics are at /metrics; the API is at its Unix socket".to_owned();
        return problem(StatusCode::NOT_FOUND, "there is nothing at this path".to_owned(), hint, busy);
    }
    let mut bytes = Vec::new();
    if Control::wants_body(&asked) {
        let patience = serves.control.setup.patience.request;
        match timeout(patience, read_body(body)).await {
            Ok(Ok(read)) => bytes = read,
            Ok(Err((status, what))) => return problem(status, what, String::new(), busy),
            Err(_) => {
                let what = format!("the body did not come within {} s", patience.as_secs());
                return problem(StatusCode::REQUEST_TIMEOUT, what, String::new(), busy);
            }
        }
    }
    match serves.control.answer(&asked, &bytes).await {
        Ok(answer) => answer.response(busy),
        Err(refusal) => refusal.response(busy),
    }
}

async fn read_body(mut body: Incoming) -> Result<Vec<u8>, (StatusCode, String)> {
    let too_long = || {
        let what = format!("the body is longer than {BODY_MAX} bytes: send the list in parts");
        (StatusCode::PAYLOAD_TOO_LARGE, what)
    };
    if body.size_hint().lower() > BODY_MAX as u64 {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        match frame {
            None => return Ok(bytes),
            Some(Err(error)) => {
                return Err((StatusCode::BAD_REQUEST, format!("the body broke off: {error}")));
            }
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if bytes.len() + data.len() > BODY_MAX {
                    return Err(too_long());
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}

/// A connection is busy as long as this is there.
pub(crate) struct Busy {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
}

impl Busy {
    fn new(left: &Left) -> Busy {
        left.connection.busy.store(true, Ordering::Relaxed);
        Busy { connections: Arc::clone(&left.connections), connection: Arc::clone(&left.connection) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.connection.since_ms.store(self.connections.now_ms(), Ordering::Relaxed);
        self.connection.busy.store(false, Ordering::Relaxed);
    }
}

/// An answer's body.
pub(crate) struct Body {
    content: Content,
    _busy: Busy,
}

enum Content {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Result<Bytes, Unanswered>>),
}

impl Body {
    pub(crate) fn whole(text: Vec<u8>, busy: Busy) -> Body {
        let text = Some(Bytes::from(text)).filter(|text| !text.is_empty());
        Body { content: Content::Whole(text), _busy: busy }
    }

    pub(crate) fn lines(lines: mpsc::Receiver<Result<Bytes, Unanswered>>, busy: Busy) -> Body {
        Body { content: Content::Lines(lines), _busy: busy }
    }
}

/// A list that could not be told to its end: the connection breaks off, so that nobody takes it for whole.
#[derive(Debug)]
pub(crate) struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a worker does not answer")
    }
}

impl std::error::Error for BrokenOff {}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut self.content {
            Content::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Content::Lines(lines) => {
                let some = ready!(lines.poll_recv(cx));
                Poll::Ready(some.map(|some| some.map(Frame::data).map_err(|_| BrokenOff)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Lines(_) => SizeHint::default(),
        }
    }
}

/// A stream that does not wait for ever: neither for a client that takes nothing, nor for one that says nothing while
/// no request of its is worked on.
struct Patient<S> {
    stream: S,
    connection: Arc<Connection>,
    idle: Duration,
    reading: Pin<Box<Sleep>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    fn new(stream: S, connection: Arc<Connection>, idle: Duration) -> Self {
        Patient { stream, connection, idle, reading: Box::pin(sleep(idle)), writing: None }
    }

    /// The end of patience with a client that takes nothing.
    fn wait_to_write<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.idle;
        let patience = self.writing.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.reading.as_mut().reset(Instant::now() + this.idle);
            return Poll::Ready(read);
        }
        while this.reading.as_mut().poll(cx).is_ready() {
            if !this.connection.busy.load(Ordering::Relaxed) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.reading.as_mut().reset(Instant::now() + this.idle);
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.wait_to_write(cx),
            done => {
                self.writing = None;
                done
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(cx, bytes) {
            Poll::Pending => self.wait_to_write(cx),
            done => {
                self.writing = None;
                done
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
