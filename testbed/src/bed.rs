//! A bed: machines with the lifetime of the bed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::environment::Environment;
use crate::error::{TestbedError, Tried, check_root};
use crate::frames;
use crate::janitor::Janitor;
use crate::limits::VIPS_MAX;
use crate::machine::Machine;
use crate::namespace;
use crate::plan::{self, Lan, Link, MachineRole, V4_BITS, V6_BITS};
use crate::registry::{BedInfo, Slot};
use crate::relay::{Relay, RelayCounts, RelayFaults};
use crate::switch::{Queue, Switch, mac_text};
use crate::sync::lock;
use crate::tool;
use crate::topology::{Frames, Topology};

/// A test bed. When it is dropped, or its owner dies for any reason, all
/// processes in it are killed and nothing of it remains.
pub struct Bed {
    machines: Vec<Machine>,
    environment: Arc<Environment>,
    notes: Vec<String>,
    relay: Mutex<Option<Relay>>,
}

impl Bed {
    /// Makes a bed, ready to use.
    pub fn new(topology: &Topology) -> Result<Self, TestbedError> {
        topology.check()?;
        check_root()?;
        let slot = Slot::claim()?;
        let plans = plan::machines(topology, slot.number);
        check_names(topology, &plans)?;
        let (mut janitor, leash) = Janitor::start(&slot)?;

        let switch = namespace::start("switch", &leash)?;
        let start = |plan: &plan::MachinePlan| namespace::start(&plan.name, &leash);
        let starting: Vec<_> = plans.iter().map(start).collect::<Result<_, _>>()?;
        let switch = switch.finish()?;
        let inode =
            switch.entrance().inode().tried(|| "cannot tell the switch apart".to_owned())?;
        janitor.knows_net(inode, switch.pid())?;
        let holders: Vec<_> =
            starting.into_iter().map(|it| it.finish()).collect::<Result<_, _>>()?;

        let lans: &[_] = if topology.router { &[Lan::Inner, Lan::Outer] } else { &[Lan::Inner] };
        let queue = if topology.control_first { Queue::ControlFirst } else { Queue::One };
        let switch = Switch::new(switch, topology.frames, queue, lans)?;
        let environment =
            Arc::new(Environment::new(slot, (janitor, leash), switch, topology.frames)?);
        environment.wire(&plans.iter().zip(&holders).collect::<Vec<_>>())?;
        let described = plans
            .iter()
            .zip(&holders)
            .map(|(plan, holder)| Environment::describe_new(plan, holder.pid()));
        environment.describe(|info| info.machines = described.collect())?;

        let machine = |(plan, holder)| Machine::new(plan, holder, Arc::clone(&environment));
        let machines = plans.into_iter().zip(holders).map(machine).collect();
        let relay = Mutex::new(None);
        let mut bed = Self { machines, environment, notes: Vec::new(), relay };
        bed.apply_limits(topology)?;
        Ok(bed)
    }

