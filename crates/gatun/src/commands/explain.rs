//! `gatun explain`: predicts the fate of a packet, with reasons.

use super::ask::Daemon;
use crate::show::{self, Output};
use anyhow::{anyhow, bail};
use gatun_api::paths::with_query;
use gatun_api::types::{Explanation, Fate, PacketEndpoints, Protocol};
use gatun_daemon::tables::counted;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;

const EXAMPLES: &str = "\
Queries a running daemon. It opens no session and changes no counter.

Examples:
  gatun explain 2001:db8:1::5 198.51.100.7 udp
  gatun explain '[2001:db8:1::5]:5000' '[64:ff9b::c633:6407]:443' tcp
  gatun explain 100.64.0.9:5000 198.51.100.7:443 tcp --bytes 1500
  gatun explain 198.51.100.7:443 192.0.2.1:41822 tcp --flags A

Exit status: 0 if the packet would be forwarded, 1 if not.
";

/// Address, with or without a port.
#[derive(Clone, Copy, Debug)]
struct Endpoint {
    address: IpAddr,
    port: Option<u16>,
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Endpoint> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Endpoint { address, port: None });
        }
        let with_port: Result<SocketAddr, _> = text.parse();
        let wrong = || anyhow!("expected ADDRESS or ADDRESS:PORT (IPv6: [ADDRESS]:PORT)");
        with_port.map(|end| Endpoint { address: end.ip(), port: Some(end.port()) }).map_err(|_| wrong())
    }
}

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Source: ADDRESS or ADDRESS:PORT (ICMP: identifier) [default port: 50000]
    #[arg(value_name = "SRC")]
    source: Endpoint,
    /// Destination [default port: 443]; IPv4 is embedded in the first `pool6` if the source is IPv6
    #[arg(value_name = "DST")]
    destination: Endpoint,
    /// Protocol: tcp, udp or icmp (a ping)
    #[arg(value_name = "PROTO")]
    protocol: Protocol,
    /// Instance whose port receives the packet, if ports select instances
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// TCP flags, letters of SAFRPU [default: S]
    #[arg(long, value_name = "FLAGS")]
    flags: Option<String>,
    /// Packet length, from the IP header on [default: 100]
    #[arg(long, value_name = "N")]
    bytes: Option<u16>,
    /// TTL or hop limit [default: 64]
    #[arg(long, value_name = "N")]
    hops: Option<u8>,
    /// Clear DF of an IPv4 packet, so that it may be fragmented
    #[arg(long)]
    fragments: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value = "table")]
    output: Output,
    #[command(flatten)]
    daemon: Daemon,
}

/// # Errors
/// Returns an error if the daemon does not answer or refuses the request.
pub(crate) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let mut query = vec![
        ("source", args.source.address.to_string()),
        ("destination", args.destination.address.to_string()),
        ("protocol", args.protocol.to_string()),
    ];
    query.extend(args.source.port.map(|port| ("source_port", port.to_string())));
    query.extend(args.destination.port.map(|port| ("destination_port", port.to_string())));
    query.extend(args.instance.map(|instance| ("instance", instance)));
    query.extend(args.flags.map(|flags| ("flags", flags)));
    query.extend(args.bytes.map(|bytes| ("bytes", bytes.to_string())));
    query.extend(args.hops.map(|hops| ("hops", hops.to_string())));
    query.extend(args.fragments.then(|| ("fragments", "true".to_owned())));
    let explanation: Explanation = args.daemon.client()?.get(&with_query("/v1/explain", &query))?;
    match args.output {
        Output::Table => super::print_bytes(text(&explanation)?.as_bytes())?,
        Output::Csv => bail!("CSV is for lists only; use -o json or -o table"),
        output => super::print_bytes(&show::as_json(&explanation, output)?)?,
    }
    Ok(if explanation.fate == Fate::Forwarded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Text: the packet, its fate and the reasons.
fn text(explanation: &Explanation) -> anyhow::Result<String> {
    let mut out = format!("{}\n", ends(&explanation.packet));
    match &explanation.becomes {
        Some(becomes) => writeln!(out, "{}: {}", explanation.fate, ends(becomes))?,
        None => writeln!(
            out,
            "{}{}",
            explanation.fate,
            explanation.reason.as_ref().map_or(String::new(), |r| format!(": {r}"))
        )?,
    }
    for sentence in &explanation.why {
        writeln!(out, "  - {sentence}")?;
    }
    Ok(out)
}

/// Source and destination of a packet, on one line.
pub(crate) fn ends(ends: &PacketEndpoints) -> String {
    let end = |address: IpAddr, port: Option<u16>| match (address, port) {
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        (IpAddr::V6(address), None) => format!("[{address}]:?"),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
        (IpAddr::V4(address), None) => format!("{address}:?"),
    };
    let PacketEndpoints { protocol, bytes, .. } = ends;
    let (from, to) = (end(ends.source, ends.source_port), end(ends.destination, ends.destination_port));
    format!("{protocol} {from} -> {to}, {}", counted((*bytes).into(), "byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_with_and_without_ports() {
        let read = |text: &str| text.parse::<Endpoint>().map(|end| (end.address.to_string(), end.port));
        assert_eq!(read("2001:db8::1").unwrap(), ("2001:db8::1".into(), None));
        assert_eq!(read("[2001:db8::1]").unwrap(), ("2001:db8::1".into(), None));
        assert_eq!(read("[2001:db8::1]:53").unwrap(), ("2001:db8::1".into(), Some(53)));
        assert_eq!(read("192.0.2.1:53").unwrap(), ("192.0.2.1".into(), Some(53)));
        assert!(read("192.0.2.1:99999").is_err() && read("example.org").is_err());
    }
}
