//! The origin of the bytes, and the bytes that clients must receive.

use std::collections::BTreeMap;

use skep_directory::{PurgeTable, Queries};
use skep_units::Rng;
use skep_wire::cache::{ObjectName, PurgeKind, PurgePlace, PurgeStamp, PurgeWhat, SegmentName};

use crate::node::Node;

/// Bytes read, stored and sent at a time.
pub(crate) const CHUNK_BYTES: u32 = 64 * 1024;

/// Bytes, identified by their place and by the content that they belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    object: usize,
    index: usize,
    place: usize,
    /// Index into the contents of the object.
    content: usize,
}

/// A segment of a version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) object: usize,
    pub(crate) version: u64,
    index: usize,
}

/// What a name identifies.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) part: Part,
    pub(crate) bytes: u32,
    /// Whether it is the first of several segments.
    pub(crate) is_first: bool,
}

impl Truth {
    pub(crate) fn chunks(&self) -> usize {
        self.bytes.div_ceil(CHUNK_BYTES) as usize
    }
}

/// The origin of all objects.
pub(crate) struct Origin {
    pub(crate) objects: Vec<Object>,
    pub(crate) names: BTreeMap<SegmentName, Truth>,
    /// Until when it answers with errors, or not at all.
    pub(crate) fails_until: u64,
    pub(crate) stalls_until: u64,
    pub(crate) read_ms: u64,
}

pub(crate) struct Object {
    path: String,
    tag: String,
    segments: Vec<u32>,
    /// All contents over time, the current one last.
    contents: Vec<Content>,
}

/// What an object consisted of for some time.
struct Content {
    /// The version as given by the origin; another content may have the same one.
    version: u64,
    /// When it was replaced.
    until: u64,
}

impl Object {
    fn new(number: usize, rng: &mut Rng) -> Self {
        let segment =
            |rng: &mut Rng| CHUNK_BYTES * rng.below(8) as u32 + 1 + rng.below(60_000) as u32;
        Self {
            path: format!("/{}/{number}", number % 3),
            tag: format!("t{}", number % 2),
            segments: (0..1 + rng.below(3)).map(|_| segment(rng)).collect(),
            contents: vec![Content { version: 1, until: u64::MAX }],
        }
    }

    /// Its current version, as given by the origin.
    pub(crate) fn version(&self) -> u64 {
        self.contents.last().expect("there is one").version
    }

    /// Changes its bytes, with or without a new version.
    pub(crate) fn change(&mut self, at: u64, is_told: bool) {
        let last = self.contents.last_mut().expect("there is one");
        last.until = at;
        let version = last.version + u64::from(is_told);
        self.contents.push(Content { version, until: u64::MAX });
    }

    /// The latest purges of it that a node knows, hard and soft.
    pub(crate) fn purged_at(&self, node: &Node) -> (PurgeStamp, PurgeStamp) {
        let of = |kind| self.purged(node.purges.of(kind));
        (of(PurgeKind::Hard), of(PurgeKind::Soft))
    }

    /// Its latest purge in `purges`.
    pub(crate) fn purged(&self, purges: &PurgeTable) -> PurgeStamp {
        purges.of_target(&self.path, Queries::Matter, |_| true).max(purges.of_tag(&self.tag))
    }

    /// A random purge that matches it, and perhaps others.
    pub(crate) fn purge(&self, random: u64) -> PurgeWhat {
        let folder = self.path.rfind('/').map_or(0, |at| at + 1);
        let place = |target: &str| PurgePlace { target: target.to_owned(), host: None };
        match random % 4 {
            0 => PurgeWhat::Tag(self.tag.clone()),
            1 => PurgeWhat::Prefix(place(&self.path[..folder])),
            _ => PurgeWhat::Url(place(&self.path)),
        }
    }

    pub(crate) fn is_hit(&self, what: &PurgeWhat) -> bool {
        match what {
            PurgeWhat::Tag(tag) => *tag == self.tag,
            PurgeWhat::Prefix(place) => self.path.starts_with(&place.target),
            PurgeWhat::Url(place) => self.path == place.target,
        }
    }

    /// Until when the origin gave this version.
    fn version_until(&self, version: u64) -> u64 {
        let of_version = self.contents.iter().filter(|it| it.version == version);
        of_version.map(|it| it.until).max().unwrap_or(0)
    }
}

impl Origin {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let objects = (0..3 + rng.below(6) as usize).map(|it| Object::new(it, rng)).collect();
        let read_ms = 1 + rng.below(30);
        Self { objects, names: BTreeMap::new(), fails_until: 0, stalls_until: 0, read_ms }
    }

    /// A segment of a version; any `index` is reduced to a valid one.
    pub(crate) fn part(&self, object: usize, index: usize, version: u64) -> Part {
        Part { object, version, index: index % self.objects[object].segments.len() }
    }

    /// Its name if it is fetched after the purge with this stamp.
    pub(crate) fn name(&mut self, part: Part, purged: PurgeStamp) -> SegmentName {
        let Part { object, index, version } = part;
        let Object { path, segments, .. } = &self.objects[object];
        let bytes = segments.iter().map(|&bytes| u64::from(bytes)).sum();
        let name = ObjectName::new(b"site", path.as_bytes(), &version.to_le_bytes(), bytes, purged);
        let name = name.segment(index as u32);
        let is_first = index == 0 && segments.len() > 1;
        let truth = Truth { part, bytes: segments[index], is_first };
        self.names.entry(name).or_insert(truth);
        name
    }

    /// A chunk of the segment `name`, as read by a reader that checks the version; `None` if the
    /// version has changed.
    pub(crate) fn read(&self, name: &SegmentName, place: usize) -> Option<Chunk> {
        let Part { object, index, version } = self.names[name].part;
        let content = self.objects[object].contents.len() - 1;
        let is_current = self.objects[object].version() == version;
        is_current.then_some(Chunk { object, index, place, content })
    }

    /// Whether these chunks are all of `part` and of no other version, the origin gave this version
    /// at `fresh_since` or later, and its bytes are those of `got_since` or later.
    pub(crate) fn verify(
        &self,
        part: Part,
        chunks: &[Chunk],
        fresh_since: u64,
        got_since: u64,
    ) -> Result<(), String> {
        let object = &self.objects[part.object];
        let is_its = |(place, chunk): (usize, &Chunk)| {
            (chunk.object, chunk.index, chunk.place) == (part.object, part.index, place)
                && object.contents[chunk.content].version == part.version
        };
        let count = object.segments[part.index].div_ceil(CHUNK_BYTES) as usize;
        if chunks.len() != count || !chunks.iter().enumerate().all(is_its) {
            return Err(format!("wrong bytes: {chunks:?} of {part:?}"));
        }
        let until = object.version_until(part.version);
        if until < fresh_since {
            return Err(format!("stale: {part:?} was there until {until}, not at {fresh_since}"));
        }
        let until = chunks.iter().map(|it| object.contents[it.content].until).min();
        match until.filter(|until| *until < got_since) {
            Some(until) => Err(format!("purged: it was {chunks:?} until {until}, not {got_since}")),
            None => Ok(()),
        }
    }
}
