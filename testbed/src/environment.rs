//! The environment that the machines of a bed share: its network, switch, janitor and file.

use std::fs;
use std::io::PipeReader;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cpu::Controller;
use crate::error::{TestbedError, Tried};
use crate::frames;
use crate::janitor::Janitor;
use crate::limits::{KILL_MS, POLL_MS};
use crate::namespace::{self, Entrance, Holder, processes};
use crate::plan::{MachinePlan, MachineRole, V4_BITS, V6_BITS};
use crate::registry::{BedInfo, MachineInfo, Slot};
use crate::switch::{Plug, Switch, await_addresses, await_files, mac_text, start_ip};
use crate::sync::lock;
use crate::topology::Frames;

/// The environment of a bed, shared by the bed and its machines.
pub(crate) struct Environment {
    pub(crate) slot: u16,
    pub(crate) switch: Switch,
    pub(crate) frames: Frames,
    pub(crate) controller: Option<Controller>,
    /// Gone once the bed is.
    janitor: Mutex<Option<Janitor>>,
    leash: PipeReader,
    file: Mutex<(Slot, BedInfo)>,
}

impl Environment {
    pub(crate) fn new(
        slot: Slot,
        (mut janitor, leash): (Janitor, PipeReader),
        switch: Switch,
        frames: Frames,
    ) -> Result<Self, TestbedError> {
        let controller = Controller::find();
        if let Some(controller) = &controller {
            janitor.knows_cgroup(&controller.bed_folder(slot.number))?;
        }
        let owner = std::process::id();
        let info = BedInfo { slot: slot.number, owner, switch: switch.pid(), machines: Vec::new() };
        Ok(Self {
            slot: slot.number,
            switch,
            frames,
            controller,
            janitor: Mutex::new(Some(janitor)),
            leash,
            file: Mutex::new((slot, info)),
        })
    }

    /// Starts another holder.
    pub(crate) fn start(&self, name: &str) -> Result<Holder, TestbedError> {
        namespace::start(name, &self.leash)?.finish()
    }

    /// Tells the janitor of something to clean up.
    pub(crate) fn tell_janitor(
        &self,
        tell: impl FnOnce(&mut Janitor) -> Result<(), TestbedError>,
    ) -> Result<(), TestbedError> {
        lock(&self.janitor).as_mut().map_or(Ok(()), tell)
    }

    /// Cleans up and waits until it is done.
    pub(crate) fn end(&self) {
        drop(lock(&self.janitor).take());
    }

    /// What the bed's file says.
    pub(crate) fn info(&self) -> BedInfo {
        lock(&self.file).1.clone()
    }

    /// Changes what the bed's file says.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut BedInfo)) -> Result<(), TestbedError> {
        let (slot, info) = &mut *lock(&self.file);
        change(info);
        slot.describe(info)
    }

    /// Changes what the bed's file says of one machine.
    pub(crate) fn describe_machine(
        &self,
        name: &str,
        change: impl FnOnce(&mut MachineInfo),
    ) -> Result<(), TestbedError> {
        self.describe(|info| {
            info.machines.iter_mut().find(|it| it.name == name).map(change);
        })
    }

    /// Gives machines their links, addresses and routes, and waits until
    /// they are reachable. Their processes run already.
    pub(crate) fn wire(&self, machines: &[(&MachinePlan, &Holder)]) -> Result<(), TestbedError> {
        for (plan, holder) in machines {
            self.prepare(plan, holder)?;
        }
        let plugs: Vec<_> =
            machines.iter().flat_map(|(plan, holder)| plugs(plan, holder)).collect();
        self.switch.plug(&plugs)?;

        let configure = |(plan, holder): &(&MachinePlan, &Holder)| {
            start_ip(holder.entrance(), &format!("in {}", plan.name), &addresses(plan))
        };
        let running: Vec<_> = machines.iter().map(configure).collect::<Result<_, _>>()?;
        running.into_iter().try_for_each(|ip| ip.finish().map(drop))?;

        let ports: Vec<_> = plugs.iter().map(|plug| plug.link.port.as_str()).collect();
        self.switch.await_ready(&ports)?;
        machines.iter().try_for_each(|(plan, holder)| self.finish(plan, holder.entrance()))
    }

    /// The kernel's switches, before there are devices.
    fn prepare(&self, plan: &MachinePlan, holder: &Holder) -> Result<(), TestbedError> {
        let entrance = holder.entrance();
        let inode = entrance.inode().tried(|| format!("cannot tell {} apart", plan.name))?;
        self.tell_janitor(|janitor| janitor.knows_net(inode, holder.pid()))?;
        let name = &plan.name;
        let set =
            || settings(plan.role).try_for_each(|(key, value)| write_setting(name, key, value));
        entrance.run(set).tried(|| format!("cannot enter {name}"))?
    }

    fn finish(&self, plan: &MachinePlan, entrance: &Arc<Entrance>) -> Result<(), TestbedError> {
        let state = |device| format!("/sys/class/net/{device}/operstate");
        let devices = plan.links.iter().map(|link| link.device);
        await_files(entrance, devices.clone().map(state).collect(), "up")?;
        await_addresses(entrance)?;
        if self.frames == Frames::Large {
            return Ok(());
        }
        let mut devices: Vec<_> = devices.collect();
        let complete = || devices.drain(..).try_for_each(frames::complete_checksums);
        let done = entrance.run(complete).tried(|| format!("cannot enter {}", plan.name))?;
        done.tried(|| format!("cannot switch checksum offload off in {}", plan.name))
    }

    /// The bed's description of a machine.
    pub(crate) fn describe_new(plan: &MachinePlan, pid: u32) -> MachineInfo {
        let link = &plan.links[0];
        MachineInfo {
            name: plan.name.clone(),
            role: plan.role,
            pid: Some(pid),
            ipv4: link.ipv4,
            ipv6: link.ipv6,
            mac: mac_text(&link.mac),
            cgroup: None,
        }
    }
}

