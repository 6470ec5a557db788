//! Requests and answers over one blocking rtnetlink socket (RFC 3549).
//!
//! A netlink socket belongs to the network namespace in which it was opened.

use std::io::{self, Read, Write};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, NET_ADMIN};
use crate::limits::{ANSWER_BYTES_MAX, ANSWER_WAIT_MAX, LISTINGS_MAX};

/// An rtnetlink socket for devices, addresses and routes.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || {
            let socket = raw_socket()?;
            socket.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
            Ok(socket)
        };
        let refused = |cause: io::Error| Error::refused("open a netlink socket", NET_ADMIN, cause);
        let socket = open().map_err(refused)?;
        Ok(Self { socket, sequence: 0, buffer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// Returns all objects that match `question`. Restarts the listing if something changed meanwhile.
    pub(crate) fn list(
        &mut self,
        action: &str,
        question: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        for _ in 0..LISTINGS_MAX {
            let answer = self.exchange(action, NLM_F_REQUEST | NLM_F_DUMP, question)?;
            if answer.is_whole {
                return Ok(answer.messages);
            }
        }
        let detail = format!("it changed under each of {LISTINGS_MAX} listings");
        Err(Error::Answer { action: action.to_owned(), detail })
    }

    /// Executes one request; `flags` are set in addition to those for a request with acknowledgement.
    pub(crate) fn ask(
        &mut self,
        action: &str,
        flags: u16,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        Ok(self.exchange(action, NLM_F_REQUEST | NLM_F_ACK | flags, message)?.messages)
    }

    fn exchange(
        &mut self,
        action: &str,
        flags: u16,
        message: &RouteNetlinkMessage,
    ) -> Result<NetlinkReply, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = encode(self.sequence, flags, message);
        let refused = |cause: io::Error| Error::refused(action, NET_ADMIN, cause);
        self.socket.write_all(&bytes).map_err(refused)?;
        let mut answer = NetlinkReply { messages: Vec::new(), is_whole: true, is_done: false };
        while !answer.is_done {
            let len = self.socket.read(&mut self.buffer).map_err(refused)?;
            answer.take(action, self.sequence, &self.buffer[..len])?;
        }
        Ok(answer)
    }
}

/// A netlink socket of the routing family.
pub(crate) fn raw_socket() -> io::Result<Socket> {
    let protocol = Protocol::from(libc::NETLINK_ROUTE);
    Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))
}

/// The parts of an answer received so far.
struct NetlinkReply {
    messages: Vec<RouteNetlinkMessage>,
    /// Whether nothing changed during the kernel's listing.
    is_whole: bool,
    is_done: bool,
}

impl NetlinkReply {
    /// Parses the messages of one datagram. Answers to an earlier request, which timed out, are skipped.
    fn take(&mut self, action: &str, sequence: u32, mut datagram: &[u8]) -> Result<(), Error> {
        let unclear = |detail: String| Error::Answer { action: action.to_owned(), detail };
        while !datagram.is_empty() && !self.is_done {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(datagram)
                .map_err(|error| unclear(error.to_string()))?;
            let (header, payload) = message.into_parts();
            let len = (header.length as usize).next_multiple_of(4).max(4);
            datagram = datagram.get(len..).unwrap_or_default();
            if header.sequence_number != sequence {
                continue;
            }
            self.is_whole &= header.flags & NLM_F_DUMP_INTR == 0;
            match payload {
                NetlinkPayload::InnerMessage(message) => self.messages.push(message),
                NetlinkPayload::Done(_) => self.is_done = true,
                NetlinkPayload::Error(error) if error.code.is_none() => self.is_done = true,
                NetlinkPayload::Error(error) => {
                    return Err(Error::refused(action, NET_ADMIN, error.to_io()));
                }
                NetlinkPayload::Overrun(_) => return Err(unclear("overrun".to_owned())),
                _ => {}
            }
        }
        Ok(())
    }
}

fn encode(sequence: u32, flags: u16, message: &RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.sequence_number = sequence;
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message.clone()));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}
