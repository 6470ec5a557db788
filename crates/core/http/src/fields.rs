//! The fields of a head: storage on the stack, an index of the well-known fields
//! built in one pass, and lookup.
//!
//! Invariants: names are tokens, values have no control characters and no leading or trailing
//! whitespace, every line ended with CRLF. Nothing is copied.

use std::mem::MaybeUninit;

use crate::bytes::{self, eq_lower};
use crate::limits::FIELDS_CAP;
use crate::{HeadLimits, Reject, Underscores};

macro_rules! known {
    ($($len:literal { $($name:ident $lower:literal)* })*) => {
        /// Well-known field names, found in O(1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known { $($($name),*),* }

        const KNOWN_COUNT: usize = [$($(Known::$name),*),*].len();

        impl Known {
            /// Name in lower case.
            pub const fn as_str(self) -> &'static str {
                match self { $($(Known::$name => $lower),*),* }
            }

            /// The well-known field with this name, in any case.
            #[inline]
            pub fn of(name: &[u8]) -> Option<Known> {
                match name.len() {
                    $($len => {
                        $(
                            const { assert!($lower.len() == $len) };
                            if eq_lower(name, &NameBytes::<$len>::of($lower)) {
                                return Some(Known::$name);
                            }
                        )*
                        None
                    })*
                    _ => None,
                }
            }
        }
    };
}

known! {
    2 { Te "te" }
    3 { Age "age" }
    4 { Host "host" Date "date" Etag "etag" Vary "vary" }
    5 { Range "range" }
    6 { Accept "accept" Cookie "cookie" Expect "expect" Server "server" }
    7 { Upgrade "upgrade" Referer "referer" Trailer "trailer" Expires "expires" }
    8 { IfRange "if-range" IfMatch "if-match" Location "location" }
    9 { Forwarded "forwarded" }
    10 { Connection "connection" UserAgent "user-agent" SetCookie "set-cookie" }
    11 { RetryAfter "retry-after" }
    12 { ContentType "content-type" }
    13 {
        IfNoneMatch "if-none-match" CacheControl "cache-control" Authorization "authorization"
        ContentRange "content-range" LastModified "last-modified"
    }
    14 { ContentLength "content-length" }
    15 { AcceptEncoding "accept-encoding" XForwardedFor "x-forwarded-for" }
    16 { ContentEncoding "content-encoding" }
    17 { TransferEncoding "transfer-encoding" IfModifiedSince "if-modified-since" }
    19 { IfUnmodifiedSince "if-unmodified-since" }
}

/// A name as an array, so that its length is known to the compiler.
struct NameBytes<const N: usize>;

impl<const N: usize> NameBytes<N> {
    const fn of(name: &'static str) -> [u8; N] {
        match name.as_bytes().first_chunk() {
            Some(bytes) => *bytes,
            None => panic!("a well-known name is listed under a wrong length"),
        }
    }
}

/// A set of well-known fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSet(u64);

impl KnownSet {
    pub(crate) const fn of(fields: &[Known]) -> KnownSet {
        let mut bits = 0;
        let mut i = 0;
        while i < fields.len() {
            bits |= 1 << fields[i] as u8;
            i += 1;
        }
        KnownSet(bits)
    }

    #[inline]
    pub(crate) fn intersects(self, other: KnownSet) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    fn has(self, field: Known) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    #[inline]
    fn add(&mut self, field: Known) {
        self.0 |= 1 << field as u8;
    }
}

/// Uninitialised storage for the fields of one head; lives on the stack.
pub struct FieldSlots<'b>([MaybeUninit<httparse::Header<'b>>; FIELDS_CAP]);

/// The same on the heap, no larger than a head needs: for a future, which is moved with everything
/// that it holds across awaits.
pub struct HeapFieldSlots<'b>(Vec<httparse::Header<'b>>);

/// Borrowed storage for the fields of one head.
pub struct BorrowedFieldSlots<'h, 'b>(&'h mut [MaybeUninit<httparse::Header<'b>>]);

