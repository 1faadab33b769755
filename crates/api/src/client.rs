//! Asks a daemon: HTTP/1.1 over its Unix socket, or over TLS, one connection a question. Small, and for this server
//! alone.

mod remote;

pub use remote::{Fingerprint, Server, Trust};

use crate::types::Problem;
use remote::Remote;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer may make no progress.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Lines of an answer's head, and bytes of each, at most.
const HEAD_LINES_MAX: usize = 64;
const LINE_LEN_MAX: u64 = 8192;

/// Why there is no answer.
#[derive(Debug)]
pub enum Error {
    /// Nobody answers there.
    Connect(PathBuf, io::Error),
    /// Nobody answers there, or it is somebody else.
    Remote(Box<Server>, io::Error),
    /// The connection broke.
    Broken(io::Error),
    /// What came is not an answer, or not the one asked for.
    Garbled(String),
    /// The daemon says why not: status, and what it says.
    Refused(u16, Problem),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connect(path, error) => {
                let path = path.display();
                match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        write!(
                            f,
                            "no daemon answers at {path}: is `gatun run` running? Where its configuration has another [api] listen, give --socket PATH"
                        )
                    }
                    io::ErrorKind::PermissionDenied => {
                        write!(
                            f,
                            "{path}: permission denied: run as root, or as a member of the group that [api] group names"
                        )
                    }
                    _ => write!(f, "{path}: {error}"),
                }
            }
            Error::Remote(server, error) => match error.kind() {
                // So rustls's own errors come.
                io::ErrorKind::InvalidData => write!(
                    f,
                    "{server}: {error}: give --ca FILE with the certificate that signs this one, or --fingerprint HASH, which the daemon's log says"
                ),
                io::ErrorKind::ConnectionRefused => {
                    write!(f, "{server}: {error}: has its configuration [api] listen_tls?")
                }
                _ => write!(f, "{server}: {error}"),
            },
            Error::Broken(error) => write!(f, "the daemon's answer broke off: {error}"),
            Error::Garbled(what) => write!(f, "the daemon's answer is not what was asked for: {what}"),
            Error::Refused(_, problem) if problem.hint.is_empty() => write!(f, "{}", problem.error),
            Error::Refused(_, problem) => write!(f, "{}: {}", problem.error, problem.hint),
        }
    }
}

impl std::error::Error for Error {}

/// Where a daemon is.
#[derive(Clone, Debug)]
enum Place {
    Socket(PathBuf),
    Remote(Box<Remote>),
}

/// A daemon by its socket, or at another host.
#[derive(Clone, Debug)]
pub struct Client {
    place: Place,
    patience: Duration,
}

impl Client {
    /// The daemon that listens there.
    pub fn new(socket: impl AsRef<Path>) -> Client {
        Client { place: Place::Socket(socket.as_ref().to_owned()), patience: SILENCE_MAX }
    }

    /// The daemon at another host, which is asked with a token.
    ///
    /// # Errors
    /// Where the token is none, or nothing can be trusted by what is given.
    pub fn remote(server: Server, token: &str, trust: &Trust) -> Result<Client, String> {
        let remote = Remote::new(server, token, trust)?;
        Ok(Client { place: Place::Remote(Box::new(remote)), patience: SILENCE_MAX })
    }

    /// The same, where an answer may make no progress for so long.
    pub fn with_patience(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Reads something.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn get<T: DeserializeOwned>(&self, target: &str) -> Result<T, Error> {
        self.ask("GET", target, &[])
    }

    /// Asks, and reads the answer as a whole.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask<T: DeserializeOwned>(&self, method: &str, target: &str, body: &[u8]) -> Result<T, Error> {
        let mut answer = self.open(method, target, body)?;
        let mut text = Vec::new();
        answer.read_to_end(&mut text).map_err(Error::Broken)?;
        serde_json::from_slice(&text).map_err(|error| Error::Garbled(error.to_string()))
    }

