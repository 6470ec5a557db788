//! The values of the maps, byte for byte as in `bpf/abi.h`, and conversions to and from the plain
//! types of [`skep_wire::steer`].
//!
//! **Invariants:** no type has implicit padding, so every byte passed to the kernel is initialized;
//! a test compiles `abi.h` and compares.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use aya::Pod;
use aya::maps::lpm_trie;
use skep_wire::guard::Steerer;
use skep_wire::handoff::SocketId;
use skep_wire::steer::{self, ForwardingState, Measure, Protocol};

/// An IP address in network byte order; IPv4 is mapped: `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(4))]
pub(crate) struct Address(pub(crate) [u8; 16]);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        })
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        Ipv6Addr::from(address.0).to_canonical()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct ServiceKey {
    pub(crate) vip: Address,
    pub(crate) port_be: [u8; 2],
    pub(crate) protocol: u8,
    pub(crate) zero: u8,
}

impl From<&steer::DatapathService> for ServiceKey {
    fn from(service: &steer::DatapathService) -> Self {
        Self {
            vip: service.address.ip().into(),
            port_be: service.address.port().to_be_bytes(),
            protocol: match service.protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
            },
            zero: 0,
        }
    }
}

impl ServiceKey {
    pub(crate) fn protocol(self) -> Protocol {
        if self.protocol == 17 { Protocol::Udp } else { Protocol::Tcp }
    }

