//! Stream of traced packets.

use crate::conversion::Names;
use crate::explain::{self, NamedExplanation, ends};
use crate::query::{BadRequest, Query, network};
use crate::response::Refusal;
use crate::worker_requests::{SNAPSHOT_MAX, WorkerError};
use crate::{Control, EarlierTranslator, SessionFilter};
use bytes::Bytes;
use gatun_api::{hex, types as api};
use gatun_nat::plan::Net6;
use gatun_nat::redirect::Place;
use gatun_nat::{Reply, Verdict};
use gatun_worker::trace::{TraceDelivery, TraceFilter, TraceGuard, TraceRequest, TracedPacket};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{timeout, timeout_at};

/// Packets buffered for the client; more are lost and counted.
const WAITING_MAX: usize = 1_024;
/// Bounds of a trace: default and maximum.
const COUNT: u32 = 100;
const COUNT_MAX: u32 = 100_000;
const SECONDS: u64 = 60;
const SECONDS_MAX: u64 = 3_600;
const BYTES: usize = 128;
const BYTES_MAX: usize = 1_600;

/// Number of the worker, time, packet.
type Seen = (u32, SystemTime, TracedPacket);

impl Control {
    /// Streams packets that match, from now on.
    pub(crate) async fn trace(
        self: &Arc<Self>,
        query: &Query,
    ) -> Result<mpsc::Receiver<Result<Bytes, WorkerError>>, Refusal> {
        let order = order(query)?;
        let names = self.names().await?;
        let (seen, packets) = mpsc::channel(WAITING_MAX);
        let mut watchers = Vec::new();
        for (number, worker) in self.setup.workers.iter().enumerate() {
            let (seen, number) = (seen.clone(), u32::try_from(number).unwrap_or(u32::MAX));
            let tell = move |traced| match seen.try_send((number, SystemTime::now(), traced)) {
                Ok(()) => TraceDelivery::Accepted,
                Err(mpsc::error::TrySendError::Full(_)) => TraceDelivery::Full,
                Err(mpsc::error::TrySendError::Closed(_)) => TraceDelivery::Closed,
            };
            let (sender, answer) = oneshot::channel();
            let watcher = worker.trace(order.clone(), Box::new(tell), move |is_free| {
                let _ = sender.send(is_free);
            });
            watchers.push(watcher);
            match timeout(SNAPSHOT_MAX, answer).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    let hint = "wait for its end: only one trace runs at a time";
                    return Err(BadRequest::new("another trace is running", hint).into());
                }
                _ => return Err(WorkerError::Silent.into()),
            }
        }
        // A fast path would hide their packets.
        let earlier = (self.setup.traced_sessions)(Some(sessions_of(query, &order.which)?));
        let guards = Guards { _watchers: watchers, control: Arc::clone(self) };
        let (out, lines) = mpsc::channel(2);
        let (count, until) = (order.count, order.until);
        tokio::spawn(send(packets, (names, earlier), (count, until), guards, out));
        Ok(lines)
    }
}

/// Ends a trace when it is dropped.
struct Guards {
    _watchers: Vec<TraceGuard>,
    control: Arc<Control>,
}

impl Drop for Guards {
    fn drop(&mut self) {
        (self.control.setup.traced_sessions)(None);
    }
}

/// Filter of the sessions that can have packets that match.
fn sessions_of(query: &Query, which: &TraceFilter) -> Result<SessionFilter, BadRequest> {
    let mut networks = Vec::new();
    for name in ["inside", "outside", "remote"] {
        let net = query.get(name).map(|text| network(name, text)).transpose()?;
        // An IPv6 address of a remote host is behind a prefix, which is not a part of the session.
        networks.extend(net.filter(|net| name != "remote" || is_ipv4(net)));
    }
    let (port, transport) = (which.port, which.transport);
    Ok(Box::new(move |flow| {
        let (outside, remote) = (flow.outside.0.to_ipv6_mapped(), flow.remote.0.to_ipv6_mapped());
        let has = |net: &Net6| [flow.inside.0, outside, remote].into_iter().any(|end| net.contains(end));
        let ports = [flow.inside.1, flow.outside.1, flow.remote.1];
        networks.iter().all(has)
            && port.is_none_or(|port| ports.contains(&port))
            && transport.is_none_or(|transport| transport == flow.transport)
    }))
}

/// True for an IPv4 network, written as ::ffff:a.b.c.d.
fn is_ipv4(net: &Net6) -> bool {
    net.len >= 96 && net.addr.to_ipv4_mapped().is_some()
}

