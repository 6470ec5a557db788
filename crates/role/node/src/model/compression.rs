//! Which responses of a route are compressed, and how.
//!
//! The rules are conservative: a response that may contain a secret of one client is not compressed
//! unless the config allows it (BREACH, CVE-2013-3587), nor is one that compression would make incorrect.

use std::ops::RangeInclusive;

use skep_config::{BackendConfig, CompressConfig};
use skep_http::negotiate::Encoding;
use skep_http::{ResponseFraming, ResponseHead};
use skep_units::matches_wildcard;

/// The settings of a route.
#[derive(Debug)]
pub(crate) struct Compression {
    /// In order of preference.
    pub(crate) codings: Vec<Encoding>,
    sizes: RangeInclusive<u64>,
    types: Vec<String>,
    levels: Levels,
    /// Whether responses that may be for one client are compressed, too.
    pub(crate) is_for_private: bool,
    /// Whether stored responses of the pool may be for one client: their keys contain cookies or
    /// credentials.
    has_private_keys: bool,
}

/// The level of each coding.
#[derive(Clone, Copy, Debug)]
struct Levels {
    br: u32,
    zstd: u32,
    gzip: u32,
}

/// Fields whose values would be wrong for other bytes, or that state that the bytes are encoded or
/// partial. (Digests: RFC 9530, RFC 3230, RFC 1864.)
const OF_THE_BYTES: &[&str] = &[
    "content-encoding",
    "content-range",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
    "signature-input",
];

impl Compression {
    /// The settings of a backend; `None`: nothing is compressed.
    pub(crate) fn new(backend: &BackendConfig) -> Option<Self> {
        let CompressConfig { enabled, codings, types, private, .. } = &backend.compress;
        let config = &backend.compress;
        let named = |name: &String| Encoding::ALL.into_iter().find(|it| it.as_str() == name);
        let is_private = |name: &String| {
            name.eq_ignore_ascii_case("cookie") || name.eq_ignore_ascii_case("authorization")
        };
        let cache = &backend.cache;
        enabled.then(|| Self {
            codings: codings.iter().filter_map(named).collect(),
            sizes: config.size_bytes_min..=config.size_bytes_max,
            types: types.clone(),
            levels: Levels {
                br: config.br_level,
                zstd: config.zstd_level,
                gzip: config.gzip_level,
            },
            is_for_private: *private,
            has_private_keys: !cache.key_cookies.is_empty()
                || cache.key_fields.iter().any(is_private),
        })
    }

    pub(crate) fn level(&self, coding: Encoding) -> u32 {
        match coding {
            Encoding::Br => self.levels.br,
            Encoding::Zstd => self.levels.zstd,
            Encoding::Gzip => self.levels.gzip,
        }
    }

    /// Whether a file of `bytes` bytes with these field lines is compressed for clients that accept it. A
    /// file contains nothing of a request.
    pub(crate) fn suits_file(&self, bytes: u64, lines: &[u8]) -> bool {
        self.sizes.contains(&bytes) && self.suits(200, fields(lines))
    }

    /// The same for a stored response. Responses of origins contain nothing of one client, as requests to
    /// origins do not; responses of pools may: they count as public if they may be reused for this number
    /// of milliseconds without revalidation.
    pub(crate) fn suits_stored(
        &self,
        status: u16,
        bytes: u64,
        lines: &[u8],
        lifetime_ms_at_pool: Option<u64>,
    ) -> bool {
        let is_private = lifetime_ms_at_pool
            .is_some_and(|lifetime_ms| self.has_private_keys || lifetime_ms == 0)
            || fields(lines).any(|(name, value)| is_private(name, value));
        (self.is_for_private || !is_private)
            && self.sizes.contains(&bytes)
            && self.suits(status, fields(lines))
    }

    /// The same for a pool response that is passed on without being stored.
    pub(crate) fn suits_passed(&self, head: &ResponseHead<'_, '_>) -> bool {
        let is_long_enough = match head.framing {
            ResponseFraming::None => false,
            ResponseFraming::Length(bytes) => bytes >= *self.sizes.start(),
            ResponseFraming::Chunked | ResponseFraming::UntilClose => true,
        };
        // Trailers may contain a digest; X-Accel-Buffering is nginx's field for responses that must not
        // be buffered.
        let is_left_alone = ["trailer", "x-accel-buffering", "upgrade"]
            .iter()
            .any(|name| head.fields.get(name).is_some());
        let fields = head.fields.iter().map(|(name, value)| (name.as_bytes(), value));
        self.is_for_private && is_long_enough && !is_left_alone && self.suits(head.status, fields)
    }

    /// Whether no field describes the response's bytes as they are, and its type is one of `types`.
    fn suits<'f>(&self, status: u16, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> bool {
        let is = |name: &[u8], it: &str| name.eq_ignore_ascii_case(it.as_bytes());
        let mut has_type = false;
        for (name, value) in fields {
            if is(name, "content-type") {
                has_type = self.has_type(value);
            }
            let is_left_alone = OF_THE_BYTES.iter().any(|it| is(name, it))
                || (is(name, "cache-control") && has_member(value, "no-transform"));
            if is_left_alone {
                return false;
            }
        }
        has_type && status >= 200 && !matches!(status, 204 | 205 | 206 | 304)
    }

    fn has_type(&self, content_type: &[u8]) -> bool {
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let media_type = media_type.trim_ascii().to_ascii_lowercase();
        // Events must be sent without delay.
        media_type != b"text/event-stream"
            && self.types.iter().any(|it| matches_wildcard(it.as_bytes(), &media_type))
    }
}

