//! Child programs, killed with all their descendants when dropped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use skep_tests::holds_within;

use crate::interrupt;

/// A running program in its own process group.
pub(crate) struct Program {
    child: Child,
    what: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Program {
    /// Starts `command`; its output goes to files in `folder` whose names begin with `what`.
    pub(crate) fn start(command: &mut Command, folder: &Path, what: &str) -> Result<Self> {
        let path = |kind: &str| folder.join(format!("{what}.{kind}"));
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        let file = |path: &Path| File::create(path).with_context(|| path.display().to_string());
        command.process_group(0).stdin(Stdio::null());
        let child = command.stdout(file(&stdout)?).stderr(file(&stderr)?).spawn();
        let child = child.with_context(|| format!("cannot run {:?}", command.get_program()))?;
        Ok(Self { child, what: what.to_owned(), stdout, stderr })
    }

    /// Waits until the program ends, and returns its standard output.
    ///
    /// # Errors
    /// If the program fails, takes longer than `within`, or a signal was received.
    pub(crate) fn finish(mut self, within: Duration) -> Result<String> {
        let mut status = None;
        let is_over = holds_within(within, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some() || interrupt::has_come()
        });
        interrupt::check()?;
        ensure!(is_over, "{} takes longer than {} s", self.what, within.as_secs());
        if !status.is_some_and(|status| status.success()) {
            bail!("{} failed:\n{}", self.what, self.complaint());
        }
        self.output()
    }

    /// Waits until the program's standard output contains `text`.
    ///
    /// # Errors
    /// If the program ends first, takes longer than `within`, or a signal was received.
    pub(crate) fn wait_says(&mut self, text: &str, within: Duration) -> Result<()> {
        let mut has_ended = false;
        let says = holds_within(within, || {
            has_ended = !matches!(self.child.try_wait(), Ok(None));
            self.output().is_ok_and(|output| output.contains(text))
                || has_ended
                || interrupt::has_come()
        });
        interrupt::check()?;
        ensure!(says && !has_ended, "{} does not start:\n{}", self.what, self.complaint());
        Ok(())
    }

    /// Returns the standard output so far.
    pub(crate) fn output(&self) -> Result<String> {
        fs::read_to_string(&self.stdout).with_context(|| self.stdout.display().to_string())
    }

    fn complaint(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process ID is not reused before the process has been waited for.
        if matches!(self.child.try_wait(), Ok(None)) {
            if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }
}
