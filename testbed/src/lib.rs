//! A test bed of network namespaces: clients, a router, dispatchers, nodes and
//! an origin, each a machine of its own on one kernel.
//!
//! ```text
//!  client-1 --+                                    one LAN (`Topology::router` off)
//!  client-1 --[out]-- router --+                   or clients behind a router
//!                              |
//!  dispatcher-1, -2 ---------[lan]--------- node-1, node-2, ... origin, (host)
//! ```
//!
//! [`Bed::new`] makes one; [`Machine`] is what its users work with. Programs needed: `ip`
//! and `tc` (package iproute2), `nft` (nftables), `sh`, `unshare`, `mount`, `find`. The
//! kernel needs namespaces, bridges and `veth`; `tbf` for rates, nftables in
//! bridges for losses and partitions, a `cpu` control group for quotas, TUN for a relay that
//! doubles and delays packets of clients.
//!
//! Invariants:
//! - Nothing of a bed has a name outside of it except its file in `/run/skep-lab`,
//!   its control groups and the host's device on its LAN.
//! - Everything is removed when the owner ends: drop and SIGKILL take the same path (`janitor`).
//! - Beds do not share a network (`plan`), so any number of them may exist at the same time.

#[cfg(not(target_os = "linux"))]
compile_error!("a test bed is made of Linux network namespaces");

mod bed;
mod cpu;
mod environment;
mod error;
mod frames;
mod janitor;
mod limits;
mod machine;
mod namespace;
mod plan;
mod registry;
mod relay;
mod rules;
mod switch;
mod sync;
mod tool;
mod topology;
mod visit;

pub use bed::Bed;
pub use error::TestbedError;
pub use limits::{CLIENTS_MAX, DISPATCHERS_MAX, NODES_MAX, VIPS_MAX};
pub use machine::Machine;
pub use plan::MachineRole;
pub use registry::{BedInfo, MachineInfo};
pub use relay::{RelayCounts, RelayFaults};
pub use topology::{Frames, Limits, Topology};
pub use visit::{beds, clean, command_in};
