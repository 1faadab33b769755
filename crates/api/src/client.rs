//! API client: HTTP/1.1 over the daemon's Unix socket, or over TLS to another host.

mod remote;

pub use remote::{Fingerprint, Server, Trust};

use crate::types::Problem;
use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use remote::Remote;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::time::timeout;

/// Longest time without progress.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Error of a request.
#[derive(Debug)]
pub enum Error {
    /// No daemon listens on the socket, or it cannot be opened.
    Connect(PathBuf, io::Error),
    /// The server cannot be reached, or its certificate is not trusted.
    Remote(Box<Server>, io::Error),
    /// The connection broke, or nothing came in time.
    Broken(io::Error),
    /// The answer is not HTTP, or not of the expected type.
    Garbled(String),
    /// The daemon refused the request: HTTP status and reason.
    Refused(u16, Problem),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connect(path, error) => {
                let path = path.display();
                match error.kind() {
                    _ if self.is_no_daemon() => {
                        write!(
                            f,
                            "no daemon answers at {path}: is `gatun run` running? If its configuration sets another [api] listen, pass --socket PATH"
                        )
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "{path}: permission denied: run as root, or as a member of the group in [api] group"
                        )
                    }
                    _ => write!(f, "{path}: {error}"),
                }
            }
            Error::Remote(server, error) => match error.kind() {
                // Errors of rustls.
                io::ErrorKind::InvalidData => write!(
                    f,
                    "{server}: {error}: pass --ca FILE with the certificate that signed it, or --fingerprint HASH from the daemon's log"
                ),
                io::ErrorKind::ConnectionRefused => {
                    write!(f, "{server}: {error}: is [api] listen_tls set in its configuration?")
                }
                _ => write!(f, "{server}: {error}"),
            },
            Error::Broken(error) => write!(f, "the daemon's answer broke off: {error}"),
            Error::Garbled(what) => write!(f, "unexpected answer of the daemon: {what}"),
            Error::Refused(_, problem) if problem.hint.is_empty() => write!(f, "{}", problem.error),
            Error::Refused(_, problem) => write!(f, "{}: {}", problem.error, problem.hint),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// No daemon listens on the socket.
    pub fn is_no_daemon(&self) -> bool {
        let closed = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        matches!(self, Error::Connect(_, error) if closed.contains(&error.kind()))
    }
}

/// Address of a daemon.
#[derive(Clone, Debug)]
enum Address {
    Socket(PathBuf),
    Remote(Box<Remote>),
}

/// Client of one daemon. Each request has a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    idle_max: Duration,
}

impl Client {
    /// Client of the daemon that listens on a Unix socket.
    pub fn new(socket: impl AsRef<Path>) -> Client {
        Client { address: Address::Socket(socket.as_ref().to_owned()), idle_max: IDLE_MAX }
    }

    /// Client of a daemon on another host, authenticated by a token.
    ///
    /// # Errors
    /// Returns an error if the token is invalid, or `trust` has no usable certificate.
    pub fn remote(server: Server, token: &str, trust: &Trust) -> Result<Client, String> {
        let remote = Remote::new(server, token, trust)?;
        Ok(Client { address: Address::Remote(Box::new(remote)), idle_max: IDLE_MAX })
    }

    /// Sets the longest time without progress of an answer; 60 seconds by default.
    pub fn with_idle_max(self, idle_max: Duration) -> Client {
        Client { idle_max, ..self }
    }

    /// Sends a GET request and parses its JSON answer.
    ///
    /// # Errors
    /// Returns the errors of [`Error`].
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Error> {
        self.ask("GET", target, &[])
    }

    /// Sends a request and parses its JSON answer.
    ///
    /// # Errors
    /// Returns the errors of [`Error`].
    pub fn ask<T: DeserializeOwned>(&self, method: &str, target: &str, body: &[u8]) -> Result<T, Error> {
        let mut answer = self.open(method, target, body)?;
        let mut text = Vec::new();
        answer.read_to_end(&mut text).map_err(Error::Broken)?;
        serde_json::from_slice(&text).map_err(|error| Error::Garbled(error.to_string()))
    }

