//! `skep top`: a live view of a cluster.
//!
//! [`model`] has the data and the display settings, [`view`] draws it, [`screen`] connects both to a terminal
//! and to a process that may stop and restart.

mod model;
mod screen;
mod view;

pub(crate) use screen::run;
