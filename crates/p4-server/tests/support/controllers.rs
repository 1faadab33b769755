//! A server with a switch in memory, and controllers over the network.

use super::{SPEC, p4info};
use gatun_p4_server::{Device, Memory, MemoryTarget, Program, Server, serve};
use gatun_p4runtime::p4::v1::p4_runtime_client::P4RuntimeClient;
use gatun_p4runtime::p4::v1::stream_message_request::Update as FromController;
use gatun_p4runtime::p4::v1::stream_message_response::Update as ToController;
use gatun_p4runtime::p4::v1::{
    MasterArbitrationUpdate, StreamMessageRequest, StreamMessageResponse, Uint128,
};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) memory: Arc<Mutex<Memory>>,
    pub(crate) frames: SyncSender<Vec<u8>>,
}

pub(crate) fn bench() -> Bench {
    let target = MemoryTarget::new(SPEC.as_bytes(), Program::of(&p4info()));
    let memory = target.memory();
    let (frames, receiver) = sync_channel(16);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve(listener, None, (1, Device::new(target)), receiver).unwrap();
    Bench { server, memory, frames }
}

/// Arbitration message with a device and both halves of an election number.
pub(crate) fn arbitration(device_id: u64, election: Option<(u64, u64)>) -> MasterArbitrationUpdate {
    let election_id = election.map(|(high, low)| Uint128 { high, low });
    MasterArbitrationUpdate { device_id, election_id, ..MasterArbitrationUpdate::default() }
}

pub(crate) struct Controller {
    pub(crate) client: P4RuntimeClient<Channel>,
    sender: mpsc::Sender<StreamMessageRequest>,
    stream: Streaming<StreamMessageResponse>,
}

impl Controller {
    /// Connects, and opens a stream.
    pub(crate) async fn open(bench: &Bench) -> Controller {
        let mut client =
            P4RuntimeClient::connect(format!("http://{}", bench.server.address())).await.unwrap();
        let (sender, receiver) = mpsc::channel(8);
        let stream = client.stream_channel(ReceiverStream::new(receiver)).await.unwrap().into_inner();
        Controller { client, sender, stream }
    }

    /// Connects, and takes part in the arbitration.
    pub(crate) async fn connect(bench: &Bench, election: u64) -> Controller {
        let controller = Controller::open(bench).await;
        controller.arbitrate(election).await;
        controller
    }

    pub(crate) async fn arbitrate(&self, election: u64) {
        self.send(FromController::Arbitration(arbitration(1, Some((0, election))))).await;
    }

    pub(crate) async fn send(&self, update: FromController) {
        self.sender.send(StreamMessageRequest { update: Some(update) }).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Result<ToController, tonic::Status> {
        let message = timeout(PATIENCE, self.stream.message()).await.expect("an answer in time")?;
        Ok(message.expect("the stream goes on").update.unwrap())
    }

    /// Code of the next arbitration message.
    pub(crate) async fn status(&mut self) -> Code {
        match self.receive().await.unwrap() {
            ToController::Arbitration(update) => update.status.unwrap().code.into(),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}
