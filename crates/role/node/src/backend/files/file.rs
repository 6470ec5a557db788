//! Files as sources of segments.
//!
//! Each piece is published only after a check that the file still has the promised version.

use std::fs::File;
use std::sync::Arc;

use skep_segments::{Buffer, FetchError, Segment};
use skep_telemetry::{CoreCounters, Counter};
use skep_units::SEGMENT_BYTES;
use skep_wire::cache::{OriginRef, PurgeStamp, SegmentName};

use crate::disk::pool::pool;
use crate::disk::{DiskError, FileKind, FileStamp, Wait, describe, read_at};
use crate::model::object::{Object, is_tag_of};
use crate::model::route::Route;
use crate::peers::SegmentOrigin;

/// The file behind a segment, on a disk that all nodes share.
pub(crate) struct SharedFile {
    route: Arc<Route>,
    relative: Box<[u8]>,
    tag: Box<[u8]>,
    purged: PurgeStamp,
    stamp: FileStamp,
    index: u32,
    counters: Arc<CoreCounters>,
}

impl SharedFile {
    /// The source of segment `index` of an object that is a file.
    pub(crate) fn of(
        route: &Arc<Route>,
        object: &Object,
        index: u32,
        counters: &Arc<CoreCounters>,
    ) -> Option<Self> {
        let (relative, stamp) = object.file()?;
        Some(Self {
            route: Arc::clone(route),
            relative: relative.into(),
            tag: object.tag().into(),
            purged: object.purged(),
            stamp,
            index,
            counters: Arc::clone(counters),
        })
    }

    /// The file that another node describes, if it exists in that version. May wait for the
    /// disk.
    pub(crate) fn described_by(
        origin: &OriginRef,
        name: SegmentName,
        route: &Arc<Route>,
        counters: &Arc<CoreCounters>,
    ) -> Option<Self> {
        // The file is read now, after any purge that the other node knows of.
        let OriginRef { path, version, object_bytes, purged, .. } = origin;
        let own = route.object_name(path, version, *object_bytes, *purged).segment(origin.index);
        let root = route.open_root().ok()?;
        let Ok((_, FileKind::File(stamp))) = root.open_at(&origin.path, Wait::Yes) else {
            return None;
        };
        let is_it = own == name
            && stamp.is_settled()
            && is_tag_of(stamp.version, &origin.version)
            && stamp.version.bytes == origin.object_bytes;
        is_it.then(|| Self {
            route: Arc::clone(route),
            relative: origin.path.as_slice().into(),
            tag: origin.version.as_slice().into(),
            purged: origin.purged,
            stamp,
            index: origin.index,
            counters: Arc::clone(counters),
        })
    }
}

impl SegmentOrigin for SharedFile {
    async fn read(&self, segment: Arc<Segment>) -> Result<(), FetchError> {
        let (route, relative, stamp) = (Arc::clone(&self.route), self.relative.clone(), self.stamp);
        let base = u64::from(self.index) * SEGMENT_BYTES;
        self.counters.inc(Counter::DiskReadPool);
        let read = pool(move || {
            let file = open(&route, &relative, stamp, Wait::Yes)?;
            fill(&file, &segment, base, stamp, Wait::Yes)
        });
        read.await
    }

    fn described(&self, has_lease: bool) -> Option<OriginRef> {
        Some(OriginRef {
            site: self.route.short_key,
            path: self.relative.to_vec(),
            version: self.tag.to_vec(),
            purged: self.purged,
            object_bytes: self.stamp.version.bytes,
            index: self.index,
            has_lease,
        })
    }
}

/// Opens a file if it matches `stamp`.
pub(crate) fn open(
    route: &Route,
    relative: &[u8],
    stamp: FileStamp,
    wait: Wait,
) -> Result<File, DiskError> {
    let root = route.open_root()?;
    match root.open_at(relative, wait)? {
        (file, kind) if kind == FileKind::File(stamp) => Ok(file),
        _ => Err(DiskError::Changed),
    }
}

/// Fills a segment chunk by chunk; its bytes begin at `base` in the file. After
/// [`DiskError::WouldBlock`] it is partly filled; call again with [`Wait::Yes`].
pub(crate) fn fill(
    file: &File,
    segment: &Segment,
    base: u64,
    stamp: FileStamp,
    wait: Wait,
) -> Result<(), FetchError> {
    let mut buffer = Buffer::take();
    loop {
        let bytes = segment.next_chunk_bytes();
        if bytes == 0 {
            return Ok(());
        }
        let at = base + u64::from(segment.filled());
        let chunk = &mut buffer.bytes()[..bytes];
        read_version(file, stamp, at, chunk, wait)?;
        segment.publish(chunk).map_err(|_| FetchError::NoMemory)?;
    }
}

/// Fills `buffer` with bytes that belong to the version of `stamp`, or fails.
pub(crate) fn read_version(
    file: &File,
    stamp: FileStamp,
    at: u64,
    buffer: &mut [u8],
    wait: Wait,
) -> Result<(), DiskError> {
    if read_at(file, buffer, at, wait)? < buffer.len() {
        return Err(DiskError::WouldBlock);
    }
    if describe(file)? != FileKind::File(stamp) {
        return Err(DiskError::Changed);
    }
    Ok(())
}
