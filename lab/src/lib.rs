//! Clients that load what runs in a test bed, observe it and compare every byte ([`load`]).
//!
//! The beds are those of `skep-testbed`; the experiments are part of the binary.

mod limits;
pub mod load;

pub use limits::IN_FLIGHT_MAX;
