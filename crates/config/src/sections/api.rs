//! `[api]` and `[metrics]`: where the daemon is asked.

use crate::problem::Problems;
use crate::reader::Table;
use crate::value::{self, Invalid, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

/// Bytes of a Unix socket's path, at most (108 with the zero behind it), less what it is made under at first.
const SOCKET_PATH_LEN_MAX: usize = 96;

/// Sockets of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiSocket {
    /// At the usual place, where that can be; else nowhere.
    #[default]
    Usual,
    /// At this path.
    Path(PathBuf),
    /// Nowhere.
    Off,
}

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// Unix socket.
    pub socket: ApiSocket,
    /// The group whose members may use it, a name or a number; else its owner alone.
    pub group: Option<String>,
    /// TCP under TLS, if it is served there.
    pub tls: Option<ApiTls>,
}

/// The API on TCP, under TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiTls {
    /// At least one.
    pub listen: Vec<SocketAddr>,
    /// File of the certificate, and of those up to its root, in PEM.
    pub certificate: PathBuf,
    /// File of its private key, in PEM.
    pub key: PathBuf,
    /// File of those who may ask.
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
            let what = format!("`{name}` is for `listen_tls`, which is not there");
            problems.warn(table.span_of(name), what, table.example("listen_tls"));
        }
        return None;
    }
    if listen.is_empty() {
        return None;
    }
    for name in FILES.iter().filter(|name| table.node(name).is_none()) {
        let what = format!("`{name}` is missing: nobody is served on TCP without TLS and tokens");
        problems.error(table.span.clone(), what, table.example(name));
    }
    Some(ApiTls { listen, certificate: certificate?, key: key?, tokens: tokens? })
}

/// A file's path from / on.
fn path(v: &DeValue<'_>) -> Read<PathBuf> {
    let text = value::text(v)?;
    match text.starts_with('/') && !text.ends_with('/') && !text.contains('\0') {
        true => Ok(text.into()),
        false => Err(Invalid::new(format!("\"{}\" is not a file's path from / on", value::shorten(text)))),
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
        return Err(Invalid::new(format!("\"{}\" is not a path from / on to a file", value::shorten(path))));
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

fn endpoint(v: &DeValue<'_>) -> Read<SocketAddr> {
    let text = value::text(v)?;
    let address: Option<SocketAddr> = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    address.ok_or_else(|| {
        Invalid::new(format!("\"{}\" is not address:port, or [address]:port", value::shorten(text)))
    })
}
