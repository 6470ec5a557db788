//! Errors of a bed, as messages for its user.

use std::io;

/// Why a bed could not be had, or a machine of it could not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
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
        program: String,
        /// Debian's package with it.
        package: &'static str,
    },
    /// A program that failed.
    #[error("`{program}` has failed {place}: {said}")]
    Program {
        program: String,
        /// Where it ran.
        place: String,
        /// Its output on stderr.
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
    /// A kernel setting that could not be made.
    #[error("cannot set {key} to \"{value}\" {place}: {source}{}", advice(key, value, source))]
    Setting {
        /// As `sysctl` names it.
        key: String,
        /// The intended value.
        value: String,
        /// Where: "on node-1".
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// What to do where a setting was refused; empty if that is not known.
fn advice(key: &str, value: &str, source: &io::Error) -> String {
    match (key, source.kind()) {
        ("net.ipv4.tcp_congestion_control", io::ErrorKind::PermissionDenied) => format!(
            "; a network namespace may only use what the host allows: add {value} to what \
             `sysctl net.ipv4.tcp_allowed_congestion_control` shows, by `sysctl -w`"
        ),
        ("net.ipv4.tcp_congestion_control", io::ErrorKind::NotFound) => {
            format!("; this kernel has no {value}: `modprobe tcp_{value}` may load it")
        }
        (_, io::ErrorKind::ReadOnlyFilesystem) => {
            "; /proc/sys is mounted read-only here, as in a container: run it where it is not"
                .to_owned()
        }
        (_, io::ErrorKind::NotFound) => "; this kernel has no such setting".to_owned(),
        (_, io::ErrorKind::PermissionDenied) => {
            "; run it as root, and outside of a container without privileges".to_owned()
        }
        _ => String::new(),
    }
}

/// Adds to an error of the system what was tried.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, TestbedError>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T, TestbedError> {
        self.map_err(|error| TestbedError::Io { what: what(), source: error.into() })
    }
}

/// Whether this process may make namespaces, and see those of others.
pub(crate) fn check_root() -> Result<(), TestbedError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(TestbedError::NotRoot) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_setting_says_which_value_where_and_what_to_do() {
        let error = TestbedError::Setting {
            key: "net.ipv4.tcp_congestion_control".into(),
            value: "cubic".into(),
            place: "on node-1".into(),
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        let said = error.to_string();
        for part in ["net.ipv4.tcp_congestion_control", "\"cubic\"", "node-1", "sysctl -w"] {
            assert!(said.contains(part), "{part} in {said}");
        }
        let of_another =
            |errno| advice("net.ipv4.ip_forward", "1", &io::Error::from_raw_os_error(errno));
        assert!(of_another(libc::EACCES).contains("as root"));
        assert!(of_another(libc::ENOENT).contains("no such setting"));
        assert!(of_another(libc::EROFS).contains("read-only"));
    }
}