    /// Sends a request and returns the body of its answer as a stream. The body ends at the end of the whole
    /// answer: a connection that breaks earlier is an error.
    ///
    /// # Errors
    /// Returns the errors of [`Error`].
    pub fn open(&self, method: &str, target: &str, body: &[u8]) -> Result<Body, Error> {
        let request = self.request(method, target, body)?;
        // Sending a large request may take time as well.
        let answer_max = if body.is_empty() { self.idle_max } else { self.idle_max + IDLE_MAX };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Broken)?;
        let (head, incoming) = runtime.block_on(self.send(request, answer_max))?.into_parts();
        // Without either header, a broken connection would look like the end.
        if !head.headers.contains_key(CONTENT_LENGTH) && !head.headers.contains_key(TRANSFER_ENCODING) {
            return Err(Error::Garbled("it has no length".to_owned()));
        }
        let mut body = Body { runtime, incoming, chunk: Bytes::new(), idle_max: self.idle_max };
        if head.status == StatusCode::OK {
            return Ok(body);
        }
        let mut text = Vec::new();
        body.read_to_end(&mut text).map_err(Error::Broken)?;
        let problem = serde_json::from_slice(&text).unwrap_or_else(|_| Problem {
            error: format!("HTTP status {}", head.status),
            hint: String::from_utf8_lossy(&text).trim().to_owned(),
        });
        Err(Error::Refused(head.status.as_u16(), problem))
    }

    fn request(&self, method: &str, target: &str, body: &[u8]) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder().method(method).uri(target).header(CONNECTION, "close");
        request = match &self.address {
            Address::Socket(_) => request.header(HOST, "localhost"),
            Address::Remote(remote) => request
                .header(HOST, remote.server.authority())
                .header(AUTHORIZATION, format!("Bearer {}", remote.token)),
        };
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body)));
        request.map_err(|error| Error::Broken(io::Error::new(io::ErrorKind::InvalidInput, error)))
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        answer_max: Duration,
    ) -> Result<Response<Incoming>, Error> {
        let sender = match &self.address {
            Address::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                handshake(stream.map_err(|error| Error::Connect(path.clone(), error))?).await
            }
            Address::Remote(remote) => {
                let stream = remote.connect(self.idle_max).await;
                handshake(stream.map_err(|error| Error::Remote(Box::new(remote.server.clone()), error))?)
                    .await
            }
        };
        let mut sender = sender.map_err(|error| Error::Broken(broken(error)))?;
        within(answer_max, sender.send_request(request)).await.map_err(Error::Broken)
    }
}

async fn handshake<S>(stream: S) -> hyper::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection makes progress while the answer is awaited; the answer reports its errors.
    tokio::spawn(connection);
    Ok(sender)
}

async fn within<T>(limit: Duration, step: impl Future<Output = hyper::Result<T>>) -> io::Result<T> {
    match timeout(limit, step).await {
        Ok(done) => done.map_err(broken),
        Err(_) => {
            let what = format!("no data for {} s", limit.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        }
    }
}

fn broken(error: hyper::Error) -> io::Error {
    match std::error::Error::source(&error).and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => io::Error::new(source.kind(), source.to_string()),
        None if error.is_incomplete_message() => io::Error::new(io::ErrorKind::UnexpectedEof, error),
        None => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

/// Body of an answer.
#[derive(Debug)]
pub struct Body {
    runtime: runtime::Runtime,
    incoming: Incoming,
    /// Received bytes that are not read yet.
    chunk: Bytes,
    idle_max: Duration,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            let incoming = &mut self.incoming;
            let next = async { incoming.frame().await.transpose() };
            match self.runtime.block_on(within(self.idle_max, next))? {
                None => return Ok(0),
                // Trailers have no data to read.
                Some(frame) => self.chunk = frame.into_data().unwrap_or_default(),
            }
        }
        (&mut self.chunk).reader().read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Sends a request to a server that always sends these bytes, and then hangs up or stays silent.
    fn answered_by(text: &'static [u8], hangs_up: bool, body: &[u8]) -> Result<String, Error> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gatun-client-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut some = [0; 1024];
                let read = stream.read(&mut some).unwrap();
                request.extend_from_slice(&some[..read]);
            }
            stream.write_all(text).unwrap();
            (!hangs_up).then_some(stream)
        });
        let client =
            Client::new(&socket).with_idle_max(Duration::from_millis(if hangs_up { 10_000 } else { 200 }));
        let answered = client.open("POST", "/", body).and_then(|mut answer| {
            let mut text = String::new();
            answer.read_to_string(&mut text).map_err(Error::Broken)?;
            Ok(text)
        });
        drop(server.join().unwrap());
        std::fs::remove_file(socket).unwrap();
        answered
    }

    fn answered(text: &'static [u8]) -> Result<String, Error> {
        answered_by(text, true, b"")
    }

    #[test]
    fn a_body_is_complete_or_an_error() {
        let length = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(answered(length).unwrap(), "hello");
        let chunks =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
        assert_eq!(answered(chunks).unwrap(), "hello");
        for broken in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhelx\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        ] {
            assert!(answered(broken).is_err(), "{}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn a_silent_server_is_an_error_in_head_and_body() {
        for silent in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello"] {
            let error = answered_by(silent, false, b"").unwrap_err();
            assert!(matches!(&error, Error::Broken(e) if e.kind() == io::ErrorKind::TimedOut), "{error}");
        }
    }

    #[test]
    fn an_early_refusal_is_reported() {
        let refusal =
            b"HTTP/1.1 413 Too Large\r\ncontent-length: 26\r\n\r\n{\"error\":\"long\",\"hint\":\"\"}";
        let refused = answered_by(refusal, false, &vec![b'x'; 8 << 20]).unwrap_err();
        assert!(matches!(&refused, Error::Refused(413, problem) if problem.error == "long"), "{refused}");
    }

    #[test]
    fn an_unused_socket_is_reported_with_a_remedy() {
        let error =
            Client::new("/nonexistent/api.sock").get::<Problem>("/v1/status").unwrap_err().to_string();
        assert!(
            error.contains("no daemon answers at /nonexistent/api.sock: is `gatun run` running?"),
            "{error}"
        );
    }
}
