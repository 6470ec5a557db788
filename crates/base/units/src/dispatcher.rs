//! The numbers of dispatchers, which make their epochs and purge stamps distinct.

use crate::stable_hash;

/// Bits of a dispatcher's number: in 0.04 % of clusters with the maximum of eight dispatchers, two
/// have the same number, which the config then refuses.
pub const DISPATCHER_NUMBER_BITS: u32 = u16::BITS;

/// Greatest epoch accepted from a disk or from etcd: a greater one indicates damage, since
/// dispatchers that take over every second and skip a million epochs at each start do not reach it.
/// It would leave no later epochs.
pub const EPOCH_STORED_MAX: u64 = 1 << 62;

/// Greatest epoch in a message of another machine: above any stored epoch, later ones remain.
pub const EPOCH_MAX: u64 = 2 * EPOCH_STORED_MAX;

/// The number of the dispatcher with this name: the low bits of its epochs and purge stamps. It
/// depends on the name, not on an index in a config: in a rolling restart, configs differ. No other
/// dispatcher of the cluster has the same number.
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
