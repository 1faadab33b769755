//! Requests about the other box of a pair.

use crate::Control;
use crate::configure::{RefusalKind, Refused};
use crate::response::{ApiRequest, Refusal};
use gatun_api::paths::Operation;
use gatun_api::types;
use std::sync::Arc;

/// Error of a request to a daemon without `[peer]`.
const NO_PEER: &str = "there is no [peer] in the configuration";

/// Request to the daemon's side of a pair; the error is a sentence. It may take seconds.
pub type PeerRequest = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Daemon's side of a pair.
pub struct PeerControl {
    /// State of this member.
    pub state: Box<dyn Fn() -> types::Peer + Send + Sync>,
    /// Gives the own public addresses to the other member.
    pub release: PeerRequest,
    /// Declares the other member gone.
    pub take_over: PeerRequest,
}

/// Daemon without `[peer]`.
impl Default for PeerControl {
    fn default() -> Self {
        let refuse = || Box::new(|| Err(NO_PEER.to_owned()));
        PeerControl { state: Box::new(types::Peer::default), release: refuse(), take_over: refuse() }
    }
}

impl Control {
    /// Releases or takes over, and returns the state afterwards.
    pub(crate) async fn peer_request(
        self: &Arc<Self>,
        what: Operation,
        asked: &ApiRequest<'_>,
    ) -> Result<types::Peer, Refusal> {
        let releases = what == Operation::PeerRelease;
        let control = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || match releases {
            true => (control.setup.peer.release)(),
            false => (control.setup.peer.take_over)(),
        });
        let conflict =
            |error| Refused { why: RefusalKind::Conflict, error, hint: "see `gatun peer status`".to_owned() };
        let done = done.await.unwrap_or_else(|error| Err(error.to_string()));
        done.map_err(|error| Refusal::Configure(conflict(error)))?;
        let what = match releases {
            true => "gives the public addresses to the peer",
            false => "declares the peer gone",
        };
        (self.setup.log)(&format!("api: {} {what}", asked.who));
        Ok((self.setup.peer.state)())
    }
}
