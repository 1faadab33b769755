//! Controllers over the network: arbitration, packets, limits.

#[allow(dead_code)]
mod support;

use gatun_p4_server::{CONNECTIONS_MAX, HANDSHAKES_MAX, MESSAGE_MAX};
use gatun_p4runtime::p4::v1::entity::Entity as Kind;
use gatun_p4runtime::p4::v1::p4_runtime_client::P4RuntimeClient;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action as ConfigAction;
use gatun_p4runtime::p4::v1::stream_message_request::Update as FromController;
use gatun_p4runtime::p4::v1::stream_message_response::Update as ToController;
use gatun_p4runtime::p4::v1::update::Type;
use gatun_p4runtime::p4::v1::{
    CapabilitiesRequest, PacketOut, ReadRequest, StreamMessageRequest, TableEntry, Uint128, WriteRequest,
};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use support::controllers::{Bench, Controller, PATIENCE, arbitration, bench, run};
use support::*;
use tokio::time::timeout;
use tonic::Code;

#[test]
fn only_the_primary_controller_writes() {
    let bench = bench();
    run(async {
        let mut first = Controller::connect(&bench, 1).await;
        assert_eq!(first.status().await, Code::Ok);
        let mut second = Controller::connect(&bench, 2).await;
        assert_eq!(second.status().await, Code::Ok);
        assert_eq!(first.status().await, Code::AlreadyExists);
        let pipeline = config(ConfigAction::VerifyAndCommit, SPEC);
        let refused = first.client.set_forwarding_pipeline_config(pipeline.clone()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        // The second one leaves: nobody is the primary, until the first one comes with a higher number.
        drop(second);
        assert_eq!(first.status().await, Code::NotFound);
        first.arbitrate(3).await;
        assert_eq!(first.status().await, Code::Ok);
        let election_id = Some(Uint128 { high: 0, low: 3 });
        let pipeline =
            gatun_p4runtime::p4::v1::SetForwardingPipelineConfigRequest { election_id, ..pipeline };
        first.client.set_forwarding_pipeline_config(pipeline).await.unwrap();
        let batch = write(vec![update(Type::Insert, known(1, 2, 3))]);
        assert_eq!(first.client.write(batch.clone()).await.unwrap_err().code(), Code::PermissionDenied);
        first.client.write(WriteRequest { election_id, ..batch }).await.unwrap();
    });
    assert_eq!(bench.memory.lock().unwrap().exact.len(), 1);
    assert_eq!((bench.server.counters().connections, bench.server.counters().updates), (2, 1));
}

#[test]
fn a_stream_ends_with_the_reason() {
    let bench = bench();
    run(async {
        let mut first = Controller::connect(&bench, 1).await;
        assert_eq!(first.status().await, Code::Ok);
        let mut second = Controller::connect(&bench, 1).await;
        assert_eq!(second.receive().await.unwrap_err().code(), Code::InvalidArgument);
        let mut client =
            P4RuntimeClient::connect(format!("http://{}", bench.server.address())).await.unwrap();
        let packet = StreamMessageRequest { update: Some(FromController::Packet(PacketOut::default())) };
        let stream = client.stream_channel(tokio_stream::iter([packet])).await.unwrap();
        let refused = timeout(PATIENCE, stream.into_inner().message()).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let version = client.capabilities(CapabilitiesRequest {}).await.unwrap().into_inner();
        assert_eq!(version.p4runtime_api_version, "1.4.0");
    });
}

#[test]
fn packets_go_to_the_primary_controller_and_lost_ones_are_counted() {
    let bench = bench();
    let counters = || bench.server.counters();
    run(async {
        bench.frames.send(vec![1, 0, 0, 7, 0xaa]).unwrap();
        while counters().packets_in_lost == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut controller = Controller::connect(&bench, 1).await;
        assert_eq!(controller.status().await, Code::Ok);
        let pipeline = config(ConfigAction::VerifyAndCommit, SPEC);
        controller.client.set_forwarding_pipeline_config(pipeline).await.unwrap();
        bench.frames.send(vec![1, 0, 0, 7, 0xaa]).unwrap();
        match controller.receive().await.unwrap() {
            ToController::Packet(packet) => {
                assert_eq!((packet.payload, packet.metadata.len()), (vec![0xaa], 3))
            }
            other => panic!("{other:?}"),
        }
        controller.send(FromController::Packet(PacketOut::default())).await;
        match controller.receive().await.unwrap() {
            ToController::Error(error) => assert_eq!(Code::from(error.canonical_code), Code::InvalidArgument),
            other => panic!("{other:?}"),
        }
        // Nobody reads the stream: its queue and the network's buffers fill up, and the server goes on.
        for _ in 0..20_000 {
            bench.frames.send(vec![0; 1500]).unwrap();
        }
        while counters().packets_in + counters().packets_in_lost < 20_002 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(counters().packets_in_lost > 1);
        controller.client.capabilities(CapabilitiesRequest {}).await.unwrap();
    });
    assert_eq!(counters().packets_out_refused, 1);
}

#[test]
fn a_large_table_is_read_in_parts() {
    let bench = bench();
    run(async {
        let mut controller = Controller::connect(&bench, 1).await;
        assert_eq!(controller.status().await, Code::Ok);
        let pipeline = config(ConfigAction::VerifyAndCommit, SPEC);
        controller.client.set_forwarding_pipeline_config(pipeline).await.unwrap();
        let updates = (0..64).map(|src| update(Type::Insert, known(1, src, 3))).collect();
        controller.client.write(write(updates)).await.unwrap();
        let all = |table_id| entity(Kind::TableEntry(TableEntry { table_id, ..TableEntry::default() }));
        let entities = (0..20).map(|_| all(KNOWN)).collect();
        let request = ReadRequest { device_id: 1, entities, ..ReadRequest::default() };
        let mut parts = controller.client.read(request).await.unwrap().into_inner();
        let mut sizes = Vec::new();
        while let Some(part) = parts.message().await.unwrap() {
            sizes.push(part.entities.len());
        }
        assert_eq!(sizes, [1000, 280]);
    });
}

#[test]
fn messages_connections_and_garbage_have_limits() {
    let bench = bench();
    run(async {
        let mut controller = Controller::connect(&bench, 1).await;
        assert_eq!(controller.status().await, Code::Ok);
        let long = config(ConfigAction::Verify, &"x".repeat(MESSAGE_MAX + 1));
        let refused = controller.client.set_forwarding_pipeline_config(long).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange);
        for garbage in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\xff\xff"]
        {
            let mut stream = TcpStream::connect(bench.server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let _ = stream.write_all(garbage);
            let _ = stream.read(&mut [0; 64]);
        }
        controller.client.capabilities(CapabilitiesRequest {}).await.unwrap();
        let connect = |_| {
            let mut stream = TcpStream::connect(bench.server.address()).unwrap();
            // A client of HTTP/2 without a wish.
            stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
            stream
        };
        let idle: Vec<TcpStream> = (0..CONNECTIONS_MAX + 2).map(connect).collect();
        while bench.server.counters().connections_refused == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        controller.client.capabilities(CapabilitiesRequest {}).await.unwrap();
        drop(idle);
    });
}

#[test]
fn silent_clients_take_no_place_and_replace_each_other() {
    let bench = bench();
    run(async {
        let connect = |_| TcpStream::connect(bench.server.address()).unwrap();
        let mut silent: Vec<TcpStream> = (0..HANDSHAKES_MAX + 3).map(connect).collect();
        silent[HANDSHAKES_MAX + 2].write_all(b"PRI * HTT").unwrap();
        let mut controller = timeout(Duration::from_secs(2), Controller::connect(&bench, 1)).await.unwrap();
        assert_eq!(controller.status().await, Code::Ok);
        let counters = bench.server.counters();
        assert_eq!((counters.connections, counters.connections_refused), (1, 0));
        // The controller itself was the fourth too many, while its handshake went on.
        assert_eq!(counters.handshakes_failed, 4);
        // The oldest have ended.
        silent[0].set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
    });
}

/// Sends an arbitration message of a new controller, and returns it with the code of the answer.
async fn arbitrated(bench: &Bench, device: u64, election: Option<(u64, u64)>) -> (Controller, Code) {
    let mut controller = Controller::open(bench).await;
    controller.send(FromController::Arbitration(arbitration(device, election))).await;
    let code = match controller.receive().await {
        Ok(ToController::Arbitration(update)) => update.status.unwrap().code.into(),
        Ok(other) => panic!("{other:?}"),
        Err(status) => status.code(),
    };
    (controller, code)
}

/// Writes an entry with an election number, which the table has already if this controller may write.
async fn written(controller: &mut Controller, election: Option<(u64, u64)>) -> Code {
    let election_id = election.map(|(high, low)| Uint128 { high, low });
    let batch = WriteRequest { election_id, ..write(vec![update(Type::Insert, known(1, 2, 3))]) };
    controller.client.write(batch).await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[test]
fn impossible_arbitration_messages_change_nothing_and_the_largest_number_is_a_number() {
    const LARGEST: (u64, u64) = (u64::MAX, u64::MAX);
    let bench = bench();
    run(async {
        for device in [0, 2, u64::MAX] {
            assert_eq!(arbitrated(&bench, device, Some(LARGEST)).await.1, Code::NotFound);
        }
        // Without a number, or with zero: never the primary.
        let (mut none, code) = arbitrated(&bench, 1, None).await;
        let (mut zero, zero_code) = arbitrated(&bench, 1, Some((0, 0))).await;
        assert_eq!((code, zero_code), (Code::NotFound, Code::NotFound));
        for election in [None, Some((0, 0)), Some(LARGEST)] {
            assert_eq!(written(&mut none, election).await, Code::PermissionDenied);
        }
        let (mut half, code) = arbitrated(&bench, 1, Some((1, 0))).await;
        assert_eq!(
            (code, none.status().await, zero.status().await),
            (Code::Ok, Code::AlreadyExists, Code::AlreadyExists)
        );
        let (mut first, code) = arbitrated(&bench, 1, Some(LARGEST)).await;
        assert_eq!((code, half.status().await), (Code::Ok, Code::AlreadyExists));
        assert_eq!(arbitrated(&bench, 1, Some(LARGEST)).await.1, Code::InvalidArgument);
        let below = (u64::MAX, u64::MAX - 1);
        assert_eq!(arbitrated(&bench, 1, Some(below)).await.1, Code::AlreadyExists);
        // Numbers that differ from the primary's in one half, or change places.
        for election in [None, Some((0, u64::MAX)), Some((u64::MAX, 0)), Some(below), Some((1, 0))] {
            assert_eq!(written(&mut first, election).await, Code::PermissionDenied, "{election:?}");
        }
        let pipeline = config(ConfigAction::VerifyAndCommit, SPEC);
        let election_id = Some(Uint128 { high: u64::MAX, low: u64::MAX });
        let pipeline =
            gatun_p4runtime::p4::v1::SetForwardingPipelineConfigRequest { election_id, ..pipeline };
        first.client.set_forwarding_pipeline_config(pipeline).await.unwrap();
        assert_eq!(written(&mut first, Some(LARGEST)).await, Code::Ok);
        // Nothing follows the largest number. Who has it comes back.
        first.send(FromController::Arbitration(arbitration(1, Some((0, 1))))).await;
        assert_eq!(first.status().await, Code::NotFound);
        assert_eq!(arbitrated(&bench, 1, Some(below)).await.1, Code::NotFound);
        assert_eq!(written(&mut first, Some((0, 1))).await, Code::PermissionDenied);
        drop(first);
        let (mut again, code) = arbitrated(&bench, 1, Some(LARGEST)).await;
        assert_eq!(code, Code::Ok);
        assert_eq!(written(&mut again, Some(LARGEST)).await, Code::Unknown, "the entry exists");
    });
    assert_eq!(bench.memory.lock().unwrap().exact.len(), 1);
}
