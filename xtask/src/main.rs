//! Checks and generators of the repo.

fn main() {}
