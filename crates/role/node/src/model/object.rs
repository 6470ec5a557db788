//! Objects: a version of a file or of an origin's object, with all parts of its reply that can be
//! prepared in advance.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use skep_directory::PurgeTable;
use skep_directory::keep::Reader;
use skep_http::negotiate::{Encoding, EncodingSet};
use skep_http::{HttpDate, Validators, encode, mime};
use skep_httpcache::Freshness;
use skep_segments::Wanted;
use skep_wire::cache::part::Versions;
use skep_wire::cache::{ObjectName, PurgeStamp, SegmentName};

use crate::disk::{FileStamp, FileVersion};
use crate::model::compression::{Compression, fields, has_member, is_vary};
use crate::model::field_lines::content_type_of;
use crate::model::freshness::Remote;
use crate::model::peer::PeerNode;
use crate::model::pool_cache::PoolCache;
use crate::model::route::Route;
use crate::model::variant_tag::tag_of;

/// Field of replies that have variants.
const VARY: &[u8] = b"Vary: Accept-Encoding\r\n";

/// Cache field of a reply sent from memory (RFC 9211).
pub(crate) const CACHE_STATUS_HIT: &[u8] = b"Cache-Status: skep; hit\r\n";

/// The source of an object's bytes.
#[derive(Debug)]
pub(crate) enum ObjectSource {
    /// A file in one version.
    File {
        /// Path below the root.
        relative: Box<[u8]>,
        stamp: FileStamp,
    },
    Origin(Box<Remote>),
    /// Another object, compressed.
    Compressed(Arc<Object>),
    /// A file in one version on another node's disk.
    Elsewhere {
        /// Path below the root.
        relative: Box<[u8]>,
        /// The last known holder of the file.
        home: PeerNode,
    },
}

/// One version of a file or of an origin's object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) source: ObjectSource,
    /// Sent with parts; the whole has a type only if `lines` contain it.
    pub(crate) content_type: Cow<'static, str>,
    /// Contains the length.
    name: ObjectName,
    /// Its latest purge known when it was looked up; part of its name.
    purged: PurgeStamp,
    /// Empty if there is none.
    etag: Box<str>,
    last_modified: Option<u64>,
    /// Whether the bytes are known to be of one version. A file that is not settled is sent without
    /// validators and never cached.
    pub(crate) is_settled: bool,
    /// Whether clients that accept it get a compressed variant.
    pub(crate) is_compressible: bool,
    /// Field lines of every reply with this version.
    pub(crate) lines: Box<[u8]>,
    /// Additional field lines of replies with the whole: a Content-Range of the application, which
    /// would contradict that of a part.
    pub(crate) whole_lines: Box<[u8]>,
    /// Status line and field lines of the whole object from memory: the complete head of a hit, except
    /// for `Date` and the empty line.
    pub(crate) hit_head: Box<[u8]>,
    /// Read pattern, shared by all replies: two interleaved sequential reads do not look sequential, so
    /// nothing is read ahead for them.
    reader: Mutex<Reader>,
}

impl Object {
    /// The file at `relative`, on whichever node's disk. `plain` is the path of the file of which it is
    /// an encoding, or its own.
    pub(crate) fn new(
        route: &Route,
        (relative, plain): (&[u8], &[u8]),
        encoding: Option<Encoding>,
        varies: bool,
        (version, purged): (FileVersion, PurgeStamp),
        source: ObjectSource,
    ) -> Self {
        let FileVersion { mtime_ns, bytes } = version;
        let last_modified = u64::try_from(mtime_ns / 1_000_000_000).unwrap_or(0);
        let is_settled = match &source {
            ObjectSource::File { stamp, .. } => stamp.is_settled(),
            _ => true,
        };
        let etag = etag(version, encoding);
        let content_type = match &route.content_type {
            Some(own) => Cow::Owned(own.to_string()),
            None => Cow::Borrowed(mime::for_path(plain)),
        };
        let mut lines = Vec::with_capacity(512);
        encode::write_field(&mut lines, "Content-Type", content_type.as_bytes());
        if let Some(encoding) = encoding {
            encode::write_field(&mut lines, "Content-Encoding", encoding.as_str().as_bytes());
        }
        if is_settled {
            encode::write_field(&mut lines, "ETag", etag.as_bytes());
            encode::write_field(&mut lines, "Last-Modified", &HttpDate(last_modified).format());
        } else {
            lines.extend_from_slice(b"Cache-Control: no-store\r\n");
        }
        lines.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        let own = lines.len();
        lines.extend_from_slice(if is_settled { &route.lines_success } else { &route.lines });
        let suits = |it: &Compression| it.suits_file(bytes, &lines);
        let is_compressible =
            is_settled && encoding.is_none() && route.compression.as_ref().is_some_and(suits);
        if varies || is_compressible {
            lines.splice(own..own, VARY.iter().copied());
        }
        Self {
            source,
            content_type,
            name: route.object_name(relative, etag.as_bytes(), bytes, purged),
            purged,
            etag: if is_settled { etag.into() } else { Box::default() },
            last_modified: is_settled.then_some(last_modified),
            is_settled,
            is_compressible,
            hit_head: hit_head(200, bytes, &lines, b""),
            lines: lines.into(),
            whole_lines: Box::default(),
            reader: Mutex::default(),
        }
    }

