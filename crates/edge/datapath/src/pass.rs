//! A program that passes everything, and a check whether programs can be loaded at all.

use std::os::fd::OwnedFd;

use crate::device::Device;
use crate::modes::Attached;
use crate::object::{self, Loader};
use crate::sys::{self, Hook};
use crate::{DatapathError, pins};

/// A device with the attached program, which is detached on drop.
#[derive(Debug)]
pub struct Pass {
    #[expect(dead_code, reason = "the device keeps its program while this is open")]
    link: OwnedFd,
}

/// Attaches an XDP program that passes everything to a device of this thread's namespace. For test
/// beds: one end of a veth pair accepts frames that the other end sends back or redirects by XDP
/// only while it has a program (drivers/net/veth.c).
pub fn attach_pass(device: &str) -> Result<Pass, DatapathError> {
    let device = Device::named(device)?;
    let loaded = Loader::new(None, &Vec::new()).load(&object::PASS)?;
    let link = sys::create_link(loaded.xdp_fd()?, device.index, Hook::XdpNative);
    let link = link.map_err(|error| DatapathError::Refused {
        device: device.name,
        mode: Attached::XdpNative,
        error,
    })?;
    Ok(Pass { link })
}

/// Checks that packet programs can be loaded and pinned. Mounts bpffs at /sys/fs/bpf if it is not
/// mounted, which requires CAP_SYS_ADMIN, once.
pub fn prepare() -> Result<(), DatapathError> {
    sys::try_map().map_err(|error| DatapathError::refusal("make BPF maps", error))?;
    sys::try_program().map_err(|error| DatapathError::refusal("load packet programs", error))?;
    pins::ensure_bpffs()
}
