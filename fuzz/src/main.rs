//! Runs the fuzz targets without libFuzzer.
//!
//! ```text
//! skep-fuzz [all|TARGET] [--seconds N | --runs N] [--seed N]   each target, regressions first
//! skep-fuzz replay TARGET FILE                                 one input
//! skep-fuzz corpus                                             writes the seeds for libFuzzer
//! ```
//! On a finding it writes the input to `artifacts/`, prints the command that replays it, and exits with
//! status 1.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use skep_fuzz::drive::{self, Until};
use skep_fuzz::targets::Target;
use skep_fuzz::{seeds, targets};

const USAGE: &str = "usage: skep-fuzz [all|TARGET] [--seconds N | --runs N] [--seed N]
       skep-fuzz replay TARGET FILE
       skep-fuzz corpus";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["replay", target, file] => replay(target, Path::new(file)),
        ["corpus"] => write_corpus(),
        _ => Options::parse(&args).and_then(|options| fuzz(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("skep-fuzz: {message}");
            ExitCode::FAILURE
        }
    }
}

struct Options<'a> {
    target: &'a str,
    until: Until,
    seed: u64,
}

impl<'a> Options<'a> {
    fn parse(args: &[&'a str]) -> Result<Options<'a>, String> {
        let until = Until::Elapsed(Duration::from_secs(3));
        let mut options = Options { target: "all", until, seed: 1 };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || {
                let value = args.next().and_then(|value| value.parse::<u64>().ok());
                value.ok_or(format!("{arg} wants a number\n{USAGE}"))
            };
            match *arg {
                "--seconds" => options.until = Until::Elapsed(Duration::from_secs(number()?)),
                "--runs" => options.until = Until::Runs(number()?),
                "--seed" => options.seed = number()?,
                flag if flag.starts_with('-') => return Err(USAGE.to_owned()),
                target => options.target = target,
            }
        }
        Ok(options)
    }
}

fn fuzz(options: &Options<'_>) -> Result<(), String> {
    let all = targets::ALL.iter();
    let chosen: Vec<_> = all
        .filter(|(name, _)| matches!(options.target, "all") || options.target == *name)
        .collect();
    if chosen.is_empty() {
        return Err(format!("there is no target {}\n{USAGE}", options.target));
    }
    // As many at once as there are processors; the inputs of each depend on its seed alone.
    let waiting = Mutex::new(chosen.into_iter());
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((name, target)) = take() {
            fuzz_one(name, *target, options)?;
        }
        Ok(())
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|it| it.join().map_err(|_| "a worker panicked"));
        ended.collect::<Vec<_>>().into_iter().try_for_each(|it| it?)
    })
}

fn fuzz_one(name: &str, target: Target, options: &Options<'_>) -> Result<(), String> {
    for (file, input) in seeds::regressions(&fuzz_dir(), name) {
        run_caught(target, &input).map_err(|()| format!("{name}: regression {file} is back"))?;
    }
    let seeds = seeds::of(name);
    for seed in &seeds {
        run_caught(target, seed).map_err(|()| finding(name, "of-the-seeds", seed))?;
    }
    // The loop is caught as a whole; the failing input is generated again.
    let mut current = 0;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drive::run(target, &seeds, options.seed, options.until, |number, _| current = number)
    }));
    match outcome {
        Ok(runs) => {
            println!("{name}: {runs} inputs of seed {}, nothing found", options.seed);
            Ok(())
        }
        Err(_) => {
            let input = drive::input(&seeds, options.seed, current);
            Err(finding(name, &format!("{}-{current}", options.seed), &input))
        }
    }
}

fn run_caught(target: Target, input: &[u8]) -> Result<(), ()> {
    std::panic::catch_unwind(|| target(input)).map_err(drop)
}

fn finding(target: &str, name: &str, input: &[u8]) -> String {
    let dir = fuzz_dir().join("artifacts");
    let file = dir.join(format!("{target}-{name}"));
    let written = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, input));
    let kept = match written {
        Ok(()) => format!("cargo run -p skep-fuzz -- replay {target} {}", file.display()),
        Err(error) => format!("(not kept: {error}) {}", input.escape_ascii()),
    };
    format!("{target}: an invariant broke; again with\n  {kept}")
}

fn replay(target: &str, file: &Path) -> Result<(), String> {
    let named = targets::ALL.iter().find(|(name, _)| *name == target);
    let (_, target) = named.ok_or(format!("there is no target {target}"))?;
    let input = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    target(&input);
    println!("{} bytes, nothing found", input.len());
    Ok(())
}

fn write_corpus() -> Result<(), String> {
    for (name, _) in targets::ALL {
        let dir = fuzz_dir().join("corpus").join(name);
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        for (number, seed) in seeds::of(name).iter().enumerate() {
            let file = dir.join(format!("seed-{number:04}"));
            std::fs::write(file, seed).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn fuzz_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
