//! A bad path between clients and the cluster: packets are lost, doubled, and held back so that later ones
//! overtake them.
//!
//! ```text
//!  clients --[out]-- eth1  router  eth0 --[lan]-- cluster
//!                      \          /
//!                       relay (TUN) <--> a thread of the owner
//! ```
//!
//! The router sends all that it forwards into a TUN device. A thread reads it there, decides by seed and
//! number what becomes of each packet ([`RelayFaults`]), and writes what goes on into the same device, out
//! of which the router forwards it. The kernel's `netem` would do the same, where there is one; and rules of the
//! switch lose frames, but neither double nor delay them.
//!
//! Why TUN and not packet sockets between two links: the kernel hands over each packet once, on its way, with
//! complete checksums and no longer than the MTU, and no copy of it goes on by itself. Its price is two hops of
//! TTL and a system call each way.

mod fate;
mod forwarder;
mod tun;

use std::fs;
use std::io::{self, PipeWriter};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

pub use fate::RelayFaults;
pub use forwarder::RelayCounts;

use crate::error::{TestbedError, Tried};
use crate::limits::RELAY_QUEUE_PACKETS;
use crate::machine::Machine;
use crate::tool;
use forwarder::{Counters, Forwarder};
use tun::Tun;

/// The TUN device of the router.
const DEVICE: &str = "relay";

/// The routing table that leads into it: any number that no machine uses.
const TABLE: u32 = 100;

/// The router's devices.
const LANS: [&str; 2] = ["eth0", "eth1"];

/// A relay at work; its device goes with it, and packets pass by themselves again.
pub(crate) struct Relay {
    counters: Arc<Counters>,
    /// Closed to end the thread.
    end: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Relay {
    /// Puts one into a router. Packets count from 0 there.
    pub(crate) fn start(router: &Machine, faults: RelayFaults) -> Result<Self, TestbedError> {
        let what = || format!("cannot make a relay in {}", router.name());
        // The device is in the network where the file was opened, whichever process reads it.
        let tun = router.run(|| Tun::open(DEVICE))?.tried(what)?;
        // What comes out of it has addresses that are reached elsewhere.
        for device in ["all", DEVICE] {
            router.set_kernel(&format!("net.ipv4.conf.{device}.rp_filter"), "0")?;
        }
        let up = format!(
            "link set dev {DEVICE} addrgenmode none txqueuelen {RELAY_QUEUE_PACKETS}\n\
             link set dev {DEVICE} up\nroute add default dev {DEVICE} table {TABLE}\n"
        );
        ip(router, &[], &up)?;
        ip(router, &["-6"], &format!("route add default dev {DEVICE} table {TABLE}\n"))?;
        let (ended, end) = io::pipe().tried(what)?;
        let counters = Arc::new(Counters::default());
        let forwarder = Forwarder::new(tun, ended, faults, Arc::clone(&counters));
        let thread = thread::Builder::new().name(DEVICE.to_owned()).spawn(|| forwarder.work());
        let relay = Self { counters, end: Some(end), thread: Some(thread.tried(what)?) };
        change_rules(router, "add")?;
        Ok(relay)
    }

    /// What it has done so far; an error if it has ended before its time.
    pub(crate) fn counts(&self, router: &Machine) -> Result<RelayCounts, TestbedError> {
        let thread = self.thread.as_ref();
        if thread.is_none_or(JoinHandle::is_finished) {
            return Err(TestbedError::Unusable("the relay's device is gone".to_owned()));
        }
        let file = format!("/sys/class/net/{DEVICE}/statistics/tx_dropped");
        let found = router.run(|| fs::read_to_string(&file))?;
        let found = found.tried(|| format!("cannot read {file}"))?;
        Ok(RelayCounts { unread: found.trim().parse().unwrap_or(0), ..self.counters.now() })
    }

    /// Ends it, and lets packets pass by themselves.
    pub(crate) fn end(mut self, router: &Machine) -> Result<(), TestbedError> {
        change_rules(router, "delete")?;
        self.stop().tried(|| format!("the relay in {} has failed", router.name()))
    }

    fn stop(&mut self) -> io::Result<()> {
        drop(self.end.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends what comes in from either LAN into the device, or no longer.
fn change_rules(router: &Machine, change: &str) -> Result<(), TestbedError> {
    let rule = |device| format!("rule {change} iif {device} lookup {TABLE}\n");
    let lines: String = LANS.map(rule).concat();
    ip(router, &[], &lines)?;
    ip(router, &["-6"], &lines)
}

fn ip(router: &Machine, family: &[&str], lines: &str) -> Result<(), TestbedError> {
    let mut ip = router.command("ip");
    ip.args(family).args(["-batch", "-"]);
    tool::run(ip, &format!("in {}", router.name()), lines).map(drop)
}
