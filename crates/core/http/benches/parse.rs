//! Nanoseconds per parse of ordinary requests.
fn main() {}
