//! Virtual addresses on nodes: on `lo`, without answers to ARP, and removed without leaving changes behind.
//!
//! Each change is first noted in a [`Record`], which the caller stores, and then made. So [`Netif::undo`]
//! with the stored record restores the earlier state after a crash at any point.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceKind};
use crate::error::Error;
use crate::netif::Netif;
use crate::route::clients_of;
use crate::sysctl::{self, ALL, Knob};
use crate::vip::check_vip;

/// The changes made on this machine, or about to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    addresses: Vec<AddedAddress>,
    settings: Vec<ChangedSetting>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AddedAddress {
    device: String,
    vip: IpAddr,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ChangedSetting {
    knob: Knob,
    device: String,
    before: i32,
    ours: i32,
}

impl Record {
    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.settings.is_empty()
    }

    /// The addresses that were added.
    pub fn vips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|added| added.vip)
    }

    fn note_setting(&mut self, knob: Knob, device: &str, ours: i32) -> Result<(), Error> {
        let is_noted = |noted: &ChangedSetting| noted.knob == knob && noted.device == device;
        if self.settings.iter().any(is_noted) {
            return Ok(());
        }
        if let Some(before) = sysctl::read(knob, device)?.filter(|before| *before < ours) {
            let device = device.to_owned();
            self.settings.push(ChangedSetting { knob, device, before, ours });
        }
        Ok(())
    }
}

impl Netif {
    /// Notes in `record` the changes that [`Netif::hold`] has to make so that this node accepts
    /// packets for `vip` from `device`, yet neither answers ARP requests for it nor sends requests
    /// with it. Changes nothing itself; changes that are already noted or not needed are omitted.
    ///
    /// `clients` are samples of the targets of replies; if there are none, a distant Internet address is
    /// used. The reverse path filter is loosened only if replies leave by a device other than `device`.
    pub fn prepare_hold(
        &mut self,
        record: &mut Record,
        device: &Device,
        vip: IpAddr,
        clients: &[IpAddr],
    ) -> Result<(), Error> {
        check_vip(vip)?;
        let loopback = self.loopback()?;
        let is_noted = record.addresses.iter().any(|added| added.vip == vip);
        if !is_noted && !loopback.has(vip) {
            record.addresses.push(AddedAddress { device: loopback.name, vip });
        }
        if vip.is_ipv6() {
            return Ok(());
        }
        for place in [ALL, &device.name] {
            record.note_setting(Knob::ArpIgnore, place, 1)?;
            record.note_setting(Knob::ArpAnnounce, place, 2)?;
        }
        let is_strict = sysctl::in_force(Knob::RpFilter, &device.name)? == 1;
        if is_strict && self.replies_leave_elsewhere(device, &clients_of(vip, clients))? {
            record.note_setting(Knob::RpFilter, &device.name, 2)?;
        }
        Ok(())
    }

    /// Makes the changes that `record` notes. Idempotent.
    pub fn hold(&mut self, record: &Record) -> Result<(), Error> {
        // Settings first, so that no ARP request for an address is ever answered.
        for setting in &record.settings {
            let now = sysctl::read(setting.knob, &setting.device)?;
            if now.is_some_and(|now| now < setting.ours) {
                sysctl::write(setting.knob, &setting.device, setting.ours)?;
            }
        }
        for added in &record.addresses {
            let device = self.device(&added.device)?;
            self.claim(&device, added.vip)?;
        }
        Ok(())
    }

    /// Returns what differs from the state that [`Netif::hold`] establishes, of all that `record` notes, for
    /// people: addresses and settings. `vips` must be held on `device` without answers to ARP even if no
    /// change was needed for that.
    pub fn missing(
        &mut self,
        record: &Record,
        device: &Device,
        vips: &[IpAddr],
    ) -> Result<Vec<String>, Error> {
        let loopback = self.loopback()?;
        let gone = vips.iter().filter(|vip| !loopback.has(**vip));
        let mut missing: Vec<String> =
            gone.map(|vip| format!("{vip} on {}", loopback.name)).collect();
        let has_arp = vips.iter().any(IpAddr::is_ipv4);
        for (knob, least) in [(Knob::ArpIgnore, 1), (Knob::ArpAnnounce, 2)] {
            if has_arp && sysctl::in_force(knob, &device.name)? < least {
                missing.push(knob.name(&device.name));
            }
        }
        for setting in &record.settings {
            if sysctl::read(setting.knob, &setting.device)?.is_some_and(|now| now < setting.ours) {
                missing.push(setting.knob.name(&setting.device));
            }
        }
        let devices = self.devices()?;
        let has = |added: &AddedAddress| {
            devices.iter().any(|device| device.name == added.device && device.has(added.vip))
        };
        let gone = record.addresses.iter().filter(|added| !has(added));
        missing.extend(gone.map(|added| format!("{} on {}", added.vip, added.device)));
        missing.sort_unstable();
        missing.dedup();
        Ok(missing)
    }

    /// Removes one address that `record` notes, from the machine and the record. Settings stay, for the other
    /// addresses.
    pub fn undo_vip(&mut self, record: &mut Record, vip: IpAddr) -> Result<(), Error> {
        while let Some(at) = record.addresses.iter().position(|added| added.vip == vip) {
            self.undo_address(&record.addresses[at])?;
            record.addresses.remove(at);
        }
        Ok(())
    }

    /// Reverts all changes that `record` notes, and removes each from the record. A setting that was changed
    /// since is left alone, and so are devices that no longer exist. Continues after a failure; the first is
    /// returned, and failed changes stay noted.
    pub fn undo(&mut self, record: &mut Record) -> Result<(), Error> {
        let mut first_failure = None;
        let mut is_done = |done: Result<(), Error>| match done {
            Ok(()) => true,
            Err(error) => {
                first_failure.get_or_insert(error);
                false
            }
        };
        record.addresses.retain(|added| !is_done(self.undo_address(added)));
        // Settings last, for the reason given in `hold`; and none while an address could not be removed.
        if record.addresses.is_empty() {
            record.settings.retain(|setting| !is_done(undo_setting(setting)));
        }
        first_failure.map_or(Ok(()), Err)
    }

    fn undo_address(&mut self, added: &AddedAddress) -> Result<(), Error> {
        match self.device(&added.device) {
            Ok(device) => self.release(&device, added.vip).map(drop),
            Err(Error::NoDevice { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn replies_leave_elsewhere(
        &mut self,
        device: &Device,
        clients: &[IpAddr],
    ) -> Result<bool, Error> {
        for client in clients {
            let route = self.route(*client, None)?;
            if route.is_some_and(|route| route.device != device.index) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn loopback(&mut self) -> Result<Device, Error> {
        let devices = self.devices()?;
        let found = devices.into_iter().find(|device| device.kind == DeviceKind::Loopback);
        let missing =
            || Error::NoDevice { wanted: "lo".to_owned(), found: "no loopback".to_owned() };
        found.ok_or_else(missing)
    }
}

fn undo_setting(setting: &ChangedSetting) -> Result<(), Error> {
    let now = sysctl::read(setting.knob, &setting.device)?;
    if now == Some(setting.ours) {
        sysctl::write(setting.knob, &setting.device, setting.before)?;
    }
    Ok(())
}
