//! Estimates how many distinct things were seen recently, in bounded memory: HyperLogLog over a
//! sliding window.
//!
//! HyperLogLog (Flajolet, Fusy, Gandouet, Meunier: AOFA 2007) keeps, in each of many registers, the
//! highest rank of the hashes that are mapped to it. Here a register is one word with the highest
//! rank of each of the last time slots, so that old observations expire by themselves, and threads
//! can share it as an atomic.
//!
//! ```text
//!  hash --Observation--> register, rank --WindowRegister::raised--> a word, kept by the caller
//!                                                                     | highest
//!                                          merge: the union <-- Sketch +--> estimate
//! ```
//!
//! Invariants: repeated observations change nothing, in any order; merging two sketches gives the
//! sketch of the union, whichever machines they come from, if the same key was used for hashing.
//! The standard error of an estimate is 1.04 / sqrt([`limits::REGISTERS`]), 2.3 %.

#![forbid(unsafe_code)]

pub mod limits;
mod observation;
mod sketch;
mod window;

pub use observation::Observation;
pub use sketch::Sketch;
pub use window::WindowRegister;
