//! How many distinct things were seen lately, in bounded memory: HyperLogLog over a sliding window.
//!
//! HyperLogLog (Flajolet, Fusy, Gandouet, Meunier: AOFA 2007) keeps, in each of many registers, the highest
//! rank of the hashes that fall on it. Here a register is one word that remembers the highest rank of each of
//! the last slots of time, so that what is old leaves by itself, and that threads can share as an atomic.
//!
//! ```text
//!  hash --Observation--> register, rank --WindowRegister::raised--> a word, kept by the caller
//!                                                                     | highest
//!                                          merge: the union <-- Sketch +--> estimate
//! ```
//!
//! Invariants: what is seen again changes nothing, in any order; the merge of two sketches is the sketch of
//! the union, whichever machines they come from, if the same key hashed what they saw. The standard error of
//! an estimate is 1.04 / sqrt([`limits::REGISTERS`]), 2.3 %.

#![forbid(unsafe_code)]

pub mod limits;
mod observation;
mod sketch;
mod window;

pub use observation::Observation;
pub use sketch::Sketch;
pub use window::WindowRegister;