    /// An object from an origin or a pool server. `lines` are the field lines of replies.
    pub(crate) fn of_origin(
        route: &Route,
        lines: Vec<u8>,
        bytes: u64,
        origin: Remote,
        purged: PurgeStamp,
    ) -> Self {
        let (mut lines, whole_lines) = without_range(lines);
        let status = origin.head.whole_status();
        if status == 200 {
            lines.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        }
        let suits = |it: &Compression| {
            // Includes fields of the application that are not sent to clients.
            let said = origin.head.lines().flat_map(|(_, line)| line).copied();
            let all: Vec<u8> = said.chain([&*lines, &whole_lines].concat()).collect();
            let meta = &origin.head.meta;
            let lifetime_ms = |cache: &PoolCache| Freshness::of(meta, &cache.policy).lifetime_ms;
            it.suits_stored(status, bytes, &all, route.pool_cache().map(lifetime_ms))
        };
        let is_compressible = route.compression.as_ref().is_some_and(suits);
        let varies = fields(&lines)
            .any(|(name, value)| is_vary(name) && has_member(value, "accept-encoding"));
        if is_compressible && !varies {
            lines.extend_from_slice(VARY);
        }
        encode::write_field(&mut lines, "Date", &HttpDate(origin.head.meta.made_unix_s()).format());
        Self {
            content_type: content_type_of(&lines),
            name: route.object_name(&origin.target, &origin.version, bytes, purged),
            purged,
            etag: origin.head.meta.etag.clone().unwrap_or_default().into(),
            last_modified: origin.head.meta.last_modified,
            is_settled: true,
            is_compressible,
            source: ObjectSource::Origin(Box::new(origin)),
            hit_head: hit_head(status, bytes, &lines, &whole_lines),
            lines: lines.into(),
            whole_lines: whole_lines.into(),
            reader: Mutex::default(),
        }
    }

    /// The variant in `coding` of `of`, which is compressible.
    pub(crate) fn compressed(
        route: &Route,
        of: &Arc<Self>,
        coding: Encoding,
        made: &Compressed,
    ) -> Self {
        let etag = tag_of(&of.etag, coding, made.digest);
        let mut lines = Vec::with_capacity(of.lines.len() + 64);
        for line in of.lines.split_inclusive(|byte| *byte == b'\n') {
            const TAG: &[u8] = b"etag:";
            match line.get(..TAG.len()).is_some_and(|name| name.eq_ignore_ascii_case(TAG)) {
                true => encode::write_field(&mut lines, "ETag", etag.as_bytes()),
                false => lines.extend_from_slice(line),
            }
        }
        encode::write_field(&mut lines, "Content-Encoding", coding.as_str().as_bytes());
        let bytes = u64::from(made.bytes);
        let version = [coding.as_str().as_bytes(), b" ", &made.digest[..]].concat();
        Self {
            content_type: of.content_type.clone(),
            name: route.object_name(&of.segment_name(0).0, &version, bytes, of.purged),
            purged: of.purged,
            etag: etag.into(),
            last_modified: of.last_modified,
            is_settled: true,
            is_compressible: false,
            hit_head: hit_head(of.status(), bytes, &lines, b""),
            lines: lines.into(),
            whole_lines: Box::default(),
            reader: Mutex::default(),
            source: ObjectSource::Compressed(Arc::clone(of)),
        }
    }

    /// Whether it is a compressed variant, made here or on another node.
    pub(crate) fn is_compressed(&self) -> bool {
        matches!(self.source, ObjectSource::Compressed(_))
    }

    /// Records a read of segment `index`; returns the resulting pattern.
    pub(crate) fn reads(&self, index: u32) -> Reader {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.reads(index);
        *reader
    }

    /// Path below the root and version; only for a file on this node.
    pub(crate) fn file(&self) -> Option<(&[u8], FileStamp)> {
        match &self.source {
            ObjectSource::File { relative, stamp } => Some((relative, *stamp)),
            _ => None,
        }
    }