/// # Errors
/// Returns an error if the query is invalid.
fn order(query: &Query) -> Result<TraceRequest, BadRequest> {
    let mut networks = Vec::new();
    for name in ["inside", "outside", "remote"] {
        networks.extend(query.get(name).map(|text| network(name, text)).transpose()?);
    }
    let number = |name: &str, usual: u64, max: u64| -> Result<u64, BadRequest> {
        let n: u64 = query.parse(name, "a number")?.unwrap_or(usual);
        match (1..=max).contains(&n) {
            true => Ok(n),
            false => Err(BadRequest::new(format!("{name}: {n} is not from 1 to {max}"), "")),
        }
    };
    let seconds = number("seconds", SECONDS, SECONDS_MAX)?;
    Ok(TraceRequest {
        which: TraceFilter { networks, port: query.parse("port", "a port")?, transport: query.protocol()? },
        one_in: u32::try_from(number("one_in", 1, u32::MAX.into())?).unwrap_or(u32::MAX),
        count: u32::try_from(number("count", COUNT.into(), COUNT_MAX.into())?).unwrap_or(COUNT_MAX),
        until: Instant::now() + Duration::from_secs(seconds),
        bytes_max: usize::try_from(number("bytes", BYTES as u64, BYTES_MAX as u64)?).unwrap_or(BYTES_MAX),
    })
}

/// Sends packets until the count or the time is reached, or the client is gone.
async fn send(
    mut packets: mpsc::Receiver<Seen>,
    (names, earlier): (Names, EarlierTranslator),
    (count, until): (u32, Instant),
    guards: Guards,
    out: mpsc::Sender<Result<Bytes, WorkerError>>,
) {
    let mut gone = pin!(out.closed());
    let mut sent = 0;
    while sent < count {
        let seen = poll_fn(|cx| match gone.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => packets.poll_recv(cx),
        });
        let seen = timeout_at(until.into(), seen).await;
        let Ok(Some((worker, time, traced))) = seen else { break };
        let mut told = packet(&names, worker, time, &traced);
        told.why.extend(names.translation(&traced.explanation).and_then(|of| earlier(&of)));
        let mut line = serde_json::to_vec(&told).unwrap_or_default();
        line.push(b'\n');
        sent += 1;
        if out.send(Ok(line.into())).await.is_err() {
            break;
        }
    }
    // Ends tracing at the workers.
    drop(guards);
}

fn packet(names: &Names, worker: u32, time: SystemTime, traced: &TracedPacket) -> api::TracedPacket {
    let (fate, reason, answered) = match traced.verdict {
        Verdict::Forward => (api::Fate::Forwarded, None, false),
        Verdict::Pass => (api::Fate::Passed, None, false),
        Verdict::Reply(Reply::Echo) => (api::Fate::Echo, None, true),
        Verdict::Reply(Reply::Error(reason)) => (api::Fate::Dropped, Some(reason), true),
        Verdict::Drop(reason) => (api::Fate::Dropped, Some(reason), false),
        Verdict::Held => (api::Fate::Held, None, false),
        Verdict::Redirect => (api::Fate::Redirected, None, false),
    };
    let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    // Only headers were recorded: zeros stand for the rest of the payload.
    let whole = |bytes: &[u8], len| [bytes, &vec![0; usize::saturating_sub(len, bytes.len())]].concat();
    let before = whole(&traced.before, traced.before_len);
    let after = whole(&traced.after, traced.after_len);
    let place = traced.node.as_ref().map_or(Place::Here, |_| Place::Node(0));
    let (e, node) = (&explain::at(place, traced.explanation), traced.node.as_deref());
    let explained = NamedExplanation { names, e, translator: "", node }.whole(&before, &after, worker);
    let micros = time.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_micros());
    api::TracedPacket {
        time_us: u64::try_from(micros).unwrap_or(u64::MAX),
        worker,
        fate,
        reason: reason.map(|reason| reason.name().to_owned()),
        help: reason.map(|reason| reason.help().to_owned()),
        answered,
        instance: explained.instance,
        node: explained.node,
        packet: ends(&before),
        becomes: ends(&after),
        why: explained.why,
        before: hex::encode(&traced.before),
        before_bytes: length(traced.before_len),
        after: hex::encode(&traced.after),
        after_bytes: length(traced.after_len),
        lost: traced.lost,
    }
}
