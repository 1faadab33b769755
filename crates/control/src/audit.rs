//! Questions to the log about the owner of a public port, passed to the log's reader ([`Auditor`]).

use crate::Control;
use crate::configure::{RefusalKind, Refused};
use crate::conversion;
use crate::query::{Query, address4};
use crate::response::{ApiRequest, Refusal};
use crate::worker_requests::WorkerError;
use gatun_api::types as api;
use std::net::Ipv4Addr;
use tokio::sync::oneshot;

/// A question to the log.
#[derive(Debug)]
pub struct AuditQuestion {
    /// Public address.
    pub address: Ipv4Addr,
    /// Public port.
    pub port: u16,
    /// Restricts the question to this protocol.
    pub protocol: Option<api::Protocol>,
    /// The time, as the client wrote it.
    pub at: String,
    /// The client, for the log.
    pub who: String,
}

/// Callback for an answer.
pub type AuditReply = Box<dyn FnOnce(Result<api::PastHolders, Refused>) + Send>;

/// Accepts a question; returns `false` if too many wait. Does not block.
pub type Auditor = Box<dyn Fn(AuditQuestion, AuditReply) -> bool + Send + Sync>;

impl Control {
    /// Asks the log.
    pub(crate) async fn who_at(
        &self,
        query: &Query,
        asked: &ApiRequest<'_>,
    ) -> Result<api::PastHolders, Refusal> {
        let question = AuditQuestion {
            address: address4(query.get("address").unwrap_or_default())?,
            port: query.parse("port", "a port")?.unwrap_or_default(),
            protocol: query.protocol()?.map(conversion::protocol),
            at: query.get("at").unwrap_or_default().to_owned(),
            who: asked.who.to_owned(),
        };
        let refused = |why, error, hint| Refusal::Configure(Refused::new(why, error, hint));
        let Some(auditor) = &self.setup.auditor else {
            let hint = "add a [log] section to the configuration";
            return Err(refused(RefusalKind::Unknown, "this daemon keeps no log", hint));
        };
        let (sender, answer) = oneshot::channel();
        if !auditor(question, Box::new(move |answered| drop(sender.send(answered)))) {
            return Err(refused(
                RefusalKind::Busy,
                "too many questions to the log at once",
                "try again in a moment",
            ));
        }
        answer.await.map_err(|_| WorkerError::Silent)?.map_err(Refusal::Configure)
    }
}
