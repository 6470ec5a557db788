//! The common base of seeded simulations of cores.
//!
//! - [`Agenda`]: the queue of events, under a virtual clock.
//! - [`Simulation`]: runs many seeds on all cores, up to the first that violates an invariant, and prints the
//!   command that repeats it.
//! - [`StateChanges`]: the changes of machines' states after each event, for the trace of a seed.
//! - [`Mutants`]: known bugs in a copy of the tree, which show that seeds find what they should.
//!
//! Each simulation defines what it simulates: its world, its faults, its
//! invariants. **Invariant:** an agenda gives the same events in the same order, whatever the
//! machine.

mod agenda;
mod mutants;
mod seeds;
mod state_changes;

pub use agenda::{Agenda, Due};
pub use mutants::{Mutant, Mutants};
pub use seeds::{SeedTotals, Simulation};
pub use state_changes::{StateChanges, StateSummary};
