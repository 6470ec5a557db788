//! Determines which executables need not run again: those that passed and whose inputs are unchanged.
//!
//! Beside each executable there is a file with all inputs that it had when it passed, one per line. As in
//! `make`, a file is unchanged if its size and time are. A clean clone has no such files.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Executable;

/// Test targets that run no programs of ours except themselves. All others are assumed to run some.
const STANDALONE: [&str; 6] = ["bpf", "datapath", "peer", "sim", "store", "testbed"];

/// The inputs of tests other than their own executable.
#[derive(Debug)]
pub(super) struct Inputs {
    /// For all tests: the machine, and the files that they read from the work tree.
    common: String,
    /// For tests that run our programs.
    programs: String,
}

impl Inputs {
    /// Reads the present inputs. `programs` is the folder of the programs that cargo built.
    pub(super) fn read(root: &Path, programs: &Path) -> Result<Self> {
        let mut common = machine();
        for name in read_by_tests(root)? {
            add_file(&mut common, &root.join(name));
        }
        let mut text = String::new();
        for file in programs_in(programs)? {
            add_file(&mut text, &file);
        }
        Ok(Self { common, programs: text })
    }

    /// Whether it passed before with the present inputs.
    pub(super) fn passed_before(&self, one: &Executable) -> bool {
        fs::read_to_string(record(one)).is_ok_and(|before| before == self.of(one))
    }

    /// Records that it passed, or removes that record.
    pub(super) fn keep(&self, one: &Executable, passed: bool) -> Result<()> {
        let file = record(one);
        match passed {
            true => fs::write(&file, self.of(one)),
            false if file.exists() => fs::remove_file(&file),
            false => Ok(()),
        }
        .with_context(|| file.display().to_string())
    }

    fn of(&self, one: &Executable) -> String {
        let mut text = String::new();
        add_file(&mut text, &one.file);
        text.push_str(&self.common);
        if !is_standalone(one) {
            text.push_str(&self.programs);
        }
        text
    }
}

/// Whether it needs nothing else that cargo builds. Unit tests are built without programs.
fn is_standalone(one: &Executable) -> bool {
    !one.is_test_target || STANDALONE.contains(&&*one.target)
}

fn record(one: &Executable) -> PathBuf {
    one.file.with_extension("passed")
}

/// The user and the kernel: without root, tests are skipped.
fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let user = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    format!("user {user}\nkernel {}", read("/proc/sys/kernel/osrelease"))
}

/// Files of the work tree that a test may open: all except sources, which are in its executable, and pages,
/// which `cargo xtask tidy` reads in each run.
fn read_by_tests(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .output()
        .context("git")?;
    ensure!(output.status.success(), "git ls-files: {}", output.status);
    let names = String::from_utf8_lossy(&output.stdout);
    let is_read =
        |name: &&str| !name.is_empty() && !name.ends_with(".rs") && !name.ends_with(".md");
    Ok(names.split('\0').filter(is_read).map(str::to_owned).collect())
}

/// The programs in a folder.
fn programs_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let mut programs: Vec<_> = paths.filter(is_program).collect();
    programs.sort();
    Ok(programs)
}

fn add_file(text: &mut String, file: &Path) {
    let _ = match fs::symlink_metadata(file) {
        Ok(it) => {
            writeln!(text, "{} {} {}.{:09}", file.display(), it.len(), it.mtime(), it.mtime_nsec())
        }
        Err(error) => writeln!(text, "{} {error}", file.display()),
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn executable(folder: &Path, target: &str, is_test_target: bool) -> Executable {
        let file = folder.join(format!("{target}-1"));
        if !file.exists() {
            fs::write(&file, "a program").unwrap();
        }
        let (package, folder) = ("p".to_owned(), folder.to_owned());
        Executable { package, target: target.to_owned(), is_test_target, folder, file }
    }

    #[test]
    fn one_that_passed_runs_again_when_what_it_has_changed() {
        let root = std::env::temp_dir().join(format!("skep-xtask-passed-{}", std::process::id()));
        let built = root.join("built");
        fs::create_dir_all(&built).unwrap();
        let write = |text: &str| {
            fs::write(built.join("skep"), text).unwrap();
            let runs = fs::Permissions::from_mode(0o755);
            fs::set_permissions(built.join("skep"), runs).unwrap();
        };
        write("a program");
        let of = |read: &str| {
            let mut inputs = Inputs { common: read.to_owned(), programs: String::new() };
            programs_in(&built).unwrap().iter().for_each(|it| add_file(&mut inputs.programs, it));
            inputs
        };
        let all = [
            executable(&root, "sim", true),
            executable(&root, "http", true),
            executable(&root, "skep_node", false),
        ];
        let passed = |inputs: &Inputs| all.each_ref().map(|it| inputs.passed_before(it));

        let inputs = of("a page");
        assert_eq!(passed(&inputs), [false; 3]);
        all.iter().for_each(|it| inputs.keep(it, true).unwrap());
        assert_eq!(passed(&inputs), [true; 3]);
        assert_eq!(passed(&of("another page")), [false; 3]);
        write("another program");
        assert_eq!(passed(&of("a page")), [true, false, true]);
        fs::write(&all[2].file, "another test").unwrap();
        inputs.keep(&all[0], false).unwrap();
        assert_eq!(passed(&of("a page")), [false; 3]);
        fs::remove_dir_all(root).unwrap();
    }
}
