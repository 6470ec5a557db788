//! Tests of the memories of a cluster together.

mod replacement;
