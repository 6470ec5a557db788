//! The one normalisation of paths: routing, file look-up and cache key use it.
use crate::Reject;
use std::borrow::Cow;

/// Decodes a path once, collapses `//`, resolves `.` and `..`.
pub fn normalise(path: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    let _ = path;
    unimplemented!("normalise")
}

/// Appends a normalised path as it may stand in a target or a Location.
pub fn write_encoded(out: &mut Vec<u8>, path: &[u8]) {
    let _ = (out, path);
    unimplemented!("write_encoded")
}
