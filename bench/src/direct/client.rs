//! wrk on the bed's client, with a thread for each node, so that the client is the same whether it connects
//! to the nodes directly or to the one address in front of them.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use skep_testbed::Machine;

use super::Load;
use super::account::{CpuAccount, tick_ns};
use crate::interrupt;
use crate::limits::{DIRECT_NODES, WRK_TIMEOUT_SECONDS};
use crate::process::Server;
use crate::results::Flow;

/// Assigns each thread its address; prints one line at the end, with the ticks that wrk itself used (fields
/// 14 and 15 of `/proc/self/stat`).
const SCRIPT: &str = r#"
local addresses, next_address = { @ADDRESSES@ }, 0
setup = function(thread)
    next_address = next_address % #addresses + 1
    thread.addr = wrk.lookup(addresses[next_address][1], addresses[next_address][2])[1]
end
done = function(summary, latency, requests)
    local e, fields = summary.errors, {}
    local stat = io.open("/proc/self/stat"):read("*a")
    for field in stat:match("^.*%)(.*)$"):gmatch("%S+") do fields[#fields + 1] = field end
    io.write(string.format("skep-bench: %d %d %d %d %d\n", summary.duration, summary.requests,
        summary.bytes, e.connect + e.read + e.write + e.status + e.timeout,
        tonumber(fields[12]) + tonumber(fields[13])))
end
"#;

/// The client and its targets.
pub(super) struct Client<'a> {
    pub(super) machine: &'a Machine,
    /// The folder of its script.
    pub(super) dir: &'a Path,
    pub(super) nodes: &'a [Server],
    pub(super) addresses: &'a [SocketAddr],
    /// The server in front of the nodes, and its address.
    pub(super) dispatcher: &'a Server,
    pub(super) target: SocketAddr,
}

impl Client<'_> {
    /// Loads the nodes, `through` the server in front of them or directly.
    pub(super) fn run(&self, load: &Load, through: bool, seconds: u32) -> Result<Flow> {
        interrupt::check()?;
        let target = [self.target];
        let addresses = if through { &target } else { self.addresses };
        let script = self.dir.join("client.lua");
        std::fs::write(&script, SCRIPT.replace("@ADDRESSES@", &lua(addresses)))?;
        let mut wrk = self.machine.command("wrk");
        wrk.arg(format!("--threads={DIRECT_NODES}"))
            .arg(format!("--connections={}", load.connections))
            .arg(format!("--duration={seconds}"))
            .arg(format!("--timeout={WRK_TIMEOUT_SECONDS}"))
            .arg("--script")
            .arg(script);
        if load.closes {
            wrk.args(["--header", "Connection: close"]);
        }
        let first = addresses.first().context("a bed has nodes")?;
        wrk.arg(format!("http://{first}{}", load.path));

        let before = CpuAccount::now(self.nodes, self.dispatcher)?;
        let output = wrk.output().context("wrk (Debian: wrk)")?;
        let used = CpuAccount::now(self.nodes, self.dispatcher)?.since(&before);
        interrupt::check()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let said = parse(&said).with_context(|| format!("wrk said: {said}{complaint}"))?;
        ensure!(said.bytes > 0, "wrk got no answer");
        let bed_ns = used.servers_ns + said.wrk_ns;
        let cores = available_parallelism()?.get() as f64;
        let others_ns = used.busy_ns.saturating_sub(bed_ns) as f64;
        Ok(Flow {
            seconds: said.seconds,
            requests: said.requests,
            bytes: said.bytes,
            errors: said.errors,
            bed_cpu_s: bed_ns as f64 / 1e9,
            dispatcher_cpu_s: used.dispatcher_ns as f64 / 1e9,
            others_percent: others_ns / 1e7 / said.seconds / cores,
        })
    }
}

/// Addresses as the fields of a Lua table.
fn lua(addresses: &[SocketAddr]) -> String {
    let one = |address: &SocketAddr| format!("{{ \"{}\", {} }}", address.ip(), address.port());
    addresses.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The counts that wrk printed.
#[derive(Debug, PartialEq)]
struct Said {
    seconds: f64,
    requests: u64,
    bytes: u64,
    errors: u64,
    wrk_ns: u64,
}

fn parse(said: &str) -> Option<Said> {
    let line = said.lines().find_map(|line| line.strip_prefix("skep-bench: "))?;
    let mut numbers = line.split(' ').map(|word| word.parse::<u64>());
    let mut next = || numbers.next()?.ok();
    Some(Said {
        seconds: next()? as f64 / 1e6,
        requests: next()?,
        bytes: next()?,
        errors: next()?,
        wrk_ns: next()? * tick_ns(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_us_is_read() {
        let wanted = Said { seconds: 1.0, requests: 2, bytes: 3, errors: 4, wrk_ns: 5 * tick_ns() };
        assert_eq!(parse("Running\nskep-bench: 1000000 2 3 4 5\n"), Some(wanted));
        assert_eq!(parse("skep-bench: 1 2 3 4"), None);
    }

    #[test]
    fn addresses_become_a_table() {
        let addresses = [([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 8080).into()];
        assert_eq!(lua(&addresses), "{ \"10.0.0.1\", 80 }, { \"10.0.0.2\", 8080 }");
    }
}
