//! Netlink socket: requests, batches of requests, and their answers.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

type Message = NetlinkMessage<RouteNetlinkMessage>;

/// Bytes of a message header.
const HEADER_LEN: usize = 16;

/// Answers to a batch of requests.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// First request that failed: the error and the sequence number.
    pub(crate) failed: Option<(io::Error, u32)>,
    /// Number of requests whose object existed.
    pub(crate) existed: usize,
}

/// Netlink socket. Each request waits for its answer.
pub(crate) struct Client {
    pub(crate) socket: Socket,
    pub(crate) sequence: u32,
}

impl Client {
    pub(crate) fn open() -> io::Result<Client> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Client { socket, sequence: 0 })
    }

    /// Requests one object, or all with `NLM_F_DUMP`.
    pub(crate) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut answers = Vec::new();
        self.ask_each(message, flags, |answer| answers.push(answer))?;
        Ok(answers)
    }

    /// Like [`Client::ask`], for answers that may be too many to collect.
    pub(crate) fn ask_each(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, NLM_F_REQUEST | flags);
        self.socket.send(&bytes, 0)?;
        let mut answered = false;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => {
                        answered = true;
                        each(answer);
                    }
                    NetlinkPayload::Error(e) if e.code.is_some() => return Err(e.to_io()),
                    NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(()),
                    _ => {}
                }
            }
            if flags & NLM_F_DUMP != NLM_F_DUMP && answered {
                return Ok(());
            }
        }
    }

    /// Sends one request and waits for the kernel's answer to it.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, NLM_F_REQUEST | NLM_F_ACK | flags);
        self.socket.send(&bytes, 0)?;
        let answers = self.answers(self.sequence).map_err(|(e, _)| e)?;
        answers.failed.map_or(Ok(()), |(e, _)| Err(e))
    }

    /// Appends the next request to `bytes`.
    pub(crate) fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        let mut message = NetlinkMessage::from(message);
        self.sequence += 1;
        message.header.sequence_number = self.sequence;
        message.header.flags = flags;
        message.finalize();
        let at = bytes.len();
        // Messages begin at multiples of four bytes.
        bytes.resize(at + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[at..]);
    }

    /// Waits for the answer to the newest request; earlier requests since `first` may have failed.
    pub(crate) fn answers(&mut self, first: u32) -> Result<Answers, (io::Error, u32)> {
        let mut answers = Answers::default();
        loop {
            let (datagram, _) = self.socket.recv_from_full().map_err(|e| (e, self.sequence))?;
            for message in messages(&datagram) {
                let answer = message.map_err(|e| (e, self.sequence))?;
                let sequence = answer.header.sequence_number;
                let NetlinkPayload::Error(e) = answer.payload else { continue };
                if sequence < first || sequence > self.sequence {
                    continue;
                }
                if e.code.is_some() {
                    match e.to_io() {
                        error if error.kind() == io::ErrorKind::AlreadyExists => answers.existed += 1,
                        error => drop(answers.failed.get_or_insert((error, sequence))),
                    }
                }
                if sequence == self.sequence {
                    return Ok(answers);
                }
            }
        }
    }
}

/// Messages of a datagram, up to the first one that cannot be read.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = io::Result<Message>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let parsed = Message::deserialize(rest);
        let message = parsed.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()));
        // Messages begin at multiples of four bytes. A message of length zero would never end.
        let len = message.as_ref().map_or(rest.len(), |message| {
            (message.header.length as usize).next_multiple_of(4).max(HEADER_LEN)
        });
        rest = rest.get(len..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_route::link::LinkMessage;

    #[test]
    fn a_datagram_with_several_messages_is_split() {
        let mut client = Client::open().unwrap();
        let mut bytes = Vec::new();
        for index in 1..=3 {
            let mut link = LinkMessage::default();
            link.header.index = index;
            client.append(&mut bytes, RouteNetlinkMessage::NewLink(link), 0);
        }
        let numbers: Vec<u32> = messages(&bytes).map(|one| one.unwrap().header.sequence_number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        // A truncated message is an error, and the last one.
        let results: Vec<bool> = messages(&bytes[..bytes.len() - 4]).map(|one| one.is_ok()).collect();
        assert_eq!(results, [true, true, false]);
    }
}