    /// Path below the root; only for a file on any node.
    pub(crate) fn relative(&self) -> Option<&[u8]> {
        match &self.source {
            ObjectSource::File { relative, .. } | ObjectSource::Elsewhere { relative, .. } => {
                Some(relative)
            }
            ObjectSource::Origin(_) | ObjectSource::Compressed(_) => None,
        }
    }

    /// Path below the root and the holder; only for a file of another node.
    pub(crate) fn elsewhere(&self) -> Option<(&[u8], PeerNode)> {
        match &self.source {
            ObjectSource::Elsewhere { relative, home } => Some((relative, *home)),
            _ => None,
        }
    }

    /// The time at which its origin generated it, in seconds since the Unix epoch: its lines then have
    /// a `Date`. For files it is the current time.
    pub(crate) fn made_unix_s(&self) -> Option<u64> {
        match &self.source {
            ObjectSource::Origin(remote) => Some(remote.head.meta.made_unix_s()),
            ObjectSource::Compressed(of) => of.made_unix_s(),
            ObjectSource::File { .. } | ObjectSource::Elsewhere { .. } => None,
        }
    }

    /// Status of a reply with the whole object: 200, unless its origin sent another status.
    pub(crate) fn status(&self) -> u16 {
        match &self.source {
            ObjectSource::Origin(remote) => remote.head.whole_status(),
            ObjectSource::Compressed(of) => of.status(),
            ObjectSource::File { .. } | ObjectSource::Elsewhere { .. } => 200,
        }
    }

    /// Size, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.name.bytes()
    }

    /// The validators for conditional requests.
    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: &self.etag, last_modified: self.last_modified }
    }

    /// The validators for `If-Range`: compressed variants have the same date but different bytes.
    pub(crate) fn range_validators(&self) -> Validators<'_> {
        let last_modified = self.last_modified.filter(|_| !self.is_compressed());
        Validators { last_modified, ..self.validators() }
    }

    /// Its latest purge known when it was looked up.
    pub(crate) fn purged(&self) -> PurgeStamp {
        self.purged
    }

    /// Its strong entity tag.
    pub(crate) fn tag(&self) -> &[u8] {
        self.etag.as_bytes()
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let content_type = match &self.content_type {
            Cow::Borrowed(_) => 0,
            Cow::Owned(text) => text.capacity(),
        };
        let source = match &self.source {
            ObjectSource::File { relative, .. } | ObjectSource::Elsewhere { relative, .. } => {
                relative.len()
            }
            ObjectSource::Origin(remote) => remote.memory_bytes(),
            ObjectSource::Compressed(_) => 0,
        };
        let lines = self.lines.len() + self.whole_lines.len() + self.hit_head.len();
        size_of::<Self>() + source + content_type + self.etag.len() + lines
    }

    /// `hit_head` without its Cache-Status line.
    pub(crate) fn head_before_cache_status(&self) -> &[u8] {
        &self.hit_head[..self.hit_head.len() - CACHE_STATUS_HIT.len()]
    }

    /// Number of segments; 0 for an empty file.
    pub(crate) fn segments(&self) -> u32 {
        self.name.segments()
    }

    pub(crate) fn segment_name(&self, index: u32) -> SegmentName {
        self.name.segment(index)
    }

    /// Segment `index`, as a request to the store.
    pub(crate) fn wanted(&self, index: u32) -> Wanted {
        let has_more = index == 0 && self.segments() > 1;
        Wanted { name: self.segment_name(index), bytes: self.segment_bytes(index), has_more }
    }

    /// Names of all its segments.
    pub(crate) fn segment_names(&self) -> impl Iterator<Item = SegmentName> {
        (0..self.segments()).map(|index| self.segment_name(index))
    }

    pub(crate) fn segment_bytes(&self, index: u32) -> u32 {
        self.name.segment_bytes(index)
    }
}

/// The lines without Content-Range, and the Content-Range lines.
fn without_range(lines: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    const NAME: &[u8] = b"Content-Range:";
    let is_range =
        |line: &[u8]| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME));
    let each = || lines.split_inclusive(|byte| *byte == b'\n');
    if !each().any(is_range) {
        return (lines, Vec::new());
    }
    let (ranges, others): (Vec<&[u8]>, Vec<&[u8]>) = each().partition(|line| is_range(line));
    (others.concat(), ranges.concat())
}

