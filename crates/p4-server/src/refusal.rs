//! Refused requests and updates.

use gatun_p4runtime::google::rpc;
use gatun_p4runtime::p4::v1::Error;
use prost::Message as _;
use tonic::{Code, Status};

use crate::target::TargetError;

/// A canonical code and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Canonical code of gRPC.
    pub code: Code,
    /// Fault and correction.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
        Refusal::new(Code::InvalidArgument, message)
    }

    pub(crate) fn unimplemented(message: impl Into<String>) -> Refusal {
        Refusal::new(Code::Unimplemented, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(Code::NotFound, message)
    }
}

impl From<TargetError> for Refusal {
    fn from(error: TargetError) -> Refusal {
        match error {
            TargetError::Full(text) => Refusal::new(Code::ResourceExhausted, text),
            TargetError::Invalid(text) => Refusal::invalid(text),
            TargetError::Fault(text) => Refusal::new(Code::Internal, text),
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::new(refusal.code, refusal.message)
    }
}

/// Status of a batch (P4Runtime 1.4, 12.3): OK if all updates succeeded, else UNKNOWN with one error for
/// each.
pub(crate) fn batch(results: &[Result<(), Refusal>]) -> Result<(), Status> {
    let failed = results.iter().filter(|result| result.is_err()).count();
    if failed == 0 {
        return Ok(());
    }
    let details = results.iter().map(|result| {
        let (code, message) = match result {
            Ok(()) => (Code::Ok, String::new()),
            Err(refusal) => (refusal.code, refusal.message.clone()),
        };
        let error = Error { canonical_code: code.into(), message, ..Error::default() };
        prost_types::Any {
            type_url: "type.googleapis.com/p4.v1.Error".to_owned(),
            value: error.encode_to_vec(),
        }
    });
    let message = format!("{failed} of {} updates were refused", results.len());
    let status =
        rpc::Status { code: Code::Unknown.into(), message: message.clone(), details: details.collect() };
    Err(Status::with_details(Code::Unknown, message, status.encode_to_vec().into()))
}
