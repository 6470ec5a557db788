//! Every bound of this crate, with unit and reason.

use std::time::Duration;

/// Size of one read from a netlink socket, in bytes: the kernel fits its answers to the reader's buffer, and
/// uses at most 32 KiB of it.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Timeout for one part of the kernel's answer. The kernel answers within the call; the limit prevents an
/// endless wait.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum number of restarts of a listing because devices or addresses changed meanwhile.
pub(crate) const LISTINGS_MAX: u32 = 8;

/// Bytes of a frame that are parsed: a neighbour advertisement with its options is 86 bytes; other
/// relevant frames are shorter.
pub(crate) const FRAME_BYTES_MAX: usize = 512;

/// Maximum number of frames that one call reads from a socket before it returns: a flood of ARP on the
/// segment must not block netguard.
pub(crate) const FRAMES_PER_LOOK_MAX: usize = 256;

/// Clients that are probed in a burst before a pause: the capacity of a link's queue.
pub(crate) const BURST_CLIENTS: usize = 500;

/// Pause between two bursts: it limits the rate to 50,000 clients a second, whose answers are as many
/// packets.
pub(crate) const BURST_PAUSE: Duration = Duration::from_millis(10);

/// Pause before each round of probes. The second is for answers that were steered to a node that had not learned of the
/// failure, and handed them on to the failed one; at least 500 ms later, as Linux answers one such segment in
/// that time (`tcp_invalid_ratelimit`). The third is for nodes so busy that they apply a table seconds late.
pub(crate) const ROUND_PAUSES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(700), Duration::from_millis(2_300)];

/// Number of probes for an address before silence means that nobody has it (RFC 5227 section 1.1,
/// `PROBE_NUM`).
pub(crate) const PROBES: u32 = 3;

/// Maximum number of options of one neighbour discovery message that are parsed; real messages have one or
/// two.
pub(crate) const OPTIONS_MAX: usize = 16;

/// Maximum length of a device's name, in bytes (`IFNAMSIZ` of linux/if.h, less the NUL).
pub(crate) const DEVICE_NAME_BYTES_MAX: usize = 15;
