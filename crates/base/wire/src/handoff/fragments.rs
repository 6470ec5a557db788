//! Handoff information in pieces: one datagram takes [`HANDOFF_FRAGMENT_BYTES`] of it.
//!
//! A donor that retries sends the same fragments again, so that those which came are not lost with those
//! which did not.

use std::sync::Arc;

use crate::limits::{HANDOFF_FRAGMENT_BYTES, HANDOFF_FRAGMENTS_MAX};

/// A piece of the handoff information of one offer. All but the last are full.
///
/// Invariant: `index < count <= HANDOFF_FRAGMENTS_MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    pub index: u16,
    pub count: u16,
    pub bytes: Arc<[u8]>,
}

/// Fragments of one offer that came.
#[derive(Clone, Debug)]
pub struct Assembly {
    parts: Vec<Option<Arc<[u8]>>>,
    missing: usize,
}

/// The fragments of handoff information.
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
    /// The fragment, if there may be such a one.
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
    /// The begin of an offer of so many fragments.
    pub fn new(count: u16) -> Self {
        let count = usize::from(count).min(HANDOFF_FRAGMENTS_MAX);
        Self { parts: vec![None; count], missing: count }
    }

    /// Takes a fragment, in any order and any number of times; the whole once it is complete. A fragment
    /// of another count is not of this offer, and is left out.
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
