//! Clients that load what runs in a test bed, watch it and compare every byte ([`load`]).
//!
//! The beds themselves are those of `skep-testbed`; the experiments in them are the binary's.

mod limits;
pub mod load;

pub use limits::IN_FLIGHT_MAX;
