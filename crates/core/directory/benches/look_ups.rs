//! Look-ups a second.
fn main() {}