fn hit_head(status: u16, bytes: u64, lines: &[u8], whole_lines: &[u8]) -> Box<[u8]> {
    let mut head = Vec::with_capacity(lines.len() + whole_lines.len() + 128);
    encode::write_status_line(&mut head, status);
    head.extend_from_slice(b"Server: skep\r\nContent-Length: ");
    encode::write_u64(&mut head, bytes);
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(lines);
    head.extend_from_slice(whole_lines);
    head.extend_from_slice(CACHE_STATUS_HIT);
    head.into()
}

/// Strong tag made of modification time and size, equal on all nodes with the same copy. Encodings
/// differ in bytes, so they differ in tag.
fn etag(version: FileVersion, encoding: Option<Encoding>) -> String {
    let suffix = match encoding {
        None => "",
        Some(Encoding::Br) => "-br",
        Some(Encoding::Zstd) => "-zst",
        Some(Encoding::Gzip) => "-gz",
    };
    format!("\"{:x}-{:x}{suffix}\"", version.mtime_ns, version.bytes)
}

/// Whether `tag` is that of a file in this version, in any encoding.
pub(crate) fn is_tag_of(version: FileVersion, tag: &[u8]) -> bool {
    let encodings = [None, Some(Encoding::Br), Some(Encoding::Zstd), Some(Encoding::Gzip)];
    encodings.iter().any(|&encoding| etag(version, encoding).as_bytes() == tag)
}

/// The result of compressing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressed {
    /// Not 0; at most one segment.
    pub(crate) bytes: u32,
    /// The first bytes of their SHA-256.
    pub(crate) digest: [u8; 8],
}

/// The plain object of a path and its encoded sidecars.
#[derive(Debug)]
pub(crate) struct Variants {
    pub(crate) plain: Arc<Object>,
    pub(crate) br: Option<Arc<Object>>,
    pub(crate) zstd: Option<Arc<Object>>,
    pub(crate) gzip: Option<Arc<Object>>,
}

impl Variants {
    /// An object without sidecars.
    pub(crate) fn of_one(object: Object) -> Self {
        Self { plain: Arc::new(object), br: None, zstd: None, gzip: None }
    }

    /// The file of `home` at `relative`. `known`: the purges known before the request.
    pub(crate) fn elsewhere(
        route: &Route,
        relative: &[u8],
        versions: &Versions,
        home: PeerNode,
        known: &PurgeTable,
    ) -> Self {
        let Versions { plain, encoded: [br, zstd, gzip] } = *versions;
        let varies = versions.encoded.iter().any(Option::is_some);
        let named = |suffix: &str| [relative, suffix.as_bytes()].concat();
        let siblings = [(br, ".br"), (zstd, ".zst"), (gzip, ".gz")];
        let there = siblings.into_iter().filter(|(version, _)| version.is_some());
        let names: Vec<_> = there.map(|(_, suffix)| named(suffix)).collect();
        let purged = route.purged_files(known, names.iter().map(Vec::as_slice).chain([relative]));
        let object = |suffix: &str, encoding, version| {
            let own = named(suffix);
            let source = ObjectSource::Elsewhere { relative: own.as_slice().into(), home };
            let version = (version, purged);
            Arc::new(Object::new(route, (&own, relative), encoding, varies, version, source))
        };
        Self {
            plain: object("", None, plain),
            br: br.map(|version| object(".br", Some(Encoding::Br), version)),
            zstd: zstd.map(|version| object(".zst", Some(Encoding::Zstd), version)),
            gzip: gzip.map(|version| object(".gz", Some(Encoding::Gzip), version)),
        }
    }

    /// The available encodings.
    pub(crate) fn available(&self) -> EncodingSet {
        EncodingSet { br: self.br.is_some(), zstd: self.zstd.is_some(), gzip: self.gzip.is_some() }
    }

    /// Whether there is any encoded sidecar.
    pub(crate) fn is_varied(&self) -> bool {
        self.br.is_some() || self.zstd.is_some() || self.gzip.is_some()
    }

    /// The sidecar with `encoding`, or the plain object; with its slot number.
    pub(crate) fn get(&self, encoding: Option<Encoding>) -> (usize, &Arc<Object>) {
        let (slot, object) = match encoding {
            None => (0, None),
            Some(Encoding::Br) => (1, self.br.as_ref()),
            Some(Encoding::Zstd) => (2, self.zstd.as_ref()),
            Some(Encoding::Gzip) => (3, self.gzip.as_ref()),
        };
        object.map_or((0, &self.plain), |object| (slot, object))
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        [Some(&self.plain), self.br.as_ref(), self.zstd.as_ref(), self.gzip.as_ref()]
            .into_iter()
            .flatten()
    }
}
