//! Tests in network namespaces, with real devices and neighbours. They need root; without it they
//! are skipped with a clear message.

mod bed;
mod claims;
mod devices;
mod faults;
mod hold;
mod vips;
