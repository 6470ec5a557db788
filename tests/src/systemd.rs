//! Machines of a test bed with systemd as process 1, for the units of `packaging/`.
//!
//! systemd runs in its own namespaces on a minimal root, in its own control group; the network and bpffs are
//! those of the bed's machine, so that the rest of the cluster is reachable as usual. Units are installed as
//! described in `docs/operate/direct.md`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::direct::DirectCluster;
use crate::process::Skep;
use crate::wait::{PATIENCE, poll_until, skip};

/// Makes the machine, and becomes its process 1.
const BOOT: &str = include_str!("systemd.sh");

/// The folder of the units under test.
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");

/// Programs that make the machine, that its units run besides `skep`, and that inspect them.
const PROGRAMS: [&str; 8] = ["umount", "sh", "chmod", "chown", "mkdir", "rm", "sleep", "systemctl"];

/// Targets that every service and these units refer to, and that need nothing else.
const TARGETS: [&str; 4] = ["sysinit", "basic", "shutdown", "network-online"];

/// The log file of all units.
const LOG: &str = "var/log/units.log";

/// Redirects output to a file, as there is no journal.
const SERVICE_DROP_IN: &str = "[Service]\nStandardOutput=append:/var/log/units.log\n\
                               StandardError=append:/var/log/units.log\n";

/// Logs how `skep.service` ended.
const SKEP_DROP_IN: &str =
    "[Service]\nExecStopPost=/bin/sh -c 'echo skep.service ended: $EXIT_CODE $EXIT_STATUS'\n";

const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nskep:x:990:990::/var/lib/skep:/bin/sh\n\
                      skep-netguard:x:991:991::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\nskep:x:990:\nskep-netguard:x:991:\nnogroup:x:65534:\n";

/// ID of the group `skep`.
const SKEP_GROUP: u32 = 990;

/// A machine with systemd; ends with all its processes when dropped.
pub struct SystemdMachine<'a> {
    cluster: &'a DirectCluster,
    name: String,
    root: PathBuf,
    group: String,
    /// The parent of process 1.
    parent: Skep,
    init: Pid,
}

impl<'a> SystemdMachine<'a> {
    /// Boots systemd on a machine of a cluster, with its units installed but not started; `None`, reported
    /// loudly, if control groups are not writable.
    #[track_caller]
    pub fn boot(cluster: &'a DirectCluster, name: &str) -> Option<Self> {
        let machine = cluster.machine(name);
        let groups = ["-t", "cgroup2", "lab", "/sys/fs/cgroup"];
        let mounted = machine.command("mount").args(groups).status().expect("mount runs");
        if !mounted.success() {
            skip("control groups (version 2) cannot be mounted, which systemd needs");
            return None;
        }
        let root = cluster.path("systemd");
        make_root(&root, cluster, name);
        let script = cluster.path("systemd.sh");
        fs::write(&script, BOOT).expect("the folder is ours");
        let group = format!("skep-test-{}", std::process::id());
        let mut command = machine.command("sh");
        let parent =
            Skep::start_command(command.arg(script).arg(&root).arg(&group).arg(Skep::binary()));
        let init = wait_child(&parent);
        let mut machine = Self { cluster, name: name.to_owned(), root, group, parent, init };
        let target = ["is-active", "--quiet", "basic.target"];
        let end = Instant::now() + PATIENCE;
        poll_until(2 * PATIENCE, "systemd is up", || {
            machine.parent.assert_running();
            let is_up = machine.nsenter(&target).output().is_ok_and(|it| it.status.success());
            assert!(is_up || Instant::now() < end, "systemd is not up: {}", machine.jobs());
            is_up
        });
        Some(machine)
    }

    /// Returns the state of systemd and its jobs.
    fn jobs(&self) -> String {
        let said = ["is-system-running", "list-jobs"].map(|what| self.nsenter(&[what]).output());
        let said = said.into_iter().flatten().flat_map(|it| [it.stdout, it.stderr].concat());
        String::from_utf8_lossy(&said.collect::<Vec<u8>>()).into_owned()
    }

