//! `/run/skep-lab`: the list of existing beds, for this program and for its user.
//!
//! A bed is one file, named after its slot: JSON that describes the bed. The
//! file is locked as long as the bed or its janitor lives, and deleted afterwards.
//! Invariant: the process that holds the lock of a file in that folder owns the slot.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{TestbedError, Tried};
use crate::limits::SLOTS;
use crate::plan::MachineRole;

pub(crate) const FOLDER: &str = "/run/skep-lab";

/// The lower half only when the upper is taken: 198.18.0.0/16 is where some VPN and proxy
/// clients have their made-up addresses.
const HALF: u16 = SLOTS / 2;

/// A network of the plan that is ours.
pub(crate) struct Slot {
    pub(crate) number: u16,
    pub(crate) path: PathBuf,
    file: File,
}

/// Description of a bed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BedInfo {
    /// Number of its network, by which it is called: 198.18.0.0/24 is 0,
    /// 198.19.255.0/24 is 511.
    pub slot: u16,
    /// The process that owns it.
    pub owner: u32,
    /// Process that holds the namespace of the bridges.
    pub switch: u32,
    pub machines: Vec<MachineInfo>,
}

/// Description of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineInfo {
    pub name: String,
    /// Its purpose.
    pub role: MachineRole,
    /// Process that holds its namespaces; `None` while it is dead.
    pub pid: Option<u32>,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// Its other address.
    pub ipv6: Ipv6Addr,
    /// Its device's address, as six numbers in hex.
    pub mac: String,
    /// Its control group, if it has a CPU quota.
    pub cgroup: Option<PathBuf>,
}

/// A bed's file, and whether anybody still holds it.
pub(crate) struct Entry {
    pub(crate) slot: u16,
    pub(crate) is_alive: bool,
    /// Its content; nothing while a bed is being made.
    pub(crate) info: Option<BedInfo>,
}

impl Slot {
    /// Takes a free network: not one that was free a moment ago, so that nobody takes what is
    /// left of one bed for a part of the next.
    pub(crate) fn claim() -> Result<Self, TestbedError> {
        let mut last = Last::lock()?;
        let upper = (1..=HALF).map(|step| HALF + last.number.saturating_add(step) % HALF);
        for number in upper.chain(0..HALF) {
            if let Some(slot) = Self::try_claim(number)? {
                last.write(number)?;
                return Ok(slot);
            }
        }
        Err(TestbedError::NoFreeNetwork(SLOTS))
    }

    /// Claims this network; `None` if it is in use.
    pub(crate) fn try_claim(number: u16) -> Result<Option<Self>, TestbedError> {
        make_folder()?;
        let path = Path::new(FOLDER).join(format!("{number}.json"));
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.tried(|| format!("cannot make {}", path.display()))?;
        let is_ours = file.try_lock().is_ok() && is_still(&file, &path);
        Ok(is_ours.then_some(Self { number, path, file }))
    }

    /// The lock, for a process that is to hold it too.
    pub(crate) fn share(&self) -> Result<File, TestbedError> {
        self.file.try_clone().tried(|| format!("cannot share {}", self.path.display()))
    }

    /// Writes the description of the bed.
    pub(crate) fn describe(&mut self, info: &BedInfo) -> Result<(), TestbedError> {
        let path = self.path.display().to_string();
        let text = serde_json::to_string(info).map_err(io::Error::other);
        let text = text.tried(|| format!("cannot write {path}"))?;
        let mut write = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())
        };
        write().tried(|| format!("cannot write {path}"))
    }
}

/// The network that was taken last, in a file: many processes take some.
struct Last {
    number: u16,
    file: File,
}

impl Last {
    const PATH: &str = "/run/skep-lab/last";

    /// Keeps others from taking one meanwhile.
    fn lock() -> Result<Self, TestbedError> {
        make_folder()?;
        let read = || -> io::Result<Self> {
            let mut options = OpenOptions::new();
            let mut file =
                options.create(true).truncate(false).read(true).write(true).open(Self::PATH)?;
            file.lock()?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            let number: Option<u16> =
                str::from_utf8(&text).ok().and_then(|it| it.trim().parse().ok());
            // Whatever else stands there is as good as nothing.
            let number = number.unwrap_or(0) % SLOTS;
            Ok(Self { number, file })
        };
        read().tried(|| format!("cannot read {}", Self::PATH))
    }

    fn write(&mut self, number: u16) -> Result<(), TestbedError> {
        let mut write = || {
            self.file.set_len(0)?;
            self.file.rewind()?;
            writeln!(self.file, "{number}")
        };
        write().tried(|| format!("cannot write {}", Self::PATH))
    }
}

/// All files of beds, in the order of their slots.
pub(crate) fn entries() -> Vec<Entry> {
    let Ok(folder) = fs::read_dir(FOLDER) else { return Vec::new() };
    let mut entries: Vec<_> = folder.filter_map(|it| entry(it.ok()?.path())).collect();
    entries.sort_by_key(|entry| entry.slot);
    entries
}

fn make_folder() -> Result<(), TestbedError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(FOLDER).tried(|| format!("cannot make {FOLDER}"))
}

fn entry(path: PathBuf) -> Option<Entry> {
    let slot = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
    let file = File::open(&path).ok()?;
    // A shared lock fails while the owner has it and bothers no other reader.
    let is_alive = file.try_lock_shared().is_err();
    // Its bed ended between our opening and our locking, and left nothing.
    if !is_alive && !is_still(&file, &path) {
        return None;
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    Some(Entry { slot, is_alive, info: serde_json::from_str(&text).ok() })
}

/// Whether `path` is still this file: its last owner may have removed it
/// between our opening and our locking.
fn is_still(file: &File, path: &Path) -> bool {
    let of = |it: fs::Metadata| (it.dev(), it.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => of(ours) == of(there),
        _ => false,
    }
}
