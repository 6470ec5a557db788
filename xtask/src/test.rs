//! `cargo xtask test`: all tests of the workspace, with the seconds that each executable takes, and those of CPU time.
//!
//! `cargo test` runs one executable after the other. Much of their time goes in waiting for timers
//! and peers, so two run at a time.
//!
//! One that passed, and of whose inputs none has changed, does not run again (`passed`).

mod cpu;
mod passed;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use passed::Inputs;

/// Test targets that wait more than they compute, the longest first. They are begun first.
const WAITING: [&str; 5] = ["direct", "adversary", "store", "testbed", "lab"];

/// Test targets that keep more than half a core busy, the longest first. They are begun last: `direct`
/// measures what a machine does in milliseconds.
const BUSY: [&str; 5] = ["cluster", "http", "sim", "bpf", "datapath"];

/// Executables at a time, of those that are busy.
const LANES: usize = 2;

/// Lanes more for the others, which would leave a core idle.
const LANES_NEVER_BUSY: usize = 1;

/// Tests at a time in one executable: they wait for sockets and timers more than they compute.
const THREADS: &str = "6";

/// So many of the slowest are listed at the end.
const LISTED_MAX: usize = 12;

/// Lines of an executable's failures that are said once more at the end.
const FAILURE_LINES_MAX: usize = 40;

const HELP: &str = "\
cargo xtask test [--all]

  --all   also run tests that passed before and whose inputs have not changed";

/// Builds and runs all tests of the workspace.
///
/// # Errors
/// Names the executables in which a test failed; all have run then.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let runs_all = match args {
        [] => false,
        [arg] if arg == "--all" => true,
        _ => bail!("test: expected --all or nothing, found {}\n{HELP}", args.join(" ")),
    };
    let all = build(root)?;
    let programs = programs_of(&all)?;
    let inputs = Inputs::read(root, &programs)?;
    let is_known = |it: &Executable| !runs_all && inputs.passed_before(it);
    let (known, mut todo): (Vec<_>, Vec<_>) = all.into_iter().partition(is_known);
    todo.sort_by_key(Executable::turn);
    summarise(in_lanes(root, todo, &inputs)?, &known)
}

/// A test target that has been built.
#[derive(Debug)]
struct Executable {
    package: String,
    target: String,
    is_test_target: bool,
    folder: PathBuf,
    file: PathBuf,
}

impl Executable {
    /// Its place among all: the number of its group, and its place there.
    fn turn(&self) -> (u8, usize) {
        let place = |group: &[&str]| group.iter().position(|it| self.is_named(it));
        let waiting = place(&WAITING).map(|at| (0, at));
        let busy = || place(&BUSY).map(|at| (2, at));
        waiting.or_else(busy).unwrap_or((1, 0))
    }

    fn is_busy(&self) -> bool {
        BUSY.iter().any(|it| self.is_named(it))
    }

    fn is_named(&self, target: &str) -> bool {
        self.is_test_target && self.target == target
    }

    fn name(&self) -> String {
        match self.is_test_target {
            true => format!("{} {}", self.package, self.target),
            false => format!("{} (unit)", self.package),
        }
    }
}

/// What came of one.
#[derive(Debug)]
struct TestOutcome {
    name: String,
    seconds: f64,
    /// Of all its processes.
    cpu_seconds: f64,
    status: ExitStatus,
    counts: Counts,
    failures: Vec<String>,
}

/// As the harness counts tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

fn build(root: &Path) -> Result<Vec<Executable>> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--workspace", "--tests", "--no-run"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout).context("what cargo says")?;
    text.lines().filter_map(|line| executable(line).transpose()).collect()
}

/// The test executable that a line of cargo's messages is about.
fn executable(line: &str) -> Result<Option<Executable>> {
    let message: Value = serde_json::from_str(line).context("a message of cargo")?;
    let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
    let is_test = message.pointer("/profile/test") == Some(&Value::Bool(true));
    let (Some(file), true) = (text("/executable"), is_test) else { return Ok(None) };
    let manifest = PathBuf::from(text("/manifest_path").context("a manifest's path")?);
    let folder = manifest.parent().context("a manifest's folder")?;
    Ok(Some(Executable {
        package: package_name(text("/package_id").unwrap_or_default(), folder),
        target: text("/target/name").context("a target's name")?.to_owned(),
        is_test_target: text("/target/kind/0") == Some("test"),
        folder: folder.to_owned(),
        file: file.into(),
    }))
}

