//! Known bugs, put back into a copy of the tree: what looks for bugs must find each of them.
//!
//! The copy is the tree as it is committed and changed, in a folder of its own, built once: each bug
//! is behind a switch that the environment sets (`SKEP_MUTANT=number`, from 1), so the tree itself has
//! no trace of them. A bug whose place has changed is an error, and not one that is silently left out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The variable that says which bug is in.
const MUTANT_VARIABLE: &str = "SKEP_MUTANT";

/// A bug: what it is, the file, what stands there, and what is put there. In `to`, `@` asks whether
/// the bug is in.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub what: &'static str,
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// The bugs of one crate, and what is to find them.
#[derive(Clone, Copy, Debug)]
pub struct Mutants<'a> {
    /// The crate whose test `sim` is to find them, or another program by that name.
    pub package: &'a str,
    /// The folder with `lib.rs`, from the top of the tree.
    pub source: &'a str,
    pub all: &'a [Mutant],
}

/// The top of the tree, from this crate.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Seeds that find nothing without a bug.
const SOUND_SEEDS: u64 = 1_000;

/// How much is shown of what a seed has found.
const SHOWN_CHARS_MAX: usize = 120;

/// Of the copy: which bug is in.
const SWITCH_MODULE: &str = "//! Which bug is in.\n\n\
    pub(crate) fn is(number: u32) -> bool {\n    \
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();\n    \
    *ON.get_or_init(|| std::env::var(\"SKEP_MUTANT\").ok().and_then(|it| it.parse().ok()).unwrap_or(0)) == number\n}\n";

impl Mutants<'_> {
    /// Runs up to `seeds` seeds with each bug, and prints what finds it. If the command line has numbers, only
    /// with those. `restrict` is given the place of a bug in the list, and changes the command of its seeds.
    ///
    /// # Errors
    /// A bug is not found, or something is without a bug.
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

    /// Seeds of the copy with the bug of that number.
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

    /// Makes the copy among temporary files, with all bugs behind their switches. What did not change since
    /// the last copy is not written again, nor built.
    ///
    /// # Errors
    /// The place of a bug has changed, or the tree cannot be copied.
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

    /// The files that have bugs in the copy, by name.
    ///
    /// # Errors
    /// The place of a bug has changed.
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

/// What a seed has found first.
fn found_by(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let found = said.lines().find(|line| line.starts_with("seed "))?;
    (!output.status.success()).then(|| found.chars().take(SHOWN_CHARS_MAX).collect())
}

/// Writes a file. What did not change keeps its time, and is not built anew.
fn put(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(to).ok().as_deref() == Some(bytes) {
        return Ok(());
    }
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(to, bytes)
}
