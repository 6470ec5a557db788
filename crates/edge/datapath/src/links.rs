//! Which programs are attached to which device, and in which mode; the links are pinned, so that they outlive
//! the process.
//!
//! **Invariants:** a foreign program is never replaced. While one of our links is pinned, packets always meet
//! one of our programs: it is replaced within the link, and where the kernel cannot do that, another program
//! takes its place meanwhile.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::device::Device;
use crate::modes::{Attached, How};
use crate::sys::{self, Hook};
use crate::{DatapathError, PinPath};

/// One program in its two builds.
pub(crate) struct Programs<'fd> {
    /// `None` if it is built for tc only.
    pub(crate) xdp: Option<BorrowedFd<'fd>>,
    pub(crate) tc: BorrowedFd<'fd>,
    /// The program's position among foreign programs at tc.
    pub(crate) tc_hook: Hook,
}

/// A pinned link to one of our programs.
pub(crate) struct Found {
    mode: Attached,
    path: PathBuf,
    link: OwnedFd,
    device_index: u32,
}

/// Attaches `programs` to the device and detaches them from every other.
pub(crate) fn attach(
    place: &PinPath,
    device: &Device,
    how: How,
    programs: &Programs<'_>,
) -> Result<Attached, DatapathError> {
    let attaching = Attaching { place, device, programs, found: found(place)? };
    let mut refusal = None;
    for mode in attaching.modes(how) {
        match attaching.by(mode) {
            Ok(()) => return Ok(mode),
            Err(error) => {
                if how == How::Auto {
                    tracing::info!("{error}");
                }
                // The first error is that of the preferred mode.
                refusal.get_or_insert(error);
            }
        }
    }
    Err(refusal.unwrap_or_else(|| unreachable!("there is at least one way")))
}

/// The links that are pinned in a folder.
pub(crate) fn found(place: &PinPath) -> Result<Vec<Found>, DatapathError> {
    let mut found = Vec::new();
    for mode in Attached::ALL {
        let path = place.pins.join(mode.pin_name());
        let link = match sys::pinned(&path) {
            Ok(link) => link,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(pin_failed("read the pinned link", path)(error)),
        };
        let device_index = sys::link_device(link.as_fd())
            .map_err(pin_failed("ask for the device of the pinned link", path.clone()))?;
        found.push(Found { mode, path, link, device_index });
    }
    Ok(found)
}

/// Whether one of our programs is attached to that device: not if the device is gone, or if the link was
/// detached or unpinned by another process.
pub(crate) fn is_attached(place: &PinPath, device_index: u32) -> Result<bool, DatapathError> {
    Ok(found(place)?.iter().any(|found| found.device_index == device_index))
}

/// Detaches programs from their devices and removes the pins.
pub(crate) fn remove(links: &[Found]) -> Result<(), DatapathError> {
    links.iter().try_for_each(Found::remove)
}

struct Attaching<'a> {
    place: &'a PinPath,
    device: &'a Device,
    programs: &'a Programs<'a>,
    found: Vec<Found>,
}

