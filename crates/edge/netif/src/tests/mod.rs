//! Tests in network namespaces: real devices, real neighbours. They need root
//! and say loudly when they are skipped without it.

mod bed;
mod claims;
mod devices;
mod faults;
mod hold;
mod vips;
