//! Requested bytes by size of object: bins are an eighth of a power of two wide.

use crate::limits::SIZE_BINS;

/// The discrete data histogram of AdaptLoad.
#[derive(Clone, Debug)]
pub(crate) struct SizeHistogram {
    bytes: Box<[f64; SIZE_BINS]>,
}

/// The cumulative distribution of bytes over bins, in the order of sizes.
#[derive(Clone, Debug)]
pub(crate) struct ByteDistribution {
    /// The fraction of bytes in smaller bins; the last element is 1.
    below: Box<[f64; SIZE_BINS + 1]>,
}

impl SizeHistogram {
    pub(crate) fn new() -> Self {
        Self { bytes: Box::new([0.0; SIZE_BINS]) }
    }

    /// Adds a request for an object of this size.
    pub(crate) fn add(&mut self, size: u64) {
        self.bytes[bin(size)] += size.max(1) as f64;
    }

    /// Reduces the weight of the requests so far by this factor.
    pub(crate) fn discount(&mut self, factor: f64) {
        self.bytes.iter_mut().for_each(|bytes| *bytes *= factor);
    }

    /// Computes the distribution of all requests so far; there must have been one.
    pub(crate) fn take(&self, distribution: &mut ByteDistribution) {
        let total: f64 = self.bytes.iter().sum();
        debug_assert!(total > 0.0, "a request has at least a byte");
        let mut sum = 0.0;
        for (below, bytes) in distribution.below.iter_mut().zip(self.bytes.iter()) {
            *below = sum / total;
            sum += bytes;
        }
    }
}

impl ByteDistribution {
    /// A distribution without requests: every size is above all others.
    pub(crate) fn new() -> Self {
        Self { below: Box::new([1.0; SIZE_BINS + 1]) }
    }

    /// The fractions of bytes in objects of smaller bins, and of the same or smaller bins,
    /// `0.0..=1.0`.
    pub(crate) fn of(&self, size: u64) -> (f64, f64) {
        let bin = bin(size);
        (self.below[bin], self.below[bin + 1])
    }
}

/// The bin of a size: exact below 8 bytes, then 8 bins for each power of two.
fn bin(size: u64) -> usize {
    match size.checked_ilog2() {
        Some(exponent) if exponent >= 3 => {
            let eighth = (size >> (exponent - 3)) & 7;
            8 * (exponent as usize - 2) + eighth as usize
        }
        _ => size as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_in_the_order_of_sizes_and_the_last_has_room() {
        let sizes = [0, 1, 7, 8, 9, 15, 16, 17, 18, 1 << 20, (1 << 20) + (1 << 17), u64::MAX];
        let bins = sizes.map(bin);
        assert_eq!(bins, [0, 1, 7, 8, 9, 15, 16, 16, 17, 144, 145, SIZE_BINS - 1]);
    }

    #[test]
    fn quantiles_are_of_bytes_and_forget() {
        let mut histogram = SizeHistogram::new();
        (0..10).for_each(|_| histogram.add(100));
        histogram.add(1_000);
        let mut distribution = ByteDistribution::new();
        histogram.take(&mut distribution);
        assert_eq!((distribution.of(100), distribution.of(1_000)), ((0.0, 0.5), (0.5, 1.0)));
        assert_eq!(distribution.of(200), (0.5, 0.5), "nobody asks for those");
        assert_eq!(distribution.of(1 << 40), (1.0, 1.0));
        histogram.discount(0.25);
        histogram.add(500);
        histogram.take(&mut distribution);
        assert_eq!(distribution.of(1_000), (0.75, 1.0));
    }
}
