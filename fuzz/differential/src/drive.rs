//! Runs cases by their seeds, counts the results, and minimises failures.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::case::Case;
use crate::http::latin;
use crate::limits::{
    ACCEPTED_PERCENT_MIN, LANES, MINIMISE, MINIMISE_STEPS_MAX, REPLAYS, UNSTEADY_PERCENT_MAX,
};
use crate::peers::NAMES;
use crate::rig::{CERTAIN, Rig, Verdict};
use crate::run::Run;
use crate::tolerated;

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    cases: u64,
    accepted: u64,
    /// Cases that failed once, but not when replayed: a busy machine exceeds the peers' timeouts. By kind:
    /// the number, and the first one.
    unsteady: BTreeMap<String, (u64, String)>,
    tolerated: BTreeMap<&'static str, u64>,
    /// By kind: the number, and the first one.
    findings: BTreeMap<String, (u64, String)>,
}

impl Report {
    /// Whether there were findings.
    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// The kinds of findings.
    pub(crate) fn kinds(&self) -> String {
        self.findings.keys().cloned().collect::<Vec<_>>().join("; ")
    }

    /// The number of cases played.
    pub(crate) fn cases(&self) -> u64 {
        self.cases
    }

    /// Prints the report; returns whether it is acceptable.
    pub(crate) fn print(&self) -> bool {
        for (kind, (count, text)) in &self.findings {
            println!("FINDING ({count} times): {kind}\n{text}");
        }
        for name in tolerated::names() {
            let count = self.tolerated.get(name).unwrap_or(&0);
            println!("tolerated {count:>6}  {name}");
        }
        for (kind, (count, name)) in &self.unsteady {
            println!("unsteady {count:>7}  {kind} ({name})");
        }
        let Self { cases, accepted, .. } = self;
        let unsteady: u64 = self.unsteady.values().map(|(count, _)| count).sum();
        let percent = accepted * 100 / (*cases).max(1);
        println!(
            "{cases} cases, {percent} % accepted by all three, {unsteady} unsteady, {} kinds of findings",
            self.findings.len()
        );
        let is_broad = percent >= ACCEPTED_PERCENT_MIN;
        if !is_broad {
            println!("FAILED: less than {ACCEPTED_PERCENT_MIN} % were accepted by all three");
        }
        let is_steady = unsteady * 100 <= cases * UNSTEADY_PERCENT_MAX;
        if !is_steady {
            println!("FAILED: more than {UNSTEADY_PERCENT_MAX} % failed once and not again");
        }
        self.findings.is_empty() && is_broad && is_steady
    }
}

