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
    /// How responses are compressed for clients that accept it. Files and stored responses are compressed once,
    /// and each variant is kept in the nodes' memory like other objects. Responses with a sidecar, a
    /// Content-Encoding, `no-transform` or a digest are not compressed, nor are partial ones (206).
    CompressConfig at "compress" {
        /// Whether responses are compressed.
        enabled: bool = false => Kind::Switch, live;
        /// Content codings, `zstd`, `br` and `gzip`, in order of preference, which applies where a client has
        /// none of its own.
        codings: Vec<String> = vec!["zstd".into(), "br".into(), "gzip".into()]
            => Kind::Texts(Form::ContentCoding), live;
        /// Media types of responses that are compressed; `*` stands for any characters.
        types: Vec<String> = TYPES.iter().map(|&it| it.to_owned()).collect()
            => Kind::Texts(Form::MediaType), live;
        /// Size of the smallest response that is compressed. For responses of about one packet, compression
        /// gains nothing.
        size_bytes_min: u64 = KIB => bytes(1..=MIB), live;
        /// Size of the largest response that is compressed. Larger ones are sent as they are; use sidecars to
        /// have them compressed.
        size_bytes_max: u64 = 16 * MIB => bytes(KIB..=64 * MIB), live;
        /// Level of zstd. While more responses wait for compression than are being compressed, all levels are
        /// lowered to the fastest one.
        zstd_level: u32 = 9 => count(1..=19), live;
        /// Level of br.
        br_level: u32 = 5 => count(0..=11), live;
        /// Level of gzip.
        gzip_level: u32 = 6 => count(1..=9), live;
        /// Whether responses of a pool are also compressed if they may be for one client: those that are not
        /// stored or are stored without a lifetime, and those that have Set-Cookie or depend on cookies. An
        /// attacker who can make a browser send requests, and can see the length of the responses, can guess
        /// secrets in responses that repeat a part of the request (BREACH, CVE-2013-3587): enable this only if
        /// no response contains both. Such responses are never compressed for requests from other sites
        /// (Sec-Fetch-Site).
        private: bool = false => Kind::Switch, live;
    }
}
