//! The fields of a head: storage, one-pass index of the known ones, look-up.
use crate::limits::FIELDS_CAP;
use std::mem::MaybeUninit;

/// Field names that have a slot of their own, found in O(1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Known {
    Host,
    Connection,
    ContentLength,
    TransferEncoding,
    Expect,
    Upgrade,
    Range,
    IfRange,
    IfMatch,
    IfNoneMatch,
    IfModifiedSince,
    IfUnmodifiedSince,
    AcceptEncoding,
    Accept,
    UserAgent,
    Referer,
    Authorization,
    Cookie,
    XForwardedFor,
    Forwarded,
    Te,
    Trailer,
    CacheControl,
    ContentType,
    ContentRange,
    ContentEncoding,
    Date,
    Etag,
    LastModified,
    Expires,
    Age,
    Vary,
    Location,
    Server,
    SetCookie,
    RetryAfter,
}

/// Uninitialised storage for the fields of one head; cheap to make, lives on
/// the stack.
pub struct FieldSlots<'b>(pub(crate) [MaybeUninit<httparse::Header<'b>>; FIELDS_CAP]);

impl FieldSlots<'_> {
    /// Makes empty storage; writes no memory.
    #[inline(always)]
    pub fn new() -> Self {
        FieldSlots([const { MaybeUninit::uninit() }; FIELDS_CAP])
    }
}

impl Default for FieldSlots<'_> {
    fn default() -> Self {
        FieldSlots::new()
    }
}

/// The fields of one head, in the order of the wire.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'h, 'b> {
    pub(crate) list: &'h [httparse::Header<'b>],
}

impl<'h, 'b> Fields<'h, 'b> {
    /// All fields in the order of the wire: (name as sent, value without
    /// surrounding whitespace).
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'h, 'b> {
        self.list.iter().map(|f| (f.name, f.value))
    }

    /// First value of a known field, in O(1).
    pub fn known(&self, field: Known) -> Option<&'b [u8]> {
        let _ = field;
        unimplemented!("known")
    }

    /// Every value of a field, name compared without case.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'n, 'h, 'b> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }
}
