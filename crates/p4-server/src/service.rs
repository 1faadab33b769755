//! The server: gRPC over HTTP/2, with or without TLS, in one thread, beside threads that wait for the switch.

use crate::arbitration::{Arbitration, Notices, StreamId};
use crate::device::Device;
use crate::refusal::Refusal;
use crate::secure::{HANDSHAKE_MAX, ServerTls};
use gatun_p4runtime::p4::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};
use gatun_p4runtime::p4::v1::stream_message_request::Update as FromController;
use gatun_p4runtime::p4::v1::stream_message_response::Update as ToController;
use gatun_p4runtime::p4::v1::{self as proto, StreamError, StreamMessageRequest, StreamMessageResponse};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

/// Connections at a time. Further ones are closed at once.
pub const CONNECTIONS_MAX: usize = 8;
/// Clients at a time without a finished handshake: another one takes the place of the oldest.
pub const HANDSHAKES_MAX: usize = 16;
/// First bytes of a client (RFC 9113 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Time between looks at the bytes of a client that has not sent all of these.
const PEEK_EVERY: Duration = Duration::from_millis(20);
/// Longest message of a controller, bytes.
pub const MESSAGE_MAX: usize = 4 << 20;
/// Requests at a time, for each connection.
const REQUESTS_MAX: u32 = 8;
/// Bytes of a request's headers.
const HEADERS_MAX: u32 = 16 << 10;
/// Messages that wait for a controller. Further packets are lost, and a further notice ends the stream.
const STREAM_QUEUE: usize = 512;
/// Parts of a read that wait for a controller.
const READ_QUEUE: usize = 2;
/// Time between signs of life of a connection, and for their answers.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Pause of accepting while the process cannot open more files.
const NO_FILES: Duration = Duration::from_millis(200);
const VERSION: &str = "1.4.0";

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections that got a place.
    pub connections: u64,
    /// Connections that were closed because there were too many.
    pub connections_refused: u64,
    /// Clients without a handshake, of TLS or of HTTP/2: refused, silent, or the oldest of too many.
    pub handshakes_failed: u64,
    /// Packets for the primary controller.
    pub packets_in: u64,
    /// Packets for a controller that were lost: no controller, no pipeline, or a full queue.
    pub packets_in_lost: u64,
    /// Packets of the primary controller that the switch took.
    pub packets_out: u64,
    /// Packets of controllers that were refused.
    pub packets_out_refused: u64,
    /// Updates of all batches.
    pub updates: u64,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    connections_refused: AtomicU64,
    handshakes_failed: AtomicU64,
    packets_in: AtomicU64,
    packets_in_lost: AtomicU64,
    packets_out: AtomicU64,
    packets_out_refused: AtomicU64,
    updates: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

type ToStream = mpsc::Sender<Result<StreamMessageResponse, Status>>;

/// Stream of a controller. It ends when this is dropped.
struct Stream {
    sender: ToStream,
    _end: oneshot::Sender<()>,
}

struct State {
    arbitration: Arbitration,
    device: Device,
    streams: BTreeMap<StreamId, Stream>,
    next: StreamId,
}

