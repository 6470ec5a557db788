//! Captures LCCP messages between nodes as they arrive at one, before any firewall rule, and drops chosen
//! commands of chosen connections by rules. So a move stops at exactly that step, without support by the
//! product.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

use skep_tests::direct::DirectCluster;
use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

/// IP protocol number of LCCP.
const LCCP: u8 = 253;

/// Offset of the protocol in an IPv4 header.
const PROTOCOL_AT: usize = 9;

/// Length of an IPv4 header without options.
const IP_BYTES: usize = 20;

/// Bytes before and after the body of a sealed datagram.
const SEAL_BYTES: (usize, usize) = (49, 16);

/// Offsets in a body: of the command, and of the client's port in an IPv4 socket ID, both little-endian.
const COMMAND_AT: usize = 4;
const PORT_AT: usize = 33;

/// `ETH_P_IP`.
const PROTOCOL_IP: u16 = 0x0800;

/// Maximum packet length.
const PACKET_BYTES_MAX: usize = 2_048;

/// LCCP commands about a connection, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Command {
    Offer = 1,
    Ready = 2,
    Go = 4,
    Done = 5,
    Abort = 7,
}

/// A capture of the LCCP messages that arrive at a machine.
pub(super) struct LccpCapture(Socket);

impl LccpCapture {
    pub(super) fn at(cluster: &DirectCluster, machine: &str) -> Self {
        let open = || {
            let protocol = Protocol::from(i32::from(PROTOCOL_IP.to_be()));
            let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.attach_filter(&lccp_alone()).unwrap();
            socket
        };
        Self(cluster.machine(machine).run(open).unwrap())
    }

    /// Returns the commands and clients of all messages received since the last call.
    pub(super) fn all(&mut self) -> Vec<(u32, SocketAddr)> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Returns the next message about a connection; `None` if no more were received.
    fn next(&mut self) -> Option<(u32, SocketAddr)> {
        let mut packet = [0; PACKET_BYTES_MAX];
        loop {
            let len = match self.0.read(&mut packet) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => panic!("packets cannot be read: {error}"),
            };
            if let Some(message) = about_a_connection(&packet[..len]) {
                return Some(message);
            }
        }
    }
}

/// Classic BPF that accepts LCCP alone: otherwise the packets of all requests fill the socket's buffer between two
/// reads, and messages are missed.
fn lccp_alone() -> [SockFilter; 4] {
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const JUMP_IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    [
        SockFilter::new(LOAD_BYTE, 0, 0, PROTOCOL_AT as u32),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, u32::from(LCCP)),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

fn about_a_connection(packet: &[u8]) -> Option<(u32, SocketAddr)> {
    if packet.get(PROTOCOL_AT) != Some(&LCCP) {
        return None;
    }
    let end = packet.len().checked_sub(SEAL_BYTES.1)?;
    let body = packet.get(IP_BYTES + SEAL_BYTES.0..end)?;
    let Lccp { command, .. } = Lccp::decode(body).ok()?;
    let is_of_a_move = !matches!(command, LccpCommand::Query(..) | LccpCommand::Decision(..));
    let socket = command.socket().filter(|_| is_of_a_move)?;
    let number = body[COMMAND_AT..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    Some((number, socket.client))
}

/// Drops these messages at a machine from now on, by rules in a table of this name.
pub(super) fn hold(
    cluster: &DirectCluster,
    machine: &str,
    name: &str,
    held: &[(Command, SocketAddr)],
) {
    let body_at = IP_BYTES + SEAL_BYTES.0;
    let (command_at, port_at) = (8 * (body_at + COMMAND_AT), 8 * (body_at + PORT_AT));
    let drop_it = |(command, client): &(Command, SocketAddr)| {
        let (command, port) = ((*command as u32).swap_bytes(), client.port().swap_bytes());
        format!(
            "\nadd rule ip {name} in ip protocol {LCCP} @nh,{command_at},32 {command:#x} @nh,{port_at},16 {port:#x} drop"
        )
    };
    let chain = format!(
        "add table ip {name}\nadd chain ip {name} in {{ type filter hook input priority 0; }}"
    );
    let rules: String = held.iter().map(drop_it).collect();
    cluster.tool(machine, "nft", &[&(chain + &rules)]);
}

/// Removes the rules of this name.
pub(super) fn let_through(cluster: &DirectCluster, machine: &str, name: &str) {
    cluster.tool(machine, "nft", &["delete", "table", "ip", name]);
}

/// Sends `count` datagrams that are not from a node.
pub(super) fn send_foreign(to: SocketAddr, count: usize) {
    let socket =
        Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(i32::from(LCCP)))).unwrap();
    for _ in 0..count {
        socket.send_to(&[0; 64], &to.into()).unwrap();
    }
}
