//! The properties of a value that the cache needs.

use std::sync::Arc;

use crate::limits::FREQUENCY_MAX;

/// A value that counts its own hits.
///
/// The count is updated through `&self`: an owner whose readers are on several threads keeps it in
/// a relaxed atomic. Lost counts do no harm.
pub trait CacheEntry {
    /// Bytes charged for it, including overhead. Read once, at insertion; 0 counts as 1.
    fn bytes(&self) -> u64;

    /// The hit count, `0..=FREQUENCY_MAX`; the cache reduces it when it skips the entry.
    fn frequency(&self) -> u8;

    /// Stores the frequency.
    fn set_frequency(&self, frequency: u8);

    /// Initial frequency of a value: above 0 for a value that should be kept longer than others.
    fn frequency_at_first(&self) -> u8 {
        0
    }

    /// Counts a hit: call it on the value returned by [`get`](crate::S3Fifo::get), or on a copy
    /// held elsewhere. Writes nothing if the value is already hot, so that hot values do not bounce
    /// between the caches of cores.
    fn touch(&self) {
        let frequency = self.frequency();
        if frequency < FREQUENCY_MAX {
            self.set_frequency(frequency + 1);
        }
    }
}

impl<T: CacheEntry + ?Sized> CacheEntry for Arc<T> {
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }

    fn frequency(&self) -> u8 {
        (**self).frequency()
    }

    fn set_frequency(&self, frequency: u8) {
        (**self).set_frequency(frequency);
    }

    fn frequency_at_first(&self) -> u8 {
        (**self).frequency_at_first()
    }

    fn touch(&self) {
        (**self).touch();
    }
}

/// The value is larger than the whole cache, and is returned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value is larger than the whole cache")]
pub struct TooLarge<V>(pub V);
