//! A request at its node, and its progress.

use smallvec::SmallVec;

use crate::byte_sources::BytesBySource;
use crate::part::ObjectPart;

/// A request at its node.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) began_ns: u64,
    pub(crate) client: u32,
    pub(crate) chooser: u32,
    pub(crate) object: u32,
    pub(crate) part: ObjectPart,
    pub(crate) node: u32,
    pub(crate) is_measured: bool,
    /// Its node was lost, and one of its events is still scheduled.
    pub(crate) is_cut: bool,
    pub(crate) is_announced: bool,
    /// Its first segment was in memory.
    pub(crate) is_hit: bool,
    /// The segment after the last one that was sent.
    pub(crate) sent: u32,
    /// The segment after the last one that was found in memory or is being fetched.
    pub(crate) looked_up: u32,
    pub(crate) sending: SendState,
    /// The segment that is being fetched for it.
    pub(crate) fetching: Option<u32>,
    /// The segment after the last one that was fetched from disk or origin for it.
    pub(crate) continues_at: Option<u32>,
    /// The looked-up segments whose fetch has not ended.
    pub(crate) pending: SmallVec<[Pending; 4]>,
    pub(crate) bytes: BytesBySource,
}

/// What its node is sending for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendState {
    Nothing,
    /// Up to this segment, since this virtual time of the link.
    Until(u32, f64),
    /// Everything that has arrived of the segment before this one was sent.
    Ahead(u32),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) segment: u32,
    pub(crate) has_arrived: bool,
}

impl Request {
    pub(crate) fn new(
        now: u64,
        (client, chooser): (u32, usize),
        (object, part): (u32, ObjectPart),
        node: u32,
        is_measured: bool,
    ) -> Self {
        Self {
            began_ns: now,
            client,
            chooser: chooser as u32,
            object,
            part,
            node,
            is_measured,
            is_cut: false,
            is_announced: false,
            is_hit: false,
            sent: part.segments().start,
            looked_up: part.segments().start,
            sending: SendState::Nothing,
            fetching: None,
            continues_at: None,
            pending: SmallVec::new(),
            bytes: BytesBySource::default(),
        }
    }

    pub(crate) fn is_pending(&self, segment: u32) -> bool {
        self.pending.iter().any(|pending| pending.segment == segment)
    }

    /// Whether a segment's first byte has arrived and its last one has not.
    pub(crate) fn is_arriving(&self, segment: u32) -> bool {
        self.pending.iter().any(|pending| pending.segment == segment && pending.has_arrived)
    }
}
