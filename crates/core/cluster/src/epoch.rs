//! Epochs: the numbers of terms. The low bits are the number of the dispatcher
//! ([`dispatcher_number`](skep_units::dispatcher_number)) that is active in the term, so that two
//! dispatchers never use the same one, whatever their configs.

use skep_units::DISPATCHER_NUMBER_BITS;

const _: () = assert!(DISPATCHER_NUMBER_BITS == u16::BITS);

/// The number of the dispatcher that owns the epoch.
pub(crate) fn owner(epoch: u64) -> u16 {
    epoch as u16
}

/// The first epoch after `epoch` that belongs to `owner`.
pub(crate) fn first_after(epoch: u64, owner: u16) -> u64 {
    let after = epoch.saturating_add(1);
    after.saturating_add(u64::from(owner.wrapping_sub(after as u16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_rise_and_keep_their_owner() {
        for (epoch, number, next) in [
            (0, 0, 1 << 16),
            (0, 1, 1),
            (1, 1, 1 + (1 << 16)),
            (100, 3, 3 + (1 << 16)),
            (100, 101, 101),
            // The last one of a block of earlier builds, where epochs were numbered modulo 8.
            (520, 7, 7 + (1 << 16)),
            (5 << 16 | 9, u16::MAX, 5 << 16 | 0xffff),
        ] {
            assert_eq!(first_after(epoch, number), next, "{number} after {epoch}");
            assert_eq!(owner(next), number);
        }
    }
}
