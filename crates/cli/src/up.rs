//! `skep up`: a whole cluster of real processes on this machine.
//!
//! [`plan`] makes the config, [`folder`] the private folder for the config and the sockets; [`ports`] selects
//! addresses, [`child`] keeps one process running, and [`cluster`] determines the order of these steps.
//!
//! With `--dispatch direct` every process gets a machine of its own: a network namespace in a test bed
//! ([`environment`]).
//!
//! Invariants: nothing is left behind, however this process ends. Children hold a pipe whose other
//! end only this process holds, and end when it closes; a folder left behind by kill -9 is removed
//! by the next `skep up`.

mod child;
mod cluster;
mod environment;
mod folder;
mod limits;
mod plan;
mod ports;

pub(crate) use cluster::run;
pub(crate) use folder::{running as running_clusters, state_of};
pub(crate) use plan::DISPATCHER;
