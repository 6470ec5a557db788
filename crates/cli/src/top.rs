//! `skep top`: a cluster, live.
//!
//! [`model`] is the data and the selected display, [`view`] draws it, [`screen`] connects both to a
//! terminal and to a process that may stop and restart.

mod model;
mod screen;
mod view;

pub(crate) use screen::run;
