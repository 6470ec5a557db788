//! Packet programs, their build for the host and their model, against each
//! other.
//!
//! A [`Machine`] is one of three: the [`Kernel`] with the committed objects, the
//! [`Host`] build of the same C under sanitizers, the model of `skep-steer`.
//! Every packet must meet the same verdict in all, and leave as the same bytes.
//!
//! - [`frames`]: frames written as one would say them.
//! - [`world`]: the tables that most tests begin with.
//! - [`fixtures`]: named packets with the verdict that they must meet.
//! - [`mutate`]: packets that nobody would think of.

pub mod encode;
pub mod fixtures;
pub mod frames;
mod host;
mod kernel;
mod machine;
pub mod mutate;
pub mod world;

pub use host::Host;
pub use kernel::{Kernel, Object};
pub use machine::{Machine, Model, Program, State};
