//! Sends the same bytes to Skep, nginx and HAProxy in front of one recording origin: whatever two of them
//! parse differently is a finding, unless a row of the table of tolerated differences, each with its section
//! of an RFC, explains it.
//!
//! ```text
//!  seed -> case --+--> skep    --> origin --+
//!                 +--> nginx   --> origin --+--> compare --> tolerated, or a finding
//!                 '--> haproxy --> origin --+               (made smaller, as a file)
//! ```
//!
//! For Skep alone it checks that forwarded requests are well-formed, and that clients receive what the origin
//! has sent, as `said` parses it, or an error of Skep's own: if other peers fail in the same way, or are
//! tolerated for another reason, no difference would be visible.
//!
//! Skep is a dispatcher in proxy mode. Nodes with pools parse origins' replies with the same codec, but each
//! node has one listening address and one cache: they are not compared.
//!
//! A case is a few requests, most of them valid, pipelined and split at arbitrary offsets, a last one that
//! shows whether everything before it was parsed as intended, and the origin's answers. It depends on its
//! seed alone; `--case SEED` and `--replay FILE` replay one. Each run begins with the cases of the folder
//! `corpus`, where `--keep` stores one for each row.

mod case;
mod client;
mod compare;
mod drive;
mod http;
mod limits;
mod message;
mod mutants;
mod mutate;
mod origin;
mod peers;
mod rig;
mod run;
mod said;
mod tolerated;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use case::Case;
use limits::FINDINGS_MAX;
use run::Run;

const USAGE: &str = "usage: skep-differential [--seconds N] [--seed S] [--skep BINARY] [--all]
       skep-differential --case SEED | --replay FILE
       skep-differential --mutants [--seconds N]
       skep-differential --keep [--seconds N] [--seed S]

  --seconds N     time to search for differences (10)
  --seed S        seed of the first case (0)
  --skep BINARY   Skep binary to test (the one that cargo built beside this program)
  --all           continue after the first findings, and print each kind once
  --case SEED     run the case with this seed, and print what each peer did
  --replay FILE   the same with a case from a file
  --keep          write a small case for each row of tolerated differences to the corpus
  --mutants       put known bugs back into a copy of the codec, and check that each is found";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("skep-differential: {error}");
            ExitCode::from(2)
        }
    }
}

/// The options of the command line.
struct Options {
    run: Run,
    case: Option<Case>,
    mutants: bool,
}

fn run() -> Result<bool, String> {
    let Options { run, case, mutants } = options()?;
    let done = match case {
        Some(case) => drive::tell(&run, &case),
        None if mutants => mutants::find_all(&run),
        None => drive::look(&run).map(|report| report.print()),
    };
    done.map_err(|error| error.to_string())
}

fn options() -> Result<Options, String> {
    let mut run = Run {
        seconds: Duration::from_secs(10),
        first: 0,
        skep: PathBuf::new(),
        findings_max: FINDINGS_MAX,
        mutant: 0,
        keeps: false,
    };
    let (mut case, mut mutants) = (None, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value\n{USAGE}"));
        match word.as_str() {
            "--seconds" => run.seconds = Duration::from_secs(number(&value()?)?),
            "--seed" => run.first = number(&value()?)?,
            "--skep" => run.skep = PathBuf::from(value()?),
            "--all" => run.findings_max = usize::MAX,
            "--case" => case = Some(Case::of_seed(number(&value()?)?)),
            "--replay" => case = Some(read(&value()?)?),
            "--mutants" => mutants = true,
            "--keep" => run.keeps = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    if run.skep.as_os_str().is_empty() && !mutants {
        run.skep = beside()?;
    }
    Ok(Options { run, case, mutants })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number\n{USAGE}"))
}

fn read(path: &str) -> Result<Case, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Case::from_text(&text).ok_or_else(|| format!("{path}: no case"))
}

/// The path of `skep` in the same folder, or in the one above.
fn beside() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("skep")).find(|path| path.exists());
    found.ok_or_else(|| "no skep here: `cargo build -p skep` first, or --skep BINARY".to_owned())
}
