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

/// How often a netguard that has outlived its daemon looks for its end, and one that waits for its
/// daemon whether it is gone: a restart finds two of them for so long. A look is a request to the
/// kernel for devices and addresses.
pub(crate) const LINGER_LOOK: Duration = Duration::from_secs(1);

/// Other machines that one check of this machine asks for and compares, some each 30 s: a burst of
/// requests that any device takes, and in a cluster of 1,024 nodes all of them in four minutes. What may
/// be wrong with so many is a quarter of one answer.
pub(crate) const PEERS_CHECKED_MAX: usize = 128;
