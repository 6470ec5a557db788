//! Known bugs, put back into a copy of the tree: what looks for bugs must find each of them.
//!
//! The copy is the tree as it is committed and changed, in a folder of its own, built once: each bug
//! is behind a switch that the environment sets (`SKEP_MUTANT=number`, from 1), so the tree itself has
//! no trace of them. A bug whose place has changed is an error, and not one that is silently left out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that says which bug is in.
pub const MUTANT_VARIABLE: &str = "SKEP_MUTANT";

/// A bug: what it is, the file, what stands there, and what is put there. In `to`, `@` asks whether
/// the bug is in.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    pub what: &'static str,
    pub file: &'static str,
    pub from: &'static str,
    pub to: &'static str,
}

/// The bugs of one crate.
#[derive(Clone, Copy, Debug)]
pub struct Mutants<'a> {
    /// The top of the tree.
    pub root: &'a Path,
    /// The folder with `lib.rs`, from there.
    pub source: &'a str,
    pub all: &'a [Mutant],
}

/// Of the copy: which bug is in.
const SWITCH_MODULE: &str = "//! Which bug is in.\n\n\
    pub(crate) fn is(number: u32) -> bool {\n    \
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();\n    \
    *ON.get_or_init(|| std::env::var(\"SKEP_MUTANT\").ok().and_then(|it| it.parse().ok()).unwrap_or(0)) == number\n}\n";

impl Mutants<'_> {
    /// Makes the copy in a folder of that name among temporary files, with all bugs behind their
    /// switches. What did not change since the last copy is not written again, nor built.
    pub fn copy(&self, name: &str) -> io::Result<PathBuf> {
        let copy = std::env::temp_dir().join(name);
        let mut changed = self.changed_files()?;
        let listed = Command::new("git")
            .arg("-C")
            .arg(self.root)
            .args(["ls-files", "-z", "-co", "--exclude-standard"])
            .output()?;
        for name in listed.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = String::from_utf8_lossy(name).into_owned();
            let (from, to) = (self.root.join(&name), copy.join(&name));
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
        let library = format!("{}/lib.rs", self.source);
        let text = fs::read_to_string(self.root.join(&library))? + "\nmod mutant;\n";
        let mut changed = BTreeMap::from([(library, text)]);
        for (at, mutant) in self.all.iter().enumerate() {
            let name = format!("{}/{}", self.source, mutant.file);
            let text = match changed.remove(&name) {
                Some(text) => text,
                None => fs::read_to_string(self.root.join(&name))?,
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

/// Writes a file. What did not change keeps its time, and is not built anew.
fn put(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::read(to).ok().as_deref() == Some(bytes) {
        return Ok(());
    }
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(to, bytes)
}
