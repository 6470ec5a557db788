//! The machine of the bridges: where links end, and where they are partitioned,
//! slowed and made lossy.

use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{TestbedError, Tried};
use crate::frames::{self, PassProgram};
use crate::limits::{
    BUCKET_BYTES_MIN, FRAME_BYTES, FRAMES_QUEUED_MIN, LINK_READY_MS, POLL_MS, QUEUE_MS,
};
use crate::namespace::{Entrance, Holder};
use crate::plan::{Lan, Link};
use crate::rules::Rules;
use crate::sync::lock;
use crate::tool;
use crate::topology::Frames;

const PLACE: &str = "in the switch";

/// State of a bridge's port that takes part (`linux/if_bridge.h`).
const FORWARDING: &str = "3";

/// `IFA_F_TENTATIVE` of the kernel: not used yet.
const TENTATIVE: u32 = 0x40;

/// A namespace with nothing but bridges.
pub(crate) struct Switch {
    holder: Holder,
    frames: Frames,
    rules: Mutex<Rules>,
    queue: Queue,
}

/// What waits before a link with a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    One,
    /// Network control is sent first.
    ControlFirst,
}

/// A link to be, and the process at whose network it begins.
pub(crate) struct Plug<'a> {
    pub(crate) link: &'a Link,
    pub(crate) pid: u32,
    /// Whether an XDP program may send from there.
    pub(crate) takes_xdp: bool,
}

impl Switch {
    /// Makes the bridges.
    pub(crate) fn new(
        holder: Holder,
        frames: Frames,
        queue: Queue,
        lans: &[Lan],
    ) -> Result<Self, TestbedError> {
        let switch = Self { holder, frames, rules: Mutex::default(), queue };
        // Frames are to pass no rules but ours; some kernels have no such thing.
        switch.inside(|| {
            for table in ["iptables", "ip6tables", "arptables"] {
                let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{table}"), "0");
            }
        })?;
        let make = |lan: &Lan| {
            let name = lan.name();
            format!(
                "link add name {name} type bridge forward_delay 0 stp_state 0 mcast_snooping 0\n\
                 link set dev {name} up\n"
            )
        };
        switch.ip(&lans.iter().map(make).collect::<String>())?;
        if queue == Queue::ControlFirst {
            switch.change_rules(Rules::put_control_first)?;
        }
        Ok(switch)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.holder.pid()
    }

    pub(crate) fn entrance(&self) -> &Arc<Entrance> {
        self.holder.entrance()
    }

    /// Makes the links, up on this side.
    pub(crate) fn plug(&self, plugs: &[Plug<'_>]) -> Result<(), TestbedError> {
        let pass = PassProgram::new().tried(|| "cannot make a memory file".to_owned())?;
        let mut lines = String::new();
        for Plug { link, pid, takes_xdp } in plugs {
            let Link { port, device, lan, mac, .. } = link;
            let (mac, lan) = (mac_text(mac), lan.name());
            lines += &format!(
                "link add name {port} type veth peer name {device} address {mac} netns {pid}\n\
                 link set dev {port} master {lan}\n"
            );
            if self.frames == Frames::Wire && *takes_xdp {
                lines += &pass.attach(port);
            }
            lines += &format!("link set dev {port} up\n");
        }
        self.ip(&lines)?;
        self.finish_ports(plugs.iter().map(|plug| plug.link.port.as_str()))
    }

    /// Takes over the port of a link that somebody else made here.
    pub(crate) fn adopt(&self, link: &Link) -> Result<(), TestbedError> {
        let (port, lan) = (&link.port, link.lan.name());
        self.ip(&format!("link set dev {port} master {lan} up\n"))?;
        self.finish_ports([port.as_str()].into_iter())
    }

    fn finish_ports<'a>(
        &self,
        mut ports: impl Iterator<Item = &'a str> + Send,
    ) -> Result<(), TestbedError> {
        if self.frames == Frames::Large {
            return Ok(());
        }
        let done = self.inside(|| ports.try_for_each(frames::complete_checksums))?;
        done.tried(|| "cannot switch checksum offload off in the switch".to_owned())
    }

    /// Ends a link, device and all.
    pub(crate) fn unplug(&self, port: &str) -> Result<(), TestbedError> {
        self.ip(&format!("link delete dev {port}\n"))
    }

    /// Pulls the cable of a port, or puts it in again and waits until it
    /// carries frames.
    pub(crate) fn set_cable(&self, port: &str, is_in: bool) -> Result<(), TestbedError> {
        let state = if is_in { "up" } else { "down" };
        self.ip(&format!("link set dev {port} {state}\n"))?;
        if is_in { self.await_ready(&[port]) } else { Ok(()) }
    }

    /// Waits until the bridge forwards through all these ports.
    pub(crate) fn await_ready(&self, ports: &[&str]) -> Result<(), TestbedError> {
        let file = |port: &str| format!("/sys/class/net/{port}/brport/state");
        await_files(self.entrance(), ports.iter().copied().map(file).collect(), FORWARDING)
    }

    /// Changes what is dropped, at once for all rules.
    pub(crate) fn change_rules(&self, change: impl FnOnce(&mut Rules)) -> Result<(), TestbedError> {
        let mut rules = lock(&self.rules);
        let before = rules.text();
        change(&mut rules);
        let text = rules.text();
        if text == before {
            return Ok(());
        }
        let mut nft = self.entrance().command("nft".as_ref());
        nft.args(["-f", "-"]);
        tool::run(nft, PLACE, &text).map(drop)
    }

