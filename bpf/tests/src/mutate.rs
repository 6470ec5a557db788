//! Packets that nobody would think of: named ones with a few changes, and now
//! and then bytes of no plan at all. All follows from a seed.

use std::net::Ipv6Addr;

use skep_steer::{Move, MoveKey, NetworkAccess, Tables};
use skep_units::Rng;
use skep_wire::steer::Network;

use crate::fixtures;
use crate::frames::IP_AT;
use crate::machine::Program;
use crate::world::{
    BACKWARDS, CHAIN, CLIENT, CLIENT6, HTTP, LEAVING, OWN_MAC, STANDBY_MAC, VIP, VIP6, node_mac,
};

/// Where headers lie; most changes fall there.
const HEADER_BYTES: u64 = 110;

/// Longer frames cost time and teach nothing new.
const FRAME_BYTES_MAX: usize = 3_000;

/// Values that sit at edges.
const EDGES: [u8; 12] = [0, 1, 4, 5, 6, 17, 20, 0x45, 0x60, 0x7f, 0x80, 0xff];

/// Makes packets of one program.
pub struct Mutator {
    frames: Vec<Vec<u8>>,
    rng: Rng,
}

impl Mutator {
    /// Begins with the fixtures of a program.
    pub fn new(program: Program) -> Self {
        let mut frames = fixtures::frames(program);
        frames.retain(|frame| frame.len() <= FRAME_BYTES_MAX);
        Self { frames, rng: Rng::new(0) }
    }

    /// From here on all follows from `seed`.
    pub fn seed(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
    }

    /// The tables of a batch: the usual ones, in some ways different.
    pub fn tables(&mut self, base: &Tables) -> Tables {
        let mut tables = base.clone();
        tables.settings.hash_seed = self.rng.next_u64();
        tables.settings.is_streaming = self.chance(2);
        tables.settings.is_allow_listed = self.chance(8);
        if self.chance(2) {
            for address in [CLIENT.into(), CLIENT6.into()] {
                let bits = if CLIENT == address { 32 } else { 128 };
                let prefix_bits = self.rng.below(bits + 1) as u8;
                let admission =
                    if self.chance(3) { NetworkAccess::Deny } else { NetworkAccess::Allow };
                tables.networks.push((Network { address, prefix_bits }, admission));
            }
        }
        tables.settings.has_moves = !self.chance(3);
        for port in [CHAIN, LEAVING, BACKWARDS] {
            self.move_connection(&mut tables, CLIENT.to_ipv6_mapped(), VIP.to_ipv6_mapped(), port);
        }
        self.move_connection(&mut tables, CLIENT6, VIP6, HTTP);
        for node in tables.nodes.values_mut() {
            if self.rng.below(8) == 0 {
                node.is_local = !node.is_local;
            }
            if self.rng.below(8) == 0 {
                node.mtu = self.rng.below(1600) as u32;
            }
        }
        tables
    }

    /// Makes a connection of the fixtures one that is handed off, mostly to a node that there is.
    fn move_connection(&mut self, tables: &mut Tables, client: Ipv6Addr, vip: Ipv6Addr, port: u16) {
        let key = MoveKey { client, vip, client_port: 4000, vip_port: port };
        let fate = match self.rng.below(4) {
            0 => return,
            1 => Move::Blocked,
            _ => Move::Redirect(self.rng.below(10) as u16),
        };
        tables.moves.insert(key, fate);
    }

    /// Limits that are soon met, for machines that can be told the time.
    pub fn limit(&mut self, tables: &mut Tables) {
        tables.settings.new_flows_max = self.rng.below(40);
        tables.settings.new_flows_per_source_max = self.rng.below(10);
    }

    /// Nanoseconds until the next packet.
    pub fn pause_ns(&mut self) -> u64 {
        self.rng.below(50_000_000)
    }

