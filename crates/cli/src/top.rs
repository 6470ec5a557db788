//! `skep top`: a cluster, live.
//!
//! [`model`] is what is known and how it is looked at, [`view`] draws it,
//! [`screen`] joins both to a terminal and a process that may come and go.

mod model;
mod screen;
mod view;

pub(crate) use screen::run;
