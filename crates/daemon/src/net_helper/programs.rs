//! Helper of a daemon with a kernel fast path: attaches the loaded programs again if somebody has detached
//! them, or if an interface has come back; detaches them at the daemon's end.

use super::channel::Channel;
use super::client::{self, HelperState, Reply};
use super::messages::FASTPATH;
use super::protocol::{InterfaceMessage, PlacesMessage, Report, Request};
use crate::Event;
use crate::privileges::User;
use crate::sandbox::Sandbox;
use anyhow::{Context as _, bail};
use gatun_io_fastpath::{
    FastPathError, Hook, PlaceNames, Places, ProgramLink, Programs, XdpInterface, detach,
};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest time for the last request.
const DETACH_MAX: Duration = Duration::from_secs(2);

/// The daemon's side of the helper.
pub(crate) struct ProgramHelper {
    channel: Arc<Channel>,
    replies: Mutex<Receiver<Reply>>,
    state: HelperState,
}

/// Reply to a request to attach the programs again: the reason why the device's program is not attached, if
/// it is not, and all places.
pub(crate) type AttachedAgain = (Option<String>, Places);

/// Starts a helper for loaded programs. Returns once the helper has dropped the rights that it does not need.
///
/// # Errors
/// Returns an error if the helper cannot start or cannot drop its rights.
pub(crate) fn for_programs(
    programs: &Programs,
    places: &Places,
    (user, sandbox): (Option<User>, &Sandbox),
    events: &Sender<Event>,
) -> anyhow::Result<(ProgramHelper, String)> {
    let tell = |channel: &Channel| {
        let PlaceNames { device, pins, hook, interfaces } = programs.names.clone();
        let (message, links) = encode(places);
        let request = Request::Programs {
            device,
            pins,
            is_clsact: hook.map(|hook| hook == Hook::Clsact),
            interfaces,
            refusal: programs.xdp_refusal().to_owned(),
            places: message,
        };
        channel.send_with(&request, &[programs.files(), links].concat())
    };
    let (sender, replies) = sync_channel(1);
    let started = client::start(tell, (user, sandbox), events, (&FASTPATH, Some(sender)))?;
    let (channel, state) = (started.channel, started.state);
    Ok((ProgramHelper { channel, replies: Mutex::new(replies), state }, started.said))
}

impl ProgramHelper {
    /// Text about a problem, if there is one.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.state.trouble()
    }

    /// Asks for the programs where they are not any more. [`ProgramHelper::attached`] has the reply later.
    ///
    /// # Errors
    /// Returns an error if the helper has ended.
    pub(crate) fn attach_again(&self, is_bypassed: bool) -> Result<(), String> {
        let sent = self.channel.send(&Request::AttachPrograms { is_bypassed });
        sent.map_err(|error| format!("its helper does not answer ({error}); restart gatun"))
    }

    /// The reply, if it has come.
    pub(crate) fn attached(&self) -> Option<AttachedAgain> {
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).try_recv().ok()?;
        match reply {
            (Report::ProgramsAttached { refusal, places }, files) => Some((refusal, decode(places, files)?)),
            _ => None,
        }
    }

    /// Detaches the programs and removes all pins, at the end of the daemon.
    ///
    /// # Errors
    /// Returns an error if the helper cannot do so.
    pub(crate) fn detach(&self) -> Result<(), String> {
        self.channel.send(&Request::DetachPrograms).map_err(|error| error.to_string())?;
        let replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        // The reply to an earlier request may come first.
        while let Ok((report, _)) = replies.recv_timeout(DETACH_MAX) {
            match report {
                Report::ProgramsDetached => return Ok(()),
                Report::Refused(why) => return Err(why),
                _ => {}
            }
        }
        Err("its helper does not answer".to_owned())
    }
}

fn interface(one: &XdpInterface) -> InterfaceMessage {
    let (name, refusal, limit) = (one.name.clone(), one.refusal().cloned(), one.limit.clone());
    InterfaceMessage { name, refusal, limit }
}

/// Places as a message, and the files of their links.
fn encode(places: &Places) -> (PlacesMessage, Vec<BorrowedFd<'_>>) {
    let message = PlacesMessage {
        is_clsact: places.hook == Hook::Clsact,
        has_link: places.link.is_some(),
        interfaces: places.xdp.iter().map(interface).collect(),
    };
    let links = places.link.iter().chain(places.xdp.iter().flat_map(|one| &one.link));
    (message, links.map(|link| link.as_fd()).collect())
}

/// Places of a message. `None` if a file is missing.
fn decode(message: PlacesMessage, files: Vec<OwnedFd>) -> Option<Places> {
    let mut files = files.into_iter().map(ProgramLink::from);
    let hook = if message.is_clsact { Hook::Clsact } else { Hook::Tcx };
    let link = if message.has_link { Some(files.next()?) } else { None };
    let interface = |InterfaceMessage { name, refusal, limit }| {
        let link = match refusal {
            Some(refusal) => Err(refusal),
            None => Ok(files.next()?),
        };
        Some(XdpInterface { name, link, limit })
    };
    Some(Places { hook, link, xdp: message.interfaces.into_iter().map(interface).collect::<Option<_>>()? })
}

/// The helper's programs and their places.
pub(super) struct AttachedPrograms {
    programs: Programs,
    places: Places,
}

/// Names in the daemon's message.
pub(super) struct Names {
    pub(super) device: String,
    pub(super) pins: Option<PathBuf>,
    pub(super) is_clsact: Option<bool>,
    pub(super) interfaces: Vec<String>,
}

impl AttachedPrograms {
    /// Programs and places in the daemon's message.
    pub(super) fn new(
        Names { device, pins, is_clsact, interfaces }: Names,
        (refusal, places): (String, PlacesMessage),
        mut files: Vec<OwnedFd>,
    ) -> anyhow::Result<AttachedPrograms> {
        let hook = is_clsact.map(|is_clsact| if is_clsact { Hook::Clsact } else { Hook::Tcx });
        let attached = places.interfaces.iter().filter(|one| one.refusal.is_none()).count();
        let links = usize::from(places.has_link) + attached;
        let links = files.split_off(files.len().checked_sub(links).context("too few files")?);
        let names = PlaceNames { device, pins, hook, interfaces };
        let programs = Programs::from_files(names, files, refusal).context("files are missing")?;
        let places = decode(places, links).context("links are missing")?;
        Ok(AttachedPrograms { programs, places })
    }

    /// Directory in which the helper creates and removes pins.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        self.programs.names.pins.as_ref()?.parent().map(PathBuf::from)
    }

    /// Serves the daemon until it ends.
    pub(super) fn serve(mut self, channel: &Channel) -> anyhow::Result<()> {
        while let Some((request, _)) = channel.receive()? {
            match request {
                Request::AttachPrograms { is_bypassed } => {
                    let attached = self.programs.attach_again(&mut self.places, is_bypassed);
                    let refusal = attached.err().map(|error| error.to_string());
                    let (places, links) = encode(&self.places);
                    channel.send_with(&Report::ProgramsAttached { refusal, places }, &links)
                }
                Request::DetachPrograms => channel.send(&match self.detach() {
                    Ok(()) => Report::ProgramsDetached,
                    Err(error) => Report::Refused(error.to_string()),
                }),
                _ => bail!("unexpected message after Start"),
            }
            .context("cannot answer the daemon")?;
        }
        Ok(())
    }

    fn detach(&mut self) -> Result<(), FastPathError> {
        // Without pins, these files hold the programs at their places.
        self.places.detach();
        let PlaceNames { device, pins, .. } = &self.programs.names;
        detach(device, pins.as_deref())
    }
}
