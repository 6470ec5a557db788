//! Handoff information in fragments: one datagram holds [`HANDOFF_FRAGMENT_BYTES`] of it.
//!
//! A donor that retries sends the same fragments again, so that fragments already received are not
//! lost with the missing ones.

use std::sync::Arc;

use crate::limits::{HANDOFF_FRAGMENT_BYTES, HANDOFF_FRAGMENTS_MAX};

/// A fragment of the handoff information of one offer. All but the last are full.
///
/// Invariant: `index < count <= HANDOFF_FRAGMENTS_MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub index: u16,
    pub count: u16,
    pub bytes: Arc<[u8]>,
}

/// The received fragments of one offer.
#[derive(Clone, Debug)]
pub struct Assembly {
    parts: Vec<Option<Arc<[u8]>>>,
    missing: usize,
}

/// Splits handoff information into fragments.
pub fn cut(info: &[u8]) -> Vec<Fragment> {
    let count = info.len().div_ceil(HANDOFF_FRAGMENT_BYTES).max(1);
    debug_assert!(count <= HANDOFF_FRAGMENTS_MAX, "{} bytes of information", info.len());
    let fragment = |index: usize| {
        let from = index * HANDOFF_FRAGMENT_BYTES;
        let bytes = info[from..info.len().min(from + HANDOFF_FRAGMENT_BYTES)].into();
        Fragment { index: index as u16, count: count as u16, bytes }
    };
    (0..count).map(fragment).collect()
}

impl Fragment {
    /// Returns the fragment; `None` if index, count and length do not fit.
    pub(super) fn new(index: u16, count: u16, bytes: &[u8]) -> Option<Self> {
        let is_last = u32::from(index) + 1 == u32::from(count);
        let fits = match bytes.len() {
            0 => false,
            HANDOFF_FRAGMENT_BYTES => true,
            fewer => is_last && fewer < HANDOFF_FRAGMENT_BYTES,
        };
        let is_one = index < count && usize::from(count) <= HANDOFF_FRAGMENTS_MAX && fits;
        is_one.then(|| Self { index, count, bytes: bytes.into() })
    }
}

impl Assembly {
    /// An offer of `count` fragments, none received yet.
    pub fn new(count: u16) -> Self {
        let count = usize::from(count).min(HANDOFF_FRAGMENTS_MAX);
        Self { parts: vec![None; count], missing: count }
    }

    /// Adds a fragment, in any order and any number of times; returns the complete information with
    /// the last one. A fragment with another count does not belong to this offer and is ignored.
    pub fn take(&mut self, fragment: &Fragment) -> Option<Vec<u8>> {
        if usize::from(fragment.count) != self.parts.len() {
            return None;
        }
        let part = self.parts.get_mut(usize::from(fragment.index))?;
        if part.is_none() {
            *part = Some(Arc::clone(&fragment.bytes));
            self.missing -= 1;
        }
        let is_whole = self.missing == 0;
        is_whole
            .then(|| self.parts.iter().flatten().flat_map(|part| part.iter().copied()).collect())
    }
}