    /// Asks, and gives the answer's body to be read; its end is the end of the whole answer, never of a part.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn open(&self, method: &str, target: &str, body: &[u8]) -> Result<Body, Error> {
        let mut stream = self.connect()?;
        let (host, authorization) = match &self.place {
            Place::Socket(_) => ("localhost".to_owned(), String::new()),
            Place::Remote(remote) => {
                let authorization = format!("authorization: Bearer {}\r\n", remote.token);
                (remote.server.to_string().split_off("https://".len()), authorization)
            }
        };
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{authorization}");
        if !body.is_empty() {
            head += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        let sent = stream.write_all(format!("{head}\r\n").as_bytes());
        let sent = sent.and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        // A refusal may come before all is sent.
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        let (status, rest) = match (read_head(&mut reader), sent) {
            (Ok(head), _) => head,
            (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(Error::Broken(error)),
        };
        let mut body = Body { reader, rest };
        if status == 200 {
            return Ok(body);
        }
        let mut text = Vec::new();
        body.read_to_end(&mut text).map_err(Error::Broken)?;
        let problem = serde_json::from_slice(&text).unwrap_or_else(|_| Problem {
            error: format!("the daemon answers {status}"),
            hint: String::from_utf8_lossy(&text).trim().to_owned(),
        });
        Err(Error::Refused(status, problem))
    }

    fn connect(&self) -> Result<Stream, Error> {
        match &self.place {
            Place::Socket(path) => {
                let stream = UnixStream::connect(path).map_err(|e| Error::Connect(path.clone(), e))?;
                let read = stream.set_read_timeout(Some(self.patience));
                read.and_then(|()| stream.set_write_timeout(Some(SILENCE_MAX))).map_err(Error::Broken)?;
                Ok(Stream::Socket(stream))
            }
            Place::Remote(remote) => {
                let stream = remote.connect((self.patience, SILENCE_MAX));
                let stream = stream.map_err(|e| Error::Remote(Box::new(remote.server.clone()), e))?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
enum Stream {
    Socket(UnixStream),
    Tls(Box<remote::Stream>),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Socket(stream) => stream.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Socket(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Socket(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// How much of a body is to come.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// So many bytes.
    Known(u64),
    /// So many of the chunk at hand, and then more chunks; the flag says that the chunk's end is to be read.
    Chunks(u64, bool),
    Over,
}

/// An answer's body.
#[derive(Debug)]
pub struct Body {
    reader: BufReader<Stream>,
    rest: Rest,
}

fn garbled(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.by_ref().take(LINE_LEN_MAX).read_line(&mut line)?;
    let ended = line.strip_suffix("\r\n").map(str::to_owned);
    ended.ok_or_else(|| match line.is_empty() {
        true => io::ErrorKind::UnexpectedEof.into(),
        false => garbled("a line without its end"),
    })
}

/// Status, and how the body comes.
fn read_head(reader: &mut impl BufRead) -> io::Result<(u16, Rest)> {
    let first = read_line(reader)?;
    let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|s| s.parse().ok());
    let status = status.ok_or_else(|| garbled("no HTTP status"))?;
    let mut rest = None;
    for _ in 0..HEAD_LINES_MAX {
        let line = read_line(reader)?;
        if line.is_empty() {
            return rest.map(|rest| (status, rest)).ok_or_else(|| garbled("a body of unknown length"));
        }
        let (name, value) = line.split_once(':').ok_or_else(|| garbled("a header without a colon"))?;
        match (name.trim().to_ascii_lowercase().as_str(), value.trim()) {
            ("content-length", length) => {
                rest = Some(Rest::Known(length.parse().map_err(|_| garbled("no content length"))?));
            }
            ("transfer-encoding", "chunked") => rest = Some(Rest::Chunks(0, false)),
            _ => {}
        }
    }
    Err(garbled("a head without end"))
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = match self.rest {
            Rest::Known(0) | Rest::Over => return Ok(0),
            Rest::Known(left) => left,
            Rest::Chunks(0, ended) => {
                if ended && !read_line(&mut self.reader)?.is_empty() {
                    return Err(garbled("a chunk without its end"));
                }
                let line = read_line(&mut self.reader)?;
                let size = u64::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
                let size = size.map_err(|_| garbled("a chunk without its size"))?;
                if size == 0 {
                    read_line(&mut self.reader)?;
                    self.rest = Rest::Over;
                    return Ok(0);
                }
                self.rest = Rest::Chunks(size, true);
                size
            }
            Rest::Chunks(left, _) => left,
        };
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(buffer.get_mut(..wanted).unwrap_or_default())?;
        if read == 0 && wanted > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - read as u64;
        self.rest = match self.rest {
            Rest::Chunks(..) => Rest::Chunks(left, true),
            _ => Rest::Known(left),
        };
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client reads where a server says this.
    fn answered(text: &'static [u8]) -> Result<String, Error> {
        let (server, client) = UnixStream::pair().unwrap();
        (&server).write_all(text).unwrap();
        drop(server);
        let mut reader = BufReader::new(Stream::Socket(client));
        let (_, rest) = read_head(&mut reader).map_err(Error::Broken)?;
        let mut body = String::new();
        Body { reader, rest }.read_to_string(&mut body).map_err(Error::Broken)?;
        Ok(body)
    }

    #[test]
    fn a_body_is_read_whole_or_not_at_all() {
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
    fn nobody_at_the_socket_is_told_with_what_to_do() {
        let error =
            Client::new("/nonexistent/api.sock").get::<Problem>("/v1/status").unwrap_err().to_string();
        assert!(
            error.contains("no daemon answers at /nonexistent/api.sock: is `gatun run` running?"),
            "{error}"
        );
    }
}