/// The package's name: ids are `path+file:///FOLDER#NAME@VERSION`, or without the name where
/// the folder has it.
fn package_name(id: &str, folder: &Path) -> String {
    let behind = id.rsplit('#').next().unwrap_or_default();
    match behind.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

/// The folder of the programs: `TARGET/debug` of `TARGET/debug/deps/NAME`.
fn programs_of(all: &[Executable]) -> Result<PathBuf> {
    let one = all.first().context("the workspace has no tests")?;
    Ok(one.file.ancestors().nth(2).context("an executable's folder")?.to_owned())
}

/// Runs all in their order, in [`LANES`] and those that take none that is busy, and keeps which of
/// them passed.
fn in_lanes(root: &Path, all: Vec<Executable>, inputs: &Inputs) -> Result<Vec<TestOutcome>> {
    let queue = Mutex::new(VecDeque::from(all));
    let next = |takes_busy: bool| {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front_if(|it| takes_busy || !it.is_busy())
    };
    let run_lane = &|number: usize| -> Result<Vec<TestOutcome>> {
        std::iter::from_fn(|| next(number < LANES))
            .map(|one| {
                let outcome = run_one(root, &one)?;
                inputs.keep(&one, outcome.status.success())?;
                Ok(outcome)
            })
            .collect()
    };
    thread::scope(|scope| {
        let lanes = 0..LANES + LANES_NEVER_BUSY;
        let running: Vec<_> = lanes.map(|lane| scope.spawn(move || run_lane(lane))).collect();
        let mut outcomes = Vec::new();
        for lane in running {
            let Ok(done) = lane.join() else { bail!("a lane of tests panicked") };
            outcomes.extend(done?);
        }
        Ok(outcomes)
    })
}

/// Runs one as cargo does, and prints all that it said when it has ended.
fn run_one(root: &Path, one: &Executable) -> Result<TestOutcome> {
    let log = one.file.with_extension("log");
    println!("     Running {} ({}, log in {})", one.name(), one.file.display(), log.display());
    let (mut said, begun) = (new_file(&log)?, Instant::now());
    let mut child = Command::new(root.join("xtask/runner.sh"))
        .arg(&one.file)
        .current_dir(&one.folder)
        .env("CARGO_MANIFEST_DIR", &one.folder)
        .env("RUST_TEST_THREADS", THREADS)
        .stdout(said.try_clone().context("a file's second handle")?)
        .stderr(said.try_clone().context("a file's second handle")?)
        .spawn()
        .with_context(|| one.name())?;
    let cpu_seconds = cpu::seconds_of_ended(&child);
    let status = child.wait().with_context(|| one.name())?;
    let seconds = begun.elapsed().as_secs_f64();
    let text = text_of(&mut said)?;
    // One call for all: what two lanes say does not mix.
    let name = one.name();
    let all = format!("\n     {name} took {seconds:.1} s, {cpu_seconds:.1} of CPU time\n{text}");
    std::io::stdout().lock().write_all(all.as_bytes()).context("standard output")?;
    let (counts, failures) = (counts(&text), failures(&text));
    Ok(TestOutcome { name, seconds, cpu_seconds, status, counts, failures })
}

/// An empty file, beside the executable: who waits for a test can read what it says so far.
fn new_file(path: &Path) -> Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    file.with_context(|| path.display().to_string())
}

