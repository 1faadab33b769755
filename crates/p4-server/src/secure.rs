//! TLS 1.3 of the server: each controller proves that the operator's authority has signed its certificate.

use gatun_tls::{Directory, Fault};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// Protocol within TLS.
const HTTP2: &[u8] = b"h2";
/// Longest handshake.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Time that a refused client has to read the reason.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// Bytes of a refused client that are read, so that its host does not discard the reason.
const FAREWELL_LEN_MAX: u64 = 64 << 10;

type Report = Box<dyn Fn(SocketAddr, &str) + Send + Sync>;

/// Certificates of a server, and what hears of clients that were refused.
pub struct ServerTls {
    directory: Directory,
    last: Mutex<Arc<ServerConfig>>,
    report: Report,
}

impl ServerTls {
    /// Reads the certificates, which are read again for each connection. `report` gets the reason why a
    /// client was refused.
    ///
    /// # Errors
    /// Names the unusable file.
    pub fn new(
        directory: Directory,
        report: impl Fn(SocketAddr, &str) + Send + Sync + 'static,
    ) -> Result<ServerTls, String> {
        let last = Mutex::new(directory.server(HTTP2)?);
        Ok(ServerTls { directory, last, report: Box::new(report) })
    }

    /// The present certificates, or the last usable ones.
    fn config(&self, remote: SocketAddr) -> Arc<ServerConfig> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match self.directory.server(HTTP2) {
            Ok(present) => *last = present,
            Err(why) => (self.report)(remote, &format!("the previous certificates stay in use: {why}")),
        }
        Arc::clone(&last)
    }

    /// Waits for the handshake of a client.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        remote: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, Refused> {
        let acceptor = TlsAcceptor::from(self.config(remote));
        let handshake = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream).into_fallible());
        match handshake.await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => {
                (self.report)(remote, &in_words(&error));
                Err(Refused(Some(stream)))
            }
            Err(_) => {
                (self.report)(remote, &format!("no handshake within {} s", HANDSHAKE_MAX.as_secs()));
                Err(Refused(None))
            }
        }
    }
}

/// Client without a usable certificate.
pub(crate) struct Refused(Option<TcpStream>);

impl Refused {
    /// Ends the connection after the client has read the reason.
    pub(crate) async fn part(self) {
        let Some(mut stream) = self.0 else { return };
        let farewell = async move {
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream.take(FAREWELL_LEN_MAX), &mut tokio::io::sink()).await;
        };
        let _ = tokio::time::timeout(FAREWELL_MAX, farewell).await;
    }
}

fn in_words(error: &io::Error) -> String {
    match Fault::of(error) {
        Some(fault) => fault.to_string(),
        None => error.to_string(),
    }
}
