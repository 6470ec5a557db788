//! Every limit of the test bed, with its unit and its reason.

/// Clients of a bed. Addresses of the plan run out first.
pub const CLIENTS_MAX: usize = 16;

/// Dispatchers of a bed: an active one and as many standbys as anybody tries.
pub const DISPATCHERS_MAX: usize = 8;

/// Nodes of a bed. A machine costs a process, two devices and some 10 ms.
pub const NODES_MAX: usize = 64;

/// Virtual addresses of a bed: what the plan has left of a /25.
pub const VIPS_MAX: usize = 20;

/// Beds on one machine at once: the /24 networks of 198.18.0.0/15 (RFC 2544,
/// appendix C.2.2).
pub(crate) const SLOTS: u16 = 512;

/// Buckets of a machine's table of TCP connections: enough for the tens of thousands of connections of a test, and few
/// enough to walk quickly.
pub(crate) const TCP_TABLE_BUCKETS: u32 = 8_192;

/// How long a link may take until the bridge forwards, in milliseconds. It
/// takes a few; a link that takes so long never comes.
pub(crate) const LINK_READY_MS: u64 = 10_000;

/// How long a killed process may take to go, in milliseconds. More means that
/// it hangs in the kernel.
pub(crate) const KILL_MS: u64 = 10_000;

/// Pause between two looks at something that is about to happen, in
/// milliseconds.
pub(crate) const POLL_MS: u64 = 2;

/// Period over which a CPU quota counts by default, in microseconds. Short, so that a
/// throttled machine is slow and not dead for a moment, yet 1 % of a core is
/// still above the kernel's least quota of 1,000 us.
pub(crate) const CPU_PERIOD_US: u64 = 100_000;

/// Longest such period, in microseconds, and the least quota in one: the kernel's own bounds.
pub(crate) const CPU_PERIOD_US_MAX: u64 = 1_000_000;
pub(crate) const CPU_QUOTA_US_MIN: u64 = 1_000;

/// Most weight of a control group beside others, in version 1 and in version 2 of them.
pub(crate) const CPU_SHARES_MAX: u64 = 262_144;
pub(crate) const CPU_WEIGHT_MAX: u64 = 10_000;

/// Least CPU quota of a machine, in cores: the kernel's 1 ms of a default period.
pub(crate) const CPU_CORES_MIN: f64 = 0.01;

/// Most CPU quota, in cores: what no machine of ours exceeds.
pub(crate) const CPU_CORES_MAX: f64 = 1024.0;

/// Least rate of a link, in bits per second: a full frame passes in 1.5 s.
pub(crate) const RATE_BITS_S_MIN: u64 = 8_000;

/// Longest wait in the queue of a link with a rate, in milliseconds; more is
/// dropped, as a switch does.
pub(crate) const QUEUE_MS: u64 = 50;

/// A long frame of Ethernet, in bytes: by it queues are told in frames.
pub(crate) const FRAME_BYTES: u64 = 1514;

/// Least length of such a queue, in frames: a first flight of TCP, twice.
pub(crate) const FRAMES_QUEUED_MIN: u64 = 20;

/// Least bucket of a link with a rate, in bytes: a frame and its like, which
/// `tc` demands to be above the MTU.
pub(crate) const BUCKET_BYTES_MIN: u64 = 16 * 1024;

/// Parts that a loss is told in: 1 is one in a million.
pub(crate) const LOSS_PARTS: u32 = 1_000_000;

/// Longest time that a relay holds a packet back, in microseconds: more is a loss to most protocols.
pub(crate) const LATE_US_MAX: u32 = 1_000_000;

/// Packets that may wait for a relay: some 100 ms of what it gets through.
pub(crate) const RELAY_QUEUE_PACKETS: u32 = 10_000;

/// Packets that a relay reads before it looks at those that it holds back: a fraction of a millisecond.
pub(crate) const RELAY_BATCH_PACKETS: usize = 64;

/// Longest packet of a TUN device, in bytes: that of IP.
pub(crate) const PACKET_BYTES_MAX: usize = 65_535;
