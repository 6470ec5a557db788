//! Handoff information: what the receiver must know of a connection to continue it.
//!
//! ```text
//!  0 send_next 4      4 receive_next 4    8 mss_clamp 2    10 flags 1     11 send scale 1
//! 12 receive scale 1  13 moves 1         14 accepted_by 2  16 timestamp 4
//! 20 window: send_updated_at 4, send 4, send_max 4, receive 4, receive_updated_at 4
//! 40 congestion window 4   44 rtt_us 4   48 bytes of received 2   50 bytes of read_ahead 2
//! 52 received ..., read_ahead ...
//! ```
//!
//! Flags: 1 SACK, 2 window scales, 4 timestamp; fields without their flag are 0. Numbers are little-endian.

use super::bytes::Reader;
use super::tcp::{TcpOptions, TcpState, TcpWindow, WindowScales};
use crate::limits::{HANDOFF_INFO_HEAD_BYTES, HANDOFF_QUEUE_BYTES_MAX, MOVES_MAX};
use crate::steer::{NodeIndex, is_index};

/// Largest window scale (RFC 7323 2.3).
const WINDOW_SCALE_MAX: u8 = 14;

const HAS_SACK: u8 = 1;
const HAS_SCALES: u8 = 2;
const HAS_TIMESTAMP: u8 = 4;

/// The information sent with an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffInfo {
    pub tcp: TcpState,
    /// Bytes of the connection that the donor has read and that are still to be answered: they
    /// precede those of the receive queue.
    pub read_ahead: Vec<u8>,
    /// Moves of the connection including this one, from 1 to [`MOVES_MAX`].
    pub moves: u8,
    /// The node that accepted it from the client.
    pub accepted_by: NodeIndex,
}

/// The bytes are not handoff information, or it exceeds its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no handoff information")]
pub struct NotAnInfo;

impl HandoffInfo {
    /// Whether it may be sent: the queue is within its bound, and window scales and count of moves
    /// are valid.
    pub fn is_sound(&self) -> bool {
        let scales = self.tcp.options.window_scales;
        let is_scale = |scale: u8| scale <= WINDOW_SCALE_MAX;
        self.tcp.received.len() + self.read_ahead.len() <= HANDOFF_QUEUE_BYTES_MAX
            && scales.is_none_or(|it| is_scale(it.send) && is_scale(it.receive))
            && (1..=MOVES_MAX).contains(&self.moves)
            && is_index(self.accepted_by)
    }

    /// Encodes information that [is sound](Self::is_sound).
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.is_sound(), "handoff information beyond its bounds: {self:?}");
        let TcpState { options, window, received, .. } = &self.tcp;
        let queue = received.len() + self.read_ahead.len();
        let mut bytes = Vec::with_capacity(HANDOFF_INFO_HEAD_BYTES + queue);
        let mut put = |field: &[u8]| bytes.extend_from_slice(field);
        put(&self.tcp.send_next.to_le_bytes());
        put(&self.tcp.receive_next.to_le_bytes());
        put(&self.tcp.mss_clamp.to_le_bytes());
        let scales = options.window_scales.unwrap_or(WindowScales { send: 0, receive: 0 });
        put(&[flags(options), scales.send, scales.receive, self.moves]);
        put(&self.accepted_by.to_le_bytes());
        put(&options.timestamp.unwrap_or(0).to_le_bytes());
        for number in [
            window.send_updated_at,
            window.send,
            window.send_max,
            window.receive,
            window.receive_updated_at,
            self.tcp.congestion_window,
            self.tcp.rtt_us,
        ] {
            put(&number.to_le_bytes());
        }
        put(&(received.len() as u16).to_le_bytes());
        put(&(self.read_ahead.len() as u16).to_le_bytes());
        put(received);
        put(&self.read_ahead);
        bytes
    }

    /// Decodes the information that occupies all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotAnInfo> {
        let mut reader = Reader(bytes);
        let info = Self::read(&mut reader).ok_or(NotAnInfo)?;
        let is_it = reader.0.is_empty() && info.is_sound();
        is_it.then_some(info).ok_or(NotAnInfo)
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (send_next, receive_next, mss_clamp) = (from.u32()?, from.u32()?, from.u16()?);
        let [flags, send, receive, moves] = from.array()?;
        let (accepted_by, timestamp) = (from.u16()?, from.u32()?);
        let window = TcpWindow {
            send_updated_at: from.u32()?,
            send: from.u32()?,
            send_max: from.u32()?,
            receive: from.u32()?,
            receive_updated_at: from.u32()?,
        };
        let (congestion_window, rtt_us) = (from.u32()?, from.u32()?);
        let (received, read_ahead) = (usize::from(from.u16()?), usize::from(from.u16()?));
        let received = from.take(received)?.to_vec();
        let read_ahead = from.take(read_ahead)?.to_vec();
        let options = options(flags, WindowScales { send, receive }, timestamp)?;
        let tcp = TcpState {
            send_next,
            receive_next,
            mss_clamp,
            options,
            window,
            congestion_window,
            rtt_us,
            received,
        };
        Some(Self { tcp, read_ahead, moves, accepted_by })
    }
}

fn flags(options: &TcpOptions) -> u8 {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(options.sack, HAS_SACK)
        | flag(options.window_scales.is_some(), HAS_SCALES)
        | flag(options.timestamp.is_some(), HAS_TIMESTAMP)
}

/// Decodes the options; `None` if a flag is unknown, or a value is without its flag.
fn options(flags: u8, scales: WindowScales, timestamp: u32) -> Option<TcpOptions> {
    let has = |flag: u8| flags & flag != 0;
    let is_known = flags & !(HAS_SACK | HAS_SCALES | HAS_TIMESTAMP) == 0;
    let is_plain = (has(HAS_SCALES) || scales == WindowScales { send: 0, receive: 0 })
        && (has(HAS_TIMESTAMP) || timestamp == 0);
    (is_known && is_plain).then(|| TcpOptions {
        sack: has(HAS_SACK),
        window_scales: has(HAS_SCALES).then_some(scales),
        timestamp: has(HAS_TIMESTAMP).then_some(timestamp),
    })
}

const _: () = assert!(HANDOFF_QUEUE_BYTES_MAX <= u16::MAX as usize);