    pub(crate) fn address(self) -> SocketAddr {
        SocketAddr::new(self.vip.into(), u16::from_be_bytes(self.port_be))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Service {
    pub(crate) id: u16,
    pub(crate) choices: u8,
    pub(crate) measure: u8,
    pub(crate) by_address: u8,
    /// Which of the two tables is in use.
    pub(crate) half: u8,
    /// What is added to the id for the place of the tables in `rows`.
    pub(crate) shift: u16,
}

impl Service {
    /// The value of a service whose tables are at `place` in `rows`.
    pub(crate) fn new(service: &steer::DatapathService, place: u16, half: u8) -> Self {
        let measure = match service.measure {
            Measure::First => 0,
            Measure::Turns => 1,
            Measure::Load => 2,
        };
        let by_address = service.by_address.into();
        let shift = place.wrapping_sub(service.id);
        Self { id: service.id, choices: service.choices, measure, by_address, half, shift }
    }

    /// The place of the service's tables in `rows`.
    pub(crate) fn place(self) -> u16 {
        self.id.wrapping_add(self.shift)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Row(pub(crate) [u16; steer::ROW_NODES]);

impl Row {
    /// The row as two words, with the bytes as they are in memory.
    pub(crate) fn words(self) -> [u64; 2] {
        let [a, b, c, d, e, f, g, h] = self.0.map(u16::to_ne_bytes);
        let word = |[[a, b], [c, d], [e, f], [g, h]]: [[u8; 2]; 4]| {
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        [word([a, b, c, d]), word([e, f, g, h])]
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Node {
    pub(crate) mac: [u8; 6],
    pub(crate) state: u8,
    pub(crate) is_local: u8,
    pub(crate) device_index: u32,
    pub(crate) mtu: u32,
}

impl From<&steer::DatapathNode> for Node {
    fn from(node: &steer::DatapathNode) -> Self {
        Self {
            mac: node.mac,
            state: match node.state {
                ForwardingState::Down => 0,
                ForwardingState::Draining => 1,
                ForwardingState::Up => 2,
            },
            is_local: node.is_local.into(),
            device_index: node.device_index,
            mtu: node.mtu,
        }
    }
}

/// `enum steerer`: this machine, which must not receive its own frames.
pub(crate) const STEERER_SELF: u32 = 3;

pub(crate) fn steerer(steerer: Steerer) -> u32 {
    match steerer {
        Steerer::Dispatcher => 1,
        Steerer::Node => 2,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Load {
    pub(crate) reported: u64,
    pub(crate) assigned_at_report: u64,
    pub(crate) assigned_at_table: u64,
    pub(crate) weight: u32,
    pub(crate) zero: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct FlowKey {
    pub(crate) client: Address,
    pub(crate) port_be: [u8; 2],
    pub(crate) service: u16,
}

impl From<&steer::Flow> for FlowKey {
    fn from(flow: &steer::Flow) -> Self {
        Self {
            client: flow.client.ip().into(),
            port_be: flow.client.port().to_be_bytes(),
            service: flow.service,
        }
    }
}

impl FlowKey {
    pub(crate) fn owned_by(self, node: u16) -> steer::Flow {
        let client = SocketAddr::new(self.client.into(), u16::from_be_bytes(self.port_be));
        steer::Flow { client, service: self.service, node }
    }
}

/// A new entry has generation 0 and no `via`: it is checked when the flow's next packet arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Flow {
    pub(crate) node: u16,
    pub(crate) flags: u16,
    pub(crate) generation: u32,
    pub(crate) via: [u8; 6],
    pub(crate) syn_sequence_low: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub(crate) struct MoveKey {
    pub(crate) client: Address,
    pub(crate) vip: Address,
    pub(crate) client_port_be: [u8; 2],
    pub(crate) vip_port_be: [u8; 2],
}

impl From<SocketId> for MoveKey {
    fn from(id: SocketId) -> Self {
        Self {
            client: id.client.ip().into(),
            vip: id.server.ip().into(),
            client_port_be: id.client.port().to_be_bytes(),
            vip_port_be: id.server.port().to_be_bytes(),
        }
    }
}

impl From<MoveKey> for SocketId {
    fn from(key: MoveKey) -> Self {
        let end = |ip: Address, port| SocketAddr::new(ip.into(), u16::from_be_bytes(port));
        Self { client: end(key.client, key.client_port_be), server: end(key.vip, key.vip_port_be) }
    }
}

/// `enum move_state`.
pub(crate) const MOVE_BLOCKED: u16 = 1;
pub(crate) const MOVE_REDIRECT: u16 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Move {
    pub(crate) state: u16,
    /// For a blocked connection: the node to which it was redirected before, or `NO_NODE`.
    pub(crate) node: u16,
    pub(crate) zero: u32,
    /// Time by `CLOCK_MONOTONIC`.
    pub(crate) used_ns: u64,
}

pub(crate) type NetworkKey = lpm_trie::Key<Address>;

/// Builds a key from a network. The prefix length is that of the mapped address: 96 bits more for IPv4. Host
/// bits are cleared.
pub(crate) fn network_key(network: &steer::Network) -> NetworkKey {
    let bits = u32::from(network.prefix_bits) + if network.address.is_ipv4() { 96 } else { 0 };
    let bits = bits.min(128);
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let address = u128::from_be_bytes(Address::from(network.address).0) & mask;
    NetworkKey::new(bits, Address(address.to_be_bytes()))
}

/// The bytes of a key.
pub(crate) type NetworkBytes = [u8; 20];

pub(crate) fn network_bytes(key: &NetworkKey) -> NetworkBytes {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&key.prefix_len().to_ne_bytes());
    bytes[4..].copy_from_slice(&key.data().0);
    bytes
}

/// The network as text, for people.
pub(crate) fn network_text(bytes: NetworkBytes) -> String {
    let (prefix, address) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let address = IpAddr::from(Address(address.try_into().unwrap_or_default()));
    let bits = u32::from_ne_bytes(*prefix);
    let own_bits = if address.is_ipv4() { bits.saturating_sub(96) } else { bits };
    format!("{address}/{own_bits}")
}

/// `enum admission`.
pub(crate) const ADMISSION_ALLOW: u32 = 1;
pub(crate) const ADMISSION_DENY: u32 = 2;

/// `enum setting_flag`.
pub(crate) const SETTING_NETWORKS: u32 = 1;
pub(crate) const SETTING_ALLOW_LISTED: u32 = 2;
pub(crate) const SETTING_STREAM: u32 = 4;
pub(crate) const SETTING_MOVES: u32 = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) hash_seed: u64,
    pub(crate) new_flows_max: u64,
    pub(crate) new_flows_per_source_max: u64,
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    pub(crate) own_device_index: u32,
    pub(crate) own_node: u16,
    pub(crate) own_mac: [u8; 6],
    pub(crate) zero: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FlowEvent {
    pub(crate) key: FlowKey,
    pub(crate) node: u16,
    pub(crate) zero: u16,
}

impl FlowEvent {
    /// Parses a record of the ring; `None` if it has another length.
    pub(crate) fn read(record: &[u8]) -> Option<Self> {
        let bytes: &[u8; size_of::<Self>()] = record.try_into().ok()?;
        let (client, rest) = bytes.split_first_chunk::<16>()?;
        let (port_be, rest) = rest.split_first_chunk::<2>()?;
        let (service, rest) = rest.split_first_chunk::<2>()?;
        let (node, _) = rest.split_first_chunk::<2>()?;
        let key = FlowKey {
            client: Address(*client),
            port_be: *port_be,
            service: u16::from_ne_bytes(*service),
        };
        Some(Self { key, node: u16::from_ne_bytes(*node), zero: 0 })
    }
}

macro_rules! plain {
    ($($name:ident),+) => {
        $(
            #[expect(unsafe_code, reason = "keys and values of maps are their bytes")]
            // SAFETY: `repr(C)`, of integers and arrays of integers, without padding, as the test below
            // verifies; every bit pattern is a valid value.
            unsafe impl Pod for $name {}
        )+
    };
}

plain!(
    Address, ServiceKey, Service, Row, Node, Load, FlowKey, Flow, MoveKey, Move, Settings, Count
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::fs;
    use std::io::{Write, stderr};
    use std::mem::offset_of;
    use std::path::Path;
    use std::process::Command;

    use steer::{CHOICES_MAX, NO_NODE, NODES_MAX, ROW_NODES, ROWS, SERVICES_MAX, Verdict};

    use super::*;

    const ABI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/abi.h");

    /// Layout facts of this crate, each with its expression in C.
    fn facts() -> Vec<(String, usize)> {
        let mut facts = Vec::new();
        macro_rules! layout {
            ($name:ident = $c:literal, $($field:ident $($c_field:ident)?),+) => {
                facts.push((format!("sizeof(struct {})", $c), size_of::<$name>()));
                facts.push((format!("_Alignof(struct {})", $c), align_of::<$name>()));
                let fields = [$((
                    *[stringify!($field) $(, stringify!($c_field))?].last().unwrap(),
                    offset_of!($name, $field),
                )),+];
                for (field, offset) in fields {
                    facts.push((format!("offsetof(struct {}, {field})", $c), offset));
                }
                // All fields are listed, and nothing follows the last.
                let bytes = fields.map(|(field, _)| format!("sizeof(((struct {} *)0)->{field})", $c));
                facts.push((bytes.join(" + "), size_of::<$name>()));
            };
        }
        layout!(ServiceKey = "service_key", vip, port_be port, protocol, zero);
        layout!(Service = "service", id, choices, measure, by_address, half, shift);
        layout!(Node = "node", mac, state, is_local, device_index, mtu);
        layout!(Load = "load", reported, assigned_at_report, assigned_at_table, weight, zero);
        layout!(FlowKey = "flow_key", client, port_be port, service);
        layout!(MoveKey = "move_key", client, vip, client_port_be client_port, vip_port_be vip_port);
        layout!(Move = "move", state, node, zero, used_ns);
        layout!(Flow = "flow", node, flags, generation, via, syn_sequence_low);
        layout!(
            Settings = "settings",
            hash_seed,
            new_flows_max,
            new_flows_per_source_max,
            generation,
            flags,
            own_device_index,
            own_node,
            own_mac,
            zero
        );
        layout!(Count = "count", packets, bytes);
        layout!(FlowEvent = "flow_event", key, node, zero);
        facts.extend([
            ("sizeof(struct address)".to_owned(), size_of::<Address>()),
            ("_Alignof(struct address)".to_owned(), align_of::<Address>()),
            ("sizeof(struct row)".to_owned(), size_of::<Row>()),
            ("sizeof(struct network_key)".to_owned(), size_of::<NetworkKey>()),
        ]);
        facts.extend(numbers());
        facts
    }

    fn numbers() -> Vec<(String, usize)> {
        let mut numbers = vec![
            ("ROWS", ROWS),
            ("ROW_NODES", ROW_NODES),
            ("CHOICES_MAX", CHOICES_MAX),
            ("NODES_MAX", NODES_MAX),
            ("SERVICES_MAX", SERVICES_MAX),
            ("NO_NODE", NO_NODE.into()),
            ("VERDICTS", Verdict::ALL.len()),
            ("NODE_DOWN", 0),
            ("NODE_DRAINING", 1),
            ("NODE_UP", 2),
            ("MEASURE_FIRST", 0),
            ("MEASURE_TURNS", 1),
            ("MEASURE_LOAD", 2),
            ("STEERER_SELF", STEERER_SELF as usize),
            ("ADMISSION_ALLOW", ADMISSION_ALLOW as usize),
            ("ADMISSION_DENY", ADMISSION_DENY as usize),
            ("SETTING_NETWORKS", SETTING_NETWORKS as usize),
            ("SETTING_ALLOW_LISTED", SETTING_ALLOW_LISTED as usize),
            ("SETTING_STREAM", SETTING_STREAM as usize),
            ("SETTING_MOVES", SETTING_MOVES as usize),
            ("MOVE_BLOCKED", MOVE_BLOCKED.into()),
            ("MOVE_REDIRECT", MOVE_REDIRECT.into()),
            ("MOVES_MAX", crate::limits::MOVES_MAX),
            ("STEERER_DISPATCHER", steerer(Steerer::Dispatcher) as usize),
            ("STEERER_NODE", steerer(Steerer::Node) as usize),
        ];
        for verdict in Verdict::ALL {
            numbers.push((verdict.name(), *verdict as usize));
        }
        numbers.into_iter().map(|(name, number)| (name.to_uppercase(), number)).collect()
    }

    #[test]
    fn layouts_are_those_of_the_packet_programs() {
        let folder = tempfile::tempdir().unwrap();
        let mut program = format!("#include <stddef.h>\n#include {ABI:?}\n");
        for (expression, value) in facts() {
            program += &format!("_Static_assert({expression} == {value}, \"not {value}\");\n");
        }
        let source = folder.path().join("facts.c");
        fs::write(&source, program).unwrap();
        assert!(Path::new(ABI).exists());
        let Ok(output) = Command::new("cc").arg("-fsyntax-only").arg(&source).output() else {
            let _ = writeln!(stderr(), "SKIPPED: no C compiler, `cc`, to read bpf/abi.h with");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn addresses_of_both_families_come_back() {
        for text in ["192.0.2.1", "2001:db8::1", "::"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(IpAddr::from(Address::from(address)), address);
        }
    }

    #[test]
    fn networks_count_their_bits_in_the_mapped_address() {
        let key = |text: &str, bits| {
            network_key(&steer::Network { address: text.parse().unwrap(), prefix_bits: bits })
        };
        assert_eq!(key("192.0.2.77", 24).prefix_len(), 120);
        let first = Address::from("192.0.2.0".parse::<IpAddr>().unwrap());
        assert_eq!(key("192.0.2.77", 24).data(), first);
        assert_eq!(key("2001:db8::1", 128).prefix_len(), 128);
        assert_eq!(key("::", 0).data(), Address::default());
        assert_eq!(key("0.0.0.0", 0).prefix_len(), 96);
        for (text, bits) in [("192.0.2.0", 24), ("0.0.0.0", 0), ("2001:db8::", 32), ("::", 0)] {
            assert_eq!(network_text(network_bytes(&key(text, bits))), format!("{text}/{bits}"));
        }
    }

    #[test]
    fn an_event_of_another_length_is_no_event() {
        let mut record = vec![0; size_of::<FlowEvent>()];
        record[16..22].copy_from_slice(&[0x1f, 0x90, 3, 0, 7, 0]);
        let event = FlowEvent::read(&record).unwrap();
        let flow = event.key.owned_by(event.node);
        assert_eq!((flow.client.port(), flow.service, flow.node), (8080, 3, 7));
        assert_eq!(FlowEvent::read(&record[1..]), None);
    }
}
