//! Files that an application names for this node to send in place of a body: `X-Accel-Redirect` of
//! nginx, `X-Sendfile` of mod_xsendfile.
//!
//! Such files are in a folder that the operator configures and that no client path reaches: the
//! application authorises each request.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use skep_config::{BackendConfig, ContentPlacement};
use skep_http::ResponseHead;
use skep_http::path::{self, Reading};

/// An escaped URL path below `sendfile_path`.
const ACCEL_REDIRECT: &str = "x-accel-redirect";

/// A file system path without escapes.
const SENDFILE: &str = "x-sendfile";

/// Response fields that name files; they are never sent to clients.
pub(crate) const NAMING_FIELDS: [&str; 2] = [ACCEL_REDIRECT, SENDFILE];

/// Request fields by which a proxy tells an application how to name files (Rack): sent by a client they
/// would determine which file is sent (CVE-2025-61780).
pub(crate) const MAPPING_FIELDS: [&str; 4] =
    [ACCEL_REDIRECT, SENDFILE, "x-sendfile-type", "x-accel-mapping"];

/// How names of files are read.
#[derive(Debug)]
pub(crate) struct FileNames {
    /// The folder, without a slash at its end.
    root: Box<[u8]>,
    /// The prefix of URL paths, decoded, without a slash at its end.
    path: Box<[u8]>,
    pub(crate) counts: Arc<FileCounts>,
}

/// Why a name refers to no file of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameFault {
    #[error("more than one file is named")]
    Several,
    #[error("it is no path")]
    Malformed,
    #[error("it does not begin with `sendfile_path`, or `sendfile_root`")]
    Outside,
}

/// Outcomes for the files that a pool's applications have named.
#[derive(Debug, Default)]
pub(crate) struct FileCounts {
    results: [AtomicU64; FILE_RESULTS.len()],
    /// The second of the last log line, counted from 1.
    told_s: AtomicU64,
}

/// Names of the outcomes in metrics.
pub(crate) const FILE_RESULTS: [&str; 4] = ["sent", "missing", "refused", "failed"];

/// The outcome for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileResult {
    Sent,
    /// The file does not exist or may not be read.
    Missing,
    /// Its name refers to nothing in the folder.
    Refused,
    /// It could not be read.
    Failed,
}

impl FileNames {
    /// `None`: applications may not name files.
    pub(crate) fn new(config: &BackendConfig, counts: &Arc<FileCounts>) -> Option<Self> {
        let forward = &config.forward;
        let root = forward.sendfile_root.as_deref()?;
        // Config validation ensures that the path can be parsed.
        let path = path::read(forward.sendfile_path.as_bytes(), Reading::Files).ok()?;
        let path = path.key().strip_suffix(b"/").unwrap_or(path.key());
        Some(Self { root: plain(root), path: path.into(), counts: Arc::clone(counts) })
    }

    /// The key of the file that a response names in place of its body; `None`: it names none.
    pub(crate) fn named(&self, head: &ResponseHead<'_, '_>) -> Option<Result<Vec<u8>, NameFault>> {
        // Other statuses are errors or have no body: there is no file to send.
        if !matches!(head.status, 200 | 206) {
            return None;
        }
        let values = |name| head.fields.all(name).map(move |value| (name, value));
        let mut named = NAMING_FIELDS.into_iter().flat_map(values);
        let (field, value) = named.next()?;
        Some(match named.next() {
            Some(_) => Err(NameFault::Several),
            None if field == SENDFILE => self.of_file(value),
            None => self.of_url(value),
        })
    }

    /// Parses a URL path as a client's path is parsed.
    fn of_url(&self, value: &[u8]) -> Result<Vec<u8>, NameFault> {
        let sent = value.split(|byte| *byte == b'?').next().unwrap_or_default();
        let path = path::read(sent, Reading::Files).map_err(|_| NameFault::Malformed)?;
        let rest = path.key().strip_prefix(&*self.path).ok_or(NameFault::Outside)?;
        if rest.starts_with(b"/") { Ok(rest.to_vec()) } else { Err(NameFault::Outside) }
    }

    /// Parses a file path: it has no escapes, and none of its names leads upwards.
    fn of_file(&self, value: &[u8]) -> Result<Vec<u8>, NameFault> {
        if !value.starts_with(b"/") {
            return Err(NameFault::Malformed);
        }
        let names = || value.split(|byte| *byte == b'/').filter(|it| !matches!(*it, b"" | b"."));
        if names().any(|name| name == b"..") {
            return Err(NameFault::Outside);
        }
        let path: Vec<u8> = names().flat_map(|name| [&b"/"[..], name]).flatten().copied().collect();
        let rest = path.strip_prefix(&*self.root).ok_or(NameFault::Outside)?;
        if rest.starts_with(b"/") { Ok(rest.to_vec()) } else { Err(NameFault::Outside) }
    }
}

impl FileCounts {
    pub(crate) fn count(&self, result: FileResult) {
        self.results[result as usize].fetch_add(1, Relaxed);
    }

