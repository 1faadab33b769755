//! Text of answers from the port log.

use gatun_api::types::{Evidence, Holder, Outcome, PastHolders};
use std::net::Ipv4Addr;

/// Text of an answer.
pub(crate) fn who_had(answer: &PastHolders) -> String {
    let pool = answer.pool.as_ref().map_or_else(String::new, |pool| format!(", of pool {pool}"));
    let mut out = format!("{}:{}{pool}, at {}", answer.address, answer.port, answer.at);
    out += match answer.precision_ms {
        0 | 1 => "\n",
        1000 => " or up to one second later\n",
        60_000 => " or up to one minute later\n",
        _ => " or within its precision\n",
    };
    match answer.outcome {
        Outcome::Who => {}
        Outcome::Nobody => out += "  nobody had it\n",
        Outcome::Unknown | Outcome::Other => {
            answer.unknown.iter().for_each(|why| out += &format!("  UNKNOWN: {why}\n"));
            if answer.unknown.is_empty() {
                out += "  UNKNOWN: no record shows whether one of these had it at that time\n";
            }
        }
    }
    answer.holders.iter().for_each(|holder| out += &line(holder, answer.address));
    if !answer.near.is_empty() {
        out += "within a minute of that time:\n";
        answer.near.iter().for_each(|holder| out += &line(holder, answer.address));
    }
    for caveat in &answer.caveats {
        out += &format!("note: {caveat}\n");
    }
    if let Some(configuration) = &answer.configuration {
        out += &format!(
            "configuration in force: since {}, SHA-256 {}\n",
            configuration.since, configuration.hash
        );
    }
    out
}

/// Text about a holder by the configuration alone, at this moment.
pub(super) fn planned(holder: &Holder, address: Ipv4Addr) -> String {
    if holder.by == Evidence::Mapping {
        return mapping(holder, address);
    }
    let subscriber = holder.subscriber.as_deref().unwrap_or_default();
    let instance = holder.instance.as_ref().map_or("", |name| &name.0);
    let (first, last) = (holder.first_port, holder.last_port);
    format!(
        "by formula, ports {first}-{last} belong to subscriber {subscriber} ({instance}); no binding at this moment\n"
    )
}

fn mapping(holder: &Holder, address: Ipv4Addr) -> String {
    let inside = holder.inside.map(|inside| inside.to_string());
    let inside = inside.or(holder.subscriber.clone()).unwrap_or_default();
    let siit = holder.instance.as_ref().map_or("", |name| &name.0);
    format!("{address} is mapped one to one to {inside} (siit `{siit}`)\n")
}

fn line(holder: &Holder, address: Ipv4Addr) -> String {
    if holder.by == Evidence::Mapping {
        return format!("  {}", mapping(holder, address));
    }
    let who = match (&holder.subscriber, &holder.inside) {
        (Some(subscriber), _) => format!("subscriber {subscriber}"),
        (None, Some(inside)) if inside.is_ipv6() => {
            format!("[{inside}]:{}", holder.inside_port.unwrap_or_default())
        }
        (None, Some(inside)) => format!("{inside}:{}", holder.inside_port.unwrap_or_default()),
        (None, None) => "somebody".to_owned(),
    };
    let instance = holder.instance.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    let ports = match (holder.first_port, holder.last_port) {
        (first, last) if first == last => format!("port {first}"),
        (first, last) => format!("ports {first}-{last}"),
    };
    let from = holder.from.as_deref().unwrap_or("a time before the log");
    let to = match (&holder.to, &holder.end) {
        (Some(to), _) => format!("to {to}"),
        (None, Some(end)) => format!("on; {end}"),
        (None, None) => "on".to_owned(),
    };
    let doubt = if holder.certain { "" } else { " (not certain)" };
    let protocols = holder.protocols.iter().map(|p| p.word()).collect::<Vec<_>>().join(", ");
    format!("  {who}{instance}{doubt}\n    {ports} for {protocols}, by {}, from {from} {to}\n", holder.by)
}
