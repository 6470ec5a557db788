//! The properties of a value that the cache needs.

use std::sync::Arc;

use crate::limits::FREQUENCY_MAX;

/// A value that counts its own hits.
///
/// The count takes `&self`: an owner whose readers are on several threads
/// keeps it in a relaxed atomic. Lost counts do no harm.
pub trait CacheEntry {
    /// Bytes charged for it, overhead included. Read once, at insertion; 0
    /// counts as 1.
    fn bytes(&self) -> u64;

    /// Hits since the cache last asked, `0..=FREQUENCY_MAX`.
    fn frequency(&self) -> u8;

    /// Stores the frequency.
    fn set_frequency(&self, frequency: u8);

    /// Initial frequency of a value: above 0 for a value that should stay
    /// longer than others.
    fn frequency_at_first(&self) -> u8 {
        0
    }

    /// Counts a hit: call it on what [`get`](crate::S3Fifo::get) returned, or
    /// on a copy held elsewhere. Writes nothing if the value is hot already,
    /// so that hot values do not travel between the caches of cores.
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

/// The value is larger than the whole cache. Here it is back.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value is larger than the whole cache")]
pub struct TooLarge<V>(pub V);