/// Searches for differences: first in the stored cases, then in new ones.
pub(crate) fn look(run: &Run) -> io::Result<Report> {
    let mut rig = Rig::start(run, LANES)?;
    let report = Mutex::new(Report::default());
    let kept = Mutex::new(corpus()?.into_iter());
    let (next, until) = (AtomicU64::new(run.first), Instant::now() + run.seconds);
    thread::scope(|scope| {
        let lane = |lane: usize| {
            let (rig, report, kept, next) = (&rig, &report, &kept, &next);
            scope.spawn(move || -> io::Result<()> {
                loop {
                    let old = lock(kept).next();
                    let is_over = old.is_none() && Instant::now() >= until;
                    let is_enough = lock(report).findings.len() >= run.findings_max;
                    if is_over || is_enough {
                        return Ok(());
                    }
                    let (name, case) = old.unwrap_or_else(|| {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        (format!("--case {seed}"), Case::of_seed(seed))
                    });
                    one(rig, lane, run, &name, &case, report)?;
                }
            })
        };
        let lanes: Vec<_> = (0..LANES).map(lane).collect();
        let ended = lanes
            .into_iter()
            .map(|lane| lane.join().unwrap_or_else(|_| Err(io::Error::other("a lane panicked"))));
        ended.collect::<io::Result<()>>()
    })
    .or_else(|error| match rig.dead() {
        Some(name) => {
            let text = format!("{name} ended: {error}");
            lock(&report).findings.insert("a peer ended".into(), (1, text));
            Ok(())
        }
        None => Err(error),
    })?;
    Ok(report.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Plays one case, and minimises it if it fails.
fn one(
    rig: &Rig,
    lane: usize,
    run: &Run,
    name: &str,
    case: &Case,
    report: &Mutex<Report>,
) -> io::Result<()> {
    let verdict = rig.play(lane, case)?;
    {
        let mut report = lock(report);
        report.cases += 1;
        report.accepted += u64::from(verdict.is_accepted);
        for row in &verdict.tolerated {
            *report.tolerated.entry(row).or_default() += 1;
        }
    }
    let is_certain = |kind: &str| CERTAIN.contains(&kind);
    let certain = verdict.findings.iter().find(|(kind, _)| is_certain(kind));
    let Some((kind, _)) = certain.or_else(|| verdict.findings.first()) else {
        return if run.keeps { keep(rig, lane, case, &verdict) } else { Ok(()) };
    };
    if !is_certain(kind) && !comes_again(rig, lane, case, kind)? {
        let mut report = lock(report);
        let unsteady = report.unsteady.entry(kind.clone());
        unsteady.or_insert_with(|| (0, name.to_owned())).0 += 1;
        return Ok(());
    }
    let is_new = {
        let mut report = lock(report);
        let count = report.findings.get_mut(kind);
        count.map(|(count, _)| *count += 1).is_none()
    };
    if is_new {
        // With a known bug, only whether it is found matters.
        let text = match run.mutant {
            0 => minimised(rig, lane, name, case, kind, &verdict)?,
            _ => name.to_owned(),
        };
        lock(report).findings.entry(kind.clone()).or_insert((0, text)).0 += 1;
    }
    Ok(())
}

/// Whether the case fails again in the same way.
fn comes_again(rig: &Rig, lane: usize, case: &Case, kind: &str) -> io::Result<bool> {
    for _ in 0..REPLAYS {
        if has(&rig.play(lane, case)?, kind) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has(verdict: &Verdict, kind: &str) -> bool {
    verdict.findings.iter().any(|(found, _)| found == kind)
}

/// The smallest case found that fails in the same way, as text and as a file; if it does not fail again, what
/// happened the first time.
fn minimised(
    rig: &Rig,
    lane: usize,
    name: &str,
    case: &Case,
    kind: &str,
    first: &Verdict,
) -> io::Result<String> {
    let small = smallest(rig, lane, case, |verdict| has(verdict, kind))?;
    let again = rig.play(lane, &small)?;
    let (small, verdict) = if has(&again, kind) { (small, &again) } else { (case.clone(), first) };
    let folder = std::env::temp_dir().join("skep-differential-findings");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.case", kind.replace([' ', ','], "-")));
    fs::write(&file, format!("# {kind}\n{}", small.to_text()))?;
    Ok(format!(
        "{}replay: cargo run -p skep-differential -- {name}\nsmaller: cargo run -p skep-differential -- --replay {}\n",
        in_words(&small, verdict),
        file.display()
    ))
}

/// The smallest case found with the same behaviour.
fn smallest(
    rig: &Rig,
    lane: usize,
    case: &Case,
    is_same: impl Fn(&Verdict) -> bool,
) -> io::Result<Case> {
    let mut small = case.clone();
    let (mut steps, until) = (0, Instant::now() + MINIMISE);
    'again: loop {
        for smaller in small.smaller() {
            steps += 1;
            if steps > MINIMISE_STEPS_MAX || Instant::now() > until {
                return Ok(small);
            }
            if is_same(&rig.play(lane, &smaller)?) {
                small = smaller;
                continue 'again;
            }
        }
        return Ok(small);
    }
}

/// Stores a small case for each row that has none yet.
fn keep(rig: &Rig, lane: usize, case: &Case, verdict: &Verdict) -> io::Result<()> {
    for row in &verdict.tolerated {
        let file = case_of(row);
        // The lane that creates the file writes it.
        if fs::File::create_new(&file).is_ok() {
            let is_same =
                |verdict: &Verdict| verdict.findings.is_empty() && verdict.tolerated.contains(row);
            let small = smallest(rig, lane, case, is_same)?;
            fs::write(&file, format!("# {row}\n{}", small.to_text()))?;
        }
    }
    Ok(())
}

/// The file of a row's case.
fn case_of(row: &str) -> PathBuf {
    let words = row.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    corpus_folder().join(words.collect::<Vec<_>>().join("-") + ".case")
}

fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Plays one case and prints what each peer did; returns whether there was no finding.
pub(crate) fn tell(run: &Run, case: &Case) -> io::Result<bool> {
    let rig = Rig::start(run, 1)?;
    let verdict = rig.play(0, case)?;
    println!("{}", in_words(case, &verdict));
    Ok(verdict.findings.is_empty())
}

fn in_words(case: &Case, verdict: &Verdict) -> String {
    let mut text = case.to_text();
    for (name, did) in NAMES.iter().zip(&verdict.did) {
        text += &format!("{name}:\n");
        for passed in &did.passed {
            let body = passed.body.as_deref().map(latin).unwrap_or_default();
            text += &format!("  passed {:?}, body {body:?}\n", passed.head.start);
            for (field, value) in &passed.head.fields {
                text += &format!("    {field}: {:?}\n", latin(value));
            }
        }
        if did.begun > 0 {
            text += &format!("  began {} more\n", did.begun);
        }
        for response in &did.heard.responses {
            let body = response.body.as_deref().map(latin);
            text += &format!("  said {:?}, body {body:?}\n", response.head.start);
        }
        if did.heard.hung {
            text += "  hung\n";
        }
        if !did.heard.rubbish.is_empty() {
            text += &format!("  and {:?}\n", latin(&did.heard.rubbish));
        }
    }
    for row in &verdict.tolerated {
        text += &format!("tolerated: {row}\n");
    }
    for (kind, what) in &verdict.findings {
        text += &format!("found: {kind}\n{what}\n");
    }
    text
}

/// The stored cases, each with the command that replays it.
fn corpus() -> io::Result<Vec<(String, Case)>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(corpus_folder())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let case = Case::from_text(&text);
        let case = case.ok_or_else(|| io::Error::other(format!("{}: no case", path.display())))?;
        cases.push((format!("--replay {}", path.display()), case));
    }
    cases.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(cases)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;

    /// Each run plays all of them: a row whose case no longer applies is printed with 0.
    #[test]
    fn every_row_of_tolerated_differences_has_its_case_and_no_case_is_left_over() {
        let kept: BTreeSet<_> =
            fs::read_dir(corpus_folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(kept, tolerated::names().map(case_of).collect());
        for row in tolerated::names() {
            let text = fs::read_to_string(case_of(row)).unwrap();
            assert_eq!(text.lines().next(), Some(format!("# {row}").as_str()));
            assert!(Case::from_text(&text).is_some(), "{row}");
        }
    }
}
