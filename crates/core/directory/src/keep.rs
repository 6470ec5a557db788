//! What stays in a node's memory and what leaves, where others hold it, too.
//!
//! Pure decisions; a node and a simulator make the same ones.
//!
//! ```text
//!   to evict:  duplicates --> last copies, in the order of S3-FIFO
//!                                 | offered to the roomiest node, CHANCES times
//!                                 v
//!                               dropped
//! ```

use std::ops::Range;

use skep_units::Now;

use crate::limits::{
    CHANCES, COPIES_PERCENT_MAX, COPY_HITS_PER_MIN, COPY_LINK_PERCENT, DEMAND_HALF_LIFE_MS,
    FIRST_SEGMENT_PASSES, READ_AHEAD, SEQUENTIAL_RUN,
};

/// A segment that the local order would evict next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its length.
    pub bytes: u32,
    /// Copies in the cluster, this one included, as the coordinator told; 0 if
    /// it did not (it is silent).
    pub copies: u16,
    /// How often it may still be passed on; [`CHANCES`] when it was last asked
    /// for here or came from an origin.
    pub chances: u8,
    /// Whether it is the first segment of an object that has more.
    pub is_first: bool,
    /// How often it was passed over.
    pub passes: u8,
}

/// What becomes of a segment of the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Stays for now.
    Stay,
    /// Stays for now, as the first segment of its object; count one more pass.
    Pass,
    /// Leaves: others have it, or nobody wants it.
    Drop,
    /// Leaves, and is offered to the roomiest node with so many chances left.
    Offer {
        /// As the offer says it.
        chances: u8,
    },
}

/// What of a tail leaves so that `needed_bytes` become free: a verdict for each
/// candidate, in the order of the tail (the first would leave first).
/// `has_roomiest`: the coordinator named a node with room.
///
/// Duplicates leave before last copies, first segments after all others of
/// their kind; otherwise the order of the tail holds.
pub fn victims(tail: &[Candidate], needed_bytes: u64, has_roomiest: bool) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::Stay; tail.len()];
    let mut freed = 0;
    let mut order: Vec<usize> = (0..tail.len()).collect();
    order.sort_by_key(|&at| tail[at].rank());
    for at in order {
        if freed >= needed_bytes {
            break;
        }
        freed += u64::from(tail[at].bytes);
        verdicts[at] = tail[at].leaves(has_roomiest);
    }
    for (verdict, candidate) in verdicts.iter_mut().zip(tail) {
        if *verdict == Verdict::Stay && candidate.is_privileged() {
            *verdict = Verdict::Pass;
        }
    }
    verdicts
}

impl Candidate {
    fn rank(&self) -> (bool, bool) {
        (self.copies < 2, self.is_privileged())
    }

    fn is_privileged(&self) -> bool {
        self.is_first && self.passes < FIRST_SEGMENT_PASSES
    }

    fn leaves(&self, has_roomiest: bool) -> Verdict {
        let is_last = self.copies == 1;
        match self.chances.min(CHANCES).checked_sub(1) {
            Some(chances) if is_last && has_roomiest => Verdict::Offer { chances },
            _ => Verdict::Drop,
        }
    }
}

/// What becomes of an offered segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// There is room.
    Room,
    /// This place of the tail makes room for it.
    Instead(usize),
    /// No.
    No,
}

/// Whether a last copy of `bytes` that was offered is taken: into free memory,
/// or instead of the oldest duplicate of the tail that is large enough. Never
/// instead of a last copy: that would only begin a chain of offers.
pub fn accept(bytes: u32, free_bytes: u64, tail: &[Candidate]) -> Acceptance {
    if u64::from(bytes) <= free_bytes {
        return Acceptance::Room;
    }
    let duplicate = tail.iter().position(|it| it.copies >= 2 && it.bytes >= bytes);
    duplicate.map_or(Acceptance::No, Acceptance::Instead)
}

/// How much a segment is asked for, here; halves every
/// [`DEMAND_HALF_LIFE_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Sum of hits, each worth half after a half-life.
    weight: f64,
    at: Now,
}

impl Demand {
    /// It is asked for.
    pub fn hit(&mut self, now: Now) {
        *self = Self { weight: self.decayed(now) + 1.0, at: now.max(self.at) };
    }

    /// Hits a minute, at present.
    pub fn hits_per_min(&self, now: Now) -> f64 {
        // A steady rate r has the weight r * half-life / ln 2.
        let half_life_min = DEMAND_HALF_LIFE_MS as f64 / 60_000.0;
        self.decayed(now) * std::f64::consts::LN_2 / half_life_min
    }

    fn decayed(&self, now: Now) -> f64 {
        let half_lives = now.since_ms(self.at) as f64 / DEMAND_HALF_LIFE_MS as f64;
        self.weight * (-half_lives).exp2()
    }
}

/// How much of this node's memory copies take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Bytes of segments that others hold, too.
    pub copied_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
    /// Bytes that the memory may hold.
    pub capacity_bytes: u64,
}

/// Whether to keep a copy of a segment of `bytes` that was fetched from a peer.
/// `copies` are in the cluster now, this one not counted; `wanted` there should
/// be ([`copies_wanted`]).
///
/// Into free memory always. Else only if it is hotter than
/// [`COPY_HITS_PER_MIN`] and copies stay below their share; of the copies beyond
/// those wanted, each must be twice as hot as the one before.
pub fn keep_copy(bytes: u32, hits_per_min: f64, copies: u16, wanted: u16, share: Share) -> bool {
    let bytes = u64::from(bytes);
    if bytes <= share.free_bytes {
        return true;
    }
    let copied_max = share.capacity_bytes / 100 * COPIES_PERCENT_MAX;
    let surplus = i32::from((copies + 1).saturating_sub(wanted.max(1)));
    share.copied_bytes + bytes <= copied_max
        && hits_per_min >= COPY_HITS_PER_MIN * 2f64.powi(surplus - 1).max(1.0)
}

/// Copies of a segment that the cluster should have, by the bytes a second that
/// are demanded of it and the bytes a second of a node's link; at least 1.
pub fn copies_wanted(demanded_bytes_s: u64, link_bytes_s: u64) -> u16 {
    let each = (link_bytes_s / 100 * COPY_LINK_PERCENT).max(1);
    demanded_bytes_s.div_ceil(each).clamp(1, u64::from(u16::MAX)) as u16
}

/// How one client reads one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// The segment that would come next, and how many came in a row.
    next: u32,
    run: u32,
}

impl Reader {
    /// It reads segment `index`.
    pub fn reads(&mut self, index: u32) {
        // The same one again is neither.
        if index == self.next {
            self.run += 1;
        } else if index.checked_add(1) != Some(self.next) {
            self.run = 1;
        }
        self.next = index.saturating_add(1);
    }

    /// Whether it reads one segment after the other.
    pub fn is_sequential(&self) -> bool {
        self.run >= SEQUENTIAL_RUN
    }
}

/// Which segments to read ahead when a reply has come to segment `at`: of those
/// that the reply needs up to `last`, and, for a sequential reader, of those up
/// to the object's last one, `object_last`.
pub fn prefetch(at: u32, last: u32, object_last: u32, reader: Reader) -> Range<u32> {
    let end = if reader.is_sequential() { object_last } else { last.min(object_last) };
    let from = at.saturating_add(1);
    from..at.saturating_add(READ_AHEAD).min(end).saturating_add(1).max(from)
}