struct Shared {
    state: Mutex<State>,
    counts: Counts,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server. It ends when this is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Address and port that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters so far.
    pub fn counters(&self) -> ServerCounters {
        let counts = &self.shared.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerCounters {
            connections: read(&counts.connections),
            connections_refused: read(&counts.connections_refused),
            handshakes_failed: read(&counts.handshakes_failed),
            packets_in: read(&counts.packets_in),
            packets_in_lost: read(&counts.packets_in_lost),
            packets_out: read(&counts.packets_out),
            packets_out_refused: read(&counts.packets_out_refused),
            updates: read(&counts.updates),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts a server for `device`, the switch with number `number`. `frames` are those that the program sends
/// to its controller, with the header of the p4info. Without `security`, whoever can connect controls the
/// switch.
///
/// # Errors
/// A thread cannot be started, or the listener has a fault.
pub fn serve(
    listener: TcpListener,
    security: Option<ServerTls>,
    (number, device): (u64, Device),
    frames: Receiver<Vec<u8>>,
) -> std::io::Result<Server> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let arbitration = Arbitration::new(number);
    let state = State { arbitration, device, streams: BTreeMap::new(), next: 0 };
    let shared = Arc::new(Shared { state: Mutex::new(state), counts: Counts::default() });
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
    let (stop, stopped) = oneshot::channel();
    let packets = Arc::clone(&shared);
    // It ends with the switch, which has the other end of the queue.
    std::thread::Builder::new().name("gatun-p4-packets".to_owned()).spawn(move || {
        while let Ok(frame) = frames.recv() {
            packets.packet_in(&frame);
        }
    })?;
    let own = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("gatun-p4-server".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = accept(listener, security.map(Arc::new), own) => {}
                _ = stopped => {}
            }
        });
        runtime.shutdown_background();
    })?;
    Ok(Server { shared, address, stop: Some(stop), thread: Some(thread) })
}

async fn accept(listener: TcpListener, security: Option<Arc<ServerTls>>, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut handshakes: VecDeque<tokio::task::JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, remote)) = listener.accept().await else {
            tokio::time::sleep(NO_FILES).await;
            continue;
        };
        handshakes.retain(|handshake| !handshake.is_finished());
        if handshakes.len() == HANDSHAKES_MAX
            && let Some(oldest) = handshakes.pop_front()
        {
            oldest.abort();
        }
        let _ = stream.set_nodelay(true);
        let waiting = WaitingClient { shared: Arc::clone(&shared), has_succeeded: false };
        let (security, places) = (security.clone(), Arc::clone(&places));
        handshakes.push_back(tokio::spawn(welcome(stream, remote, security, waiting, places)));
        // Who has sent a handshake already is not displaced by a burst of others.
        tokio::task::yield_now().await;
    }
}

/// Client in its handshake, which has failed if this is dropped before the success. The task can be aborted
/// anywhere, even before its begin.
struct WaitingClient {
    shared: Arc<Shared>,
    has_succeeded: bool,
}

impl WaitingClient {
    fn succeed(mut self) -> Arc<Shared> {
        self.has_succeeded = true;
        Arc::clone(&self.shared)
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        if !self.has_succeeded {
            count(&self.shared.counts.handshakes_failed, 1);
        }
    }
}

/// Waits for a client's handshake. Only then it gets a place, if there is one.
async fn welcome(
    stream: TcpStream,
    remote: SocketAddr,
    security: Option<Arc<ServerTls>>,
    waiting: WaitingClient,
    places: Arc<Semaphore>,
) {
    let Some(security) = security else {
        if let Ok(Ok(())) = tokio::time::timeout(HANDSHAKE_MAX, begin_of_http2(&stream)).await {
            admit(stream, waiting.succeed(), places);
        }
        return;
    };
    match security.accept(stream, remote).await {
        Ok(stream) => admit(stream, waiting.succeed(), places),
        Err(refused) => {
            drop(waiting);
            refused.part().await;
        }
    }
}

/// Waits until a client has sent the first bytes of HTTP/2, or others.
async fn begin_of_http2(stream: &TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; HTTP2_PREFACE.len()];
    loop {
        let len = stream.peek(&mut bytes).await?;
        match HTTP2_PREFACE.starts_with(&bytes[..len]) && len < HTTP2_PREFACE.len() {
            true if len == 0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            true => tokio::time::sleep(PEEK_EVERY).await,
            false => return Ok(()),
        }
    }
}

/// Gives a client a place, and answers its requests.
fn admit(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
) {
    let Ok(place) = places.try_acquire_owned() else {
        count(&shared.counts.connections_refused, 1);
        return;
    };
    count(&shared.counts.connections, 1);
    tokio::spawn(async move {
        answer_requests(stream, shared).await;
        drop(place);
    });
}

