//! Arguments of all commands that query a running daemon: its address, and a filter.

use anyhow::{Context as _, anyhow};
use gatun_api::client::{Client, Fingerprint, Server, Trust};
use gatun_api::types::Protocol;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Certificates that the system trusts, at Debian's path.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Another daemon: https://HOST:PORT, or the path of a Unix socket.
#[derive(Clone, Debug)]
pub(crate) enum OtherDaemon {
    /// On another host.
    Remote(Server),
    /// On this host.
    Local(PathBuf),
}

impl FromStr for OtherDaemon {
    type Err = String;

    fn from_str(text: &str) -> Result<OtherDaemon, String> {
        match text.starts_with('/') {
            true => Ok(OtherDaemon::Local(text.into())),
            false => {
                text.parse().map(OtherDaemon::Remote).map_err(|why| format!("{why}, or an absolute path"))
            }
        }
    }
}

impl fmt::Display for OtherDaemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherDaemon::Remote(server) => write!(f, "{server}"),
            OtherDaemon::Local(socket) => write!(f, "{}", socket.display()),
        }
    }
}

/// Address of the daemon and credentials.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Daemon")]
pub(crate) struct Daemon {
    /// Unix socket, as in `[api] listen` [default: /run/gatun/api.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Daemon on another host: https://HOST:PORT, as in `[api] listen_tls`
    #[arg(long, value_name = "URL", env = "GATUN_SERVER")]
    server: Option<Server>,
    /// File with the token for --server; without it, GATUN_TOKEN is used
    #[arg(long, value_name = "FILE", env = "GATUN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// File with trusted certificates for --server [default: those of the system]
    #[arg(long, value_name = "FILE", env = "GATUN_CA")]
    ca: Option<PathBuf>,
    /// SHA-256 of the certificate of --server, to trust it alone
    #[arg(long, value_name = "HASH", env = "GATUN_FINGERPRINT")]
    fingerprint: Option<Fingerprint>,
}

impl Daemon {
    /// True if the command line or the environment gives an address.
    pub(crate) fn is_named(&self) -> bool {
        self.socket.is_some() || self.server.is_some()
    }

    /// Another daemon, with the same credentials.
    pub(crate) fn at(&self, other: &OtherDaemon) -> Daemon {
        let (socket, server) = match other {
            OtherDaemon::Remote(server) => (None, Some(server.clone())),
            OtherDaemon::Local(socket) => (Some(socket.clone()), None),
        };
        Daemon { socket, server, ..self.clone() }
    }

    /// # Errors
    /// Returns an error if credentials for `--server` are missing or unreadable.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let server = match (&self.socket, &self.server) {
            (None, Some(server)) => server,
            // The command line comes before the environment.
            (Some(socket), _) => return Ok(Client::new(socket)),
            (None, None) => return Ok(Client::new(gatun_api::SOCKET)),
        };
        let token = match (&self.token_file, std::env::var("GATUN_TOKEN")) {
            (Some(file), _) => read(file)?,
            (None, Ok(token)) => token,
            (None, Err(_)) => {
                return Err(anyhow!("{server} requires a token: pass --token-file FILE, or set GATUN_TOKEN"));
            }
        };
        let trust = match self.fingerprint {
            Some(fingerprint) => Trust::Fingerprint(fingerprint),
            None => Trust::Roots(read(self.ca.as_deref().unwrap_or(Path::new(ROOTS)))?.into_bytes()),
        };
        Client::remote(server.clone(), &token, &trust).map_err(|why| anyhow!("{server}: {why}"))
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Filter of sessions, bindings, blocks or subscribers: all conditions must hold.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filter")]
pub(crate) struct Filter {
    /// Instance
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Protocol: tcp, udp or icmp
    #[arg(long, short, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Inside host or network, such as a subscriber
    #[arg(long, visible_alias = "subscriber", value_name = "ADDRESS[/LEN]")]
    inside: Option<String>,
    /// Inside port (ICMP: identifier)
    #[arg(long, value_name = "PORT")]
    inside_port: Option<u16>,
    /// Public address or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    outside: Option<String>,
    /// Public port (ICMP: identifier)
    #[arg(long, value_name = "PORT")]
    outside_port: Option<u16>,
    /// Remote host or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    remote: Option<String>,
    /// Remote port
    #[arg(long, value_name = "PORT")]
    remote_port: Option<u16>,
}

impl Filter {
    /// Query parameters.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Option<String>| value.clone();
        let port = |value: Option<u16>| value.map(|port| port.to_string());
        [
            ("instance", text(&self.instance)),
            ("pool", text(&self.pool)),
            ("protocol", self.protocol.map(|protocol| protocol.to_string())),
            ("inside", text(&self.inside)),
            ("inside_port", port(self.inside_port)),
            ("outside", text(&self.outside)),
            ("outside_port", port(self.outside_port)),
            ("remote", text(&self.remote)),
            ("remote_port", port(self.remote_port)),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}
