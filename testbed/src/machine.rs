//! A machine of a bed: a computer with one cable, and the processes that run on it.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::cpu;
use crate::environment::{self, Environment, kill_all};
use crate::error::{TestbedError, Tried};
use crate::limits::CPU_PERIOD_US;
use crate::namespace::{self, Entrance, Holder};
use crate::plan::{Lan, MachinePlan, MachineRole};
use crate::switch::{await_addresses, await_files, set_rate};
use crate::sync::lock;
use crate::topology::Limits;

/// One machine: a network namespace and a mount namespace of its own, with
/// `/sys` of that network and BPF pins (`/sys/fs/bpf`) that end with it.
pub struct Machine {
    plan: MachinePlan,
    environment: Arc<Environment>,
    /// `None` while it is dead.
    holder: Mutex<Option<Holder>>,
    limits: Mutex<Limits>,
}

impl Machine {
    pub(crate) fn new(plan: MachinePlan, holder: Holder, environment: Arc<Environment>) -> Self {
        Self { plan, environment, holder: Mutex::new(Some(holder)), limits: Mutex::default() }
    }

    /// Its name: `node-1`.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Its purpose.
    pub fn role(&self) -> MachineRole {
        self.plan.role
    }

    /// Its address on its LAN (a router's: on that of the nodes).
    pub fn ipv4(&self) -> Ipv4Addr {
        self.plan.links[0].ipv4
    }

    /// Its other address.
    pub fn ipv6(&self) -> Ipv6Addr {
        self.plan.links[0].ipv6
    }

    /// Its device's hardware address.
    pub fn mac(&self) -> [u8; 6] {
        self.plan.links[0].mac
    }

