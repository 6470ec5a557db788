//! Where bytes come from, and what they must be.

use std::collections::BTreeMap;
use std::rc::Rc;

use skep_units::{Rng, stable_hash};
use skep_wire::cache::{ObjectName, PurgeStamp, SegmentName};

/// Bytes read, stored and sent at a time.
pub(crate) const CHUNK_BYTES: u32 = 64 * 1024;

/// What a name stands for. A chunk's bytes are told by a hash of them.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) object: usize,
    pub(crate) version: u64,
    pub(crate) bytes: u32,
    /// Whether it begins an object that has more.
    pub(crate) is_first: bool,
    pub(crate) chunks: Rc<[u64]>,
}

/// The origin of all objects.
pub(crate) struct Origin {
    pub(crate) objects: Vec<Object>,
    pub(crate) names: BTreeMap<SegmentName, Truth>,
    /// Until when it answers with failure, or not at all.
    pub(crate) fails_until: u64,
    pub(crate) stalls_until: u64,
    pub(crate) read_ms: u64,
}

pub(crate) struct Object {
    pub(crate) version: u64,
    segments: Vec<u32>,
}

impl Origin {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let segment =
            |rng: &mut Rng| CHUNK_BYTES * rng.below(8) as u32 + 1 + rng.below(60_000) as u32;
        let object = |rng: &mut Rng| Object {
            version: 1,
            segments: (0..1 + rng.below(3)).map(|_| segment(rng)).collect(),
        };
        let objects = (0..3 + rng.below(6)).map(|_| object(rng)).collect();
        let read_ms = 1 + rng.below(30);
        Self { objects, names: BTreeMap::new(), fails_until: 0, stalls_until: 0, read_ms }
    }

    /// The present name of a segment.
    pub(crate) fn name(&mut self, object: usize, index: usize) -> SegmentName {
        let Object { version, segments } = &self.objects[object];
        let index = index % segments.len();
        let (version, bytes) = (*version, segments[index]);
        let is_first = index == 0 && segments.len() > 1;
        let path = object.to_le_bytes();
        let name = ObjectName::new(b"site", &path, &version.to_le_bytes(), PurgeStamp::NONE);
        let name = name.segment(index as u32);
        let chunk = |chunk: u32| stable_hash(&name.0, u64::from(chunk));
        let truth = || Truth {
            object,
            version,
            bytes,
            is_first,
            chunks: (0..bytes.div_ceil(CHUNK_BYTES)).map(chunk).collect(),
        };
        self.names.entry(name).or_insert_with(truth);
        name
    }

    /// A chunk of what `name` stands for, as a reader gets it who checks the
    /// version; `None` if it is another one by now.
    pub(crate) fn read(&self, name: &SegmentName, chunk: usize) -> Option<u64> {
        let truth = &self.names[name];
        let is_current = self.objects[truth.object].version == truth.version;
        is_current.then(|| truth.chunks[chunk])
    }
}
