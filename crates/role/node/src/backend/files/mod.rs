//! Files of a folder: look-up by path, and reading of their bytes.

pub(crate) mod catalog;
pub(crate) mod file;
pub(crate) mod look_up;
