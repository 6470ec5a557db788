//! The part of a hash that is stored.

use crate::limits::{RANK_MAX, REGISTER_BITS};

/// The register that a hash is mapped to, and its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Below [`crate::limits::REGISTERS`].
    pub register: usize,
    /// 1 to [`RANK_MAX`]: one more than the number of leading zeros in the rest of the hash.
    pub(crate) rank: u8,
}

impl Observation {
    /// The observation of a hash with uniformly random bits, whose key must be unknown to those who
    /// are counted: otherwise they could choose high ranks.
    pub fn of(hash: u64) -> Self {
        // The lowest bit of the shifted rest ends the count if all bits are 0.
        let rest = hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1);
        let rank = rest.leading_zeros() as u8 + 1;
        assert!(rank <= RANK_MAX, "the rest has {RANK_MAX} bits and an end");
        Self { register: (hash >> (64 - REGISTER_BITS)) as usize, rank }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REGISTERS;

    #[test]
    fn the_rank_is_where_the_first_one_stands() {
        let of = |hash| {
            let Observation { register, rank } = Observation::of(hash);
            (register, rank)
        };
        assert_eq!(of(0), (0, RANK_MAX));
        assert_eq!(of(1), (0, RANK_MAX - 1));
        assert_eq!(of(1 << (63 - REGISTER_BITS)), (0, 1));
        assert_eq!(of(u64::MAX), (REGISTERS - 1, 1));
        assert_eq!(of(1 << (64 - REGISTER_BITS)), (1, RANK_MAX));
    }
}