/// Answers the requests of a connection.
async fn answer_requests(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = P4RuntimeServer::new(Service { shared });
    let service = TowerToHyperService::new(service.max_decoding_message_size(MESSAGE_MAX));
    let mut http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE).keep_alive_timeout(KEEP_ALIVE);
    http.max_concurrent_streams(REQUESTS_MAX).max_header_list_size(HEADERS_MAX);
    // The client sees an error of the connection, too.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    /// Takes in a controller's stream.
    fn open(&self, stream: Stream) -> StreamId {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.streams.insert(id, stream);
        id
    }

    fn close(&self, id: StreamId) {
        let mut state = self.lock();
        state.streams.remove(&id);
        let notices = state.arbitration.leave(id);
        deliver(&mut state, notices);
    }

    /// Receives a message of a stream. An error ends the stream.
    fn receive(&self, id: StreamId, message: StreamMessageRequest) -> Result<(), Refusal> {
        let mut state = self.lock();
        let error = match message.update {
            Some(FromController::Arbitration(update)) => {
                let notices = state.arbitration.update(id, &update)?;
                deliver(&mut state, notices);
                return Ok(());
            }
            _ if !state.arbitration.has(id) => {
                let message = "the first message of a stream is an arbitration update";
                return Err(Refusal::new(Code::FailedPrecondition, message));
            }
            Some(FromController::Packet(packet)) => {
                let result = match state.arbitration.primary() == Some(id) {
                    true => state.device.packet_out(&packet),
                    false => {
                        Err(Refusal::new(Code::PermissionDenied, "only the primary controller sends packets"))
                    }
                };
                let Err(refusal) = result else {
                    count(&self.counts.packets_out, 1);
                    return Ok(());
                };
                count(&self.counts.packets_out_refused, 1);
                let details = proto::PacketOutError { packet_out: Some(packet) };
                stream_error(refusal, proto::stream_error::Details::PacketOut(details))
            }
            Some(FromController::DigestAck(ack)) => {
                let details = proto::DigestListAckError { digest_list_ack: Some(ack) };
                let refusal = Refusal::unimplemented("this switch has no digests");
                stream_error(refusal, proto::stream_error::Details::DigestListAck(details))
            }
            Some(FromController::Other(other)) => {
                let details = proto::StreamOtherError { other: Some(other) };
                let refusal = Refusal::unimplemented("this switch knows no messages of this kind");
                stream_error(refusal, proto::stream_error::Details::Other(details))
            }
            None => return Err(Refusal::invalid("a message is empty")),
        };
        if let Some(stream) = state.streams.get(&id) {
            // A controller that does not read its errors loses them.
            let _ = stream.sender.try_send(Ok(answer(ToController::Error(error))));
        }
        Ok(())
    }

    /// Sends a frame of the program to the primary controller.
    fn packet_in(&self, frame: &[u8]) {
        let state = self.lock();
        let stream = state.arbitration.primary().and_then(|primary| state.streams.get(&primary));
        let packet = stream.and_then(|stream| Some((stream, state.device.packet_in(frame)?)));
        let sent = packet.is_some_and(|(stream, packet)| {
            stream.sender.try_send(Ok(answer(ToController::Packet(packet)))).is_ok()
        });
        count(if sent { &self.counts.packets_in } else { &self.counts.packets_in_lost }, 1);
    }
}

/// Sends notices. A controller whose queue is full loses its stream.
fn deliver(state: &mut State, notices: Notices) {
    let mut notices = VecDeque::from(notices);
    while let Some((id, notice)) = notices.pop_front() {
        let Some(stream) = state.streams.get(&id) else { continue };
        if stream.sender.try_send(Ok(answer(ToController::Arbitration(notice)))).is_err() {
            state.streams.remove(&id);
            notices.extend(state.arbitration.leave(id));
        }
    }
}

fn answer(update: ToController) -> StreamMessageResponse {
    StreamMessageResponse { update: Some(update) }
}

fn stream_error(refusal: Refusal, details: proto::stream_error::Details) -> StreamError {
    let canonical_code = refusal.code.into();
    StreamError { canonical_code, message: refusal.message, details: Some(details), ..StreamError::default() }
}

/// The methods of P4Runtime.
struct Service {
    shared: Arc<Shared>,
}

