//! The numbers of dispatchers, which keep their epochs and purge stamps apart.

use crate::stable_hash;

/// Bits of a dispatcher's number: of the eight dispatchers that a cluster may have, two have the same
/// one in 0.04 % of clusters, which the config then refuses.
pub const DISPATCHER_NUMBER_BITS: u32 = u16::BITS;

/// Greatest epoch that is believed of a disk or of etcd: a later one is damage, as dispatchers that
/// take over every second and skip a million epochs at each start do not get there. It would leave
/// no later ones.
pub const EPOCH_STORED_MAX: u64 = 1 << 62;

/// Greatest epoch in a message of another machine: whatever was stored, there are later ones.
pub const EPOCH_MAX: u64 = 2 * EPOCH_STORED_MAX;

/// The number of the dispatcher of this name: the low bits of its epochs and purge stamps. It belongs
/// to the name, not to a position in a config: in a rolling restart, configs differ. No other
/// dispatcher of the cluster has it.
pub fn dispatcher_number(name: &str) -> u16 {
    stable_hash(name.as_bytes(), 0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pinned_because_machines_must_agree() {
        assert_eq!(["gate-1", "gate-2"].map(dispatcher_number), [6_540, 57_123]);
    }
}