    /// Limits, or no longer limits, what goes out through a port.
    pub(crate) fn set_rate(&self, port: &str, bits_s: Option<u64>) -> Result<(), TestbedError> {
        set_rate(self.entrance(), PLACE, (port, self.queue), bits_s)
    }

    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }

    fn ip(&self, lines: &str) -> Result<(), TestbedError> {
        ip(self.entrance(), PLACE, lines)
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.entrance().run(work).tried(|| "cannot enter the switch".to_owned())
    }
}

/// Runs `ip -batch` inside.
pub(crate) fn ip(entrance: &Arc<Entrance>, place: &str, lines: &str) -> Result<(), TestbedError> {
    start_ip(entrance, place, lines)?.finish().map(drop)
}

/// Starts `ip -batch` inside, to be waited for later.
pub(crate) fn start_ip(
    entrance: &Arc<Entrance>,
    place: &str,
    lines: &str,
) -> Result<tool::Running, TestbedError> {
    let mut ip = entrance.command("ip".as_ref());
    ip.args(["-batch", "-"]);
    tool::start(ip, place, lines)
}

/// Limits what goes out through a device: a token bucket in front of it.
pub(crate) fn set_rate(
    entrance: &Arc<Entrance>,
    place: &str,
    (device, queue): (&str, Queue),
    bits_s: Option<u64>,
) -> Result<(), TestbedError> {
    let mut tc = entrance.command("tc".as_ref());
    match bits_s {
        Some(rate) => {
            // What passes in 10 ms, more than two ticks of a slow kernel.
            let burst = (rate / 8 / 100).max(BUCKET_BYTES_MIN);
            let limit = format!("rate {rate}bit burst {burst} latency {QUEUE_MS}ms");
            tc.args(["qdisc", "replace", "dev", device, "root", "handle", "1:", "tbf"]);
            tc.args(limit.split(' '));
        }
        // The default one, which a device has that was never limited.
        None => {
            tc.args(["qdisc", "replace", "dev", device, "root", "pfifo_fast"]);
        }
    }
    tool::run(tc, place, "")?;
    match (bits_s, queue) {
        (Some(rate), Queue::ControlFirst) => put_control_first(entrance, place, device, rate),
        _ => Ok(()),
    }
}

/// Three queues by priority behind a token bucket, each as long as the time that a packet may wait.
fn put_control_first(
    entrance: &Arc<Entrance>,
    place: &str,
    device: &str,
    rate: u64,
) -> Result<(), TestbedError> {
    let frames = (rate / 8 * QUEUE_MS / 1000 / FRAME_BYTES).max(FRAMES_QUEUED_MIN);
    ip(entrance, place, &format!("link set dev {device} txqueuelen {frames}\n"))?;
    let mut tc = entrance.command("tc".as_ref());
    tc.args(["qdisc", "replace", "dev", device, "parent", "1:1", "handle", "2:", "pfifo_fast"]);
    tool::run(tc, place, "").map(drop)
}

/// Waits until each of the files, as seen inside, says `state`.
pub(crate) fn await_files(
    entrance: &Arc<Entrance>,
    files: Vec<String>,
    state: &str,
) -> Result<(), TestbedError> {
    let is_state = |found: &str| found.trim() == state;
    await_contents(entrance, files, &is_state, &format!("{state:?}"))
}

/// Waits until IPv6 uses all addresses of a machine. The kernel leaves that to a thread of its own,
/// also where it looks for no duplicates.
pub(crate) fn await_addresses(entrance: &Arc<Entrance>) -> Result<(), TestbedError> {
    // Per line: address, number of the device, bits of the prefix, scope, flags, device.
    let is_tentative = |line: &str| {
        let flags = line.split_whitespace().nth(4);
        flags.and_then(|it| u32::from_str_radix(it, 16).ok()).is_some_and(|it| it & TENTATIVE != 0)
    };
    let is_ready = |found: &str| !found.lines().any(is_tentative);
    let file = "/proc/thread-self/net/if_inet6".to_owned();
    await_contents(entrance, vec![file], &is_ready, "addresses of which none is tentative")
}

fn await_contents(
    entrance: &Arc<Entrance>,
    files: Vec<String>,
    is_ready: &(dyn Fn(&str) -> bool + Sync),
    expected: &str,
) -> Result<(), TestbedError> {
    let deadline = Instant::now() + Duration::from_millis(LINK_READY_MS);
    let waited = entrance.run(|| {
        files.into_iter().find_map(|file| {
            loop {
                let found = fs::read_to_string(&file).unwrap_or_default();
                if is_ready(&found) {
                    return None;
                }
                if Instant::now() > deadline {
                    return Some(format!("{file} says {found:?} instead of {expected}"));
                }
                thread::sleep(Duration::from_millis(POLL_MS));
            }
        })
    });
    let late = waited.tried(|| "cannot enter a machine".to_owned())?;
    late.map_or(Ok(()), |what| Err(TestbedError::TooLate(what)))
}

/// As `ip` writes it.
pub(crate) fn mac_text(mac: &[u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
