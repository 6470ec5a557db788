//! Media types by file extension, from the IANA registry and, where it has no entry,
//! common use. `text/*` is declared UTF-8, the usual encoding today; XML and JSON
//! declare or imply their charset, so no charset is added.

/// Media type of files without a known extension.
pub const UNKNOWN: &str = "application/octet-stream";

/// Longest extension of the table, in bytes.
const EXTENSION_BYTES_MAX: usize = 11;

/// Media type of the file at `path`, by the extension of its last segment; [`UNKNOWN`] if it has
/// none.
pub fn for_path(path: &[u8]) -> &'static str {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    match name.iter().rposition(|b| *b == b'.') {
        // A name with only a leading dot, such as `.profile`, has no extension.
        None | Some(0) => UNKNOWN,
        Some(dot) => for_extension(&name[dot + 1..]).unwrap_or(UNKNOWN),
    }
}

/// Media type of an extension (without the dot, in any case).
pub fn for_extension(extension: &[u8]) -> Option<&'static str> {
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let place = TYPES.binary_search_by_key(&&*lower, |(extension, _)| extension).ok()?;
    Some(TYPES[place].1)
}

/// Sorted by extension.
#[rustfmt::skip]
static TYPES: &[(&[u8], &str)] = &[
    (b"3g2", "video/3gpp2"),
    (b"3gp", "video/3gpp"),
    (b"3gpp", "video/3gpp"),
    (b"7z", "application/x-7z-compressed"),
    (b"aac", "audio/aac"),
    (b"ai", "application/postscript"),
    (b"aif", "audio/x-aiff"),
    (b"aifc", "audio/x-aiff"),
    (b"aiff", "audio/x-aiff"),
    (b"amr", "audio/amr"),
    (b"apk", "application/vnd.android.package-archive"),
    (b"apng", "image/apng"),
    (b"appcache", "text/cache-manifest; charset=utf-8"),
    (b"asc", "text/plain; charset=utf-8"),
    (b"asf", "video/x-ms-asf"),
    (b"asx", "video/x-ms-asf"),
    (b"atom", "application/atom+xml"),
    (b"avi", "video/x-msvideo"),
    (b"avif", "image/avif"),
    (b"avifs", "image/avif"),
    (b"bin", "application/octet-stream"),
    (b"bmp", "image/bmp"),
    (b"br", "application/x-brotli"),
    (b"bz2", "application/x-bzip2"),
    (b"c", "text/plain; charset=utf-8"),
    (b"cbor", "application/cbor"),
    (b"cc", "text/plain; charset=utf-8"),
    (b"cer", "application/pkix-cert"),
    (b"cfg", "text/plain; charset=utf-8"),
    (b"cjs", "text/javascript; charset=utf-8"),
    (b"class", "application/java-vm"),
    (b"conf", "text/plain; charset=utf-8"),
    (b"cpio", "application/x-cpio"),
    (b"cpp", "text/plain; charset=utf-8"),
    (b"crl", "application/pkix-crl"),
    (b"crt", "application/x-x509-ca-cert"),
    (b"crx", "application/x-chrome-extension"),
    (b"css", "text/css; charset=utf-8"),
    (b"csv", "text/csv; charset=utf-8"),
    (b"cur", "image/vnd.microsoft.icon"),
    (b"db", "application/vnd.sqlite3"),
    (b"deb", "application/vnd.debian.binary-package"),
    (b"def", "text/plain; charset=utf-8"),
    (b"der", "application/x-x509-ca-cert"),
    (b"diff", "text/plain; charset=utf-8"),
    (b"djv", "image/vnd.djvu"),
    (b"djvu", "image/vnd.djvu"),
    (b"dll", "application/vnd.microsoft.portable-executable"),
    (b"dmg", "application/x-apple-diskimage"),
    (b"doc", "application/msword"),
    (b"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"dot", "application/msword"),
    (b"ear", "application/java-archive"),
    (b"eml", "message/rfc822"),
    (b"eot", "application/vnd.ms-fontobject"),
    (b"eps", "application/postscript"),
    (b"epub", "application/epub+zip"),
    (b"exe", "application/vnd.microsoft.portable-executable"),
    (b"flac", "audio/flac"),
    (b"flv", "video/x-flv"),
    (b"geojson", "application/geo+json"),
    (b"gif", "image/gif"),
    (b"glb", "model/gltf-binary"),
    (b"gltf", "model/gltf+json"),
    (b"go", "text/plain; charset=utf-8"),
    (b"gpx", "application/gpx+xml"),
    (b"gql", "application/graphql"),
    (b"graphql", "application/graphql"),
    (b"gz", "application/gzip"),
    (b"h", "text/plain; charset=utf-8"),
    (b"heic", "image/heic"),
    (b"heif", "image/heif"),
    (b"hpp", "text/plain; charset=utf-8"),
    (b"htc", "text/x-component; charset=utf-8"),
    (b"htm", "text/html; charset=utf-8"),
    (b"html", "text/html; charset=utf-8"),
    (b"ico", "image/vnd.microsoft.icon"),
    (b"ics", "text/calendar; charset=utf-8"),
    (b"ifb", "text/calendar; charset=utf-8"),
    (b"img", "application/octet-stream"),
    (b"in", "text/plain; charset=utf-8"),
    (b"ini", "text/plain; charset=utf-8"),
    (b"iso", "application/x-iso9660-image"),
    (b"jar", "application/java-archive"),
    (b"java", "text/plain; charset=utf-8"),
    (b"jfif", "image/jpeg"),
    (b"jnlp", "application/x-java-jnlp-file"),
    (b"jp2", "image/jp2"),
    (b"jpe", "image/jpeg"),
    (b"jpeg", "image/jpeg"),
    (b"jpg", "image/jpeg"),
    (b"jpg2", "image/jp2"),
    (b"js", "text/javascript; charset=utf-8"),
    (b"json", "application/json"),
    (b"json5", "application/json5"),
    (b"jsonl", "application/jsonl"),
    (b"jsonld", "application/ld+json"),
    (b"jsonschema", "application/schema+json"),
    (b"jxl", "image/jxl"),
    (b"kar", "audio/midi"),
    (b"key", "application/pgp-keys"),
    (b"kml", "application/vnd.google-earth.kml+xml"),
    (b"kmz", "application/vnd.google-earth.kmz"),
    (b"ktx2", "image/ktx2"),
    (b"latex", "application/x-tex"),
    (b"list", "text/plain; charset=utf-8"),
    (b"log", "text/plain; charset=utf-8"),
    (b"lua", "text/plain; charset=utf-8"),
    (b"lz", "application/x-lzip"),
    (b"m2ts", "video/mp2t"),
    (b"m3u", "audio/mpegurl"),
    (b"m3u8", "application/vnd.apple.mpegurl"),
    (b"m4a", "audio/mp4"),
    (b"m4b", "audio/mp4"),
    (b"m4s", "video/iso.segment"),
    (b"m4v", "video/mp4"),
    (b"map", "application/json"),
    (b"markdown", "text/markdown; charset=utf-8"),
    (b"mathml", "application/mathml+xml"),
    (b"mbox", "application/mbox"),
    (b"md", "text/markdown; charset=utf-8"),
    (b"mid", "audio/midi"),
    (b"midi", "audio/midi"),
    (b"mjs", "text/javascript; charset=utf-8"),
    (b"mka", "audio/matroska"),
    (b"mkv", "video/matroska"),
    (b"mobi", "application/x-mobipocket-ebook"),
    (b"mov", "video/quicktime"),
    (b"mp2", "audio/mpeg"),
    (b"mp3", "audio/mpeg"),
    (b"mp4", "video/mp4"),
    (b"mp4v", "video/mp4"),
    (b"mpd", "application/dash+xml"),
    (b"mpe", "video/mpeg"),
    (b"mpeg", "video/mpeg"),
    (b"mpg", "video/mpeg"),
    (b"mpga", "audio/mpeg"),
    (b"msi", "application/x-msi"),
    (b"msm", "application/octet-stream"),
    (b"msp", "application/octet-stream"),
    (b"ndjson", "application/jsonl"),
    (b"obj", "model/obj"),
    (b"odg", "application/vnd.oasis.opendocument.graphics"),
    (b"odp", "application/vnd.oasis.opendocument.presentation"),
    (b"ods", "application/vnd.oasis.opendocument.spreadsheet"),
    (b"odt", "application/vnd.oasis.opendocument.text"),
    (b"oga", "audio/ogg"),
    (b"ogg", "audio/ogg"),
    (b"ogv", "video/ogg"),
    (b"opus", "audio/ogg"),
    (b"otf", "font/otf"),
    (b"oxps", "application/oxps"),
    (b"p12", "application/x-pkcs12"),
    (b"p7c", "application/pkcs7-mime"),
    (b"p7m", "application/pkcs7-mime"),
    (b"pac", "application/x-ns-proxy-autoconfig"),
    (b"parquet", "application/vnd.apache.parquet"),
    (b"patch", "text/plain; charset=utf-8"),
    (b"pb", "application/protobuf"),
    (b"pdf", "application/pdf"),
    (b"pem", "application/x-x509-ca-cert"),
    (b"pfx", "application/x-pkcs12"),
    (b"pl", "text/plain; charset=utf-8"),
    (b"png", "image/png"),
    (b"pps", "application/vnd.ms-powerpoint"),
    (b"ppt", "application/vnd.ms-powerpoint"),
    (b"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    (b"ps", "application/postscript"),
    (b"psd", "image/vnd.adobe.photoshop"),
    (b"py", "text/plain; charset=utf-8"),
    (b"qoi", "image/qoi"),
    (b"qt", "video/quicktime"),
    (b"rar", "application/vnd.rar"),
    (b"rb", "text/plain; charset=utf-8"),
    (b"rpm", "application/x-rpm"),
    (b"rs", "text/plain; charset=utf-8"),
    (b"rss", "application/rss+xml"),
    (b"rtf", "application/rtf"),
    (b"sh", "text/plain; charset=utf-8"),
    (b"shtml", "text/html; charset=utf-8"),
    (b"sig", "application/pgp-signature"),
    (b"spx", "audio/ogg"),
    (b"sql", "application/sql"),
    (b"sqlite", "application/vnd.sqlite3"),
    (b"sqlite3", "application/vnd.sqlite3"),
    (b"srt", "application/x-subrip"),
    (b"stl", "model/stl"),
    (b"svg", "image/svg+xml"),
    (b"svgz", "image/svg+xml"),
    (b"swf", "application/x-shockwave-flash"),
    (b"tar", "application/x-tar"),
    (b"tex", "application/x-tex"),
    (b"text", "text/plain; charset=utf-8"),
    (b"tga", "image/x-tga"),
    (b"tgz", "application/gzip"),
    (b"tif", "image/tiff"),
    (b"tiff", "image/tiff"),
    (b"toml", "text/plain; charset=utf-8"),
    (b"torrent", "application/x-bittorrent"),
    (b"ts", "video/mp2t"),
    (b"tsv", "text/tab-separated-values; charset=utf-8"),
    (b"ttc", "font/collection"),
    (b"ttf", "font/ttf"),
    (b"txt", "text/plain; charset=utf-8"),
    (b"usdz", "model/vnd.usdz+zip"),
    (b"vcard", "text/vcard; charset=utf-8"),
    (b"vcf", "text/vcard; charset=utf-8"),
    (b"vtt", "text/vtt; charset=utf-8"),
    (b"war", "application/java-archive"),
    (b"wasm", "application/wasm"),
    (b"wav", "audio/wav"),
    (b"weba", "audio/webm"),
    (b"webm", "video/webm"),
    (b"webmanifest", "application/manifest+json"),
    (b"webp", "image/webp"),
    (b"wma", "audio/x-ms-wma"),
    (b"wml", "text/vnd.wap.wml; charset=utf-8"),
    (b"wmv", "video/x-ms-wmv"),
    (b"woff", "font/woff"),
    (b"woff2", "font/woff2"),
    (b"xht", "application/xhtml+xml"),
    (b"xhtml", "application/xhtml+xml"),
    (b"xls", "application/vnd.ms-excel"),
    (b"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"xlt", "application/vnd.ms-excel"),
    (b"xml", "application/xml"),
    (b"xpi", "application/x-xpinstall"),
    (b"xps", "application/oxps"),
    (b"xsd", "application/xml"),
    (b"xsl", "application/xml"),
    (b"xslt", "application/xslt+xml"),
    (b"xul", "application/vnd.mozilla.xul+xml"),
    (b"xz", "application/x-xz"),
    (b"yaml", "application/yaml"),
    (b"yml", "application/yaml"),
    (b"zip", "application/zip"),
    (b"zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_fits() {
        assert!(TYPES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(TYPES.iter().map(|(e, _)| e.len()).max(), Some(EXTENSION_BYTES_MAX));
        assert!(TYPES.iter().all(|(e, _)| !e.iter().any(u8::is_ascii_uppercase)));
        for (extension, media_type) in TYPES {
            assert_eq!(for_extension(extension), Some(*media_type));
            let text = media_type.starts_with("text/");
            assert_eq!(media_type.ends_with("; charset=utf-8"), text, "{media_type}");
        }
    }

    #[test]
    fn last_extension_of_last_segment_counts() {
        assert_eq!(for_path(b"/a.css/b.HTML"), "text/html; charset=utf-8");
        assert_eq!(for_path(b"/x.tar.gz"), "application/gzip");
        assert_eq!(for_path(b"/f.woff2"), "font/woff2");
        assert_eq!(for_path(b"app.wasm"), "application/wasm");
        for unknown in
            ["/a.css/b", "/", "", "/.css", "/a.", "/a.unheard-of", "/a.averylongextension"]
        {
            assert_eq!(for_path(unknown.as_bytes()), UNKNOWN, "{unknown}");
        }
    }
}