impl Attaching<'_> {
    fn modes(&self, how: How) -> Vec<Attached> {
        match how {
            How::Auto if self.programs.xdp.is_none() => vec![Attached::Tc],
            // A driver that refused native XDP would refuse it again, and trying would detach the generic
            // program meanwhile.
            How::Auto if self.here(Attached::XdpGeneric).is_some() => {
                vec![Attached::XdpGeneric, Attached::Tc]
            }
            How::Auto => Attached::ALL.to_vec(),
            How::XdpNative => vec![Attached::XdpNative],
            How::XdpGeneric => vec![Attached::XdpGeneric],
            How::Tc => vec![Attached::Tc],
        }
    }

    /// Attaches in this mode, and detaches all others.
    fn by(&self, mode: Attached) -> Result<(), DatapathError> {
        if let Some(found) = self.here(mode) {
            sys::update_link(found.link.as_fd(), self.program(mode)?)
                .map_err(pin_failed("exchange the program of the link", found.path.clone()))?;
            return self.others(mode).try_for_each(Found::remove);
        }
        let link = match self.other_xdp(mode) {
            Some(other) => self.exchange_xdp(other, mode)?,
            None => self.create(mode)?,
        };
        // A link of the same mode on another device occupies the path of the pin.
        self.found.iter().filter(|found| !self.is_here(found)).try_for_each(Found::remove)?;
        let path = self.place.pins.join(mode.pin_name());
        sys::pin(link.as_fd(), &path).map_err(pin_failed("pin the link", path))?;
        self.others(mode).filter(|found| self.is_here(found)).try_for_each(Found::remove)
    }

    /// The kernel allows one XDP program per device, in one mode; a change of mode leaves a gap.
    /// During the gap a program at tc does the work.
    fn exchange_xdp(&self, other: &Found, mode: Attached) -> Result<OwnedFd, DatapathError> {
        let meanwhile = match self.here(Attached::Tc) {
            Some(_) => None,
            None => Some(self.create(Attached::Tc)?),
        };
        other.remove()?;
        let created = self.create(mode);
        if created.is_err() {
            let link = self.create(other.mode)?;
            sys::pin(link.as_fd(), &other.path)
                .map_err(pin_failed("pin the link again", other.path.clone()))?;
        }
        if let Some(link) = meanwhile {
            sys::detach_link(link.as_fd()).map_err(self.place.failed("end the detour by tc of"))?;
        }
        created
    }

    fn create(&self, mode: Attached) -> Result<OwnedFd, DatapathError> {
        let hook = match mode {
            Attached::XdpNative => Hook::XdpNative,
            Attached::XdpGeneric => Hook::XdpGeneric,
            Attached::Tc => self.programs.tc_hook,
        };
        sys::create_link(self.program(mode)?, self.device.index, hook)
            .map_err(|error| self.refused(mode, error))
    }

    fn refused(&self, mode: Attached, error: io::Error) -> DatapathError {
        let device = self.device.name.clone();
        match Errno::from_io_error(&error) {
            Some(Errno::PERM) => DatapathError::NoPermission { doing: "attach packet programs" },
            Some(Errno::BUSY | Errno::EXIST) => {
                DatapathError::Busy { device, owner: self.device.xdp_owner() }
            }
            _ => DatapathError::Refused { device, mode, error },
        }
    }

    fn program(&self, mode: Attached) -> Result<BorrowedFd<'_>, DatapathError> {
        match mode {
            Attached::Tc => Ok(self.programs.tc),
            _ => self.programs.xdp.ok_or_else(|| {
                let error = io::Error::from(io::ErrorKind::Unsupported);
                DatapathError::Refused { device: self.device.name.clone(), mode, error }
            }),
        }
    }

    fn here(&self, mode: Attached) -> Option<&Found> {
        self.found.iter().find(|found| found.mode == mode && self.is_here(found))
    }

    fn other_xdp(&self, mode: Attached) -> Option<&Found> {
        match mode {
            Attached::XdpNative => self.here(Attached::XdpGeneric),
            Attached::XdpGeneric => self.here(Attached::XdpNative),
            Attached::Tc => None,
        }
    }

    fn others(&self, mode: Attached) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.mode != mode || !self.is_here(found))
    }

    fn is_here(&self, found: &Found) -> bool {
        found.device_index == self.device.index
    }
}

impl Found {
    /// Succeeds if the link was removed before.
    fn remove(&self) -> Result<(), DatapathError> {
        if self.device_index != 0 {
            // Unpinning alone would detach it as well, but later.
            match sys::detach_link(self.link.as_fd()) {
                Err(error) if Errno::from_io_error(&error) != Some(Errno::NOLINK) => {
                    return Err(pin_failed("detach the link", self.path.clone())(error));
                }
                _ => {}
            }
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(pin_failed("unpin the link", self.path.clone())(error))
            }
            _ => Ok(()),
        }
    }
}

fn pin_failed(doing: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> DatapathError {
    move |error| DatapathError::Pin { doing, path, error }
}
