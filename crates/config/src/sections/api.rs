//! `[api]` and `[metrics]`: where the daemon is asked.

use crate::problem::Problems;
use crate::reader::{Read, Table, Wrong};
use crate::value;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml::de::DeValue;

/// Bytes of a Unix socket's path, at most (108 with the zero behind it), less what it is made under at first.
const SOCKET_PATH_LEN_MAX: usize = 96;

/// Where the API is.
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
    /// Where it is.
    pub socket: ApiSocket,
    /// The group whose members may use it, a name or a number; else its owner alone.
    pub group: Option<String>,
}

pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> Api {
    Api {
        socket: table.get("listen", problems, socket).unwrap_or_default(),
        group: table.get("group", problems, group),
    }
}

fn socket(v: &DeValue<'_>) -> Read<ApiSocket> {
    let text = value::text(v)?;
    let path = match text.strip_prefix("unix:") {
        None if text == "off" => return Ok(ApiSocket::Off),
        None => {
            let what = format!("\"{}\" is neither unix:PATH nor \"off\"", value::shorten(text));
            return Err(Wrong::new(what));
        }
        Some(path) => path,
    };
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(Wrong::new(format!("\"{}\" is not a path from / on to a file", value::shorten(path))));
    }
    match path.len() <= SOCKET_PATH_LEN_MAX {
        true => Ok(ApiSocket::Path(path.into())),
        false => Err(Wrong::new(format!("a socket's path has at most {SOCKET_PATH_LEN_MAX} bytes"))),
    }
}

fn group(v: &DeValue<'_>) -> Read<String> {
    let name = value::text(v)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
    match (1..=32).contains(&name.len()) && name.chars().all(is_name) {
        true => Ok(name.to_owned()),
        false => Err(Wrong::new(format!("\"{}\" is not the name of a group", value::shorten(name)))),
    }
}

/// Where metrics are served on TCP.
pub(crate) fn read_metrics(table: &Table<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    table.require("listen", problems, |v| {
        let text = value::text(v)?;
        let address: Option<SocketAddr> = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
        address.ok_or_else(|| {
            Wrong::new(format!("\"{}\" is not address:port, or [address]:port", value::shorten(text)))
        })
    })
}
