//! What the commands that ask a running daemon have in common: where it is, and which of much is meant.

use anyhow::{Context as _, anyhow};
use gatun_api::client::{Client, Fingerprint, Server, Trust};
use gatun_api::types::Protocol;
use std::path::{Path, PathBuf};

/// Those whom a Linux trusts to sign certificates: Debian's place.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The daemon.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "The daemon")]
pub(crate) struct Daemon {
    /// Its socket: the path that `listen` in its `api` section says [default: /run/gatun/api.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// At another host: https://HOST:PORT, where `listen_tls` in its `api` section listens
    #[arg(long, value_name = "URL", env = "GATUN_SERVER")]
    server: Option<Server>,
    /// With `--server`: a file with the token, as `gatun token add` prints it; else GATUN_TOKEN has it
    #[arg(long, value_name = "FILE", env = "GATUN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// With `--server`: a file of certificates, one of which signs the daemon's; else those that the system trusts
    #[arg(long, value_name = "FILE", env = "GATUN_CA")]
    ca: Option<PathBuf>,
    /// With `--server`: SHA-256 of the daemon's certificate, which needs no other trust then
    #[arg(long, value_name = "HASH", env = "GATUN_FINGERPRINT")]
    fingerprint: Option<Fingerprint>,
}

impl Daemon {
    /// Whether the command line or the environment says where it is.
    pub(crate) fn is_named(&self) -> bool {
        self.socket.is_some() || self.server.is_some()
    }

    /// # Errors
    /// Where it is at another host, and what is needed to talk to it cannot be read.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let server = match (&self.socket, &self.server) {
            (None, Some(server)) => server,
            // What is said comes before what the environment says.
            (Some(socket), _) => return Ok(Client::new(socket)),
            (None, None) => return Ok(Client::new(gatun_api::SOCKET)),
        };
        let token = match (&self.token_file, std::env::var("GATUN_TOKEN")) {
            (Some(file), _) => read(file)?,
            (None, Ok(token)) => token,
            (None, Err(_)) => {
                return Err(anyhow!("{server} wants a token: give --token-file FILE, or set GATUN_TOKEN"));
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
    std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))
}

/// Which sessions, bindings, blocks or subscribers are meant: those for which all holds that is said.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Which")]
pub(crate) struct Filter {
    /// Of this instance
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Of this pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Of this protocol: tcp, udp or icmp
    #[arg(long, short, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,
    /// Of this inside host, or network: a subscriber, for example
    #[arg(long, visible_alias = "subscriber", value_name = "ADDRESS[/LEN]")]
    inside: Option<String>,
    /// With this inside port (ICMP: identifier)
    #[arg(long, value_name = "PORT")]
    inside_port: Option<u16>,
    /// With this public address, or in this network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    outside: Option<String>,
    /// With this public port
    #[arg(long, value_name = "PORT")]
    outside_port: Option<u16>,
    /// With this remote host, or network
    #[arg(long, value_name = "ADDRESS[/LEN]")]
    remote: Option<String>,
    /// With this remote port
    #[arg(long, value_name = "PORT")]
    remote_port: Option<u16>,
}

impl Filter {
    /// As a query has it.
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
