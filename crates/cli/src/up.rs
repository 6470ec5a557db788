//! `skep up`: a whole cluster on this machine, real processes.
//!
//! [`plan`] makes the config, [`folder`] the private place for it and for the
//! sockets, [`ports`] picks addresses, [`child`] keeps one process running,
//! and [`cluster`] is the order in which all this happens.
//!
//! With `--dispatch direct` every process gets a machine of its own, a network
//! namespace in a test bed ([`environment`]).
//!
//! Invariants: nothing is left behind, however this process ends. Children
//! hold a pipe whose other end is here alone, and end when it closes; a folder
//! that stayed after kill -9 is taken away by the next `skep up`.

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
