//! The common base of seeded simulations of cores.
//!
//! - [`Agenda`]: the queue of events, under a virtual clock.
//! - [`Simulation`]: many seeds on all cores, up to the first that violates an invariant, with the
//!   command that runs it again.
//!
//! Each simulation defines what it simulates: its world, its faults, its
//! invariants. **Invariant:** an agenda gives the same events in the same order, whatever the
//! machine.

mod agenda;
mod seeds;

pub use agenda::{Agenda, Due};
pub use seeds::{SeedTotals, Simulation};
