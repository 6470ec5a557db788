//! Runs `ip`, `tc`, `nft` and similar programs, and returns their output.

use std::io::{self, Write};
use std::process::{Child, Command, Stdio};

use crate::error::{TestbedError, Tried};

/// Debian's package with each program that a bed needs.
const PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("sh", "dash"),
];

/// A program at work.
pub(crate) struct Running {
    program: String,
    place: String,
    child: Child,
}

/// Starts `command` and gives it `input`; `place` is for messages: "in node-1".
pub(crate) fn start(
    mut command: Command,
    place: &str,
    input: &str,
) -> Result<Running, TestbedError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed_to_start(&program, error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends before it has read all tells why on stderr.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(Running { program, place: place.to_owned(), child })
}

/// Runs `command` to its end.
pub(crate) fn run(command: Command, place: &str, input: &str) -> Result<String, TestbedError> {
    start(command, place, input)?.finish()
}

/// Why a program could not be started: mostly because it is not there.
pub(crate) fn failed_to_start(program: &str, error: io::Error) -> TestbedError {
    let package = PACKAGES.iter().find(|(name, _)| *name == program);
    match (error.kind(), package) {
        (io::ErrorKind::NotFound, Some((_, package))) => {
            TestbedError::Missing { program: program.to_owned(), package }
        }
        _ => TestbedError::Io { what: format!("cannot run `{program}`"), source: error },
    }
}

impl Running {
    /// Waits for its end; returns what it wrote on stdout.
    pub(crate) fn finish(self) -> Result<String, TestbedError> {
        let Self { program, place, child } = self;
        let output = child.wait_with_output().tried(|| format!("cannot wait for `{program}`"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(TestbedError::Program { program, place, said })
    }
}
