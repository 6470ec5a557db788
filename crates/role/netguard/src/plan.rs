//! What the config allows on this machine: the bounds of every order.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustix::thread::CapabilitySet;
use skep_config::{Attach, Config, DispatchMode, ServiceConfig};
use skep_datapath::{How, PinPath, Sizes};
use skep_guard::privileges;
use skep_netif::{Device, Netif};

use crate::error::NetguardError;
use crate::handoff::HandoffPlan;
use crate::limits::SOURCES_MAX;

/// Root folder of the pins in bpffs; contains a folder per cluster.
const PINS: &str = "/sys/fs/bpf/skep";

/// What one netguard may change on its machine.
#[derive(Clone, Debug)]
pub struct NetguardPlan {
    /// The cluster's name, for folders and messages.
    pub(crate) cluster: String,
    pub(crate) how: How,
    pub(crate) sizes: Sizes,
    /// Addresses of all services in direct dispatch. A node forwards packets also of services that it no
    /// longer belongs to.
    pub(crate) services: Vec<SocketAddr>,
    /// Whether the config names another dispatcher, which may be active instead.
    pub(crate) has_other_dispatcher: bool,
    /// The part of the dispatcher on this machine.
    pub(crate) dispatch: Part,
    /// The part of the node on this machine.
    pub(crate) node: Part,
    /// Handoffs, on a machine that takes part in them.
    pub(crate) handoffs: Option<HandoffPlan>,
    /// Path of the record of changed addresses and settings.
    pub(crate) record: PathBuf,
    /// Path of the file with the number of the process in charge.
    pub(crate) pid_file: PathBuf,
}

/// A machine's part in one role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Virtual addresses, each once.
    pub(crate) vips: Vec<IpAddr>,
    /// Name of the device, if the config has one.
    device: Option<String>,
    /// An address of the device.
    address: Option<IpAddr>,
}

/// Returns the socket at which the netguard of the process `name` accepts orders.
pub fn socket_of(config: &Config, name: &str) -> PathBuf {
    config.direct.guard_dir.join(format!("{name}.sock"))
}

/// Returns the socket at which that netguard accepts orders of handoffs.
pub fn handoff_socket_of(config: &Config, name: &str) -> PathBuf {
    config.direct.guard_dir.join(format!("{name}.handoff.sock"))
}

/// Returns what a process hands off: a node, the connections of its services that enable it. A
/// dispatcher hands off none, but has a socket to which nodes send requests.
fn handoffs(config: &Config, name: &str) -> Option<HandoffPlan> {
    if !config.hands_off() {
        return None;
    }
    let of_node = config.node(name).map(|node| node.agent_address().ip());
    let of_dispatcher = config.dispatcher(name).and_then(|it| it.address).map(|it| it.ip());
    let is_handed_off = |service: &&ServiceConfig| service.dispatch == DispatchMode::Handoff;
    let services = config.steered_services_of(name).filter(is_handed_off);
    let addresses = services.flat_map(|it| it.listen.iter().copied()).collect();
    Some(HandoffPlan { addresses, of_node, of_dispatcher, socket: handoff_socket_of(config, name) })
}

/// Returns the user that this process runs as.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether this process can change the group of its files to `gid`.
pub(crate) fn may_give_to(gid: u32) -> bool {
    let own = rustix::process::getgroups().unwrap_or_default();
    let mut own = own.into_iter().chain([rustix::process::getegid()]);
    own_user() == 0 || own.any(|group| group.as_raw() == gid)
}

impl NetguardPlan {
    /// Returns what `config` allows the process `name`.
    pub fn of(config: &Config, name: &str) -> Result<Self, NetguardError> {
        let (dispatcher, node) = (config.dispatcher(name), config.node(name));
        if dispatcher.is_none() && node.is_none() {
            return Err(NetguardError::NoSuchName(name.to_owned()));
        }
        let services = || config.steered_services().map(|(_, service)| service);
        let dispatch = dispatcher.map(|dispatcher| Part {
            vips: vips(services()),
            device: dispatcher.device.clone(),
            address: dispatcher.address.map(|address| address.ip()),
        });
        let node = node.map(|node| Part {
            vips: vips(config.steered_services_of(name)),
            device: node.device.clone(),
            address: Some(node.address.ip()),
        });
        Ok(Self {
            cluster: config.cluster.clone(),
            how: how(config.direct.attach),
            sizes: Sizes {
                flows_max: config.direct.flows_max,
                sources_max: SOURCES_MAX,
                services_max: services_max(config),
            },
            services: services().flat_map(|service| service.listen.iter().copied()).collect(),
            has_other_dispatcher: config.dispatchers.iter().any(|other| other.name != name),
            dispatch: dispatch.unwrap_or_default(),
            node: node.unwrap_or_default(),
            handoffs: handoffs(config, name),
            record: config.direct.guard_dir.join(format!("{name}.json")),
            pid_file: config.direct.guard_dir.join(format!("{name}.pid")),
        })
    }

    /// Returns the capabilities that its orders need. A connection that moves here gets a socket with
    /// the address of its service; on a machine that is only a dispatcher none does.
    pub(crate) fn kept(&self) -> CapabilitySet {
        match &self.handoffs {
            Some(handoffs) if !handoffs.addresses.is_empty() => {
                privileges::NETGUARD | privileges::HANDOFFS
            }
            _ => privileges::NETGUARD,
        }
    }

    /// Refuses an address whose packets must not be steered.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), NetguardError> {
        match self.services.contains(&address) {
            true => Ok(()),
            false => Err(NetguardError::ForeignAddress(address)),
        }
    }

    /// Returns the path of the pins of one side.
    pub(crate) fn place(&self, side: &str) -> PinPath {
        PinPath { pins: PathBuf::from(PINS).join(&self.cluster).join(side) }
    }
}

impl Part {
    /// Returns the device at which packets arrive.
    pub(crate) fn device(&self, netif: &mut Netif) -> Result<Device, NetguardError> {
        match (&self.device, self.address) {
            (Some(name), _) => Ok(netif.device(name)?),
            (None, Some(address)) => Ok(netif.device_of(address)?),
            (None, None) => Err(NetguardError::WrongSide),
        }
    }
}

fn vips<'a>(services: impl Iterator<Item = &'a ServiceConfig>) -> Vec<IpAddr> {
    let mut vips: Vec<IpAddr> =
        services.flat_map(|service| service.listen.iter().map(|listen| listen.ip())).collect();
    vips.sort_unstable();
    vips.dedup();
    vips
}

/// Returns the number of slots for services: the number of their addresses, rounded up to a power of
/// two.
fn services_max(config: &Config) -> u32 {
    let addresses: usize = config.steered_services().map(|(_, service)| service.listen.len()).sum();
    let places = addresses.next_power_of_two().clamp(4, skep_wire::steer::SERVICES_MAX);
    places as u32
}

fn how(attach: Attach) -> How {
    match attach {
        Attach::Auto => How::Auto,
        Attach::XdpNative => How::XdpNative,
        Attach::XdpGeneric => How::XdpGeneric,
        Attach::Tc => How::Tc,
    }
}
