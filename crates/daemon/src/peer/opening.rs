//! Socket and certificates of the link, while the process has the rights for them.

use crate::Settings;
use crate::killed::once_released;
use anyhow::{Context as _, anyhow};
use gatun_config::{Peer, PeerMember};
use gatun_peer::link::{Link, LinkSettings, TlsFiles};
use gatun_peer::ownership::Member;
use gatun_peer::tls::{SERVER_NAME, first_certificate};
use sha2::{Digest as _, Sha256};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a killed process may take to release the socket.
const LET_GO_MAX: Duration = Duration::from_millis(1_000);

/// Beginning of what the key of the subscribers' hash is made of.
const SUBSCRIBERS: &[u8] = b"gatun subscribers";

/// Link that is not connected yet.
pub(crate) type OpenedPeer = Option<Link>;

/// Files of a directory of certificates.
pub(crate) fn files(directory: &Path) -> TlsFiles {
    let of = |name: &str| directory.join(name);
    TlsFiles { authority: of("ca.pem"), certificate: of("certificate.pem"), key: of("key.pem") }
}

/// Listens at an address, which a killed process may still have.
///
/// # Errors
/// Another process has the address, or it is not one of this host.
pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    once_released(LET_GO_MAX, is_taken, || TcpListener::bind(address))
        .with_context(|| format!("cannot listen on {address}"))
}

/// Opens the socket and reads the certificates, if the configuration has `[peer]`.
///
/// # Errors
/// Names the unusable file, or the address that is in use.
pub(crate) fn open(peer: Option<&Peer>) -> anyhow::Result<OpenedPeer> {
    let Some(peer) = peer else { return Ok(None) };
    let bind = |address| bind(address).context("[peer] listen");
    let settings = LinkSettings {
        member: match peer.member {
            PeerMember::A => Member::First,
            PeerMember::B => Member::Second,
        },
        listen: peer.listen.map(bind).transpose()?,
        connect: peer.connect,
        files: files(&peer.directory),
        name: SERVER_NAME.to_owned(),
        dead_after_ms: peer.dead_after_ms.into(),
    };
    Ok(Some(Link::new(settings).map_err(|why| anyhow!("[peer] {why}"))?))
}

/// Key of the hash that distributes subscribers over workers or shards: all boxes of a pair or a cluster have
/// the same one, and nobody else can guess it. `None` for a box of its own.
///
/// # Errors
/// Returns an error if the authority's certificate cannot be read.
pub(crate) fn seed(settings: &Settings) -> anyhow::Result<Option<[u64; 4]>> {
    let hash: [u8; 32] = match (&settings.peer, &settings.cluster) {
        // Boxes of a pair have the same copy of the file.
        (Some(peer), _) => Sha256::digest(authority("peer", &peer.directory)?.1),
        // The fingerprint of the certificate is at etcd, so the key is another hash.
        (None, Some(node)) => {
            let der = authority_of_nodes(&node.cluster.directory)?;
            Sha256::new().chain_update(SUBSCRIBERS).chain_update(der).finalize()
        }
        (None, None) => return Ok(None),
    }
    .into();
    let (words, _) = hash.as_chunks::<8>();
    Ok(Some(std::array::from_fn(|n| words.get(n).map_or(0, |word| u64::from_be_bytes(*word)))))
}

/// Path and text of the authority's certificate.
fn authority(section: &str, directory: &Path) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let file = files(directory).authority;
    let text = std::fs::read(&file).with_context(|| {
        format!("[{section}] cannot read {}: `gatun {section} init` makes it", file.display())
    })?;
    Ok((file, text))
}

/// Certificate of the authority of a cluster, in DER: copies of the file may differ in its text.
///
/// # Errors
/// Returns an error if the file cannot be read, or has no certificate.
pub(crate) fn authority_of_nodes(directory: &Path) -> anyhow::Result<Vec<u8>> {
    let (file, text) = authority("cluster", directory)?;
    first_certificate(&text).map_err(|why| anyhow!("[cluster] {}: {why}", file.display()))
}