/// All that a program wrote there.
fn text_of(log: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    log.rewind().and_then(|()| log.read_to_end(&mut bytes)).context("what a program said")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The counts of `test result: ok. 1 passed; 0 failed; 2 ignored; ...`.
fn counts(text: &str) -> Counts {
    let Some(line) = text.lines().rfind(|line| line.starts_with("test result: ")) else {
        return Counts::default();
    };
    let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let count = |what| {
        let number = words.windows(2).find(|pair| pair[1] == what).map(|pair| pair[0].parse());
        number.and_then(Result::ok).unwrap_or(0)
    };
    Counts { passed: count("passed"), failed: count("failed"), ignored: count("ignored") }
}

/// What the harness says of tests that failed, without backtraces: many lines of other tests are behind it.
fn failures(text: &str) -> Vec<String> {
    let Some((_, behind)) = text.split_once("\nfailures:\n") else { return Vec::new() };
    let is_of_backtrace = |line: &&str| {
        let line = line.trim_start();
        let is_frame =
            line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        is_frame || line.starts_with("at ") || line == "stack backtrace:" || line.is_empty()
    };
    let blocks = behind.lines().take_while(|line| *line != "failures:");
    let told = blocks.filter(|line| !is_of_backtrace(line)).take(FAILURE_LINES_MAX);
    told.map(str::to_owned).collect()
}

fn summarise(mut outcomes: Vec<TestOutcome>, known: &[Executable]) -> Result<()> {
    outcomes.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let all: f64 = outcomes.iter().map(|it| it.cpu_seconds).sum();
    println!(
        "\nseconds of the slowest of {} executables, and of CPU ({all:.0} in all):",
        outcomes.len()
    );
    for TestOutcome { name, seconds, cpu_seconds, .. } in outcomes.iter().take(LISTED_MAX) {
        println!("{seconds:>8.1} {cpu_seconds:>8.1}  {name}");
    }
    let sum = |of: fn(&Counts) -> u64| outcomes.iter().map(|it| of(&it.counts)).sum::<u64>();
    let (passed, failed, ignored) =
        (sum(|it| it.passed), sum(|it| it.failed), sum(|it| it.ignored));
    let failures = outcomes.iter().filter(|it| !it.status.success());
    let ended_badly: Vec<String> =
        failures.map(|it| format!("{} ({})", it.name, it.status)).collect();
    for outcome in outcomes.iter().filter(|it| !it.status.success()) {
        println!("FAILED: {} ({})", outcome.name, outcome.status);
        outcome.failures.iter().for_each(|line| println!("  {line}"));
    }
    if !known.is_empty() {
        let names: Vec<_> = known.iter().map(Executable::name).collect();
        println!("\nnot run, as they passed and nothing that they read has changed:");
        println!("  {}\n(all: make test ALL=1)", names.join(", "));
    }
    let result = if ended_badly.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed; {ignored} ignored");
    ensure!(ended_badly.is_empty(), "tests failed in: {}", ended_badly.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn counts_are_those_of_the_harness() {
        let text = "running 3 tests\ntest result: FAILED. 1 passed; 2 failed; 30 ignored; \
                    0 measured; 0 filtered out; finished in 0.00s\n\nerror\n";
        assert_eq!(counts(text), Counts { passed: 1, failed: 2, ignored: 30 });
        assert_eq!(counts("it ended before it said anything"), Counts::default());
    }

    #[test]
    fn failures_are_told_without_backtraces() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\nthread 'a' panicked at x.rs:1:2:\n\
                    waited in vain\nstack backtrace:\n   0: std::panicking\n             at /std.rs:1:2\n\n\n\
                    failures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        let told = ["---- a stdout ----", "thread 'a' panicked at x.rs:1:2:", "waited in vain"];
        assert_eq!(failures(text), told);
        assert!(failures("test result: ok. 1 passed; 0 failed").is_empty());
    }

    #[test]
    fn only_messages_of_test_executables_are_some() {
        let line = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///a/b#1.0.0\",\
                 \"manifest_path\":\"/a/b/Cargo.toml\",\"target\":{{\"kind\":[\"test\"],\
                 \"name\":\"direct\"}},\"profile\":{{\"test\":{test}}},\"executable\":{executable}}}"
            )
        };
        let found = executable(&line(true, "\"/t/direct-1\"")).unwrap().unwrap();
        assert_eq!((found.name().as_str(), found.turn()), ("b direct", (0, 0)));
        assert!(executable(&line(false, "\"/t/skep\"")).unwrap().is_none());
        assert!(executable(&line(true, "null")).unwrap().is_none());
        assert!(executable("{\"reason\":\"build-finished\",\"success\":true}").unwrap().is_none());
    }
}
