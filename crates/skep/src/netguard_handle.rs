//! The netguard of this process: finds or starts it, and connects to it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, bail};
use skep_cli::this_program;
use skep_config::Config;
use skep_guard::{Guard, GuardError};
use skep_netguard::{handoff_socket_of, socket_of};

/// A connection to netguard, and the child if this process started it.
pub(crate) struct NetguardHandle {
    pub(crate) guard: Arc<Guard>,
    /// The path of its socket for handoffs.
    pub(crate) handoff_socket: PathBuf,
    /// The child ends when its standard input is closed, however this process ends.
    _child: Option<Child>,
}

impl NetguardHandle {
    /// Connects to the netguard of `name`: a running one (a separate service), else a child.
    pub(crate) fn start(config: &Config, file: &Path, name: &str) -> anyhow::Result<Self> {
        let (socket, handoff_socket) = (socket_of(config, name), handoff_socket_of(config, name));
        match Guard::connect(&socket) {
            Ok(guard) => {
                return Ok(Self { guard: Arc::new(guard), handoff_socket, _child: None });
            }
            Err(GuardError::Unreachable { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let child = spawn(file, name)?;
        let guard = Arc::new(Guard::connect(&socket)?);
        Ok(Self { guard, handoff_socket, _child: Some(child) })
    }
}

/// Starts a netguard and waits until it listens.
fn spawn(file: &Path, name: &str) -> anyhow::Result<Child> {
    let mut child = Command::new(this_program())
        .arg("netguard")
        .arg("--config")
        .arg(file)
        .args(["--as", name, "--leashed"])
        // Ctrl-C at the terminal is handled by this process.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start netguard")?;
    let out = child.stdout.take().context("netguard has no standard output")?;
    let (mut out, mut said) = (BufReader::new(out), String::new());
    out.read_line(&mut said).context("cannot read netguard's output")?;
    if said.starts_with("skep: netguard ready") {
        return Ok(child);
    }
    out.read_to_string(&mut said).context("cannot read netguard's output")?;
    let status = child.wait().context("netguard is out of sight")?;
    match said.trim().strip_prefix("skep: ") {
        Some(why) => bail!("{why}"),
        None => bail!("netguard did not start ({status}); its output is above"),
    }
}