    /// Its device, as it calls it.
    pub fn device(&self) -> &'static str {
        self.plan.links[0].device
    }

    /// The process that holds its namespaces, for `nsenter --target`; `None`
    /// while it is dead.
    pub fn pid(&self) -> Option<u32> {
        lock(&self.holder).as_ref().map(Holder::pid)
    }

    /// A command that will run in the machine, under its CPU quota, in the
    /// folder where the caller is. In a dead machine it fails to start, with
    /// `EHOSTDOWN`. What it starts dies with the machine and with the bed.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self.entrance() {
            Ok(entrance) => entrance.command(program.as_ref()),
            Err(_) => dead_command(program.as_ref()),
        }
    }

    /// Runs `work` on a thread in the machine and waits for it. Threads that
    /// it starts are in the machine too. The machine's CPU quota does not hold
    /// for them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.entrance()?.run(work).tried(|| format!("cannot enter {}", self.name()))
    }

    /// Runs `work` on a thread in the machine. A thread that outlives the bed
    /// keeps its namespace, without a link.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<io::Result<T>>, TestbedError> {
        let entrance = self.entrance()?;
        let inside = move || entrance.enter().map(|()| work());
        let name = self.name().to_owned();
        let thread = thread::Builder::new().name(name).spawn(inside);
        thread.tried(|| format!("cannot start a thread in {}", self.name()))
    }

    /// Pulls its cables: it is up, and alone.
    pub fn down(&self) -> Result<(), TestbedError> {
        self.set_cables(false)
    }

    /// Puts its cables in again; returns once frames pass.
    pub fn up(&self) -> Result<(), TestbedError> {
        self.set_cables(true)
    }

    /// Ends the machine as a power cut does: first it is silent, then all its
    /// processes are dead, its memory and BPF pins gone. Threads of `run` and
    /// `spawn` stay, in a network without links.
    pub fn kill(&self) -> Result<(), TestbedError> {
        let mut slot = lock(&self.holder);
        let holder = slot.take().ok_or_else(|| self.dead())?;
        let links = &self.plan.links;
        // No word to anybody: not even the FIN of a dying process.
        links.iter().try_for_each(|link| self.environment.switch.set_cable(&link.port, false))?;
        kill_all(&holder, self.name())?;
        self.forget(&holder)?;
        links.iter().try_for_each(|link| self.environment.switch.unplug(&link.port))?;
        drop(holder);
        self.environment.describe_machine(self.name(), |info| info.pid = None)
    }

    /// Starts a killed machine: with its name, addresses and limits, and
    /// nothing else of what it had.
    pub fn boot(&self) -> Result<(), TestbedError> {
        let mut slot = lock(&self.holder);
        if slot.is_some() {
            return Ok(());
        }
        let holder = self.environment.start(self.name())?;
        if let Err(error) = self.environment.wire(&[(&self.plan, &holder)]) {
            self.forget(&holder)?;
            return Err(error);
        }
        let pid = holder.pid();
        *slot = Some(holder);
        drop(slot);
        let limits = *lock(&self.limits);
        self.set_rate(limits.rate_bits_s)?;
        if limits.cpu_cores.is_some() {
            self.set_cpu(limits.cpu_cores)?;
        }
        self.environment.describe_machine(self.name(), |info| info.pid = Some(pid))
    }

    /// Changes a kernel setting of its network; `key` as `sysctl` names it.
    pub fn set_kernel(&self, key: &str, value: &str) -> Result<(), TestbedError> {
        self.run(|| environment::write_setting(self.name(), key, value))?
    }

    /// Loses this share of the frames to and from the machine, each for
    /// itself, in percent from 0 to 100.
    pub fn set_loss(&self, percent: f64) -> Result<(), TestbedError> {
        self.limit(|limits| limits.loss_percent = Some(percent))?;
        let ports = self.plan.links.iter().map(|link| link.port.as_str());
        self.environment
            .switch
            .change_rules(|rules| ports.for_each(|port| rules.lose(port, percent)))
    }

    /// Loses this share of the IPv4 packets of a protocol (as IANA numbers them) that the machine
    /// sends, in percent from 0 to 100.
    pub fn set_protocol_loss(&self, protocol: u8, percent: f64) -> Result<(), TestbedError> {
        let limits = Limits { loss_percent: Some(percent), ..Limits::default() };
        limits.check().map_err(TestbedError::Unusable)?;
        let ports = self.plan.links.iter().map(|link| link.port.as_str());
        self.environment.switch.change_rules(|rules| {
            ports.for_each(|port| rules.lose_protocol(port, protocol, percent));
        })
    }

    /// Limits the rate of the machine's links in either direction, in bits per
    /// second of frames; `None` lifts it. Frames that an XDP program sends are
    /// not held to it on their way out of the machine.
    pub fn set_rate(&self, bits_s: Option<u64>) -> Result<(), TestbedError> {
        let before = lock(&self.limits).rate_bits_s;
        self.limit(|limits| limits.rate_bits_s = bits_s)?;
        if bits_s.is_none() && before.is_none() {
            return Ok(());
        }
        let (entrance, place) = (self.entrance()?, format!("in {}", self.name()));
        self.plan.links.iter().try_for_each(|link| {
            let switch = &self.environment.switch;
            switch.set_rate(&link.port, bits_s)?;
            set_rate(&entrance, &place, (link.device, switch.queue()), bits_s)
        })
    }

    /// Limits the processor time of the machine's processes, in cores; `None`
    /// lifts it.
    pub fn set_cpu(&self, cores: Option<f64>) -> Result<(), TestbedError> {
        self.limit(|limits| limits.cpu_cores = cores)?;
        let controller =
            self.environment.controller.as_ref().ok_or(TestbedError::NoCpuController)?;
        let bed = controller.bed_folder(self.environment.slot);
        let what = || format!("cannot give {} a CPU quota", self.name());
        let folder = controller.make(&bed, self.name()).tried(what)?;
        let period_us = lock(&self.limits).cpu_period_us.unwrap_or(CPU_PERIOD_US);
        controller.limit(&folder, cores, period_us).tried(what)?;
        let door = cpu::door(&folder).tried(what)?;
        let holder = lock(&self.holder);
        let holder = holder.as_ref().ok_or_else(|| self.dead())?;
        for pid in namespace::processes(holder).tried(what)? {
            // It may have ended meanwhile.
            let _ = rustix::io::write(&door, pid.to_string().as_bytes());
        }
        holder.entrance().set_cgroup(door);
        self.environment.describe_machine(self.name(), |info| info.cgroup = Some(folder))
    }

    /// Brings a new machine under its limits; returns what it goes without.
    pub(crate) fn apply(&self, limits: Limits) -> Result<Option<String>, TestbedError> {
        if let Some(percent) = limits.loss_percent {
            self.set_loss(percent)?;
        }
        if limits.rate_bits_s.is_some() {
            self.set_rate(limits.rate_bits_s)?;
        }
        self.limit(|own| own.cpu_period_us = limits.cpu_period_us)?;
        match limits.cpu_cores.map(|cores| self.set_cpu(Some(cores))) {
            None | Some(Ok(())) => Ok(None),
            Some(Err(error)) => Ok(Some(error.to_string())),
        }
    }

    /// The port through which it is on this LAN.
    pub(crate) fn port(&self, lan: Lan) -> Option<&str> {
        let link = self.plan.links.iter().find(|link| link.lan == lan);
        link.map(|link| link.port.as_str())
    }

    /// Before a holder ends, after which its network's number may be another's.
    fn forget(&self, holder: &Holder) -> Result<(), TestbedError> {
        let inode = holder.entrance().inode();
        let inode = inode.tried(|| format!("cannot tell {} apart", self.name()))?;
        self.environment.tell_janitor(|janitor| janitor.forgets_net(inode))
    }

    fn set_cables(&self, is_in: bool) -> Result<(), TestbedError> {
        let entrance = self.entrance()?;
        self.plan.links.iter().try_for_each(|link| {
            self.environment.switch.set_cable(&link.port, is_in)?;
            // Pulling is seen at once, putting in when the kernel comes to it.
            let file = format!("/sys/class/net/{}/operstate", link.device);
            if !is_in {
                return Ok(());
            }
            await_files(&entrance, vec![file], "up")?;
            await_addresses(&entrance)
        })
    }

    fn limit(&self, change: impl FnOnce(&mut Limits)) -> Result<(), TestbedError> {
        let mut limits = *lock(&self.limits);
        change(&mut limits);
        limits.check().map_err(TestbedError::Unusable)?;
        *lock(&self.limits) = limits;
        Ok(())
    }

    fn entrance(&self) -> Result<Arc<Entrance>, TestbedError> {
        let holder = lock(&self.holder);
        holder.as_ref().map(|it| Arc::clone(it.entrance())).ok_or_else(|| self.dead())
    }

    fn dead(&self) -> TestbedError {
        TestbedError::Dead(self.name().to_owned())
    }
}

/// A command that fails to start because its machine is down.
#[expect(unsafe_code, reason = "only a child before exec can fail a command that is to be made")]
fn dead_command(program: &OsStr) -> Command {
    let mut command = Command::new(program);
    let fail = || Err(io::Error::from_raw_os_error(libc::EHOSTDOWN));
    // SAFETY: the closure makes a number into an error and nothing else.
    unsafe { command.pre_exec(fail) };
    command
}