fn plugs<'a>(plan: &'a MachinePlan, holder: &Holder) -> impl Iterator<Item = Plug<'a>> {
    let (pid, takes_xdp) = (holder.pid(), plan.role == MachineRole::Dispatcher);
    plan.links.iter().map(move |link| Plug { link, pid, takes_xdp })
}

/// Kills all processes in a network until there is only its holder.
pub(crate) fn kill_all(holder: &Holder, machine: &str) -> Result<(), TestbedError> {
    let deadline = Instant::now() + Duration::from_millis(KILL_MS);
    loop {
        let pids = processes(holder).tried(|| format!("cannot look into {machine}"))?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let said = format!("{} processes of {machine} do not end", pids.len());
            return Err(TestbedError::TooLate(said));
        }
        for pid in pids.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(POLL_MS));
    }
}

/// What a machine's kernel does differently.
fn settings(role: MachineRole) -> impl Iterator<Item = (&'static str, &'static str)> {
    // Addresses are unique by plan: no need to wait a second for each.
    const ALL: &[(&str, &str)] = &[
        ("net.ipv6.conf.all.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.accept_ra", "0"),
    ];
    const ROUTER: &[(&str, &str)] = &[
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv6.conf.all.forwarding", "1"),
        ("net.ipv4.conf.all.send_redirects", "0"),
        ("net.ipv4.conf.default.send_redirects", "0"),
    ];
    // As many connections to one address as there are ports.
    const CLIENT: &[(&str, &str)] =
        &[("net.ipv4.ip_local_port_range", "1024 65535"), ("net.ipv4.tcp_tw_reuse", "1")];
    let own = match role {
        MachineRole::Router => ROUTER,
        MachineRole::Client => CLIENT,
        _ => &[],
    };
    ALL.iter().chain(own).copied()
}

/// A kernel setting of the calling thread's network, which is `machine`'s; `key` as `sysctl`
/// names it.
pub(crate) fn write_setting(machine: &str, key: &str, value: &str) -> Result<(), TestbedError> {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    fs::write(path, value).map_err(|source| TestbedError::Setting {
        key: key.to_owned(),
        value: value.to_owned(),
        place: format!("on {machine}"),
        source,
    })
}

/// Lines for `ip -batch` in a machine.
fn addresses(plan: &MachinePlan) -> String {
    let mut lines = "link set dev lo up\n".to_owned();
    for link in &plan.links {
        let (device, v4, v6) = (link.device, link.ipv4, link.ipv6);
        lines += &format!(
            "address add {v4}/{V4_BITS} dev {device}\n\
             address add {v6}/{V6_BITS} dev {device} nodad\n\
             link set dev {device} up\n"
        );
    }
    if let Some((v4, v6)) = plan.gateway {
        lines += &format!("route add 0.0.0.0/0 via {v4}\nroute add ::/0 via {v6}\n");
    }
    lines
}
