//! Tests over several parts of a node.

mod partition;
