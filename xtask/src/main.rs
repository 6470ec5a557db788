//! Checks and generators of the repo: see `cargo xtask help`.
//!
//! Written in the project's language, so that a rule is a function with tests and runs in the same way for
//! people and in CI. No command needs root (some tests do), and only `gen` and `bpf` write to the work tree.

#![forbid(unsafe_code)]

mod bpf;
mod deny;
mod generated;
mod repo;
mod source;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;

use crate::repo::Repo;

const HELP: &str = "\
cargo xtask COMMAND

  tidy   check layers, module docs, sizes, forbidden words, links, generated files
  gen    write the files that are generated from code
  deny   check licences, duplicate versions and sources of dependencies
  bpf    compile the packet programs; with --check, compare with what is committed
  test   run the tests that a change affects; with --all, all of them
  help   print this text
";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "tidy" => Repo::load().and_then(|repo| tidy::run(&repo)),
        "gen" => generated::write(&repo::root()),
        "deny" => deny::run(&repo::root()),
        "test" => test::run(&repo::root(), &std::env::args().skip(2).collect::<Vec<_>>()),
        "bpf" => match std::env::args().nth(2).as_deref() {
            None => bpf::build(&repo::root()),
            Some("--check") => bpf::check(&repo::root()),
            Some(other) => Err(anyhow::anyhow!("bpf: expected --check or nothing, found {other}")),
        },
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    exit_code(outcome)
}

fn exit_code(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
