//! Helper of a daemon with AF_XDP ports: when an interface comes back, it loads and attaches the program,
//! opens sockets, and passes their files to the daemon.

use super::channel::Channel;
use super::client::{self, HelperState, Reply};
use super::messages::NETWORK;
use super::protocol::{Report, Request, XdpMode};
use crate::Event;
use crate::privileges::User;
use crate::sandbox::Sandbox;
use anyhow::{Context as _, anyhow, bail};
use gatun_io_xdp::{
    AttachedParts, InterfaceHelper, InterfaceHelperParts, Mode, PortConfig, Privileged, XdpError,
};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::time::Duration;

/// Time limit of one step of the helper: a driver may restart its card for a program.
const STEP_MAX: Duration = Duration::from_secs(30);

impl From<Mode> for XdpMode {
    fn from(mode: Mode) -> XdpMode {
        match mode {
            Mode::Auto => XdpMode::Auto,
            Mode::Native => XdpMode::Native,
            Mode::Skb => XdpMode::Skb,
        }
    }
}

impl From<XdpMode> for Mode {
    fn from(mode: XdpMode) -> Mode {
        match mode {
            XdpMode::Auto => Mode::Auto,
            XdpMode::Native => Mode::Native,
            XdpMode::Skb => Mode::Skb,
        }
    }
}

/// Starts a helper for these interfaces. Returns once the helper has dropped the rights that it does not
/// need.
///
/// # Errors
/// Returns an error if the helper cannot start or cannot drop its rights.
pub(crate) fn for_interfaces(
    parts: &InterfaceHelperParts,
    (user, sandbox): (Option<User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<(Box<dyn Privileged>, HelperState, String)> {
    let tell = |channel: &Channel| {
        let port = |port: &PortConfig| (port.interface.clone(), port.mode.into());
        let ports = parts.ports.iter().map(port).collect();
        let tables = parts.tables.each_ref().map(|table| table.as_fd());
        channel.send_with(&Request::Interfaces { ports, queues: parts.queues }, &tables)
    };
    let (sender, replies) = sync_channel(1);
    let started = client::start(tell, (user, sandbox), events, (&NETWORK, Some(sender)))?;
    let remote = Remote { channel: started.channel, replies };
    Ok((Box::new(remote), started.state, started.said))
}

/// Helper as used by the thread that watches interfaces.
struct Remote {
    channel: Arc<Channel>,
    replies: Receiver<Reply>,
}

impl Remote {
    fn ask(&self, request: &Request) -> Result<Reply, XdpError> {
        // Discards the reply to an abandoned request.
        while self.replies.try_recv().is_ok() {}
        let gone = |error: &dyn std::fmt::Display| {
            XdpError::Helper(format!("the network helper does not answer ({error}); restart gatun"))
        };
        self.channel.send(request).map_err(|error| gone(&error))?;
        match self.replies.recv_timeout(STEP_MAX) {
            Ok((Report::Refused(why), _)) => Err(XdpError::Helper(why)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(gone(&error)),
        }
    }
}

impl Privileged for Remote {
    fn attach(&mut self, port: usize) -> Result<AttachedParts, XdpError> {
        match self.ask(&Request::Attach { port })? {
            (Report::Attached { index, native }, files) => match files.try_into() {
                Ok(files) => Ok(AttachedParts { index, native, files }),
                Err(_) => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    fn open_socket(&mut self, port: usize) -> Result<OwnedFd, XdpError> {
        match self.ask(&Request::OpenSocket { port })? {
            (Report::Socket, mut files) if files.len() == 1 => files.pop().ok_or_else(unexpected),
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> XdpError {
    XdpError::Helper("unexpected reply of the network helper".to_owned())
}

/// Keeper with the parts in the daemon's message.
pub(super) fn helper(
    ports: Vec<(String, XdpMode)>,
    queues: u32,
    tables: Vec<OwnedFd>,
) -> anyhow::Result<InterfaceHelper> {
    let tables = tables.try_into().map_err(|_| anyhow!("not three tables"))?;
    let ports = ports.into_iter().map(|(interface, mode)| PortConfig { interface, mode: mode.into() });
    Ok(InterfaceHelper::new(InterfaceHelperParts { ports: ports.collect(), queues, tables }))
}

/// Serves the daemon until it ends.
pub(super) fn serve(mut helper: InterfaceHelper, channel: &Channel) -> anyhow::Result<()> {
    while let Some((request, _)) = channel.receive()? {
        match request {
            Request::Attach { port } => match helper.attach(port) {
                Ok(AttachedParts { index, native, files }) => {
                    send(channel, &Report::Attached { index, native }, &files)
                }
                Err(error) => refuse(channel, &error),
            },
            Request::OpenSocket { port } => match helper.open_socket(port) {
                Ok(socket) => send(channel, &Report::Socket, &[socket]),
                Err(error) => refuse(channel, &error),
            },
            _ => bail!("unexpected message after Start"),
        }
        .context("cannot answer the daemon")?;
    }
    Ok(())
}

fn send(channel: &Channel, report: &Report, files: &[OwnedFd]) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    channel.send_with(report, &files)
}

fn refuse(channel: &Channel, error: &XdpError) -> io::Result<()> {
    channel.send(&Report::Refused(super::messages::shortened(error.to_string())))
}
