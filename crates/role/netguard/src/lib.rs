//! The small privileged process.