    /// A packet.
    pub fn frame(&mut self) -> Vec<u8> {
        if self.chance(50) {
            return self.noise();
        }
        let mut frame = self.any_frame();
        for _ in 0..self.rng.below(4) {
            self.change(&mut frame);
        }
        frame
    }

    fn change(&mut self, frame: &mut Vec<u8>) {
        match self.rng.below(10) {
            0 | 1 => self.flip_bit(frame),
            2 => {
                let byte = self.rng.next_u64() as u8;
                self.set(frame, &[byte]);
            }
            3 => {
                let edge = EDGES[self.rng.below(EDGES.len() as u64) as usize];
                self.set(frame, &[edge]);
            }
            4 => {
                let length = self.rng.below(frame.len() as u64 + 1) as usize;
                frame.truncate(length);
            }
            5 => {
                let more = self.rng.below(40) as usize;
                let byte = self.rng.next_u64() as u8;
                frame.resize(frame.len() + more, byte);
            }
            6 | 7 => self.lie(frame),
            8 => self.change_sender(frame),
            _ => self.splice(frame),
        }
    }

    /// A length that is off by a little or by all.
    fn lie(&mut self, frame: &mut [u8]) {
        // Of IPv4, IPv6, UDP in IPv4, UDP in IPv6; and header lengths.
        let places = [IP_AT + 2, IP_AT + 4, IP_AT + 24, IP_AT + 44, IP_AT, IP_AT + 32, IP_AT + 52];
        let at = places[self.rng.below(places.len() as u64) as usize];
        let Some(bytes) = frame.get_mut(at..at + 2) else { return };
        let old = u16::from_be_bytes([bytes[0], bytes[1]]);
        let new = match self.rng.below(4) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => self.rng.below(100) as u16,
            _ => self.rng.next_u64() as u16,
        };
        bytes.copy_from_slice(&new.to_be_bytes());
    }

    fn change_sender(&mut self, frame: &mut [u8]) {
        let sender = match self.rng.below(4) {
            0 => OWN_MAC,
            1 => STANDBY_MAC,
            _ => node_mac(self.rng.below(8) as u16),
        };
        if let Some(bytes) = frame.get_mut(6..12) {
            bytes.copy_from_slice(&sender);
        }
    }

    /// The head of this one, the rest of another.
    fn splice(&mut self, frame: &mut Vec<u8>) {
        let other = self.any_frame();
        let length = self.rng.below(frame.len().min(other.len()) as u64 + 1) as usize;
        frame.truncate(length);
        frame.extend(&other[length..]);
    }

    fn flip_bit(&mut self, frame: &mut [u8]) {
        let at = self.place(frame);
        let bit = self.rng.below(8);
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn set(&mut self, frame: &mut [u8], bytes: &[u8]) {
        let at = self.place(frame);
        if let Some(place) = frame.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Past Ethernet's destination, for us; most of the rest is in headers.
    fn place(&mut self, frame: &[u8]) -> usize {
        let length = (frame.len() as u64).min(HEADER_BYTES);
        if length <= 12 || self.chance(20) {
            return self.rng.below(frame.len() as u64 + 1) as usize;
        }
        (6 + self.rng.below(length - 6)) as usize
    }

    fn any_frame(&mut self) -> Vec<u8> {
        self.frames[self.rng.below(self.frames.len() as u64) as usize].clone()
    }

    fn noise(&mut self) -> Vec<u8> {
        let length = self.rng.below(200) as usize;
        let mut frame: Vec<u8> = (0..length).map(|_| self.rng.next_u64() as u8).collect();
        if let Some(to) = frame.get_mut(..6) {
            to.copy_from_slice(&OWN_MAC);
        }
        if let Some(ethertype) = frame.get_mut(12..14) {
            ethertype.copy_from_slice(if length.is_multiple_of(2) {
                &[8, 0]
            } else {
                &[0x86, 0xdd]
            });
        }
        frame
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.rng.below(one_in) == 0
    }
}
