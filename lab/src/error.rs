//! What can go wrong with a bed, in sentences for whoever made it.

use std::io;

/// Why the lab could not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Namespaces need privileges.
    #[error("network namespaces need root: run it with sudo")]
    NotRoot,
    /// A topology that cannot be.
    #[error("{0}")]
    Topology(String),
    /// All networks of the plan are taken.
    #[error(
        "all {0} networks of 198.18.0.0/15 are in use by other beds: end some (`skep-lab list`)"
    )]
    NoFreeNetwork(u16),
    /// A program that is not installed.
    #[error("`{program}` is missing: install the package {package} (apt-get install {package})")]
    Missing {
        /// The program.
        program: String,
        /// Debian's package with it.
        package: &'static str,
    },
    /// A program that did not do as told.
    #[error("`{program}` has failed {place}: {said}")]
    Program {
        /// The program.
        program: String,
        /// Where it ran.
        place: String,
        /// What it wrote on stderr.
        said: String,
    },
    /// A machine that was killed.
    #[error("{0} was killed: `boot` it first")]
    Dead(String),
    /// A machine that is on another LAN, or none.
    #[error("{0} and {1} are on different LANs: cut one of them off the router instead")]
    Apart(String, String),
    /// A number that makes no sense.
    #[error("{0}")]
    Unusable(String),
    /// No controller for CPU quotas.
    #[error("no cgroup controller `cpu` is mounted here: machines run without CPU quota")]
    NoCpuController,
    /// Something that took too long.
    #[error("{0}")]
    TooLate(String),
    /// The system said no.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Adds to an error of the system what was tried.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|error| LabError::Io { what: what(), source: error.into() })
    }
}

/// Whether this process may make namespaces, and see those of others.
pub(crate) fn check_root() -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(LabError::NotRoot) }
}
