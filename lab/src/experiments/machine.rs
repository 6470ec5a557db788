//! The environment that a reader must know to compare these figures with others.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// The name of our own program in a description.
const SKEP: &str = "Skep";

/// The machine that runs the bed, and the programs in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MachineDescription {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Names with versions.
    pub(crate) programs: Vec<(String, String)>,
}

impl MachineDescription {
    pub(crate) fn describe(skep: &Path) -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(": ")).map_or("", |(_, name)| name);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let skep = skep.display().to_string();
        let programs = [
            (SKEP, skep.as_str(), "--version"),
            ("nginx", "nginx", "-v"),
            ("HAProxy", "haproxy", "-v"),
            ("Varnish", "varnishd", "-V"),
        ];
        let version = |(name, program, option): (&str, &str, &str)| {
            (name.to_owned(), version(program, option).unwrap_or_else(|| "not here".to_owned()))
        };
        Self {
            date: said_by("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default().trim().to_owned(),
            processor: model.to_owned(),
            cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: kernel.trim().to_owned(),
            programs: programs.map(version).into(),
        }
    }

    /// The description as a sentence.
    pub(crate) fn text(&self) -> String {
        self.text_of(|_| true)
    }

    /// The same for a page that measures no other servers.
    pub(crate) fn text_without_peers(&self) -> String {
        self.text_of(|program| program == SKEP)
    }

    fn text_of(&self, is_named: impl Fn(&str) -> bool) -> String {
        let Self { date, processor, cores, kernel, programs } = self;
        let programs = programs.iter().filter(|(name, _)| is_named(name));
        let programs: Vec<_> =
            programs.map(|(name, version)| format!("{name} {version}")).collect();
        let programs = programs.join(", ");
        format!("{date}, {cores} cores of {processor}, Linux {kernel}; {programs}.")
    }
}

/// The first word of the output that looks like a version.
fn version(program: &str, option: &str) -> Option<String> {
    let said = said_by(program, &[option])?;
    let words = said.split([' ', '/', '\n', '(', ')']);
    let mut words = words.map(|word| word.trim_start_matches("varnish-"));
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|it: char| it.is_ascii_digit());
    words.find(is_version).map(str::to_owned)
}

fn said_by(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
