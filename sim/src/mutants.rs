//! Known bugs, put back into a copy of the tree: tests must find each of them.
//!
//! The copy has the tree's committed and changed files, in a separate folder, and is built once: each bug is
//! behind a switch that the environment sets (`SKEP_MUTANT=number`, from 1), so the tree itself contains no
//! trace of them. If the code at a bug's place has changed, that is an error; the bug is not silently left
//! out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The variable that selects the bug.
const MUTANT_VARIABLE: &str = "SKEP_MUTANT";

/// A bug: its description, the file, the code there, and its replacement. In `to`, `@` is the condition that
/// the bug is selected.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub what: &'static str,
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// The bugs of one crate, and the test that must find them.
#[derive(Clone, Copy, Debug)]
pub struct Mutants<'a> {
    /// The crate whose test `sim` must find them, or another program with that name.
    pub package: &'a str,
    /// The folder of `lib.rs`, relative to the root of the tree.
    pub source: &'a str,
    pub all: &'a [Mutant],
}

/// The root of the tree, relative to this crate.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Number of seeds that must find nothing without a bug.
const SOUND_SEEDS: u64 = 1_000;

/// Maximum length of what is shown of a seed's finding, in characters.
const SHOWN_CHARS_MAX: usize = 120;

/// A module of the copy: which bug is selected.
const SWITCH_MODULE: &str = "//! Which bug is in.\n\n\
    pub(crate) fn is(number: u32) -> bool {\n    \
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();\n    \
    *ON.get_or_init(|| std::env::var(\"SKEP_MUTANT\").ok().and_then(|it| it.parse().ok()).unwrap_or(0)) == number\n}\n";

impl Mutants<'_> {
    /// Runs up to `seeds` seeds with each bug, and prints what finds it; if the command line contains
    /// numbers, only with those bugs. `restrict` is called with the index of a bug, and may modify the
    /// command that runs its seeds.
    ///
    /// # Errors
    /// A bug is not found, or something is found without a bug.
    pub fn find_all(&self, seeds: u64, restrict: impl Fn(usize, &mut Command)) -> io::Result<()> {
        let chosen: Vec<usize> = std::env::args().filter_map(|it| it.parse().ok()).collect();
        let copy = self.copy()?;
        let sound = self.command(&copy, 0, SOUND_SEEDS).output()?;
        if !sound.status.success() {
            let said = String::from_utf8_lossy(&sound.stderr);
            return Err(io::Error::other(format!("without a bug: {said}")));
        }
        let mut missed = 0;
        for (number, mutant) in (1..).zip(self.all) {
            if !chosen.is_empty() && !chosen.contains(&number) {
                continue;
            }
            let mut command = self.command(&copy, number, seeds);
            restrict(number - 1, &mut command);
            let found = found_by(&command.output()?);
            missed += usize::from(found.is_none());
            println!("{number}. {}: {}", mutant.what, found.as_deref().unwrap_or("NOT FOUND"));
        }
        match missed {
            0 => Ok(()),
            missed => Err(io::Error::other(format!("seeds do not find {missed} known bugs"))),
        }
    }

    /// The command that runs seeds of the copy with this bug.
    fn command(&self, copy: &Path, mutant: usize, seeds: u64) -> Command {
        let mut command = Command::new("cargo");
        command
            .args([
                "test",
                "--quiet",
                "--package",
                self.package,
                "--test",
                "sim",
                "--",
                "--nocapture",
            ])
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", copy.join("target"))
            .env(MUTANT_VARIABLE, mutant.to_string())
            .env("SKEP_SIM_SEEDS", seeds.to_string());
        command
    }

    /// Makes the copy in the folder for temporary files, with all bugs behind their switches. Files that did
    /// not change since the last copy are neither written nor built again.
    ///
    /// # Errors
    /// The code at a bug's place has changed, or the tree cannot be copied.
    pub fn copy(&self) -> io::Result<PathBuf> {
        let copy = std::env::temp_dir().join(format!("{}-mutants", self.package));
        let root = Path::new(ROOT);
        let mut changed = self.changed_files()?;
        let listed = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(["ls-files", "-z", "-co", "--exclude-standard"])
            .output()?;
        for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = String::from_utf8_lossy(name).into_owned();
            let (from, to) = (root.join(&name), copy.join(&name));
            if !from.is_file() {
                continue;
            }
            let bytes = match changed.remove(&name) {
                Some(text) => text.into_bytes(),
                None => fs::read(&from)?,
            };
            put(&to, &bytes)?;
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        }
        put(&copy.join(self.source).join("mutant.rs"), SWITCH_MODULE.as_bytes())?;
        Ok(copy)
    }

    /// The files of the copy that contain bugs, by name.
    ///
    /// # Errors
    /// The code at a bug's place has changed.
    pub fn changed_files(&self) -> io::Result<BTreeMap<String, String>> {
        let root = Path::new(ROOT);
        let library = format!("{}/lib.rs", self.source);
        let text = fs::read_to_string(root.join(&library))? + "\nmod mutant;\n";
        let mut changed = BTreeMap::from([(library, text)]);
        for (at, mutant) in self.all.iter().enumerate() {
            let name = format!("{}/{}", self.source, mutant.file);
            let text = match changed.remove(&name) {
                Some(text) => text,
                None => fs::read_to_string(root.join(&name))?,
            };
            if text.matches(mutant.from).count() != 1 {
                let what = format!("{name}: the place for {:?} has changed", mutant.what);
                return Err(io::Error::other(what));
            }
            let to = mutant.to.replace('@', &format!("crate::mutant::is({})", at + 1));
            changed.insert(name, text.replace(mutant.from, &to));
        }
        Ok(changed)
    }
}

/// The first finding of a seed.
fn found_by(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let found = said.lines().find(|line| line.starts_with("seed "))?;
    (!output.status.success()).then(|| found.chars().take(SHOWN_CHARS_MAX).collect())
}

/// Writes a file. An unchanged file keeps its time, and is not built again.
fn put(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(to).ok().as_deref() == Some(bytes) {
        return Ok(());
    }
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(to, bytes)
}
