//! Skep against its peers.

fn main() {}
