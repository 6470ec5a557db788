//! Parses the text of a purge as an operator types it.

use skep_http::Host;
use skep_http::path::{self, Reading};
use skep_wire::cache::{PurgePlace, PurgeWhat};
use skep_wire::limits::{PURGE_TAG_BYTES_MAX, PURGE_TARGET_BYTES_MAX};

/// A text that names nothing that can be purged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?}: {why}. Expected /PATH or http://HOST/PATH, with * at the end for all that begins \
     so, or tag:NAME"
)]
pub struct PurgeTextError {
    text: String,
    why: String,
}

/// Parses `/path`, `/prefix*`, either with `http://host` in front, or `tag:name`.
///
/// # Errors
/// The text has another form.
pub fn parse_purge(text: &str) -> Result<PurgeWhat, PurgeTextError> {
    let parsed = match text.strip_prefix("tag:") {
        Some(tag) => read_tag(tag),
        None => read_place(text),
    };
    parsed.map_err(|why| {
        let shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
        PurgeTextError { text: shown, why }
    })
}

/// Characters of a text that its error message repeats.
const SHOWN_CHARACTERS_MAX: usize = 200;

fn read_tag(tag: &str) -> Result<PurgeWhat, String> {
    if tag.trim() != tag || tag.is_empty() || tag.chars().any(char::is_control) {
        return Err("a tag is a word".to_owned());
    }
    if tag.len() > PURGE_TAG_BYTES_MAX {
        return Err(format!("a tag has at most {PURGE_TAG_BYTES_MAX} bytes"));
    }
    Ok(PurgeWhat::Tag(tag.to_owned()))
}

fn read_place(text: &str) -> Result<PurgeWhat, String> {
    let (text, is_prefix) = match text.strip_suffix('*') {
        Some(prefix) => (prefix, true),
        None => (text, false),
    };
    if text.contains('*') {
        return Err("a * stands at the end only; write %2A for the character".to_owned());
    }
    if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '#') {
        return Err("spaces and # are not in URLs; write %20 or %23".to_owned());
    }
    let after_scheme = ["http://", "https://"].iter().find_map(|it| text.strip_prefix(it));
    let (host, target) = match after_scheme {
        Some(rest) => {
            let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(read_host(host)?), target)
        }
        None => (None, text),
    };
    let target = read_target(target, host.is_some())?;
    let place = PurgePlace { target, host };
    Ok(if is_prefix { PurgeWhat::Prefix(place) } else { PurgeWhat::Url(place) })
}

fn read_host(host: &str) -> Result<String, String> {
    let host = Host::parse(host.as_bytes()).map_err(|error| format!("{host:?}: {error}"))?;
    Ok(String::from_utf8_lossy(host.name).to_ascii_lowercase())
}

/// The normalised form with which requests are compared: all spellings of a path are equal, a query
/// is compared literally.
fn read_target(target: &str, has_host: bool) -> Result<String, String> {
    let (path, query) = target.split_once('?').map_or((target, None), |(p, q)| (p, Some(q)));
    let path = if path.is_empty() && has_host { "/" } else { path };
    if !path.starts_with('/') {
        return Err("it does not begin with a slash".to_owned());
    }
    let read = path::read(path.as_bytes(), Reading::Origins).map_err(|error| error.to_string())?;
    let mut target = read.into_place().into_owned();
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    if target.len() > PURGE_TARGET_BYTES_MAX {
        return Err(format!("path and query have at most {PURGE_TARGET_BYTES_MAX} bytes"));
    }
    String::from_utf8(target).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_can_be_typed_is_understood() {
        for (text, expected) in [
            ("/", "/"),
            ("/a/../b//c%61?q=%61", "/b/ca?q=%61"),
            ("/a b", ""),
            ("/a%20b", "/a%20b"),
            ("/\u{e9}", "/%C3%A9"),
            ("/img/*", "/img/*"),
            ("/a%2A", "/a*"),
            ("/a%2bb%2fc", "/a+b%2Fc"),
            ("http://Host.Example:8080/x", "http://host.example/x"),
            ("https://host", "http://host/"),
            ("http://host?q*", "http://host/?q*"),
            ("http://[::1]/x", "http://[::1]/x"),
            ("tag:a b", "tag:a b"),
            ("tag:/x*", "tag:/x*"),
        ] {
            match parse_purge(text) {
                Ok(what) => assert_eq!(what.to_string(), expected, "{text}"),
                Err(_) => assert_eq!(expected, "", "{text}"),
            }
        }
        let what = parse_purge("/a%2A").unwrap();
        assert!(matches!(what, PurgeWhat::Url(_)));
        assert!(matches!(parse_purge("*"), Err(PurgeTextError { .. })));
    }

    #[test]
    fn the_rest_is_refused_with_the_reason() {
        let long = "/x".repeat(PURGE_TARGET_BYTES_MAX);
        for (text, reason) in [
            ("", "slash"),
            ("a", "slash"),
            ("*", "slash"),
            ("/a*b", "at the end"),
            ("/a#b", "%23"),
            ("/../x", "root"),
            ("/%zz", "escape"),
            ("/a\\b", "backslash"),
            ("http:///x", "host"),
            ("http://a b/x", "%20"),
            ("http://u@h/x", "user"),
            ("tag:", "word"),
            ("tag: x", "word"),
            (&long, "bytes"),
        ] {
            let error = parse_purge(text).unwrap_err().to_string();
            assert!(error.to_lowercase().contains(reason), "{text:?}: {error}");
            assert!(error.len() < 1_000);
        }
    }
}
