//! Media types by file extension.

/// Media type of the file at `path`, by the extension of its last segment;
/// `application/octet-stream` when unknown.
pub fn for_path(path: &[u8]) -> &'static str {
    let _ = path;
    unimplemented!("for_path")
}

/// Media type of an extension (without dot, any case).
pub fn for_extension(extension: &[u8]) -> Option<&'static str> {
    let _ = extension;
    unimplemented!("for_extension")
}
