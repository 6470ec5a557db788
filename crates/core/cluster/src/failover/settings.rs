//! The settings of the failover of one dispatcher.

use skep_wire::message::{Mac, Name};

/// Settings of the failover of one dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverSettings {
    /// Its name in the config. Its [`dispatcher_number`](skep_units::dispatcher_number) must be
    /// unique.
    pub name: Name,
    /// Priority for being active when all dispatchers are healthy: the highest wins.
    pub priority: u32,
    /// MAC address of the device that gets the virtual addresses.
    pub mac: Mac,
    /// Interval of heartbeats, in milliseconds.
    pub interval_ms: u64,
    /// Consecutive missed heartbeats after which a standby takes over.
    pub missed_max: u32,
    /// Whether to take over from an active dispatcher with a lower priority.
    pub preempt: bool,
    /// How long the store may name another dispatcher while this one is active, in milliseconds:
    /// longer than the lifetime of a lease.
    pub lease_patience_ms: u64,
}
