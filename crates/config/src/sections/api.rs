//! `[api]` and `[metrics]`: sockets of the API.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

/// Longest path of a Unix socket, bytes: 108 with the final zero, less the suffix of its temporary name.
const SOCKET_PATH_LEN_MAX: usize = 96;

/// Sockets of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiSocket {
    /// The default path if possible, else none.
    #[default]
    Usual,
    /// Unix socket at this path.
    Path(PathBuf),
    /// No socket.
    Off,
}

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Unix socket.
    pub socket: ApiSocket,
    /// Group whose members may use the socket, by name or number; if none, only its owner.
    pub group: Option<String>,
    /// TCP under TLS, if configured.
    pub tls: Option<ApiTls>,
}

/// The API on TCP, under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    /// Addresses; at least one.
    pub listen: Vec<SocketAddr>,
    /// File of the certificate chain, in PEM.
    pub certificate: PathBuf,
    /// File of its private key, in PEM.
    pub key: PathBuf,
    /// File of the tokens.
    pub tokens: PathBuf,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Api {
    Api {
        socket: table.get("listen", problems, socket).unwrap_or_default(),
        group: table.get("group", problems, group),
        tls: read_tls(table, problems),
    }
}

fn read_tls(table: &Table<'_>, problems: &mut Problems) -> Option<ApiTls> {
    const FILES: [&str; 3] = ["certificate", "key", "tokens"];
    let mut listen = Vec::new();
    for address in table.list("listen_tls", problems, endpoint) {
        match listen.contains(address.get_ref()) {
            true => {
                let what = format!("`listen_tls` has {} twice", address.get_ref());
                problems.error(address.span(), what, "write it once");
            }
            false => listen.push(address.into_inner()),
        }
    }
    let [certificate, key, tokens] = FILES.map(|name| table.get(name, problems, path));
    if table.node("listen_tls").is_none() {
        for name in FILES.iter().filter(|name| table.node(name).is_some()) {
            let what = format!("`{name}` has no effect without `listen_tls`");
            problems.warn(table.span_of(name), what, table.example("listen_tls"));
        }
        return None;
    }
    if listen.is_empty() {
        return None;
    }
    for name in FILES.iter().filter(|name| table.node(name).is_none()) {
        let what = format!("`{name}` is missing: the API on TCP needs TLS and tokens");
        problems.error(table.span.clone(), what, table.example(name));
    }
    Some(ApiTls { listen, certificate: certificate?, key: key?, tokens: tokens? })
}

/// An absolute path of a file.
pub(crate) fn path(v: &DeValue<'_>) -> Read<PathBuf> {
    let text = value::text(v)?;
    match text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
        true => Ok(text.into()),
        false => Err(Invalid::new(format!("\"{}\" is not an absolute path of a file", value::shorten(text)))),
    }
}

/// Address of another daemon's API.
pub(crate) fn other(v: &DeValue<'_>) -> Read<String> {
    let text = value::text(v)?;
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', ' ']);
    match text.strip_prefix("https://") {
        Some(host) if is_host(host) => Ok(text.to_owned()),
        None if path(v).is_ok() => Ok(text.to_owned()),
        _ => {
            let what = format!("\"{}\" is neither https://HOST:PORT", value::shorten(text));
            Err(Invalid::new(format!("{what} nor an absolute path of a socket")))
        }
    }
}

fn socket(v: &DeValue<'_>) -> Read<ApiSocket> {
    let text = value::text(v)?;
    let path = match text.strip_prefix("unix:") {
        None if text == "off" => return Ok(ApiSocket::Off),
        None => {
            let what = format!("\"{}\" is neither unix:PATH nor \"off\"", value::shorten(text));
            return Err(Invalid::new(what));
        }
        Some(path) => path,
    };
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(Invalid::new(format!("\"{}\" is not an absolute path of a file", value::shorten(path))));
    }
    match path.len() <= SOCKET_PATH_LEN_MAX {
        true => Ok(ApiSocket::Path(path.into())),
        false => Err(Invalid::new(format!("a socket's path has at most {SOCKET_PATH_LEN_MAX} bytes"))),
    }
}

fn group(v: &DeValue<'_>) -> Read<String> {
    let name = value::text(v)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    match (1..=32).contains(&name.len()) && name.chars().all(is_name) {
        true => Ok(name.to_owned()),
        false => Err(Invalid::new(format!("\"{}\" is not the name of a group", value::shorten(name)))),
    }
}

/// Reads the address of the metrics.
pub(crate) fn read_metrics(table: &Table<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    table.require("listen", problems, endpoint)
}

pub(crate) fn endpoint(v: &DeValue<'_>) -> Read<SocketAddr> {
    let text = value::text(v)?;
    let address: Option<SocketAddr> = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    address.ok_or_else(|| {
        Invalid::new(format!("\"{}\" is not address:port, or [address]:port", value::shorten(text)))
    })
}
