//! Log texts about links, routes and the helper.

use super::protocol::LINE_MAX;
use crate::tables::counted;
use gatun_io_tun::{LinkEvent, Rerouted, Restored};
use std::io;

/// Texts about a kind of helper.
#[derive(Debug)]
pub(super) struct HelperTexts {
    /// Name in the log.
    name: &'static str,
    /// Consequence of its end, for the log.
    consequence: &'static str,
    /// Text for `gatun show status` after its end.
    pub(super) trouble: &'static str,
}

/// Helper of devices and interfaces.
pub(super) static NETWORK: HelperTexts = HelperTexts {
    name: "network helper",
    consequence: "vanished routes are not restored",
    trouble: "the network helper has ended: vanished routes are not restored, and a reload cannot \
              change routes; restart gatun",
};

/// Helper of the kernel fast path.
pub(super) static FASTPATH: HelperTexts = HelperTexts {
    name: "helper of the kernel fast path",
    consequence: "a program that somebody detaches is not attached again",
    trouble: "the helper of the kernel fast path has ended: a program that somebody detaches is not attached \
              again; restart gatun",
};

pub(super) fn started(texts: &HelperTexts, pid: u32, missing: &[String], is_sandboxed: bool) -> String {
    let bound = match (is_sandboxed, missing) {
        (false, _) => "no sandbox".to_owned(),
        (true, []) => "landlock, seccomp".to_owned(),
        (true, missing) => missing.join(", "),
    };
    format!("{}: process {pid}, {bound}", texts.name)
}

pub(super) fn ended(HelperTexts { name, consequence, .. }: &HelperTexts, why: &str) -> String {
    format!("the {name} has ended ({why}): packets are still translated, but {consequence}; restart gatun")
}

pub(super) fn announced_again(count: usize) -> String {
    let routes = routes(count);
    format!("announced routes: somebody set their device down; it is up again, with {routes}")
}

pub(super) fn not_rerouted(device: &str, error: &io::Error) -> String {
    format!(
        "device {device}: routes and addresses are unchanged: the network helper does not answer ({error}); restart gatun"
    )
}

/// Shortens a line to fit into a message.
pub(super) fn shortened(mut line: String) -> String {
    if line.len() > LINE_MAX {
        let end = (0..=LINE_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// Smallest MTU of a link with IPv6 in bytes (RFC 8200 5).
const MTU6_MIN: u32 = 1280;

/// Text of a link event.
pub(super) fn of_link(event: &LinkEvent) -> String {
    match event {
        LinkEvent::Down { device } => format!(
            "device {device}: link is down; no packets pass, and its routes are gone until it is up again"
        ),
        LinkEvent::Up { device, restored: Ok(restored) } => {
            format!("device {device}: link is up again; {}", list(restored))
        }
        LinkEvent::Up { device, restored: Err(error) } => format!(
            "device {device}: link is up again, but not all addresses and routes are restored: {error}; restart \
             gatun, or set the rest by hand"
        ),
        LinkEvent::RoutesVanished { device, restored: Ok(restored), .. } => {
            format!("device {device}: routes had vanished; {}", list(restored))
        }
        LinkEvent::RoutesVanished { device, mtu, restored: Err(_) } if *mtu < MTU6_MIN => format!(
            "device {device}: MTU is {mtu}, and the kernel has no IPv6 below {MTU6_MIN}: vanished routes cannot be \
             restored until `ip link set {device} mtu {MTU6_MIN}` or more"
        ),
        LinkEvent::RoutesVanished { device, restored: Err(error), .. } => {
            format!("device {device}: cannot restore vanished routes; gatun keeps trying: {error}")
        }
        LinkEvent::Rerouted { device, rerouted: Ok(rerouted) } => {
            let Rerouted { routes_added, routes_removed, addresses_added, addresses_removed, preceded } =
                rerouted;
            let preceded = match preceded.is_empty() {
                true => String::new(),
                false => format!(
                    "; it takes precedence over these routes of the host until it is removed: {}",
                    preceded.join("; ")
                ),
            };
            format!(
                "device {device}: {} added, {routes_removed} removed; {} added, {addresses_removed} removed{preceded}",
                routes(*routes_added),
                addresses(*addresses_added)
            )
        }
        LinkEvent::Rerouted { device, rerouted: Err(error) } => format!(
            "device {device}: routes and addresses differ from the configuration: {error}; set the rest by hand, or restart gatun"
        ),
    }
}

fn routes(n: usize) -> String {
    counted(n as u64, "route")
}

fn addresses(n: usize) -> String {
    counted(n as u64, "address")
}

fn list(restored: &Restored) -> String {
    let &Restored { routes, routes_existing, addresses } = restored;
    let mut text = format!("restored: {}, {}", self::routes(routes), self::addresses(addresses));
    if routes_existing > 0 {
        text += &format!("; left unchanged, because others have set them: {}", self::routes(routes_existing));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_characters() {
        let line = shortened("ä".repeat(LINE_MAX));
        assert!(line.len() <= LINE_MAX + 4 && line.ends_with("ä ..."));
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
