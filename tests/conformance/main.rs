//! `make conformance`: the public suite http-tests/cache-tests, run by its own client against Skep in front
//! of its own server.
//!
//! ```text
//!  suite's client --> a node ------------------------> suite's server
//!                 '-> a node of three, or dispatcher -'
//! ```
//!
//! Each place is tested under two configurations of `[site.cache]`. A test that fails and is not in the table
//! of exceptions results in exit code 1.

mod exceptions;
mod interrupt;
mod page;
mod program;
mod rig;
mod score;
mod suite;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use rig::{Place, Settings};
use score::Score;
use suite::Suite;

const USAGE: &str = "usage: skep-conformance [--write]
       skep-conformance --id TEST [--safe]

  --write    also writes docs/conformance.md
  --id TEST  runs one test against a node, and prints what its client and server saw
  --safe     under safe defaults; else under settings made for the suite

environment:
  CACHE_TESTS  repository of the suite to fetch from, a URL or a folder
  SKEP_BIN     what to test (the skep that cargo built beside this)";

/// The results of all tests in one place under one configuration.
struct Run {
    place: Place,
    settings: Settings,
    score: Score,
}

enum Task {
    All { writes: bool },
    One { id: String, settings: Settings },
}

fn main() -> ExitCode {
    let Some(task) = task(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match perform(&task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skep-conformance: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn task(mut words: impl Iterator<Item = String>) -> Option<Task> {
    let (mut writes, mut id, mut settings) = (false, None, Settings::Made);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--write" => writes = true,
            "--id" => id = Some(words.next()?),
            "--safe" => settings = Settings::Safe,
            _ => return None,
        }
    }
    match id {
        Some(id) if !writes => Some(Task::One { id, settings }),
        None if settings == Settings::Made => Some(Task::All { writes }),
        _ => None,
    }
}

/// Whether the score equals the recorded one or is better.
fn perform(task: &Task) -> Result<bool> {
    interrupt::watch()?;
    let suite = Suite::prepare(&target_folder()?.join("conformance"))?;
    let origin = suite.start_server()?;
    match task {
        Task::One { id, settings } => {
            println!("{}", rig::run_one(&suite, &origin, *settings, id)?);
            Ok(true)
        }
        Task::All { writes } => {
            let (published, runs) = run_all(&suite, &origin)?;
            let text = page::Tables { suite: &suite, published: &published, runs: &runs };
            print!("{}", text.for_terminal());
            if *writes {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
                std::fs::write(&path, text.page()?).context("docs/conformance.md")?;
            }
            Ok(runs.iter().all(|run| run.unexpected().is_empty()))
        }
    }
}

fn run_all(suite: &Suite, origin: &suite::Server) -> Result<(Vec<score::Published>, Vec<Run>)> {
    let mut files = Vec::new();
    for place in Place::ALL {
        eprintln!("skep-conformance: {}, both configurations: a minute", place.text());
        files.extend(rig::run_both(suite, origin, place)?);
    }
    let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
    let (published, scores) = suite.score(&paths)?;
    let runs = files.iter().zip(scores);
    let runs = runs.map(|(file, score)| Run { place: file.place, settings: file.settings, score });
    Ok((published, runs.collect()))
}

impl Run {
    /// Failed tests without an exception.
    fn unexpected(&self) -> Vec<&score::Outcome> {
        let failed = self.score.failed();
        failed.filter(|test| exceptions::reason(&test.id, self.settings).is_none()).collect()
    }
}

/// The folder of cargo's build output: this program is at `TARGET/PROFILE/skep-conformance`.
fn target_folder() -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    match own.ancestors().nth(2) {
        Some(folder) => Ok(folder.to_owned()),
        None => bail!("{} is in no folder of cargo's", own.display()),
    }
}
