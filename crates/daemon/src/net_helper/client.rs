//! The daemon's side: starts the helper, sends it new routes, and notices its end.

use super::channel::Channel;
use super::messages::{self, HelperTexts, NETWORK};
use super::protocol::{ARGUMENT, PREFIXES_PER_MESSAGE, Report, Request, encode};
use crate::Event;
use crate::privileges::{self, User};
use crate::sandbox::{Calls, Sandbox};
use anyhow::{Context as _, bail};
use gatun_io_tun::{Prefix, WatchedDevice};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// State of the helper. Clones refer to the same helper.
#[derive(Clone)]
pub(crate) struct HelperState {
    texts: &'static HelperTexts,
    has_ended: Arc<AtomicBool>,
    /// Parts that its sandbox lacks.
    pub(crate) missing: Vec<String>,
}

impl Default for HelperState {
    fn default() -> HelperState {
        HelperState { texts: &NETWORK, has_ended: Arc::default(), missing: Vec::new() }
    }
}

impl HelperState {
    /// Text about a problem, if there is one.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.has_ended.load(Ordering::Relaxed).then_some(self.texts.trouble)
    }
}

/// Gives TUN devices new addresses and routes, through the helper. Clones use the same helper.
#[derive(Clone)]
pub(crate) struct Routes {
    channel: Arc<Mutex<Arc<Channel>>>,
    devices: Arc<[String]>,
    events: Sender<Event>,
}

impl Routes {
    /// Sets a device's addresses and routes and removes its previous ones. The log reports the result later.
    pub(crate) fn set(&self, device: String, addresses: Vec<Prefix>, routes: Vec<Prefix>) {
        let Some(number) = self.devices.iter().position(|name| *name == device) else { return };
        // One device at a time, because its messages must be consecutive.
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = send_prefixes(&channel, number, &addresses, &routes)
            .and_then(|()| channel.send(&Request::Apply { device: number }));
        if let Err(error) = sent {
            // The main thread is gone only if the process is ending.
            let _ = self.events.send(Event::Failure(messages::not_rerouted(&device, &error)));
        }
    }
}

fn send_prefixes(
    channel: &Channel,
    device: usize,
    addresses: &[Prefix],
    routes: &[Prefix],
) -> io::Result<()> {
    for (routes, prefixes) in [(false, addresses), (true, routes)] {
        for part in prefixes.chunks(PREFIXES_PER_MESSAGE) {
            channel.send(&Request::Prefixes { device, routes, prefixes: encode(part) })?;
        }
    }
    Ok(())
}

/// Report that answers a request, with its files.
pub(super) type Reply = (Report, Vec<OwnedFd>);
/// Channel for the expected reply.
pub(super) type Replies = SyncSender<Reply>;

/// Running helper.
pub(super) struct Started {
    pub(super) channel: Arc<Channel>,
    pub(super) state: HelperState,
    /// Line for the log.
    pub(super) said: String,
}

