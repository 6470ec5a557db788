//! What seeded simulations of cores stand on.
//!
//! - [`Agenda`]: what happens when, under a virtual clock.
//! - [`Simulation`]: many seeds on all cores, up to the first that breaks a promise, with the
//!   command that runs it again.
//!
//! What is simulated is the business of each simulation: its world, its misfortunes, its
//! promises. **Invariant:** an agenda gives the same events in the same order, whatever the
//! machine.

mod agenda;
mod seeds;

pub use agenda::{Agenda, Due};
pub use seeds::{SeedTotals, Simulation};
