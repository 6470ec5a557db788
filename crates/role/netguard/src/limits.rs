//! Bounds of netguard, with units and reasons.

use std::time::Duration;

/// Age up to which the last look at devices and addresses counts if no change was notified, in
/// milliseconds.
pub(crate) const LOOK_MS: u64 = 1_000;

/// Announcements of a virtual address in a row, when it is taken: a switch may
/// lose one while it learns.
pub(crate) const ANNOUNCEMENTS: u32 = 3;

/// Sources whose rate of new flows is watched at once. An LRU: of more sources
/// the most active stay.
pub(crate) const SOURCES_MAX: u32 = 65_536;

/// How long the serving process may be silent until it counts as dead or stopped: longer than an
/// upgrade restarts it, and many of its rounds of a tenth of a second.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Weight of a node in the packet programs, at most.
pub(crate) const WEIGHT_MAX: u32 = 65_536;

/// Connections whose handoff is not over, at most: 1,024 as donor and as many as receiver. Of each that a
/// donor moves netguard has a descriptor.
pub(crate) const HELD_MAX: usize = 2_048;

/// Descriptors that netguard needs beside those of connections: its clients (256), a batch of 64 that has just
/// come, maps, programs and sockets of its own.
pub(crate) const DESCRIPTORS_RESERVED: u64 = 512;

/// How long the handoff of a connection may take, in milliseconds: twice as long as a donor repeats its last
/// word. Who takes longer has forgotten it.
pub(crate) const HELD_MS_MAX: u64 = 10_000;

/// How long a connection that an earlier netguard has blocked stays so, in milliseconds after this one has
/// found it, if no process has connected: one forgets them as it begins, and a client hears within a second that its
/// connection is lost.
pub(crate) const ORPHANED_MS_MAX: u64 = 500;

/// How long any connection may be blocked, in milliseconds, whatever is known of it: more than the other two.
pub(crate) const BLOCKED_MS_MAX: u64 = 30_000;

/// How long a connection stays redirected after its last packet, in milliseconds. The dispatcher has learned
/// within a second where it is, so the packets that come here are those of a dispatcher that has lost its
/// flow table. Browsers close idle connections after 2 to 5 minutes.
pub(crate) const IDLE_MOVE_MS: u64 = 600_000;

/// How long one stays redirected at least, in milliseconds, if more are moved than the map holds: five times as
/// long as a dispatcher is told of it.
pub(crate) const IDLE_MOVE_MS_MIN: u64 = 5_000;

/// Entries that are looked at where the map is full, to find redirects that may go: all other moves wait meanwhile, 0.4 ms
/// in a debug build (`skep-datapath`'s tests print it), where a look at all 65,536 took 43 ms or more.
pub(crate) const ROOM_LOOKED: usize = 1_024;

/// Redirects of those that go at once, the eighth that was used longest ago: one look for as many moves.
pub(crate) const ROOM_MOVES: usize = ROOM_LOOKED / 8;

/// Time between two looks, if there was none, in milliseconds: some hundredths of the thread's time, however many moves
/// are asked for.
pub(crate) const ROOM_MS: u64 = 10;

/// How often the thread of handoffs looks at the ages of those that are not over; a tenth of what a client
/// may wait.
pub(crate) const HANDOFF_LOOK: Duration = Duration::from_millis(100);

/// The same while there are none: for a program that was loaded, and for the end.
pub(crate) const HANDOFF_LOOK_IDLE: Duration = Duration::from_secs(1);

/// How often idle redirects are looked for: 65,536 entries take milliseconds.
pub(crate) const MOVES_LOOK: Duration = Duration::from_secs(30);

/// Packet programs that the thread of handoffs has not heard of yet, at most: it hears within a second, and
/// a program is loaded when the serving process starts or a device has changed.
pub(crate) const PROGRAMS_MAX: usize = 64;

/// How often a netguard that has outlived its daemon looks for its end, and one that waits for its
/// daemon whether it is gone: a restart finds two of them for so long. A look is a request to the
/// kernel for devices and addresses.
pub(crate) const LINGER_LOOK: Duration = Duration::from_secs(1);

/// Other machines that one check of this machine asks for and compares, some each 30 s: a burst of
/// requests that any device takes, and in a cluster of 1,024 nodes all of them in four minutes. What may
/// be wrong with so many is a quarter of one answer.
pub(crate) const PEERS_CHECKED_MAX: usize = 128;
