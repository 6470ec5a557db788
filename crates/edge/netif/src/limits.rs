//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// One read of a netlink socket, in bytes: the kernel makes its answers fit
/// what the reader offers, and uses at most 32 KiB of it.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How long the kernel may take for one part of an answer. It answers within
/// the call; the bound is there so that nothing can hang for ever.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Times that a listing is begun anew because devices or addresses changed
/// under it.
pub(crate) const LISTINGS_MAX: u32 = 8;

/// Bytes of a frame that are looked at: a neighbour advertisement with its
/// options is 86 bytes; others that we want are shorter.
pub(crate) const FRAME_BYTES_MAX: usize = 512;

/// Frames that one look takes from a socket before the caller gets its thread
/// back: whoever floods the segment with ARP must not hold the guard.
pub(crate) const FRAMES_PER_LOOK_MAX: usize = 256;

/// Clients that are asked in a row, before a pause: what a link's queue takes.
pub(crate) const PROVOKED_AT_ONCE: usize = 500;

/// Pause between two such rows: in all, 50,000 clients in a second at most, whose
/// answers are as many packets.
pub(crate) const PROVOKE_PAUSE: Duration = Duration::from_millis(10);

/// Times that each client is asked: the first answer may go to a node that has not
/// heard of the failure yet, and hands it on to the one that has failed.
pub(crate) const PROVOKE_ROUNDS: u32 = 2;

/// Pause between two rounds: Linux answers one such question in 500 ms
/// (`tcp_invalid_ratelimit`).
pub(crate) const PROVOKE_AGAIN: Duration = Duration::from_millis(700);

/// Questions about an address before silence is an answer (RFC 5227 section
/// 1.1, `PROBE_NUM`).
pub(crate) const PROBES: u32 = 3;

/// Options of one neighbour discovery message that are looked at; real ones
/// have one or two.
pub(crate) const OPTIONS_MAX: usize = 16;

/// Length of a device's name, in bytes (`IFNAMSIZ` of linux/if.h, less the NUL).
pub(crate) const DEVICE_NAME_BYTES_MAX: usize = 15;
