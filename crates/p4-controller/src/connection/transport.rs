//! TCP connection to a switch, with TLS 1.3 if the configuration names certificates.

use super::ConnectionConfig;
use gatun_tls::{Directory, Fault};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::transport::{Channel, Endpoint, Uri};

/// Intervals at which a silent switch is asked for a sign of life, and the time for its answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));
/// Protocol within TLS.
const HTTP2: &[u8] = b"h2";
/// First byte of an alert of TLS. HTTP/2 begins with the length of its first frame, which is short.
const ALERT: u8 = 0x15;

/// TLS of connections to switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// Directory of the certificates. They are read for each connection.
    pub directory: Directory,
    /// Name in the certificates of switches. `None`: the address.
    pub server_name: Option<String>,
}

/// Reason why a connection has ended that HTTP/2 and gRPC hide.
#[derive(Clone, Debug, Default)]
pub(super) struct TransportFault(Arc<OnceLock<String>>);

impl TransportFault {
    /// Returns the reason, or the one that is known otherwise.
    pub(super) fn or(&self, other: String) -> String {
        self.0.get().cloned().unwrap_or(other)
    }
}

/// Connects to a switch.
///
/// # Errors
/// Returns the reason in words.
pub(super) async fn open(config: &ConnectionConfig, fault: &TransportFault) -> Result<Channel, String> {
    let address = config.address.clone();
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let mut endpoint = endpoint
        .map_err(|_| format!("invalid address {address}"))?
        .connect_timeout(config.timeout)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .keep_alive_while_idle(true);
    let secure = config.tls.as_ref().map(|tls| secure(tls, &address)).transpose()?;
    if let Some((_, name)) = &secure {
        endpoint = endpoint.origin(origin(name)?);
    }
    let connector = tower::service_fn({
        let (address, fault) = (address.clone(), fault.clone());
        move |_: Uri| connect(address.clone(), secure.clone(), fault.clone())
    });
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| format!("{address}: {}", cause(&error)))
}

/// Reads the certificates, and the name that the switch has to have.
fn secure(tls: &TlsConfig, address: &str) -> Result<(TlsConnector, ServerName<'static>), String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = tls.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is no name of a host"))?;
    Ok((TlsConnector::from(tls.directory.client(HTTP2)?), name))
}

/// Returns the origin of the requests to a host.
fn origin(name: &ServerName<'_>) -> Result<Uri, String> {
    let host = match name {
        ServerName::IpAddress(address) if matches!(IpAddr::from(*address), IpAddr::V6(_)) => {
            format!("[{}]", name.to_str())
        }
        _ => name.to_str().into_owned(),
    };
    let origin = Uri::builder().scheme("https").authority(host.as_str()).path_and_query("/").build();
    origin.map_err(|_| format!("invalid name {host}"))
}

async fn connect(
    address: String,
    secure: Option<(TlsConnector, ServerName<'static>)>,
    fault: TransportFault,
) -> io::Result<TokioIo<Observed>> {
    let stream = TcpStream::connect(&address).await?;
    stream.set_nodelay(true)?;
    let is_plain = secure.is_none();
    let stream: Box<dyn Stream> = match secure {
        None => Box::new(stream),
        Some((connector, name)) => {
            let expected = name.to_str().into_owned();
            let connected = connector.connect(name, stream).await;
            Box::new(connected.map_err(|error| io::Error::other(in_words(&error, &expected)))?)
        }
    };
    Ok(TokioIo::new(Observed { stream, fault, is_first: is_plain }))
}

fn in_words(error: &io::Error, expected: &str) -> String {
    match Fault::of(error) {
        Some(Fault::OtherName) => {
            format!("its certificate is not for {expected}: name another one as `server_name`")
        }
        Some(fault) => fault.to_string(),
        None => error.to_string(),
    }
}

/// The innermost reason of an error.
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connection whose faults are noted.
struct Observed {
    stream: Box<dyn Stream>,
    fault: TransportFault,
    /// True until the first byte of a connection without TLS.
    is_first: bool,
}

impl Observed {
    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if let Some(fault) = Fault::of(error) {
                let _ = self.fault.0.set(fault.to_string());
            }
        })
    }
}

impl AsyncRead for Observed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begin = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(context, buffer));
        if self.is_first && buffer.filled().len() > begin {
            self.is_first = false;
            if buffer.filled()[begin] == ALERT {
                let _ = self.fault.0.set("it speaks TLS: name `certificates` in [[offload]]".to_owned());
            }
        }
        Poll::Ready(self.note(result))
    }
}

impl AsyncWrite for Observed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(self.note(result))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(context));
        Poll::Ready(self.note(result))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, bytes));
        Poll::Ready(self.note(result))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_brackets_around_an_ipv6_address() {
        for (host, wanted) in [("::1", "[::1]"), ("192.0.2.7", "192.0.2.7"), ("edge.example", "edge.example")]
        {
            let name = ServerName::try_from(host).unwrap();
            assert_eq!(origin(&name).unwrap().authority().unwrap().as_str(), wanted);
        }
    }
}
