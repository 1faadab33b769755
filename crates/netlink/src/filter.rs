//! eBPF programs as filters at the egress of an interface: the clsact qdisc (tc-bpf(8)).

use crate::client::Client;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Handle of the filter among those of its priority.
const HANDLE: u32 = 1;
/// All protocols, in network byte order.
const ETH_P_ALL: u32 = 0x0003_u16.to_be() as u32;

/// Place of a filter.
#[derive(Clone, Copy, Debug)]
pub struct EgressFilter<'a> {
    /// Number of the interface.
    pub interface: u32,
    /// Priority: filters with a smaller one come first. Each priority has one filter.
    pub priority: u16,
    /// Name that tc(8) shows.
    pub name: &'a str,
}

impl EgressFilter<'_> {
    /// Puts the program there, in place of a former one in one step, so that no packet misses both.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses.
    pub fn set(self, program: BorrowedFd<'_>) -> io::Result<()> {
        let mut client = Client::open()?;
        let options = vec![
            TcOption::Bpf(TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32)),
            TcOption::Bpf(TcFilterBpfOption::ProgName(self.name.to_owned())),
            TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
        ];
        let message = || {
            let mut message = self.message();
            message.attributes.push(TcAttribute::Options(options.clone()));
            RouteNetlinkMessage::NewTrafficFilter(message)
        };
        // The kernel refuses this if there is no former one.
        if client.request(message(), 0).is_ok() {
            return Ok(());
        }
        let mut qdisc = TcMessage::with_index(self.interface as i32);
        qdisc.header.handle = TcHandle { major: u16::MAX, minor: 0 };
        qdisc.header.parent = TcHandle::CLSACT;
        qdisc.attributes.push(TcAttribute::Kind("clsact".to_owned()));
        // It exists already if another program uses it.
        client.request(RouteNetlinkMessage::NewQueueDiscipline(qdisc), NLM_F_CREATE | NLM_F_EXCL)?;
        client.request(message(), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Deletes the filter.
    ///
    /// # Errors
    /// Returns an error if there is none, or the kernel refuses.
    pub fn delete(self) -> io::Result<()> {
        Client::open()?.request(RouteNetlinkMessage::DelTrafficFilter(self.message()), 0)
    }

    fn message(self) -> TcMessage {
        let mut message = TcMessage::with_index(self.interface as i32);
        message.header.handle = TcHandle::from(HANDLE);
        message.header.parent = TcHandle { major: u16::MAX, minor: TcHandle::MIN_EGRESS };
        message.header.info = u32::from(self.priority) << 16 | ETH_P_ALL;
        message.attributes.push(TcAttribute::Kind(TcFilterBpf::KIND.to_owned()));
        message
    }
}
