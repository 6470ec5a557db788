//! The memories of a cluster together.

mod replacement;