/// Whether a field states that the response may be for one client.
fn is_private(name: &[u8], value: &[u8]) -> bool {
    if is_vary(name) {
        return ["cookie", "authorization", "*"].iter().any(|it| has_member(value, it));
    }
    let is_cache_control = name.eq_ignore_ascii_case(b"cache-control");
    name.eq_ignore_ascii_case(b"set-cookie")
        || (is_cache_control && (has_member(value, "private") || has_member(value, "no-store")))
}

pub(crate) fn is_vary(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"vary")
}

/// Whether a list has this member, with or without a value.
pub(crate) fn has_member(list: &[u8], name: &str) -> bool {
    let name_of = |member: &'_ [u8]| {
        let end = member.iter().position(|byte| *byte == b'=').unwrap_or(member.len());
        member[..end].trim_ascii().eq_ignore_ascii_case(name.as_bytes())
    };
    list.split(|byte| *byte == b',').any(name_of)
}

/// Names and values of complete field lines.
pub(crate) fn fields(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let end = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        (&line[..end], line[end..].strip_prefix(b":").unwrap_or_default().trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn compression(change: impl FnOnce(&mut BackendConfig)) -> Compression {
        let mut backend = BackendConfig::default();
        backend.compress.enabled = true;
        change(&mut backend);
        Compression::new(&backend).unwrap()
    }

    fn suits(it: &Compression, status: u16, lines: &str) -> bool {
        let lines = format!("Content-Type: text/html; charset=utf-8\r\n{lines}");
        it.suits_stored(status, 5000, lines.as_bytes(), Some(1))
    }

    #[test]
    fn types_are_patterns_without_parameters() {
        let it = compression(|_| {});
        for (content_type, holds) in [
            ("text/html", true),
            ("Text/CSS ; charset=utf-8", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("application/zip", false),
            ("", false),
        ] {
            assert_eq!(it.has_type(content_type.as_bytes()), holds, "{content_type}");
        }
        let all = compression(|it| it.compress.types = vec!["*/*".into()]);
        assert!(all.has_type(b"image/png") && !all.has_type(b"text/event-stream"));
    }

    #[test]
    fn what_would_become_wrong_is_left_alone() {
        let it = compression(|it| it.compress.private = true);
        assert!(suits(&it, 200, "Cache-Control: max-age=5, public\r\n"));
        assert!(suits(&it, 404, "Vary: Accept-Encoding\r\n"));
        for lines in [
            "Content-Encoding: br\r\n",
            "content-encoding: identity\r\n",
            "Cache-Control: max-age=5\r\nCache-Control: public, No-Transform\r\n",
            "Content-Digest: sha-256=:AA==:\r\n",
            "Repr-Digest: sha-256=:AA==:\r\n",
            "Digest: SHA-256=AA==\r\n",
            "Content-MD5: AA==\r\n",
            "Content-Range: bytes 0-1/2\r\n",
        ] {
            assert!(!suits(&it, 200, lines), "{lines}");
        }
        for status in [204, 205, 206, 304] {
            assert!(!suits(&it, status, ""), "{status}");
        }
        let bounds = [(1023, false), (1024, true), (16 << 20, true), ((16 << 20) + 1, false)];
        for (bytes, holds) in bounds {
            assert_eq!(it.suits_file(bytes, b"Content-Type: text/css\r\n"), holds, "{bytes}");
        }
    }

    /// CVE-2013-3587 (BREACH).
    #[test]
    fn what_may_hold_a_secret_is_left_alone_unless_the_route_says_so() {
        let (safe, private) = (compression(|_| {}), compression(|it| it.compress.private = true));
        for lines in [
            "Set-Cookie: a=b\r\n",
            "Cache-Control: private=\"x\", max-age=5\r\n",
            "Cache-Control: no-store\r\n",
            "Vary: Accept, Cookie\r\n",
            "vary: authorization\r\n",
            "Vary: *\r\n",
        ] {
            assert!(!suits(&safe, 200, lines) && suits(&private, 200, lines), "{lines}");
        }
        let keyed = compression(|it| it.cache.key_cookies = vec!["sid".into()]);
        let css = b"Content-Type: text/css\r\n";
        assert!(!keyed.suits_stored(200, 5000, css, Some(1)) && keyed.suits_file(5000, css));
        assert!(keyed.suits_stored(200, 5000, css, None), "requests to origins have no cookies");
        assert!(safe.suits_stored(200, 5000, css, Some(1)));
        assert!(!safe.suits_stored(200, 5000, css, Some(0)), "each use is the application's word");
        assert!(safe.suits_file(5000, b"Content-Type: text/css\r\nCache-Control: private\r\n"));
    }
}
