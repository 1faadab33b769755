//! A switch in memory behind the P4Runtime server.
#![allow(dead_code)]

use gatun_p4_controller::connection::{ConnectionConfig, Pipeline};
use gatun_p4_controller::program::Limits;
use gatun_p4_server::{Device, Memory, MemoryTarget, Program, Server, ServerTls, serve};
use gatun_p4runtime::p4::config::v1::P4Info;
use gatun_p4runtime::p4::v1::forwarding_pipeline_config::Cookie;
use gatun_p4runtime::p4::v1::set_forwarding_pipeline_config_request::Action;
use gatun_p4runtime::p4::v1::{ForwardingPipelineConfig, SetForwardingPipelineConfigRequest};
use gatun_p4runtime::p4info_from_text;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) const PROGRAM: &[u8] = b"gatun";
/// A free port of the loopback address.
pub(crate) const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Gatun's program, with small tables.
pub(crate) fn info() -> P4Info {
    let mut info = p4info_from_text(include_str!("../../../../p4/psa.p4info.txt")).unwrap();
    info.tables.iter_mut().for_each(|table| table.size = table.size.min(4096));
    info.counters.iter_mut().for_each(|counter| counter.size = counter.size.min(4096));
    info
}

pub(crate) struct MemorySwitch {
    pub(crate) server: Option<Server>,
    memory: Arc<Mutex<Memory>>,
    pub(crate) address: SocketAddr,
    _frames: Sender<Vec<u8>>,
}

impl MemorySwitch {
    pub(crate) fn new() -> MemorySwitch {
        Self::at(ANYWHERE.into(), None)
    }

    pub(crate) fn at(address: SocketAddr, security: Option<ServerTls>) -> MemorySwitch {
        Self::with(None, (address, security))
    }

    /// A switch that has Gatun's tables already, by a program in the form `device_config`.
    pub(crate) fn programmed(cookie: u64, device_config: &[u8]) -> MemorySwitch {
        let config = ForwardingPipelineConfig {
            p4info: Some(info()),
            p4_device_config: device_config.to_vec(),
            cookie: Some(Cookie { cookie }),
        };
        Self::with(Some(config), (ANYWHERE.into(), None))
    }

    fn with(
        config: Option<ForwardingPipelineConfig>,
        (address, security): (SocketAddr, Option<ServerTls>),
    ) -> MemorySwitch {
        let target = MemoryTarget::new(PROGRAM, Program::of(&info()));
        let memory = target.memory();
        let (frames, received) = channel();
        let listener = TcpListener::bind(address).unwrap();
        let mut device = Device::new(target);
        if config.is_some() {
            let action = Action::VerifyAndCommit.into();
            let request = SetForwardingPipelineConfigRequest { action, config, ..Default::default() };
            device.set_config(&request).unwrap();
        }
        let server = serve(listener, security, (1, device), received).unwrap();
        MemorySwitch { address: server.address(), server: Some(server), memory, _frames: frames }
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Counts packets with a counter.
    pub(crate) fn count(&self, counter: usize, packets: u64) {
        let mut memory = self.memory();
        memory.arrays.get_mut("entry_packets_packets").unwrap()[counter] += packets;
        memory.arrays.get_mut("entry_packets_bytes").unwrap()[counter] += 100 * packets;
    }

    /// Ends the server, and starts an empty switch at the same address.
    pub(crate) fn restart(&mut self) {
        self.server = None;
        *self = MemorySwitch::at(self.address, None);
    }
}

pub(crate) fn config(switch: &MemorySwitch) -> ConnectionConfig {
    let pipeline = Pipeline { info: info(), device_config: PROGRAM.to_vec(), replaces: false };
    ConnectionConfig {
        name: "edge".to_owned(),
        address: switch.address.to_string(),
        device_id: 1,
        election: 7,
        first_connection: 1,
        pipeline: Some(Arc::new(pipeline)),
        limits: Limits::default(),
        controller_limit: None,
        timeout: Duration::from_secs(5),
        tls: None,
    }
}
