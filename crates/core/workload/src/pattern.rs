//! Bytes that are determined by their offset, so that the reader of a part of a file can verify it.

use skep_units::Rng;

const WORD_BYTES: u64 = 8;
const CHUNK_BYTES: usize = 4096;

/// The content of a file of any length; different seeds give different contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The seed of the content.
    pub seed: u64,
}

impl Pattern {
    /// Fills `bytes` with the content at `offset`.
    pub fn fill(self, offset: u64, bytes: &mut [u8]) {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let word = Rng::new(self.seed ^ (at / WORD_BYTES)).next_u64().to_le_bytes();
            let part = &word[(at % WORD_BYTES) as usize..];
            let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
            now.copy_from_slice(&part[..now.len()]);
            (at, rest) = (at + now.len() as u64, later);
        }
    }

    /// The offset of the first wrong byte of `bytes`, which were read at `offset`.
    pub fn first_wrong(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; CHUNK_BYTES];
        let mut at = offset;
        for found in bytes.chunks(CHUNK_BYTES) {
            let expected = &mut expected[..found.len()];
            self.fill(at, expected);
            if expected != found {
                let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
                return Some(at + same as u64);
            }
            at += found.len() as u64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_whole_and_mistakes_are_found_where_they_are() {
        let pattern = Pattern { seed: 7 };
        let mut whole = vec![0; 10_000];
        pattern.fill(0, &mut whole);
        for (offset, len) in [(0, 0), (0, 1), (3, 2), (7, 9), (4095, 5000)] {
            let part = &whole[offset..offset + len];
            assert_eq!(pattern.first_wrong(offset as u64, part), None);
        }
        assert!(pattern.first_wrong(8, &whole[..100]).is_some());
        assert!(Pattern { seed: 8 }.first_wrong(0, &whole).is_some());
        whole[5000] ^= 1;
        assert_eq!(pattern.first_wrong(100, &whole[100..]), Some(5000));
    }
}
