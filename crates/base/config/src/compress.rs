//! How responses are compressed: a part of the settings table.

use skep_units::{KIB, MIB};

use crate::kind::{Form, Kind, bytes, count};
use crate::table::table;

/// Textual media types, whatever their main type.
const TYPES: &[&str] = &[
    "text/*",
    "application/javascript",
    "application/json",
    "application/*+json",
    "application/wasm",
    "application/xml",
    "application/*+xml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
];

table! {
    /// How responses are compressed for clients that accept it. Files and stored responses are compressed
    /// once, and each variant is kept in the nodes' memory as other objects are. What has a sidecar, a
    /// Content-Encoding, `no-transform` or a digest is left alone, as are parts (206).
    CompressConfig at "compress" {
        /// Whether responses are compressed.
        enabled: bool = false => Kind::Switch, live;
        /// Content codings, `zstd`, `br` and `gzip`, the preferred one first: it is used where a client has
        /// no preference of its own.
        codings: Vec<String> = vec!["zstd".into(), "br".into(), "gzip".into()]
            => Kind::Texts(Form::ContentCoding), live;
        /// Media types of responses that are compressed; a `*` stands for any characters.
        types: Vec<String> = TYPES.iter().map(|&it| it.to_owned()).collect()
            => Kind::Texts(Form::MediaType), live;
        /// Bytes of the smallest response that is compressed. Below a packet or so there is nothing to gain.
        size_bytes_min: u64 = KIB => bytes(1..=MIB), live;
        /// Bytes of the largest response that is compressed. Larger ones are sent as they are; sidecars
        /// are the way to have them compressed.
        size_bytes_max: u64 = 16 * MIB => bytes(KIB..=64 * MIB), live;
        /// Level of zstd. When more responses wait to be compressed than are being compressed, all levels
        /// fall to the fastest one.
        zstd_level: u32 = 9 => count(1..=19), live;
        /// Level of br.
        br_level: u32 = 5 => count(0..=11), live;
        /// Level of gzip.
        gzip_level: u32 = 6 => count(1..=9), live;
        /// Whether responses of a pool are compressed, too, that may be for one client: those that are not
        /// stored, or stored without a lifetime, and those that have Set-Cookie or depend on cookies. Anyone who can make a browser
        /// send requests, and sees how long the responses are, can guess secrets in those that
        /// repeat a part of the request (BREACH, CVE-2013-3587): set it only where responses do not
        /// do both. Requests from other sites (Sec-Fetch-Site) never get such responses compressed.
        private: bool = false => Kind::Switch, live;
    }
}
