//! Messages longer than a datagram: split into parts, and reassembled
//! from parts that arrive late, twice, in any order, or never.
//!
//! ```text
//! 0 message   8 part   10 parts   12 bytes ...
//! ```
//!
//! A message's number is the hash of its bytes, so the parts of a retransmitted
//! message complete those that arrived before. All parts but the last have
//! the same length. Numbers are little-endian.
//!
//! Invariant: incomplete messages never take more than [`PARTIALS_BYTES_MAX`];
//! the oldest ones are dropped first.

use std::collections::VecDeque;

use skep_units::stable_hash;

use crate::limits::{MESSAGE_BYTES_MAX, PARTIALS_BYTES_MAX, PARTIALS_MAX};
use crate::seal::{BODY_BYTES_MAX, PeerId};

/// Bytes of a message in each part but the last.
pub const PART_BYTES: usize = BODY_BYTES_MAX - HEAD_BYTES;

const HEAD_BYTES: usize = 12;
const PARTS_MAX: usize = MESSAGE_BYTES_MAX.div_ceil(PART_BYTES);
const HASH_SEED: u64 = 0x736b_6570;

/// A message is longer than [`MESSAGE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes is longer than {MESSAGE_BYTES_MAX}")]
pub struct MessageTooLong {
    pub bytes: usize,
}

/// A body is not a valid part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no part of a message")]
pub struct NotAPart;

/// Returns the bodies of the datagrams that carry `message`.
pub fn split(message: &[u8]) -> Result<Vec<Vec<u8>>, MessageTooLong> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(MessageTooLong { bytes: message.len() });
    }
    let hash = stable_hash(message, HASH_SEED);
    let count = message.len().div_ceil(PART_BYTES).max(1);
    let body = |number: usize| {
        let from = number * PART_BYTES;
        let bytes = &message[from..message.len().min(from + PART_BYTES)];
        let mut body = Vec::with_capacity(HEAD_BYTES + bytes.len());
        body.extend_from_slice(&hash.to_le_bytes());
        body.extend_from_slice(&(number as u16).to_le_bytes());
        body.extend_from_slice(&(count as u16).to_le_bytes());
        body.extend_from_slice(bytes);
        body
    };
    Ok((0..count).map(body).collect())
}

/// Reassembles the messages of all senders.
#[derive(Clone, Debug, Default)]
pub struct Reassembler {
    /// Oldest first.
    partials: VecDeque<Partial>,
}

/// A message with missing parts.
#[derive(Clone, Debug)]
struct Partial {
    from: PeerId,
    hash: u64,
    /// Each part, once received.
    parts: Vec<Option<Box<[u8]>>>,
    missing: usize,
}

/// A received part.
struct Part<'a> {
    hash: u64,
    number: usize,
    count: usize,
    bytes: &'a [u8],
}

impl Reassembler {
    /// Processes the body of a datagram; returns the message if this was its last missing part.
    pub fn take(&mut self, from: PeerId, body: &[u8]) -> Result<Option<Vec<u8>>, NotAPart> {
        let part = Part::read(body).ok_or(NotAPart)?;
        if part.count == 1 {
            return Self::checked(part.bytes.to_vec(), part.hash).map(Some);
        }
        let at = self.place(from, &part);
        let partial = &mut self.partials[at];
        partial.put(&part);
        if partial.missing > 0 {
            return Ok(None);
        }
        let done = self.partials.remove(at).map(|partial| partial.parts);
        let message = done.into_iter().flatten().flatten().flatten().collect();
        Self::checked(message, part.hash).map(Some)
    }

    /// The number of incomplete messages.
    pub fn partials(&self) -> usize {
        self.partials.len()
    }

    /// The index of this message's partial; creates one if necessary.
    fn place(&mut self, from: PeerId, part: &Part<'_>) -> usize {
        let is_it = |partial: &Partial| {
            (partial.from, partial.hash, partial.parts.len()) == (from, part.hash, part.count)
        };
        if let Some(at) = self.partials.iter().position(is_it) {
            return at;
        }
        let room = PARTIALS_BYTES_MAX - part.count * PART_BYTES;
        while self.partials.len() >= PARTIALS_MAX || self.bytes_max() > room {
            self.partials.pop_front();
        }
        let parts = vec![None; part.count];
        self.partials.push_back(Partial { from, hash: part.hash, parts, missing: part.count });
        self.partials.len() - 1
    }

    /// Bytes of all partials once complete, at most.
    fn bytes_max(&self) -> usize {
        self.partials.iter().map(|partial| partial.parts.len() * PART_BYTES).sum()
    }

    fn checked(message: Vec<u8>, hash: u64) -> Result<Vec<u8>, NotAPart> {
        if stable_hash(&message, HASH_SEED) == hash { Ok(message) } else { Err(NotAPart) }
    }
}

