//! Arbitrary messages of a controller to a device in memory.

use gatun_p4_server::{Arbitration, Device, MemoryTarget, Program};
use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action;
use gatun_p4runtime::p4::v1::{
    ForwardingPipelineConfig, GetForwardingPipelineConfigRequest, MasterArbitrationUpdate, PacketOut,
    ReadRequest, SetForwardingPipelineConfigRequest, WriteRequest,
};
use prost::Message as _;
use std::sync::OnceLock;

/// Parts of a read that are looked at.
const PARTS_MAX: usize = 16;

fn p4info() -> &'static P4Info {
    static P4INFO: OnceLock<P4Info> = OnceLock::new();
    P4INFO.get_or_init(|| gatun_p4runtime::p4info_from_text(include_str!("../switch.p4info.txt")).unwrap())
}

fn device() -> Device {
    let mut device = Device::new(MemoryTarget::new(b"program", Program::of(p4info())));
    let config =
        ForwardingPipelineConfig { p4info: Some(p4info().clone()), ..ForwardingPipelineConfig::default() };
    let request = SetForwardingPipelineConfigRequest {
        action: Action::VerifyAndCommit.into(),
        config: Some(config),
        ..SetForwardingPipelineConfigRequest::default()
    };
    device.set_config(&request).unwrap();
    device
}

/// Messages: a byte for the kind, two for the length, the message. A device with a pipeline executes them.
pub(crate) fn run(mut input: &[u8]) {
    let mut device = device();
    let mut arbitration = Arbitration::new(1);
    while let Some((head, rest)) = input.split_at_checked(3) {
        let len = usize::from(u16::from_be_bytes([head[1], head[2]])).min(rest.len());
        let (message, rest) = rest.split_at(len);
        input = rest;
        match head[0] % 8 {
            0 => drop(WriteRequest::decode(message).map(|request| device.write(&request))),
            1 => drop(ReadRequest::decode(message).map(|request| read(&mut device, &request))),
            2 => drop(SetForwardingPipelineConfigRequest::decode(message).map(|r| device.set_config(&r))),
            3 => drop(PacketOut::decode(message).map(|packet| device.packet_out(&packet))),
            4 => drop(device.packet_in(message)),
            5 => drop(
                GetForwardingPipelineConfigRequest::decode(message).map(|r| device.config(r.response_type())),
            ),
            6 => drop(MasterArbitrationUpdate::decode(message).map(|update| {
                let stream = u64::from(head[0] >> 3);
                arbitration.update(stream, &update).map(|_| arbitration.leave(stream.wrapping_sub(1)))
            })),
            _ => drop(std::str::from_utf8(message).map(gatun_p4runtime::p4info_from_text)),
        }
    }
}

fn read(device: &mut Device, request: &ReadRequest) {
    let Ok(mut reading) = device.begin_read(request) else { return };
    for _ in 0..PARTS_MAX {
        match device.read(&mut reading) {
            Ok(Some(part)) => assert!(!part.is_empty() && part.len() <= gatun_p4_server::PART_MAX),
            Ok(None) | Err(_) => return,
        }
    }
}