/// Starts a helper that watches open TUN devices. Returns once the helper has dropped the rights that it does
/// not need. Its reports become events.
///
/// # Errors
/// Returns an error if the helper cannot start or cannot drop its rights.
pub(crate) fn for_devices(
    devices: &[WatchedDevice],
    (user, sandbox): (Option<User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<(Routes, HelperState, String)> {
    let tell = |channel: &Channel| {
        for (number, device) in devices.iter().enumerate() {
            let (name, precede_routes) = (device.name.clone(), device.precede_routes);
            channel.send(&Request::Device { name, precede_routes })?;
            send_prefixes(channel, number, &device.addresses, &device.routes)?;
        }
        Ok(())
    };
    let Started { channel, state, said } = start(tell, (user, sandbox), events, (&NETWORK, None))?;
    let devices = devices.iter().map(|device| device.name.clone()).collect();
    let routes = Routes { channel: Arc::new(Mutex::new(channel)), devices, events: events.clone() };
    Ok((routes, state, said))
}

/// Starts a helper. `tell` sends its task.
pub(super) fn start(
    tell: impl FnOnce(&Channel) -> io::Result<()>,
    (user, sandbox): (Option<User>, &Sandbox),
    events: &Sender<Event>,
    (texts, replies): (&'static HelperTexts, Option<Replies>),
) -> anyhow::Result<Started> {
    let (channel, child) = spawn().context("cannot start the network helper")?;
    let begin =
        Request::Begin { user: user.map(|user| (user.uid(), user.gid())), sandboxed: sandbox.is_wanted() };
    let told =
        channel.send(&begin).and_then(|()| tell(&channel)).and_then(|()| channel.send(&Request::Start));
    // If the helper has ended, its report says why.
    let missing = wait_until_ready(&channel).context("cannot start the network helper")?;
    told.context("cannot send the network helper its task")?;
    let state = HelperState { texts, has_ended: Arc::default(), missing };
    let said = messages::started(texts, child.id(), &state.missing, sandbox.is_wanted());
    let channel = Arc::new(channel);
    let reading = ReportReader {
        channel: Arc::clone(&channel),
        child,
        state: state.clone(),
        replies,
        events: events.clone(),
    };
    read_reports(reading, user, sandbox.clone())?;
    Ok(Started { channel, state, said })
}

/// Starts this program again, with one end of a socketpair as standard input.
fn spawn() -> io::Result<(Channel, Child)> {
    let (channel, theirs) = Channel::pair()?;
    // The file of this process, even if another one is installed at its path meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("gatun-network").arg(ARGUMENT).env_clear().current_dir("/");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
    let child = privileges::let_inherit(|| command.spawn())?;
    Ok((channel, child))
}

fn wait_until_ready(channel: &Channel) -> anyhow::Result<Vec<String>> {
    match channel.receive()? {
        Some((Report::Ready { missing }, _)) => Ok(missing),
        Some((Report::Failed(why), _)) => bail!(why),
        Some(_) => bail!("its first message was not Ready"),
        None => bail!("it ended immediately"),
    }
}

/// Starts the thread that reads reports. The thread drops its capabilities itself, because it starts before
/// the main thread drops them.
fn read_reports(reading: ReportReader, user: Option<User>, sandbox: Sandbox) -> anyhow::Result<()> {
    let (ready, readiness) = channel();
    let body = move || {
        let dropped = privileges::drop_all(user.as_ref());
        sandbox.enter(Calls::HelperClient);
        let is_fine = dropped.is_ok();
        if ready.send(dropped).is_ok() && is_fine {
            reading.run();
        }
    };
    std::thread::Builder::new()
        .name("network-helper".into())
        .spawn(body)
        .context("cannot start its thread")?;
    readiness.recv().context("its thread has ended")?
}

/// State of the thread that reads the helper's reports and reaps the helper.
struct ReportReader {
    channel: Arc<Channel>,
    child: Child,
    state: HelperState,
    replies: Option<Replies>,
    events: Sender<Event>,
}

impl ReportReader {
    fn run(mut self) {
        let why = self.read();
        self.state.has_ended.store(true, Ordering::Relaxed);
        // A helper that sent an unreadable message may still run. The closed channel ends it.
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        // The main thread is gone only if the process is ending.
        let _ = self.events.send(Event::Failure(messages::ended(self.state.texts, &why.unwrap_or(status))));
    }

    /// Reads reports until the helper ends. Returns its reason, if it sent one.
    fn read(&self) -> Option<String> {
        let mut why = None;
        loop {
            match self.channel.receive() {
                Ok(Some((Report::Line(line), _))) => drop(self.events.send(Event::Line(line))),
                Ok(Some((Report::Failed(error), _))) => why = Some(error),
                Ok(Some((Report::Ready { .. }, _))) => {}
                Ok(Some(reply)) => {
                    // The reply to an abandoned request has no receiver.
                    let _ = self.replies.as_ref().map(|replies| replies.try_send(reply));
                }
                Ok(None) => return why,
                Err(error) => return why.or(Some(error.to_string())),
            }
        }
    }
}
