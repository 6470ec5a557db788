//! A response that names a file in place of its body, and the fields of a reply with that file.

use std::borrow::Cow;

use skep_http::forward::write_kept_fields;
use skep_http::{ResponseHead, encode};
use skep_httpcache::TARGETED_FIELDS;

use crate::http::respond::ReplyLines;
use crate::limits::TOLD_FILE_BYTES_MAX;
use crate::model::field_lines::{content_type_of, is_type, without_lines};
use crate::model::file_names::{NAMING_FIELDS, NameFault};
use crate::model::object::Object;
use crate::model::pool_backend::PoolBackend;

/// Fields of a response that describe its body or its transfer, not the file.
const OF_BODY: &[&str] = &[
    "accept-ranges",
    "age",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-md5",
    "content-range",
    "date",
    "digest",
    "etag",
    "last-modified",
    "repr-digest",
    "server",
];

/// Fields that concern the file: useless if another reply is sent in its place.
const OF_FILE: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-language",
    "content-location",
    "expires",
    "pragma",
];

/// Prefix of the fields that instruct nginx.
const ORDERS: &[u8] = b"x-accel-";

/// A response that names a file.
pub(crate) struct NamedFile {
    /// The key of the file.
    pub(crate) key: Result<Vec<u8>, NameFault>,
    /// The name, for the log.
    pub(crate) told: String,
    /// Content-Type of the application, if it sends one.
    content_type: Option<String>,
    /// Complete field lines of the application, without Content-Type.
    own: Vec<u8>,
    /// Complete field lines of the route.
    of_route: Box<[u8]>,
    /// Names of fields that are taken neither from the application nor from the file.
    without: Vec<String>,
    /// Complete field lines on how the cache of the pool handled the request.
    pub(crate) cache: Vec<u8>,
}

impl NamedFile {
    pub(crate) fn of(
        head: &ResponseHead<'_, '_>,
        key: Result<Vec<u8>, NameFault>,
        (pool, cache): (&PoolBackend, Vec<u8>),
    ) -> Self {
        let without = &pool.response_without;
        let is_left_out = |name: &[u8]| is_of_body(name) || is_listed(without, name);
        let mut own = Vec::new();
        write_kept_fields(&mut own, head, |name| is_left_out(name) || is_type(name));
        let says =
            |name: &str| is_listed(without, name.as_bytes()) || head.fields.get(name).is_some();
        if !says("cache-control") && !says("expires") {
            // The application authorises each request for the file; caches would store a file with a date
            // unless told otherwise.
            own.extend_from_slice(b"Cache-Control: private\r\n");
        }
        let content_type =
            head.fields.get("content-type").filter(|_| !is_left_out(b"content-type"));
        let told = NAMING_FIELDS.iter().find_map(|name| head.fields.get(name)).unwrap_or_default();
        let told = String::from_utf8_lossy(&told[..told.len().min(TOLD_FILE_BYTES_MAX)]);
        Self {
            key,
            told: told.escape_debug().to_string(),
            content_type: content_type.map(|value| String::from_utf8_lossy(value).into_owned()),
            own,
            of_route: pool.response_lines.clone(),
            without: without.clone(),
            cache,
        }
    }

    /// Adds the lines that assign the client's session to the server that named the file.
    pub(crate) fn begin_session(&mut self, lines: &[u8]) {
        self.own.extend_from_slice(lines);
    }

    /// The application's fields of a reply that is sent in place of the file and must not be stored; and
    /// `cache`.
    pub(crate) fn lines_without_file(&self, cache: &[u8]) -> Vec<u8> {
        let mut lines =
            without_lines(&self.own, |name| is_one_of(OF_FILE, name) || is_targeted(name));
        lines.extend_from_slice(b"Cache-Control: no-store\r\n");
        lines.extend_from_slice(cache);
        lines
    }

    /// Fields of a reply with the file `object`.
    pub(crate) fn lines<'a>(&'a self, object: &'a Object) -> ReplyLines<'a> {
        let mut lines = Vec::with_capacity(object.lines.len() + self.own.len() + 64);
        if let Some(content_type) = &self.content_type {
            encode::write_field(&mut lines, "Content-Type", content_type.as_bytes());
        }
        lines.extend(without_lines(&object.lines, |name| {
            is_type(name) && self.content_type.is_some() || is_listed(&self.without, name)
        }));
        lines.extend_from_slice(&self.own);
        lines.extend_from_slice(&self.of_route);
        let refusal =
            [self.lines_without_file(&self.cache), without_lines(&self.of_route, is_type)].concat();
        ReplyLines {
            content_type: content_type_of(&lines),
            lines: Cow::Owned(lines),
            cache: Cow::Owned(self.cache.clone()),
            refusal: Cow::Owned(refusal),
        }
    }
}

/// Whether a field does not apply to a file sent in place of the body.
pub(crate) fn is_of_body(name: &[u8]) -> bool {
    let is_order = name.get(..ORDERS.len()).is_some_and(|it| it.eq_ignore_ascii_case(ORDERS));
    is_order || is_one_of(OF_BODY, name) || is_one_of(&NAMING_FIELDS, name)
}

fn is_targeted(name: &[u8]) -> bool {
    is_one_of(&TARGETED_FIELDS, name)
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|it| name.eq_ignore_ascii_case(it.as_bytes()))
}

fn is_listed(names: &[String], name: &[u8]) -> bool {
    names.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(name))
}