impl<'h, 'b> BorrowedFieldSlots<'h, 'b> {
    /// As many slots as the limits allow.
    #[inline(always)]
    pub(crate) fn within(self, limits: &HeadLimits) -> &'h mut [MaybeUninit<httparse::Header<'b>>] {
        let count = self.0.len().min(limits.fields_max);
        &mut self.0[..count]
    }
}

impl<'h, 'b> From<&'h mut FieldSlots<'b>> for BorrowedFieldSlots<'h, 'b> {
    #[inline(always)]
    fn from(slots: &'h mut FieldSlots<'b>) -> Self {
        BorrowedFieldSlots(&mut slots.0)
    }
}

impl<'h, 'b> From<&'h mut HeapFieldSlots<'b>> for BorrowedFieldSlots<'h, 'b> {
    #[inline]
    fn from(slots: &'h mut HeapFieldSlots<'b>) -> Self {
        BorrowedFieldSlots(slots.0.spare_capacity_mut())
    }
}

impl HeapFieldSlots<'_> {
    /// A slot for each line of `head`, at most [`FIELDS_CAP`].
    pub fn for_head(head: &[u8]) -> Self {
        let lines = memchr::memchr_iter(b'\n', head).count();
        HeapFieldSlots(Vec::with_capacity(lines.min(FIELDS_CAP)))
    }
}

impl std::fmt::Debug for HeapFieldSlots<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeapFieldSlots").finish_non_exhaustive()
    }
}

impl FieldSlots<'_> {
    /// Empty storage; writes no memory.
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

impl std::fmt::Debug for FieldSlots<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldSlots").finish_non_exhaustive()
    }
}

/// The fields of one head, in the order of the wire.
#[derive(Clone, Copy)]
pub struct Fields<'h, 'b> {
    list: &'h [httparse::Header<'b>],
    /// Index in `list` of the first occurrence of each well-known field; valid if `seen`.
    first: [u8; KNOWN_COUNT],
    seen: KnownSet,
    /// Well-known fields that occur in more than one line.
    repeated: KnownSet,
    /// Fields that were dropped.
    dropped: u8,
}

impl<'h, 'b> Fields<'h, 'b> {
    /// Indexes the fields parsed from `head`, and handles what httparse accepts: bare LF, `_` in
    /// names.
    #[inline]
    pub(crate) fn index(
        head: &'b [u8],
        list: &'h mut [httparse::Header<'b>],
        limits: &HeadLimits,
    ) -> Result<Fields<'h, 'b>, Reject> {
        let (mut seen, mut repeated) = (KnownSet::default(), KnownSet::default());
        let mut first = [0; KNOWN_COUNT];
        // The number of fields kept so far.
        let mut place = 0;
        for at in 0..list.len() {
            let field = list[at];
            let name = field.name.as_bytes();
            // A name begins its line, so the bytes before it end the previous line: this proves
            // CRLF for all lines except the last two.
            let start = name.as_ptr().addr() - head.as_ptr().addr();
            if head[..start].last_chunk() != Some(b"\r\n") {
                return Err(Reject::BARE_LF);
            }
            if limits.underscores != Underscores::Pass && has_underscore(name) {
                match limits.underscores {
                    Underscores::Refuse => return Err(Reject::UNDERSCORE),
                    _ => continue,
                }
            }
            if place < at {
                list[place] = field;
            }
            if let Some(known) = Known::of(name) {
                if seen.has(known) {
                    repeated.add(known);
                } else {
                    seen.add(known);
                    first[known as usize] = place as u8;
                }
            }
            place += 1;
        }
        let dropped = (list.len() - place) as u8;
        let fields = Fields { list: &list[..place], first, seen, repeated, dropped };
        if head.last_chunk() == Some(b"\r\n\r\n") { Ok(fields) } else { Err(Reject::BARE_LF) }
    }

    /// All fields in the order of the wire: (name as sent, value).
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> + Clone + use<'h, 'b> {
        self.list.iter().map(|field| (field.name, field.value))
    }

    /// Value of the first line of a well-known field, in O(1).
    #[inline]
    pub fn known(&self, field: Known) -> Option<&'b [u8]> {
        if self.seen.has(field) {
            Some(self.list[usize::from(self.first[field as usize])].value)
        } else {
            None
        }
    }

    /// Value of every line of a well-known field.
    #[inline]
    pub fn known_all(&self, field: Known) -> impl Iterator<Item = &'b [u8]> + use<'h, 'b> {
        let from = if self.seen.has(field) {
            usize::from(self.first[field as usize])
        } else {
            self.list.len()
        };
        let to = if self.repeated.has(field) { self.list.len() } else { from.saturating_add(1) };
        let lines = self.list.get(from..to).unwrap_or(&[]);
        lines
            .iter()
            .filter(move |line| Known::of(line.name.as_bytes()) == Some(field))
            .map(|line| line.value)
    }

    /// Whether a well-known field occurs in more than one line.
    #[inline]
    pub fn is_repeated(&self, field: Known) -> bool {
        self.repeated.has(field)
    }

    /// Value of the first line of the field `name`, case-insensitive.
    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        self.all(name).next()
    }

    /// Value of every line of the field `name`, case-insensitive.
    pub fn all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'n, 'h, 'b> {
        self.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The number of fields dropped because of `_` in their names ([`Underscores`]).
    #[inline]
    pub fn dropped(&self) -> u8 {
        self.dropped
    }

    /// Whether any of these fields is present.
    #[inline]
    pub(crate) fn any(&self, fields: KnownSet) -> bool {
        self.seen.intersects(fields)
    }
}

