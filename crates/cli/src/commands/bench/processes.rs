//! A load in several processes: each runs this command again with its share of the load, and prints its
//! counts.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use skep_load::LoadTally;
use tokio::sync::oneshot;

use crate::program::this_program;

/// Interval at which the ends of the processes are polled, in milliseconds.
const POLL_MS: u64 = 50;

/// Runs the command of this process in `count` processes, and adds up their counts.
pub(super) fn run(
    count: u16,
    mut stopped: oneshot::Receiver<()>,
    told: impl Fn(u64),
) -> anyhow::Result<LoadTally> {
    let begin = Instant::now();
    let mut parts =
        (0..count).map(|index| Part::begin(index, count)).collect::<Result<Vec<_>, _>>()?;
    let mut is_stopped = false;
    while parts.iter().any(|part| !part.reader.is_finished()) {
        if !is_stopped && stopped.try_recv().is_ok() {
            is_stopped = true;
            parts.iter_mut().for_each(Part::stop);
        }
        told(begin.elapsed().as_millis() as u64);
        std::thread::sleep(Duration::from_millis(POLL_MS));
    }
    let mut sum = LoadTally::default();
    for part in parts {
        sum.add(part.end()?);
    }
    Ok(sum)
}

/// One of the processes.
struct Part {
    child: Child,
    reader: std::thread::JoinHandle<std::io::Result<String>>,
}

impl Part {
    fn begin(index: u16, count: u16) -> anyhow::Result<Self> {
        let mut child = Command::new(this_program())
            .args(std::env::args_os().skip(1))
            .arg(format!("--share={index}/{count}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process of the load")?;
        let mut out = child.stdout.take().context("a process without an output")?;
        let reader =
            std::thread::Builder::new().name("bench-part".to_owned()).spawn(move || {
                let mut text = String::new();
                out.read_to_string(&mut text).map(|_| text)
            })?;
        Ok(Self { child, reader })
    }

    /// A process that has already ended needs no signal.
    fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    fn end(mut self) -> anyhow::Result<LoadTally> {
        let text = match self.reader.join() {
            Ok(text) => text?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a process of the load has failed: {status}");
        }
        serde_json::from_str(&text).context("a load process returned no results")
    }
}