    /// Runs `systemctl ARGUMENTS`, and returns its output on success.
    #[track_caller]
    pub fn systemctl(&self, arguments: &[&str]) -> String {
        let output = self.nsenter(arguments).output().expect("nsenter runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "systemctl {arguments:?}: {stderr}\n{}", self.failures());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the ID of the current invocation of a unit; `None` while it does not run.
    #[track_caller]
    pub fn invocation(&self, unit: &str) -> Option<String> {
        let said = self.systemctl(&["show", "--property=ActiveState,InvocationID", unit]);
        let is_active = said.contains("ActiveState=active");
        let id = said.lines().find_map(|line| line.strip_prefix("InvocationID="));
        id.filter(|_| is_active).map(str::to_owned)
    }

    /// Sends a signal to the main process of a unit.
    #[track_caller]
    pub fn signal(&self, unit: &str, signal: &str) {
        self.systemctl(&["kill", "--kill-who=main", "--signal", signal, unit]);
    }

    /// Returns the output of all units so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.root.join(LOG)).unwrap_or_default()).into_owned()
    }

    /// Returns the status and logs of failed units.
    fn failures(&self) -> String {
        let status = self.nsenter(&["status", "--all", "--no-pager", "skep*"]).output();
        let status = status.map(|output| output.stdout).unwrap_or_default();
        format!("{}\nlog of units:\n{}", String::from_utf8_lossy(&status), self.log())
    }

    fn nsenter(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let init = self.init.to_string();
        command.args(["--target", &init, "--all", "/usr/bin/systemctl"]).args(arguments);
        command
    }
}

impl Drop for SystemdMachine<'_> {
    fn drop(&mut self) {
        // The parent ends after all processes of the machine.
        let _ = kill_process(self.init, Signal::KILL);
        let waited = crate::wait::holds_within(PATIENCE, || self.parent.has_exited());
        let group = format!("/sys/fs/cgroup/{}", self.group);
        let remove = [&group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"];
        let removed = self.cluster.machine(&self.name).command("find").args(remove).status();
        let is_gone = waited && removed.is_ok_and(|it| it.success());
        assert!(is_gone || std::thread::panicking(), "{group} of {} stays", self.name);
    }
}

/// Waits for process 1, and returns its process ID outside the namespace.
#[track_caller]
fn wait_child(parent: &Skep) -> Pid {
    let pid = parent.pid();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let mut child = None;
    poll_until(PATIENCE, "process 1 of a machine", || {
        let numbers = fs::read_to_string(&children).unwrap_or_default();
        let is_unshare = fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|comm| comm.trim() == "unshare");
        let number = numbers.split_whitespace().next().filter(|_| is_unshare);
        child = number.and_then(|number| number.parse().ok()).and_then(Pid::from_raw);
        child.is_some()
    });
    child.expect("polled above")
}

/// Writes the files specific to the machine `name`; `systemd.sh` adds the rest.
fn make_root(root: &Path, cluster: &DirectCluster, name: &str) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    };
    for folder in
        ["proc", "sys", "run", "tmp", "dev", "root", "usr/bin", "var/log", "var/lib", "var/tmp"]
    {
        fs::create_dir_all(root.join(folder)).expect("it is ours");
    }
    for folder in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{folder}"), root.join(folder)).expect("it is ours");
    }
    for program in PROGRAMS {
        fs::copy(program_file(program), root.join("usr/bin").join(program)).expect("it is ours");
    }
    write("usr/bin/skep", "");
    write("etc/passwd", PASSWD);
    write("etc/group", GROUP);
    write("etc/hostname", name);
    write("etc/machine-id", "00000000000000000000000000000001\n");
    for target in TARGETS {
        write(&format!("units/{target}.target"), &format!("[Unit]\nDescription={target}\n"));
    }
    install_units(&write);
    install_config(root, cluster, name, &write);
}

/// Installs the units as described in `docs/operate/direct.md`.
fn install_units(write: &dyn Fn(&str, &str)) {
    let read = |file: &str| fs::read_to_string(Path::new(PACKAGING).join(file)).expect("a unit");
    for unit in ["skep.service", "skep-netguard@.service"] {
        write(&format!("units/{unit}"), &read(unit));
    }
    write("etc/systemd/system/skep.service.d/direct.conf", &read("direct.conf"));
    write("etc/systemd/system/skep.service.d/end.conf", SKEP_DROP_IN);
    write("etc/systemd/system/service.d/output.conf", SERVICE_DROP_IN);
}

/// Installs the cluster's config, with the paths of an installation, and its key.
fn install_config(root: &Path, cluster: &DirectCluster, name: &str, write: &dyn Fn(&str, &str)) {
    let config = fs::read_to_string(cluster.path(&format!("{name}.toml"))).expect("it is ours");
    let path = |name: &str| cluster.path(name).display().to_string();
    let config = config
        .replace(&path("state"), "/var/lib/skep")
        .replace(&path("key"), "/etc/skep/key")
        .replace(&path("guard"), "/run/skep-netguard");
    write("etc/skep/skep.toml", &config);
    write("etc/skep/key", &fs::read_to_string(path("key")).expect("it is ours"));
    let group = Some(SKEP_GROUP);
    for (file, mode) in [("etc/skep/skep.toml", 0o640), ("etc/skep/key", 0o640)] {
        let file = root.join(file);
        std::os::unix::fs::chown(&file, None, group).expect("root gives it away");
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
}

/// Returns the path of a program of `tools.txt`.
fn program_file(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    let mut found = found.filter(|file| file.exists());
    found.next().unwrap_or_else(|| panic!("there is no {program}: see tests/tools.txt"))
}
