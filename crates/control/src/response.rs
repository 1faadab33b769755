//! Requests and responses of the API, independent of HTTP.

use crate::configure;
use crate::connections::Busy;
use crate::query::BadRequest;
use crate::worker_requests::WorkerError;
use bytes::Bytes;
use gatun_api::paths::NoEndpoint;
use gatun_api::types as api;
use hyper::body::{Frame, SizeHint};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Error of an unknown path.
pub(crate) const UNKNOWN_PATH: &str = "unknown path";
/// Error of a worker that does not answer in time.
const NO_ANSWER: &str = "a worker does not answer";

/// A request.
pub(crate) struct ApiRequest<'r> {
    pub(crate) method: &'r str,
    pub(crate) path: &'r str,
    pub(crate) query: &'r str,
    /// True if the client wants OpenMetrics.
    pub(crate) openmetrics: bool,
    /// The client, for the log.
    pub(crate) who: &'r str,
    /// True if the client may change anything.
    pub(crate) may_write: bool,
    /// True if the client may ask the log.
    pub(crate) may_audit: bool,
}

/// Refusal of a request.
pub(crate) enum Refusal {
    BadRequest(BadRequest),
    NoEndpoint(NoEndpoint),
    Worker(WorkerError),
    Configure(configure::Refused),
}

impl From<BadRequest> for Refusal {
    fn from(wrong: BadRequest) -> Self {
        Refusal::BadRequest(wrong)
    }
}

impl From<WorkerError> for Refusal {
    fn from(unanswered: WorkerError) -> Self {
        Refusal::Worker(unanswered)
    }
}

/// Answer, before it becomes an HTTP response.
pub(crate) enum Answer {
    Json(Vec<u8>),
    Text(&'static str, String),
    Lines(mpsc::Receiver<Result<Bytes, WorkerError>>),
}

pub(crate) fn json<T: Serialize>(value: &T) -> Answer {
    // Serialization of these types cannot fail.
    Answer::Json(serde_json::to_vec(value).unwrap_or_default())
}

impl Answer {
    pub(crate) fn response(self, busy: Busy) -> Response<Body> {
        let (kind, body) = match self {
            Answer::Json(text) => ("application/json", Body::whole(text, busy)),
            Answer::Text(kind, text) => (kind, Body::whole(text.into_bytes(), busy)),
            Answer::Lines(lines) => ("application/x-ndjson", Body::lines(lines, busy)),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

impl Refusal {
    pub(crate) fn response(self, busy: Busy) -> Response<Body> {
        let mut allow = None;
        let (status, error, hint) = match self {
            Refusal::BadRequest(wrong) => (StatusCode::BAD_REQUEST, wrong.what, wrong.hint),
            Refusal::NoEndpoint(NoEndpoint::Path) => (
                StatusCode::NOT_FOUND,
                UNKNOWN_PATH.to_owned(),
                "GET /openapi.json lists all paths".to_owned(),
            ),
            Refusal::NoEndpoint(NoEndpoint::Method(methods)) => {
                let methods = methods.join(", ");
                allow = HeaderValue::from_str(&methods).ok();
                let error = "method not allowed".to_owned();
                (StatusCode::METHOD_NOT_ALLOWED, error, format!("allowed: {methods}"))
            }
            Refusal::Configure(configure::Refused { why, error, hint }) => (why.status(), error, hint),
            Refusal::Worker(WorkerError::Busy) => {
                let error = "too many requests to the workers".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, error, "try again in a moment".to_owned())
            }
            Refusal::Worker(WorkerError::Silent) => {
                let error = NO_ANSWER.to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, error, "see the daemon's log".to_owned())
            }
        };
        let mut response = problem(status, error, hint, busy);
        if let Some(methods) = allow {
            response.headers_mut().insert(ALLOW, methods);
        }
        response
    }
}

/// Error response.
pub(crate) fn problem(status: StatusCode, error: String, hint: String, busy: Busy) -> Response<Body> {
    let mut response = json(&api::Problem { error, hint }).response(busy);
    *response.status_mut() = status;
    response
}

/// An answer's body.
pub(crate) struct Body {
    content: Content,
    _busy: Busy,
}

enum Content {
    Whole(Option<Bytes>),
    Lines(mpsc::Receiver<Result<Bytes, WorkerError>>),
}

impl Body {
    pub(crate) fn whole(text: Vec<u8>, busy: Busy) -> Body {
        let text = Some(Bytes::from(text)).filter(|text| !text.is_empty());
        Body { content: Content::Whole(text), _busy: busy }
    }

    pub(crate) fn lines(lines: mpsc::Receiver<Result<Bytes, WorkerError>>, busy: Busy) -> Body {
        Body { content: Content::Lines(lines), _busy: busy }
    }
}

/// Error of an interrupted list: the connection breaks off, so that no client takes the list for complete.
#[derive(Debug)]
pub(crate) struct ListInterrupted;

impl fmt::Display for ListInterrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NO_ANSWER)
    }
}

impl std::error::Error for ListInterrupted {}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = ListInterrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ListInterrupted>>> {
        match &mut self.content {
            Content::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Content::Lines(lines) => {
                let some = ready!(lines.poll_recv(cx));
                Poll::Ready(some.map(|some| some.map(Frame::data).map_err(|_| ListInterrupted)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Lines(_) => SizeHint::default(),
        }
    }
}
