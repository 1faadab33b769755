//! What the commands that ask a running daemon have in common: where it is, and which of much is meant.

use gatun_api::client::Client;
use gatun_api::types::Protocol;
use std::path::PathBuf;

/// The daemon.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Daemon {
    /// The daemon's socket: the path that `listen` in its `api` section says
    #[arg(long, value_name = "PATH", default_value = gatun_api::SOCKET)]
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn client(&self) -> Client {
        Client::new(&self.socket)
    }
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
