//! Bounds of netguard, with units and reasons.

use std::time::Duration;

/// Maximum age, in milliseconds, of the last look at devices and addresses that is used again if no
/// change was notified.
pub(crate) const LOOK_MS: u64 = 1_000;

/// The number of consecutive announcements of a virtual address when it is claimed: a switch may lose one
/// while it learns.
pub(crate) const ANNOUNCEMENTS: u32 = 3;

/// The number of sources whose rate of new flows is tracked at once. An LRU map: the most active of more
/// sources stay.
pub(crate) const SOURCES_MAX: u32 = 65_536;

/// How long the serving process may send no order until it counts as dead or stopped: longer than its
/// restart by an upgrade takes, and many of its rounds of 0.1 s.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Maximum weight of a node in the packet programs.
pub(crate) const WEIGHT_MAX: u32 = 65_536;

/// Maximum number of connections in handoffs: 1,024 as donor and as many as receiver. Netguard has a
/// descriptor of each that a donor moves.
pub(crate) const HELD_MAX: usize = 2_048;

/// Descriptors that netguard needs in addition to those of connections: for its clients (256), a batch of
/// 64 just received, and its own maps, programs and sockets.
pub(crate) const DESCRIPTORS_RESERVED: u64 = 512;

/// How long the handoff of a connection may take, in milliseconds: twice as long as a donor repeats its
/// last message. A process that takes longer has forgotten the handoff.
pub(crate) const HELD_MS_MAX: u64 = 10_000;

/// How long a connection that an earlier netguard blocked stays blocked, in milliseconds after this one
/// has found it, if no process connects: a process that starts makes netguard forget such connections, and
/// otherwise the client should detect the loss within a second.
pub(crate) const ORPHANED_MS_MAX: u64 = 500;

/// How long any connection may be blocked, in milliseconds, whatever is known about it: longer than the
/// other two limits.
pub(crate) const BLOCKED_MS_MAX: u64 = 30_000;

/// How long a connection stays redirected after its last packet, in milliseconds. The dispatcher has
/// learned its new node within a second, so packets that still arrive here are from a dispatcher that lost
/// its flow table. Browsers close idle connections after 2 to 5 minutes.
pub(crate) const IDLE_MOVE_MS: u64 = 600_000;

/// Minimum time that a connection stays redirected, in milliseconds, if more are moved than the map
/// holds: five times as long as its dispatcher is notified.
pub(crate) const IDLE_MOVE_MS_MIN: u64 = 5_000;

/// The number of entries examined when the map is full, to find redirects that may be removed. All other
/// moves wait meanwhile: 0.4 ms in a debug build (printed by `skep-datapath`'s tests), while examining all
/// 65,536 took 43 ms or more.
pub(crate) const ROOM_LOOKED: usize = 1_024;

/// The number of redirects removed at once, the eighth of the examined entries that was least recently
/// used: one examination for as many moves.
pub(crate) const ROOM_MOVES: usize = ROOM_LOOKED / 8;

/// Interval between two examinations after one that found nothing, in milliseconds: some hundredths of
/// the thread's time, however many moves are requested.
pub(crate) const ROOM_MS: u64 = 10;

/// How often the thread for handoffs checks the ages of those in progress; a tenth of the time that a
/// client may wait.
pub(crate) const HANDOFF_LOOK: Duration = Duration::from_millis(100);

/// The same interval while there are none, to notice a newly loaded program and the end.
pub(crate) const HANDOFF_LOOK_IDLE: Duration = Duration::from_secs(1);

/// How often idle redirects are searched for: a scan of 65,536 entries takes milliseconds.
pub(crate) const MOVES_LOOK: Duration = Duration::from_secs(30);

/// Maximum number of packet programs that the thread for handoffs has not received yet: it receives them
/// within a second, and a program is loaded when the serving process starts or a device has changed.
pub(crate) const PROGRAMS_MAX: usize = 64;

/// How often a netguard that has outlived its daemon checks whether it may end, and one that waits for
/// its daemon whether that is gone: after a restart there are two of them for this long. A check requests
/// devices and addresses from the kernel.
pub(crate) const LINGER_LOOK: Duration = Duration::from_secs(1);

/// The number of other machines that one check of this machine, some every 30 s, queries and compares: a
/// burst of requests that any device handles, and in a cluster of 1,024 nodes all of them in four minutes.
/// The possible faults of so many fill a quarter of one answer.
pub(crate) const PEERS_CHECKED_MAX: usize = 128;

/// Failures whose clients are probed at the same time, each by a thread: 3 s of pauses, and 3 s per 50,000
/// connections. A rack of nodes may fail within that time, one order for each.
pub(crate) const PROVOKING_MAX: usize = 128;
