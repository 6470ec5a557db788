//! wrk as the client: its command line, and its output.
//!
//! wrk prints for people; a `done` function in Lua prints the same numbers for parsing. Without `request` and
//! `response` functions wrk keeps its fast path.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::content;
use crate::interrupt;
use crate::limits::WRK_TIMEOUT_SECONDS;
use crate::slow_clients::SlowClients;

/// Prints one line for parsing at the end of a run.
const DONE: &str = r#"
done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("skep-bench: %d %d %d %d %d\n", summary.duration, summary.requests,
        e.connect + e.read + e.write + e.status + e.timeout,
        latency:percentile(50), latency:percentile(99)))
end
"#;

/// Sends requests from a list that is built before the measurement; taking the next one is a table look-up.
const FROM_LIST: &str = r#"
local requests, next_request = {}, 0
init = function(args)
    local made = {}
    for path in io.lines("@LIST@") do
        made[path] = made[path] or wrk.format("GET", path)
        requests[#requests + 1] = made[path]
    end
end
request = function()
    next_request = next_request % #requests + 1
    return requests[next_request]
end
"#;

/// The requests of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// One path, repeated.
    Path(&'static str),
    /// The same while other clients are stalled.
    Beside(SlowClients, &'static str),
    /// The WebBench mix.
    Mix,
}

/// The counts of wrk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WrkResult {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    /// Failed connects, reads and writes, timeouts, and statuses of 400 or above.
    pub(crate) errors: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// wrk with its scripts.
pub(crate) struct Wrk {
    done: PathBuf,
    mix: PathBuf,
}

impl Wrk {
    /// Writes the scripts into `dir`.
    pub(crate) fn prepare(dir: &Path) -> Result<Self> {
        let list = dir.join("mix.txt");
        std::fs::write(&list, content::mix_requests())?;
        let wrk = Self { done: dir.join("done.lua"), mix: dir.join("mix.lua") };
        std::fs::write(&wrk.done, DONE)?;
        let from_list = FROM_LIST.replace("@LIST@", &list.display().to_string());
        std::fs::write(&wrk.mix, from_list + DONE)?;
        Ok(wrk)
    }

    /// Runs wrk, on the core to which this process is pinned.
    pub(crate) fn run(
        &self,
        port: u16,
        load: Load,
        connections: u32,
        seconds: u32,
    ) -> Result<WrkResult> {
        interrupt::check()?;
        let (path, script) = match load {
            Load::Path(path) | Load::Beside(_, path) => (path, &self.done),
            Load::Mix => ("/", &self.mix),
        };
        let output = Command::new("wrk")
            .arg("--threads=1")
            .arg(format!("--connections={connections}"))
            .arg(format!("--duration={seconds}"))
            .arg(format!("--timeout={WRK_TIMEOUT_SECONDS}"))
            .arg("--script")
            .arg(script)
            .arg(format!("http://127.0.0.1:{port}{path}"))
            .output()
            .context("wrk (Debian: wrk)")?;
        interrupt::check()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let outcome = parse(&said).with_context(|| format!("wrk said: {said}{complaint}"))?;
        ensure!(outcome.requests > 0, "wrk got no answer");
        Ok(outcome)
    }
}

fn parse(said: &str) -> Option<WrkResult> {
    let line = said.lines().find_map(|line| line.strip_prefix("skep-bench: "))?;
    let mut numbers = line.split(' ').map(|word| word.parse::<u64>());
    let mut next = || numbers.next()?.ok();
    Some(WrkResult {
        seconds: next()? as f64 / 1e6,
        requests: next()?,
        errors: next()?,
        p50_us: next()? as f64,
        p99_us: next()? as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_us_is_found_among_those_for_people() {
        let said = "Running 1s test\nskep-bench: 1000000 200 3 40 500\n";
        let wanted =
            WrkResult { seconds: 1.0, requests: 200, errors: 3, p50_us: 40.0, p99_us: 500.0 };
        assert_eq!(parse(said), Some(wanted));
        assert_eq!(parse("unable to connect"), None);
        assert_eq!(parse("skep-bench: 1 2 3"), None);
    }
}
