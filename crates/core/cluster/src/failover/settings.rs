//! The settings of the failover of one dispatcher.

use skep_wire::message::{Mac, Name};

/// Settings of the failover of one dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverSettings {
    /// Its name in the config. Its [`dispatcher_number`](skep_units::dispatcher_number) is that of no
    /// other.
    pub name: Name,
    /// Preference for being active when all dispatchers are well: the highest wins.
    pub priority: u32,
    /// Of the device that gets the virtual addresses.
    pub mac: Mac,
    /// Time from one heartbeat to the next, in milliseconds.
    pub interval_ms: u64,
    /// Heartbeats missed in a row after which a standby takes over.
    pub missed_max: u32,
    /// Whether to take over from an active one of lower priority.
    pub preempt: bool,
    /// How long the store may name another dispatcher while this one is
    /// active, in milliseconds: more than the lifetime of a lease there.
    pub lease_patience_ms: u64,
}
