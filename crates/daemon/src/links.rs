//! Links of the devices that are set down and up by hand, and routes that vanish, in a thread of its own.

use super::sandbox::{Calls, Sandbox};
use super::{Event, privileges};
use anyhow::Context as _;
use gatun_io_tun::{LinkEvent, LinkWatch, Rerouted, Restored};
use std::sync::mpsc::{Sender, channel};

/// Sends an event whenever a link changes, from now on. The thread keeps CAP_NET_ADMIN where there are
/// routes or addresses to set up again, and nothing else.
///
/// # Errors
/// Where the thread cannot begin, or not give up its rights.
pub(super) fn watch(
    mut links: LinkWatch,
    (user, sandbox): (Option<privileges::User>, Sandbox),
    events: Sender<Event>,
) -> anyhow::Result<()> {
    let (ready, readiness) = channel();
    let body = move || {
        let rights = match links.restores() {
            true => privileges::keep_net_admin(user.as_ref()),
            false => privileges::drop_all(user.as_ref()),
        };
        sandbox.enter(Calls::Links);
        let fine = rights.is_ok();
        if ready.send(rights).is_err() || !fine {
            return;
        }
        loop {
            let event = match links.wait() {
                Ok(Some(event)) => Event::Link(event),
                Ok(None) => return,
                Err(error) => Event::LinksUnwatched(error),
            };
            let last = matches!(event, Event::LinksUnwatched(_));
            if events.send(event).is_err() || last {
                return;
            }
        }
    };
    std::thread::Builder::new().name("links".into()).spawn(body).context("no thread to watch links")?;
    readiness.recv().context("the thread that watches links has ended")?
}

/// The lowest MTU of a link that carries IPv6 (RFC 8200 5), bytes.
const MTU6_MIN: u32 = 1280;

/// What an operator reads about it.
pub(super) fn describe(event: &LinkEvent) -> String {
    match event {
        LinkEvent::Down { device } => format!(
            "device {device}: its link is down: no packet crosses, and its routes are gone until it is up again"
        ),
        LinkEvent::Up { device, restored: Ok(restored) } => {
            format!("device {device}: its link is up again; {}", list(restored))
        }
        LinkEvent::RoutesVanished { device, restored: Ok(restored), .. } => {
            format!("device {device}: routes had vanished; {}", list(restored))
        }
        LinkEvent::RoutesVanished { device, mtu, restored: Err(_) } if *mtu < MTU6_MIN => format!(
            "device {device}: its MTU is {mtu}, and the kernel has no IPv6 below {MTU6_MIN}: routes have vanished and cannot be \
             set again until `ip link set {device} mtu {MTU6_MIN}`, or more"
        ),
        LinkEvent::RoutesVanished { device, restored: Err(error), .. } => {
            format!(
                "device {device}: routes have vanished and cannot be set again, which gatun goes on trying: {error}"
            )
        }
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
        LinkEvent::Up { device, restored: Err(error) } => format!(
            "device {device}: its link is up again, and not what went with it: {error}; restart gatun, or set the rest by hand"
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
