//! The binary: command line and one composition root.

fn main() {}
