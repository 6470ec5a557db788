//! Files of a folder: from a path to what is there, and its bytes.

pub(crate) mod catalog;
pub(crate) mod file;
pub(crate) mod look_up;
