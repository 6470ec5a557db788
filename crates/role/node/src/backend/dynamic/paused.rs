//! Names for which requests are paused for a moment: their last response may not be stored, or no
//! server answered.

use hashbrown::HashMap;
use skep_httpcache::OriginFailure;
use skep_wire::cache::SegmentName;

use super::slot::{PoolSlot, Refusal};

/// The reason for pausing a request that would lead or wait.
pub(super) enum Paused {
    Marked(&'static str),
    Failed(OriginFailure, Option<Refusal>),
}

pub(super) fn paused(
    slots: &HashMap<SegmentName, PoolSlot>,
    names: [SegmentName; 2],
    now_ms: u64,
) -> Option<Paused> {
    names.iter().filter_map(|name| slots.get(name)).find_map(|slot| {
        let mark = slot.mark.filter(|(until_ms, _)| now_ms < *until_ms);
        let failed = slot.failed.as_ref().filter(|(until_ms, ..)| now_ms < *until_ms);
        match (mark, failed) {
            (Some((_, why)), _) => Some(Paused::Marked(why)),
            (None, Some((_, failure, refusal))) => Some(Paused::Failed(*failure, refusal.clone())),
            (None, None) => None,
        }
    })
}
