//! Tests of the stores of a cluster together.

mod replacement;