impl Service {
    /// Executes a request in a thread that may wait for the switch.
    async fn wait<T: Send + 'static>(
        &self,
        execute: impl FnOnce(&Shared, &mut State) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let shared = Arc::clone(&self.shared);
        let result = tokio::task::spawn_blocking(move || execute(&shared, &mut shared.lock())).await;
        result.unwrap_or_else(|_| Err(Status::internal("the request could not be executed")))
    }
}

#[tonic::async_trait]
impl P4Runtime for Service {
    async fn write(
        &self,
        request: Request<proto::WriteRequest>,
    ) -> Result<Response<proto::WriteResponse>, Status> {
        let request = request.into_inner();
        self.wait(move |shared, state| {
            state.arbitration.check(request.device_id, &request.role, request.election_id.as_ref())?;
            count(&shared.counts.updates, request.updates.len() as u64);
            state.device.write(&request)
        })
        .await?;
        Ok(Response::new(proto::WriteResponse {}))
    }

    type ReadStream = ReceiverStream<Result<proto::ReadResponse, Status>>;

    async fn read(&self, request: Request<proto::ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let mut reading = self
            .wait(move |_, state| {
                state.arbitration.check_device(request.device_id)?;
                Ok(state.device.begin_read(&request)?)
            })
            .await?;
        let (sender, receiver) = mpsc::channel(READ_QUEUE);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            loop {
                // A place in the queue first: a slow controller does not hold a thread.
                let Ok(place) = sender.reserve().await else { return };
                let shared = Arc::clone(&shared);
                let part =
                    tokio::task::spawn_blocking(move || (shared.lock().device.read(&mut reading), reading));
                let Ok((part, rest)) = part.await else { return };
                reading = rest;
                match part {
                    Ok(Some(entities)) => place.send(Ok(proto::ReadResponse { entities })),
                    Ok(None) => return,
                    Err(refusal) => return place.send(Err(refusal.into())),
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<proto::SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::SetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        self.wait(move |_, state| {
            state.arbitration.check(request.device_id, &request.role, request.election_id.as_ref())?;
            Ok(state.device.set_config(&request)?)
        })
        .await?;
        Ok(Response::new(proto::SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<proto::GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<proto::GetForwardingPipelineConfigResponse>, Status> {
        let request = request.into_inner();
        let config = self
            .wait(move |_, state| {
                state.arbitration.check_device(request.device_id)?;
                Ok(state.device.config(request.response_type())?)
            })
            .await?;
        Ok(Response::new(proto::GetForwardingPipelineConfigResponse { config: Some(config) }))
    }

    type StreamChannelStream = ReceiverStream<Result<StreamMessageResponse, Status>>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let (sender, receiver) = mpsc::channel(STREAM_QUEUE);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(converse(shared, sender, request.into_inner()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn capabilities(
        &self,
        _: Request<proto::CapabilitiesRequest>,
    ) -> Result<Response<proto::CapabilitiesResponse>, Status> {
        Ok(Response::new(proto::CapabilitiesResponse { p4runtime_api_version: VERSION.to_owned() }))
    }
}

/// Receives the messages of a stream until it ends.
async fn converse(shared: Arc<Shared>, sender: ToStream, mut incoming: Streaming<StreamMessageRequest>) {
    let own = Arc::clone(&shared);
    let (end, mut ended) = oneshot::channel();
    let stream = Stream { sender: sender.clone(), _end: end };
    let Ok(id) = tokio::task::spawn_blocking(move || own.open(stream)).await else { return };
    loop {
        let message = tokio::select! {
            message = incoming.message() => message,
            () = sender.closed() => break,
            _ = &mut ended => break,
        };
        let Ok(Some(message)) = message else { break };
        let own = Arc::clone(&shared);
        let received = tokio::task::spawn_blocking(move || own.receive(id, message)).await;
        if let Ok(Err(refusal)) = received {
            let _ = sender.try_send(Err(refusal.into()));
            break;
        }
    }
    let _ = tokio::task::spawn_blocking(move || shared.close(id)).await;
}
