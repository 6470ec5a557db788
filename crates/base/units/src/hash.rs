//! A hash function that never changes: dispatch tables of two machines must agree.

/// 64-bit hash of `bytes` with `seed`: FNV-1a, then the finaliser of SplitMix64, so that the high
/// bits are as good as the low ones.
///
/// Stable across versions and machines. Not for tables that an attacker can fill.
pub fn stable_hash(bytes: &[u8], seed: u64) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let folded = bytes
        .iter()
        .fold(OFFSET ^ mix(seed), |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    mix(folded)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_pinned_because_machines_must_agree() {
        assert_eq!(stable_hash(b"", 0), stable_hash(b"", 0));
        assert_ne!(stable_hash(b"a", 0), stable_hash(b"b", 0));
        assert_ne!(stable_hash(b"a", 0), stable_hash(b"a", 1));
        assert_eq!(stable_hash(b"/index.html", 7), 13_121_778_330_725_261_453);
    }
}