impl std::fmt::Debug for Fields<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.list.iter().map(|l| (l.name, String::from_utf8_lossy(l.value)));
        f.debug_map().entries(lines).finish()
    }
}

/// Eight bytes at a time: the classic "has a zero byte" test on `name ^ "________"`. It is exact
/// here: names are ASCII, below 0x80.
#[inline]
pub(crate) fn has_underscore(name: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = name.as_chunks::<8>();
    let in_words = words.iter().any(|word| {
        let zero_if_hit = u64::from_ne_bytes(*word) ^ (ONES * b'_' as u64);
        zero_if_hit.wrapping_sub(ONES) & !zero_if_hit & (ONES << 7) != 0
    });
    in_words || rest.contains(&b'_')
}

/// Determines why httparse refused a field section; `lines` begins with the line after the start
/// line.
#[cold]
pub(crate) fn explain(lines: &[u8], error: httparse::Error) -> Reject {
    match error {
        httparse::Error::TooManyHeaders => Reject::TOO_MANY_FIELDS,
        httparse::Error::HeaderValue => Reject::FIELD_VALUE,
        _ => lines.split(|b| *b == b'\n').find_map(fault_of_line).unwrap_or(Reject::FIELD_NAME),
    }
}

fn fault_of_line(line: &[u8]) -> Option<Reject> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let stop = line.iter().position(|b| !bytes::is(*b, bytes::TOKEN));
    match stop.map(|at| (at, line[at])) {
        None if line.is_empty() => None,
        None => Some(Reject::FIELD_NO_COLON),
        Some((0, b' ' | b'\t')) => Some(Reject::OBS_FOLD),
        Some((0, b':')) => Some(Reject::FIELD_NAME_EMPTY),
        Some((_, b':')) => None,
        Some((at, b' ' | b'\t')) if bytes::trim(&line[at..]).first() == Some(&b':') => {
            Some(Reject::SPACE_BEFORE_COLON)
        }
        Some(_) => Some(Reject::FIELD_NAME),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]
    use super::*;

    #[test]
    fn underscore_is_found_at_every_place() {
        for len in 0..40 {
            let mut name = vec![b'-'; len];
            assert!(!has_underscore(&name));
            for at in 0..len {
                name[at] = b'_';
                assert!(has_underscore(&name), "{len} {at}");
                name[at] = b'^'; // Differs in one bit: a borrow must not spread.
                assert!(!has_underscore(&name), "{len} {at}");
            }
        }
    }

    #[test]
    fn known_names_are_their_own() {
        for name in ["Host", "HOST", "hOsT"] {
            assert_eq!(Known::of(name.as_bytes()), Some(Known::Host));
        }
        assert_eq!(Known::of(b"If-Unmodified-Since"), Some(Known::IfUnmodifiedSince));
        assert_eq!(Known::of(b"Hosts"), None);
        assert_eq!(Known::of(b""), None);
    }
}