    /// Counts by the names in [`FILE_RESULTS`].
    pub(crate) fn by_result(&self) -> BTreeMap<&'static str, u64> {
        let counts = self.results.iter().map(|count| count.load(Relaxed));
        FILE_RESULTS.into_iter().zip(counts).collect()
    }

    /// Whether a file that was not sent may be logged: at most one per second.
    pub(crate) fn may_tell(&self, now_ms: u64) -> bool {
        let now_s = now_ms / 1000 + 1;
        self.told_s.swap(now_s, Relaxed) != now_s
    }
}

/// The folder of the files, configured as that of a route.
pub(crate) fn named_files_folder(config: &BackendConfig) -> Option<BackendConfig> {
    let content = match config.content {
        ContentPlacement::Shared => ContentPlacement::Shared,
        ContentPlacement::Local | ContentPlacement::Partition => ContentPlacement::Local,
    };
    Some(BackendConfig {
        root: Some(config.forward.sendfile_root.clone()?),
        content,
        index: Vec::new(),
        dotfiles: config.dotfiles,
        symlinks: config.symlinks,
        precompressed: false,
        ..BackendConfig::default()
    })
}

/// An absolute path with single slashes.
fn plain(path: &Path) -> Box<[u8]> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let names = names.filter(|it| !matches!(*it, b"" | b"."));
    names.flat_map(|name| [&b"/"[..], name]).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use skep_config::ForwardConfig;
    use skep_http::limits::RESPONSE_HEAD;
    use skep_http::{FieldSlots, Method, parse_response};

    fn named(path: &str, fields: &str) -> Option<Result<String, NameFault>> {
        let forward = ForwardConfig {
            sendfile_root: Some("/srv//protected/".into()),
            sendfile_path: path.to_owned(),
            ..ForwardConfig::default()
        };
        let config = BackendConfig { forward, ..BackendConfig::default() };
        let names = FileNames::new(&config, &Arc::default()).unwrap();
        let text = format!("HTTP/1.1 {fields}Content-Length: 0\r\n\r\n");
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, text.as_bytes(), Method::Get, &RESPONSE_HEAD);
        let named = names.named(&head.unwrap())?;
        Some(named.map(|key| String::from_utf8(key).unwrap()))
    }

    #[test]
    fn a_path_of_urls_is_below_the_path_of_the_config() {
        let of = |path: &str| {
            named("/protected/", &format!("200 OK\r\nX-Accel-Redirect: {path}\r\n")).unwrap()
        };
        for (path, key) in [
            ("/protected/a.pdf", "/a.pdf"),
            ("/protected/a/../b%20c%3F.pdf?x=1", "/b c?.pdf"),
            ("//protected//a", "/a"),
            ("/protected/", "/"),
        ] {
            assert_eq!(of(path).as_deref(), Ok(key), "{path}");
        }
        for outside in
            ["/protected", "/protectedx/a", "/a", "/protected/../a", "/protected/%2e%2e/a"]
        {
            assert_eq!(of(outside), Err(NameFault::Outside), "{outside}");
        }
        for malformed in ["", "a", "@named", "/protected/a%2Fb", "/protected/%00", "http://a/b"] {
            assert_eq!(of(malformed), Err(NameFault::Malformed), "{malformed:?}");
        }
        // Paths above the root are rejected.
        assert!(of("/protected/../../etc/passwd").is_err());
        let all = named("/", "200 OK\r\nX-Accel-Redirect: /a\r\n");
        assert_eq!(all, Some(Ok("/a".to_owned())));
    }

    #[test]
    fn the_path_of_a_file_is_below_the_folder() {
        let of = |path: &str| named("/", &format!("200 OK\r\nX-Sendfile: {path}\r\n")).unwrap();
        for (path, key) in [
            ("/srv/protected/a.pdf", "/a.pdf"),
            ("/srv/protected//a/./b%20c", "/a/b%20c"),
            ("/srv/protected/..a", "/..a"),
        ] {
            assert_eq!(of(path).as_deref(), Ok(key), "{path}");
        }
        for outside in [
            "/srv/protected",
            "/srv/protectedx/a",
            "/etc/passwd",
            "/srv/protected/../a",
            "/srv/protected/a/..",
        ] {
            assert_eq!(of(outside), Err(NameFault::Outside), "{outside}");
        }
        for malformed in ["", "a.pdf", "../a"] {
            assert_eq!(of(malformed), Err(NameFault::Malformed), "{malformed:?}");
        }
    }

    #[test]
    fn one_file_is_named_by_what_succeeds() {
        let one = "X-Accel-Redirect: /a\r\n";
        assert_eq!(named("/", "200 OK\r\n"), None);
        for status in ["201 C", "304 N", "404 N", "500 E"] {
            assert_eq!(named("/", &format!("{status}\r\n{one}")), None);
        }
        assert!(named("/", &format!("206 P\r\n{one}")).unwrap().is_ok());
        for two in [format!("{one}{one}"), format!("{one}X-Sendfile: /srv/protected/a\r\n")] {
            assert_eq!(named("/", &format!("200 OK\r\n{two}")), Some(Err(NameFault::Several)));
        }
    }
}