    /// All machines: clients, router, dispatchers, nodes, origin.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name() == name)
    }

    /// The machines with this role.
    pub fn with_role(&self, role: MachineRole) -> &[Machine] {
        let begin = self.machines.partition_point(|machine| machine.role() < role);
        let end = self.machines.partition_point(|machine| machine.role() <= role);
        &self.machines[begin..end]
    }

    /// `client-1`, `client-2`, …
    pub fn clients(&self) -> &[Machine] {
        self.with_role(MachineRole::Client)
    }

    /// `dispatcher-1`, …
    pub fn dispatchers(&self) -> &[Machine] {
        self.with_role(MachineRole::Dispatcher)
    }

    /// `node-1`, …
    pub fn nodes(&self) -> &[Machine] {
        self.with_role(MachineRole::Node)
    }

    /// `router`, if there is one.
    pub fn router(&self) -> Option<&Machine> {
        self.with_role(MachineRole::Router).first()
    }

    /// `origin`, if there is one.
    pub fn origin(&self) -> Option<&Machine> {
        self.with_role(MachineRole::Origin).first()
    }

    /// An address that no machine has, on the LAN of the nodes; `index` is
    /// below [`VIPS_MAX`].
    pub fn vip(&self, index: usize) -> (Ipv4Addr, Ipv6Addr) {
        assert!(index < VIPS_MAX, "a bed has {VIPS_MAX} virtual addresses");
        plan::vip(self.environment.slot, index)
    }

    /// From now on machines with CPU quotas get what these are, whatever else runs on this computer. Some must
    /// have quotas already, and all of them together must leave most of it to all else, which stands behind them.
    pub fn put_quotas_first(&self) -> Result<(), TestbedError> {
        let controller = self.environment.controller.as_ref();
        let controller = controller.ok_or(TestbedError::NoCpuController)?;
        let folder = controller.bed_folder(self.environment.slot);
        controller.prefer(&folder).tried(|| format!("cannot prefer {}", folder.display()))
    }

    /// Features that are missing here, as messages.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The bed as `skep-lab list` shows it.
    pub fn info(&self) -> BedInfo {
        self.environment.info()
    }

    /// Lets no frame pass between two machines of one LAN, in either direction.
    pub fn partition(&self, a: &Machine, b: &Machine) -> Result<(), TestbedError> {
        let (a, b) = ports(a, b)?;
        self.environment.switch.change_rules(|rules| rules.cut(a, b))
    }

    /// Ends a partition of two machines.
    pub fn heal(&self, a: &Machine, b: &Machine) -> Result<(), TestbedError> {
        let (a, b) = ports(a, b)?;
        self.environment.switch.change_rules(|rules| rules.mend(a, b))
    }

    /// Ends all partitions.
    pub fn heal_all(&self) -> Result<(), TestbedError> {
        self.environment.switch.change_rules(|rules| rules.mend_all())
    }

    /// Loses, doubles and delays packets between clients and all others, in either direction, from now
    /// on; `None` lets them pass. There must be a router.
    pub fn set_relay(&self, faults: Option<RelayFaults>) -> Result<(), TestbedError> {
        let checked = faults.iter().try_for_each(RelayFaults::check);
        checked.map_err(TestbedError::Unusable)?;
        let (router, mut relay) = (self.relaying_router()?, lock(&self.relay));
        if let Some(last) = relay.take() {
            last.end(router)?;
        }
        *relay = faults.map(|faults| Relay::start(router, faults)).transpose()?;
        Ok(())
    }

    /// What the relay has done so far; nothing, if there is none.
    pub fn relay_counts(&self) -> Result<RelayCounts, TestbedError> {
        let router = self.relaying_router()?;
        lock(&self.relay).as_ref().map_or(Ok(RelayCounts::default()), |it| it.counts(router))
    }

    /// Puts the host itself, the network of the calling thread, on the LAN of
    /// the nodes, with a route to `address`. It goes with the bed.
    pub fn to_host(&self, address: IpAddr) -> Result<(), TestbedError> {
        let (slot, switch) = (self.environment.slot, &self.environment.switch);
        let (link, device) = (plan::host_link(slot), plan::host_device(slot));
        self.environment.tell_janitor(|janitor| janitor.knows_link(&device))?;
        host_ip(&host_lines(&link, &device, switch.pid(), address))?;
        switch.adopt(&link)?;
        if self.environment.frames == Frames::Wire {
            let done = frames::complete_checksums(&device);
            done.tried(|| format!("cannot switch checksum offload off on {device}"))?;
        }
        switch.await_ready(&[&link.port])
    }

    fn relaying_router(&self) -> Result<&Machine, TestbedError> {
        let none = || TestbedError::Unusable("a relay needs a router in the bed".to_owned());
        self.router().ok_or_else(none)
    }

    fn apply_limits(&mut self, topology: &Topology) -> Result<(), TestbedError> {
        for machine in &self.machines {
            let limits = topology.limits_of(machine.name(), machine.role().name());
            let note = machine.apply(limits)?;
            self.notes.extend(note.filter(|note| !self.notes.contains(note)));
        }
        Ok(())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Its file would keep the router's network.
        drop(lock(&self.relay).take());
        self.environment.end();
    }
}

/// Whether each name with limits is that of a machine or of a role.
fn check_names(topology: &Topology, plans: &[plan::MachinePlan]) -> Result<(), TestbedError> {
    let is_known =
        |name: &str| plans.iter().any(|plan| plan.name == name || plan.role.name() == name);
    match topology.limits.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let said = format!("limits.{name}: there is no such machine or role in this bed");
            Err(TestbedError::Topology(said))
        }
    }
}

/// The ports of two machines on a LAN that both are on.
fn ports<'a>(a: &'a Machine, b: &'a Machine) -> Result<(&'a str, &'a str), TestbedError> {
    let on = |lan| Some((a.port(lan)?, b.port(lan)?));
    let apart = || TestbedError::Apart(a.name().to_owned(), b.name().to_owned());
    on(Lan::Inner).or_else(|| on(Lan::Outer)).ok_or_else(apart)
}

fn host_ip(lines: &str) -> Result<(), TestbedError> {
    let mut ip = Command::new("ip");
    ip.args(["-batch", "-"]);
    tool::run(ip, "on the host", lines).map(drop)
}

/// Lines for `ip -batch` on the host.
fn host_lines(link: &Link, device: &str, switch: u32, address: IpAddr) -> String {
    let (port, mac) = (&link.port, mac_text(&link.mac));
    let mut lines = format!(
        "link add name {device} address {mac} type veth peer name {port} netns {switch}\n\
         address add {}/{V4_BITS} dev {device}\n",
        link.ipv4
    );
    // A host may be without IPv6.
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        lines += &format!("address add {}/{V6_BITS} dev {device} nodad\n", link.ipv6);
    }
    let bits = if address.is_ipv4() { 32 } else { 128 };
    lines + &format!("link set dev {device} up\nroute replace {address}/{bits} dev {device}\n")
}
