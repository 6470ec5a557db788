//! The compressed variants of an object, by coding.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use skep_http::negotiate::Encoding;
use skep_segments::Charge;

use crate::model::object::Object;

/// The variants of one object that were made so far. Their bytes may have been evicted.
#[derive(Debug, Default)]
pub(crate) struct CompressedVariants {
    made: [ArcSwapOption<CompressedVariant>; 3],
    /// Whether compression gains nothing.
    is_useless: AtomicBool,
}

/// A variant of an object.
#[derive(Debug)]
pub(crate) struct CompressedVariant {
    pub(crate) object: Arc<Object>,
    /// Charged for the memory of its head.
    _charge: Charge,
}

impl CompressedVariant {
    /// `charge` accounts for the memory of `object`.
    pub(crate) fn new(object: Object, charge: Charge) -> Arc<Self> {
        Arc::new(Self { object: Arc::new(object), _charge: charge })
    }
}

impl CompressedVariants {
    /// The variant in `coding`.
    pub(crate) fn get(&self, coding: Encoding) -> Option<Arc<CompressedVariant>> {
        self.made[place_of(coding)].load_full()
    }

    pub(crate) fn put(&self, coding: Encoding, variant: Arc<CompressedVariant>) {
        self.made[place_of(coding)].store(Some(variant));
    }

    /// Drops the variant in `coding`: no memory has its bytes.
    pub(crate) fn drop_lost(&self, coding: Encoding) {
        self.made[place_of(coding)].store(None);
    }

    pub(crate) fn is_useless(&self) -> bool {
        self.is_useless.load(Ordering::Relaxed)
    }

    /// Records that compression gains nothing.
    pub(crate) fn set_useless(&self) {
        self.is_useless.store(true, Ordering::Relaxed);
    }

    /// All variants made so far.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<CompressedVariant>> {
        self.made.iter().filter_map(ArcSwapOption::load_full)
    }
}

fn place_of(coding: Encoding) -> usize {
    match coding {
        Encoding::Br => 0,
        Encoding::Zstd => 1,
        Encoding::Gzip => 2,
    }
}
