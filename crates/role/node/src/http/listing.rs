//! Directory listings: an HTML page for people, JSON for programs.

use std::fmt::Write;

use skep_http::path::{self, Reading, write_encoded};

use crate::disk::{DiskError, FileKind, Wait};
use crate::limits::{LISTING_ENTRIES_MAX, PATH_BYTES_MAX};
use crate::model::route::Route;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fffdf7}h1{font-size:1.3rem;word-break:break-all}\
table{width:100%;border-collapse:collapse}td,th{padding:.35rem .5rem;text-align:left;\
border-bottom:1px solid #e8e2d0}td.n,th.n{text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}a{color:#8a5a00;text-decoration:none}a:hover{\
text-decoration:underline}footer{margin-top:1rem;color:#777;font-size:.85rem}\
@media(prefers-color-scheme:dark){body{background:#1c1a15;color:#ddd}a{color:#f0b840}\
td,th{border-color:#3a352a}}";

/// One line of a listing.
struct ListingEntry {
    name: Vec<u8>,
    directory: bool,
    bytes: u64,
    mtime_s: u64,
}

/// A listing of a directory.
pub(crate) struct Listing {
    entries: Vec<ListingEntry>,
    cut: bool,
}

impl Listing {
    /// Reads the directory at a normalised path. Waits for the disk.
    pub(crate) fn read(route: &Route, path: &[u8]) -> Result<Self, DiskError> {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let (folder, root) = (route.folder().ok_or(DiskError::NotFound)?, route.open_root()?);
        let (directory, kind) = root.open_at(relative, Wait::Yes)?;
        if kind != FileKind::Directory {
            return Err(DiskError::NotFound);
        }
        let mut entries = Vec::new();
        let mut cut = false;
        for entry in rustix::fs::Dir::read_from(&directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            let full = [relative, &name].concat();
            let hidden = name == b"." || name == b".." || !folder.shows(&[b"/", &*name].concat());
            if hidden || !can_be_asked_for(&full) || !route.answers_for(&full, relative) {
                continue;
            }
            if entries.len() == LISTING_ENTRIES_MAX {
                cut = true;
                break;
            }
            // Files that no request could get (dangling links, links that lead out of the root) are
            // not listed.
            match root.look_at(&full) {
                Ok(FileKind::File(stamp)) => entries.push(ListingEntry {
                    name,
                    directory: false,
                    bytes: stamp.version.bytes,
                    mtime_s: u64::try_from(stamp.version.mtime_ns / 1_000_000_000).unwrap_or(0),
                }),
                Ok(FileKind::Directory) => {
                    entries.push(ListingEntry { name, directory: true, bytes: 0, mtime_s: 0 });
                }
                _ => {}
            }
        }
        entries.sort_by(|a, b| b.directory.cmp(&a.directory).then_with(|| a.name.cmp(&b.name)));
        Ok(Self { entries, cut })
    }

    /// The HTML page.
    pub(crate) fn html(&self, path: &[u8]) -> Vec<u8> {
        let title = escape(&String::from_utf8_lossy(path));
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta \
             name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n<table><thead><tr>\
             <th>Name</th><th class=\"n\">Size</th><th class=\"n\">Changed (UTC)</th></tr>\
             </thead><tbody>\n"
        );
        if path != b"/" {
            page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
        }
        for entry in &self.entries {
            entry.write_row(&mut page);
        }
        page.push_str("</tbody></table>\n<footer>");
        let _ = write!(page, "{} entries", self.entries.len());
        page.push_str(if self.cut { ", and more that are not shown" } else { "" });
        page.push_str("</footer></body></html>\n");
        page.into_bytes()
    }

    /// The listing for programs: a JSON array of objects.
    pub(crate) fn json(&self) -> Vec<u8> {
        let entries: Vec<serde_json::Value> = self
            .entries
            .iter()
            .map(|entry| {
                serde_json::json!({
                    "name": String::from_utf8_lossy(&entry.name),
                    "type": if entry.directory { "directory" } else { "file" },
                    "bytes": (!entry.directory).then_some(entry.bytes),
                    "modified_unix_s": (!entry.directory).then_some(entry.mtime_s),
                })
            })
            .collect();
        let mut body = serde_json::Value::Array(entries).to_string().into_bytes();
        body.push(b'\n');
        body
    }
}

impl ListingEntry {
    fn write_row(&self, page: &mut String) {
        let mut link = b"./".to_vec();
        write_encoded(&mut link, &self.name);
        let slash = if self.directory { "/" } else { "" };
        let name = escape(&String::from_utf8_lossy(&self.name));
        let link = escape(&String::from_utf8_lossy(&link));
        let (size, changed) = match self.directory {
            true => (String::new(), String::new()),
            false => (size(self.bytes), date(self.mtime_s)),
        };
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{link}{slash}\">{name}{slash}</a></td><td class=\"n\">{size}</td>\
             <td class=\"n\">{changed}</td></tr>"
        );
    }
}

/// Whether a file of this name can be requested.
fn can_be_asked_for(relative: &[u8]) -> bool {
    let mut target = vec![b'/'];
    write_encoded(&mut target, relative);
    relative.len() <= PATH_BYTES_MAX && path::read(&target, Reading::Files).is_ok()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

/// `06 Nov 1994 08:49`, from the HTTP date.
fn date(unix_s: u64) -> String {
    let date = skep_http::HttpDate(unix_s).format();
    String::from_utf8_lossy(&date[5..22]).into_owned()
}
