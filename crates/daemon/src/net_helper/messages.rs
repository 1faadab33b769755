//! Texts about links, routes and the helper, for the log.

use super::protocol::LINE_MAX;
use gatun_io_tun::{LinkEvent, Rerouted, Restored};
use std::io;

/// For `gatun show status`, once the helper has ended.
pub(super) const TROUBLE: &str = "the network helper has ended: routes that vanish are not restored, and a reload cannot \
     change routes; restart gatun";

pub(super) fn started(pid: u32, missing: &[String], is_sandboxed: bool) -> String {
    let bound = match (is_sandboxed, missing) {
        (false, _) => "no sandbox".to_owned(),
        (true, []) => "landlock, seccomp".to_owned(),
        (true, missing) => missing.join(", "),
    };
    format!("network helper: process {pid}, {bound}")
}

pub(super) fn ended(why: &str) -> String {
    format!(
        "the network helper has ended ({why}): packets are translated on, but routes that vanish are not restored; restart gatun"
    )
}

pub(super) fn not_rerouted(device: &str, error: &io::Error) -> String {
    format!(
        "device {device}: its routes and addresses stay as they were, as the network helper does not answer ({error}); restart gatun"
    )
}

/// A line that fits into a message.
pub(super) fn shortened(mut line: String) -> String {
    if line.len() > LINE_MAX {
        let end = (0..=LINE_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// The lowest MTU of a link that carries IPv6 (RFC 8200 5), bytes.
const MTU6_MIN: u32 = 1280;

/// Event of a link.
pub(super) fn of_link(event: &LinkEvent) -> String {
    match event {
        LinkEvent::Down { device } => format!(
            "device {device}: its link is down: no packet crosses, and its routes are gone until it is up again"
        ),
        LinkEvent::Up { device, restored: Ok(restored) } => {
            format!("device {device}: its link is up again; {}", list(restored))
        }
        LinkEvent::Up { device, restored: Err(error) } => format!(
            "device {device}: its link is up again, but not all of its addresses and routes are restored: {error}; restart \
             gatun, or set the rest by hand"
        ),
        LinkEvent::RoutesVanished { device, restored: Ok(restored), .. } => {
            format!("device {device}: routes had vanished; {}", list(restored))
        }
        LinkEvent::RoutesVanished { device, mtu, restored: Err(_) } if *mtu < MTU6_MIN => format!(
            "device {device}: its MTU is {mtu}, and the kernel has no IPv6 below {MTU6_MIN}: routes have vanished and cannot be \
             set again until `ip link set {device} mtu {MTU6_MIN}`, or more"
        ),
        LinkEvent::RoutesVanished { device, restored: Err(error), .. } => format!(
            "device {device}: routes have vanished and cannot be set again; gatun keeps trying: {error}"
        ),
        LinkEvent::Rerouted { device, rerouted: Ok(rerouted) } => {
            let Rerouted { routes_added, routes_removed, addresses_added, addresses_removed, preceded } =
                rerouted;
            let preceded = match preceded.is_empty() {
                true => String::new(),
                false => format!(
                    "; it gets packets for which the host has routes, which hold again when it is gone: {}",
                    preceded.join("; ")
                ),
            };
            format!(
                "device {device}: {routes_added} routes added, {routes_removed} removed; {addresses_added} addresses \
                 added, {addresses_removed} removed{preceded}"
            )
        }
        LinkEvent::Rerouted { device, rerouted: Err(error) } => format!(
            "device {device}: its routes and addresses are not as the configuration says: {error}; set the rest by hand, or restart gatun"
        ),
    }
}

fn list(restored: &Restored) -> String {
    let &Restored { routes, routes_existing, addresses } = restored;
    let addresses = if addresses == 1 { "1 address".to_owned() } else { format!("{addresses} addresses") };
    let count = |n| if n == 1 { "1 route".to_owned() } else { format!("{n} routes") };
    let mut text = format!("set again: {}, {addresses}", count(routes));
    if routes_existing > 0 {
        text += &format!("; left alone, as set by somebody else: {}", count(routes_existing));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = shortened("ä".repeat(LINE_MAX));
        assert!(line.len() <= LINE_MAX + 4 && line.ends_with("ä ..."));
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