impl Partial {
    fn put(&mut self, part: &Part<'_>) {
        let place = &mut self.parts[part.number];
        if place.is_none() {
            *place = Some(part.bytes.into());
            self.missing -= 1;
        }
    }
}

impl<'a> Part<'a> {
    /// Reads a part; `None` if its number and length do not fit its message.
    fn read(body: &'a [u8]) -> Option<Self> {
        let (hash, rest) = body.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk::<2>()?;
        let (count, bytes) = rest.split_first_chunk::<2>()?;
        let number = usize::from(u16::from_le_bytes(*number));
        let count = usize::from(u16::from_le_bytes(*count));
        let is_last = number + 1 == count;
        let fits = match bytes.len() {
            PART_BYTES => true,
            0 => is_last && count == 1,
            fewer => is_last && fewer < PART_BYTES,
        };
        let is_part = number < count && count <= PARTS_MAX && fits;
        is_part.then_some(Self { hash: u64::from_le_bytes(*hash), number, count, bytes })
    }
}

const _: () = assert!(PARTS_MAX <= u16::MAX as usize);
const _: () = assert!(PARTS_MAX * PART_BYTES <= PARTIALS_BYTES_MAX);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    use skep_units::Rng;

    const A: PeerId = PeerId(1);

    fn message(bytes: usize, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        (0..bytes).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn every_length_comes_back_in_any_order() {
        let mut rng = Rng::new(1);
        let around = |n: usize| [n - 1, n, n + 1];
        let lengths = [around(PART_BYTES), around(2 * PART_BYTES), around(MESSAGE_BYTES_MAX - 1)];
        for bytes in lengths.concat().into_iter().chain([0, 1, 100]) {
            let message = message(bytes, bytes as u64);
            let mut bodies = split(&message).unwrap();
            assert!(bodies.iter().all(|body| body.len() <= BODY_BYTES_MAX));
            for at in (1..bodies.len()).rev() {
                bodies.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let mut reassembler = Reassembler::default();
            let last = bodies.pop().unwrap();
            for body in &bodies {
                assert_eq!(reassembler.take(A, body), Ok(None));
                assert_eq!(reassembler.take(A, body), Ok(None), "twice");
            }
            assert_eq!(reassembler.take(A, &last), Ok(Some(message)), "{bytes} bytes");
            assert_eq!(reassembler.partials(), 0);
        }
        let bytes = MESSAGE_BYTES_MAX + 1;
        assert_eq!(split(&vec![0; bytes]), Err(MessageTooLong { bytes }));
    }

    #[test]
    fn a_message_sent_again_completes_what_was_lost() {
        let message = message(10 * PART_BYTES, 3);
        let (mut reassembler, mut rng) = (Reassembler::default(), Rng::new(5));
        for _ in 0..100 {
            for body in split(&message).unwrap() {
                let is_lost = rng.below(2) == 0;
                let taken = if is_lost { Ok(None) } else { reassembler.take(A, &body) };
                if let Some(whole) = taken.unwrap() {
                    return assert_eq!(whole, message);
                }
            }
        }
        panic!("half of the parts of 100 sendings were not enough");
    }

    #[test]
    fn beginnings_are_bounded_and_the_oldest_goes() {
        let mut reassembler = Reassembler::default();
        let first = split(&message(2 * PART_BYTES, 0)).unwrap();
        assert_eq!(reassembler.take(A, &first[0]), Ok(None));
        for seed in 1..1_000 {
            let bodies = split(&message(MESSAGE_BYTES_MAX, seed)).unwrap();
            assert_eq!(reassembler.take(PeerId(seed), &bodies[0]), Ok(None));
            assert!(reassembler.partials() <= PARTIALS_MAX);
            assert!(reassembler.bytes_max() <= PARTIALS_BYTES_MAX);
            if seed > 300 {
                break;
            }
        }
        assert_eq!(reassembler.take(A, &first[1]), Ok(None), "its beginning is gone");
    }

    #[test]
    fn what_contradicts_itself_is_no_part() {
        let part = |number: u16, count: u16, bytes: usize| {
            let mut body = vec![0; 8];
            body.extend(number.to_le_bytes());
            body.extend(count.to_le_bytes());
            body.extend(vec![0; bytes]);
            body
        };
        for (number, count, bytes) in [
            (0, 0, 5),
            (1, 1, 5),
            (0, 2, 5),
            (0, 2, PART_BYTES + 1),
            (1, 2, 0),
            (1, 2, PART_BYTES + 1),
            (0, 1, 5), // wrong hash
            (0, u16::MAX, PART_BYTES),
        ] {
            let taken = Reassembler::default().take(A, &part(number, count, bytes));
            assert_eq!(taken, Err(NotAPart), "{number} of {count}, {bytes} bytes");
        }
        for bytes in 0..12 {
            assert_eq!(Reassembler::default().take(A, &vec![0; bytes]), Err(NotAPart));
        }
    }
}
