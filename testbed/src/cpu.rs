//! CPU quotas of machines, by control groups of either version.
//!
//! A bed with quotas has a group `skep-lab<slot>`, and in it one for each
//! machine that has one. The janitor removes them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::limits::{CPU_SHARES_MAX, CPU_WEIGHT_MAX};

/// Where the `cpu` controller is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    V1(PathBuf),
    V2(PathBuf),
}

impl Controller {
    /// Looks for it among the mounts; `None` where there is none.
    pub(crate) fn find() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        Self::among(&mounts, |root| {
            let found = fs::read_to_string(root.join("cgroup.controllers"));
            found.is_ok_and(|list| list.split_whitespace().any(|it| it == "cpu"))
        })
    }

    fn among(mounts: &str, v2_has_cpu: impl Fn(&Path) -> bool) -> Option<Self> {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (root, kind, options) = (words.next()?, words.next()?, words.next()?);
            let root = PathBuf::from(root);
            match kind {
                "cgroup" if options.split(',').any(|it| it == "cpu") => Some(Self::V1(root)),
                "cgroup2" if v2_has_cpu(&root) => Some(Self::V2(root)),
                _ => None,
            }
        })
    }

    /// The bed's group; may be there already.
    pub(crate) fn bed_folder(&self, slot: u16) -> PathBuf {
        let (Self::V1(root) | Self::V2(root)) = self;
        root.join(format!("skep-lab{slot}"))
    }

    /// Makes the bed's group and a machine's in it.
    pub(crate) fn make(&self, bed: &Path, machine: &str) -> io::Result<PathBuf> {
        let folder = bed.join(machine);
        make_folder(bed)?;
        if let Self::V2(root) = self {
            for parent in [root.as_path(), bed] {
                fs::write(parent.join("cgroup.subtree_control"), "+cpu")?;
            }
        }
        make_folder(&folder)?;
        Ok(folder)
    }

    /// Gives a bed's group, which there is already, the most weight beside all else on this computer.
    pub(crate) fn prefer(&self, folder: &Path) -> io::Result<()> {
        let (file, weight) = match self {
            Self::V1(_) => ("cpu.shares", CPU_SHARES_MAX),
            Self::V2(_) => ("cpu.weight", CPU_WEIGHT_MAX),
        };
        fs::write(folder.join(file), weight.to_string())
    }

    /// Sets or lifts the quota of a machine's group, which counts over periods of `period_us`.
    pub(crate) fn limit(
        &self,
        folder: &Path,
        cores: Option<f64>,
        period_us: u64,
    ) -> io::Result<()> {
        let quota_us = cores.map(|cores| (cores * period_us as f64) as u64);
        match self {
            Self::V1(_) => {
                fs::write(folder.join("cpu.cfs_period_us"), period_us.to_string())?;
                let quota = quota_us.map_or("-1".to_owned(), |us| us.to_string());
                fs::write(folder.join("cpu.cfs_quota_us"), quota)
            }
            Self::V2(_) => {
                let quota = quota_us.map_or("max".to_owned(), |us| us.to_string());
                fs::write(folder.join("cpu.max"), format!("{quota} {period_us}"))
            }
        }
    }
}

/// The file through which processes come into a group.
pub(crate) fn door(folder: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(folder.join("cgroup.procs"))
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_found_where_it_is_mounted() {
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                  cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                  cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n";
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let at = |root: &str| PathBuf::from(root);
        let expected = Controller::V1(at("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(Controller::among(v1, |_| false), Some(expected));
        assert_eq!(Controller::among(v2, |_| true), Some(Controller::V2(at("/sys/fs/cgroup"))));
        assert_eq!(Controller::among(v2, |_| false), None);
        assert_eq!(Controller::among("proc /proc proc rw 0 0\n\n", |_| true), None);
    }
}
