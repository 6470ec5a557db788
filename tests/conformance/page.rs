//! Formats the results: tables for the terminal, and docs/conformance.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use anyhow::{Context, Result};

use crate::Run;
use crate::exceptions::{EXCEPTIONS, Exception, reason};
use crate::rig::Settings;
use crate::score::{Counts, Kind, Outcome, Published, Score};
use crate::suite::{COMMIT, Suite};

/// Number of bytes shown of the commit's name.
const COMMIT_SHOWN: usize = 12;

/// The results to show.
pub(crate) struct Tables<'a> {
    pub(crate) suite: &'a Suite,
    pub(crate) published: &'a [Published],
    pub(crate) runs: &'a [Run],
}

impl Tables<'_> {
    /// Returns scores, exceptions, and unexpected failures.
    pub(crate) fn for_terminal(&self) -> String {
        let mut text = format!(
            "http-tests/cache-tests {} of {}: tests that pass by themselves, and with what they depend \
             on\n\n{:<44}{:>20}{:>20}\n",
            &COMMIT[..COMMIT_SHOWN],
            self.suite.date,
            "",
            "required",
            "optional"
        );
        for settings in Settings::ALL {
            text += &format!("{}\n", settings.text());
            for run in self.runs_of(settings) {
                let [required, optional] = counts(&run.score).map(|it| it.to_string());
                text += &format!("  {:<42}{required:>20}{optional:>20}\n", run.place.text());
            }
        }
        text += "\nfailed:\n";
        for (test, places) in self.failed() {
            text += &format!("  {test}, {places}\n");
        }
        for (run, test) in self.unexpected() {
            let (place, settings) = (run.place.text(), run.settings.text());
            text += &format!("NOT EXPECTED: {} at {place}, {settings}: {}\n", test.id, test.why);
        }
        for (id, settings) in self.obsolete() {
            text += &format!("passes now, though it is an exception: {id}, {}\n", settings.text());
        }
        text
    }

    /// Returns the text of docs/conformance.md.
    ///
    /// # Errors
    /// If a test failed that has no reason in the table of exceptions.
    pub(crate) fn page(&self) -> Result<String> {
        anyhow::ensure!(self.unexpected().next().is_none(), "the page is of the recorded score");
        let of = &self.suite.date;
        let today = self.suite.today()?;
        let mut text = format!(
            "# Conformance of the cache\n\n\
             `make conformance` runs the public test suite for HTTP caches,\n\
             [http-tests/cache-tests](https://github.com/http-tests/cache-tests) by Mark Nottingham, against \
             [the cache in\nfront of pools](operate/cache.md). It fetches the suite at a fixed commit into the \
             target folder, starts the suite's\nown server as the only server of a pool, and runs the suite's \
             own client. This page is what\n`make conformance CONFORMANCE=--write` wrote on {today}, with commit\n\
             `{COMMIT}` of {of}.\n\n\
             Without `--write` the command fails if a test fails that is not listed below. \
             `CONFORMANCE=\"--id TEST\"` runs one\ntest, and prints what the suite's client and server have \
             seen. The suite's authors call it a tool to assess how a\ncache behaves, and no certificate.\n\n"
        );
        text += &self.score()?;
        text += &exceptions_text();
        text += &self.dependents()?;
        text += &self.others()?;
        Ok(text)
    }

    fn score(&self) -> Result<String> {
        let mut text = String::from("## Score\n\n");
        let first = &self.runs.first().context("a run")?.score;
        let [required, optional] = counts(first);
        write!(
            text,
            "The suite has {} tests of requirements that need no browser, and {} of optional optimisations (it \
             calls them\noptimal). Most depend on others: on the suite's own pages a test counts only if these \
             pass, too. Both counts are\nmade by the suite's code.\n\n{}",
            required.all,
            optional.all,
            heading("settings | requests go to", 2)
        )?;
        for settings in Settings::ALL {
            for run in self.runs_of(settings) {
                let (settings, place) = (settings.text(), run.place.text());
                writeln!(text, "| {settings} | {place} | {}", cells(&run.score))?;
            }
        }
        text += "\nThe places: a single node; one node of a cluster of three with a coordinator, so that it asks \
                 the others for what\nit does not have; and a dispatcher that sends the requests of each test to \
                 the three nodes in turn, so that most of\nwhat is reused was stored by another node.\n\n";
        for settings in Settings::ALL {
            writeln!(
                text,
                "{}:\n\n```text\n[site.cache]\n{}```\n",
                title(settings.text()),
                settings.lines()
            )?;
        }
        Ok(text)
    }

    /// Lists tests that pass but do not count, because a test they depend on fails.
    fn dependents(&self) -> Result<String> {
        let mut text = String::from("## Tests that pass and do not count\n\n");
        let mut by_cause: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for run in self.runs {
            for test in run.score.uncounted() {
                let causes = test.dependencies.iter().filter(|id| !run.score.counts_test(id));
                let causes: Vec<_> = causes.map(|id| format!("`{id}`")).collect();
                by_cause.entry(causes.join(", ")).or_default().insert(&test.id);
            }
        }
        text += "Under safe defaults, with dependencies: each depends on a test that fails or does not count. \
                 (`stale-close` only\nasks whether stale responses are sent if the server does not answer. They \
                 are not, unless the response or\n`stale_on_disconnect_ms` allows it.)\n\n| test | depends on \
                 |\n|---|---|\n";
        for (causes, ids) in by_cause {
            let ids: Vec<_> = ids.into_iter().map(|id| format!("`{id}`")).collect();
            writeln!(text, "| {} | {causes} |", ids.join(", "))?;
        }
        Ok(text + "\n")
    }

    /// Returns the section on other caches.
    fn others(&self) -> Result<String> {
        let mut text = format!(
            "## Other caches\n\nThe results that the suite's authors publish with the same commit, counted in \
             the same way. The suite says how these\ncaches are configured.\n\n{}",
            heading("cache", 1)
        );
        let alone = |it: &Published| it.score.counts(Kind::Required).alone;
        let mut published: Vec<_> = self.published.iter().collect();
        published.sort_by_key(|it| std::cmp::Reverse(alone(it)));
        for it in published {
            writeln!(text, "| {} {} | {}", it.name, it.version, cells(&it.score))?;
        }
        Ok(text)
    }

    fn runs_of(&self, settings: Settings) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.settings == settings)
    }

    /// Tests that failed somewhere, required ones first, with the places, and the reason if it is known.
    fn failed(&self) -> BTreeMap<String, String> {
        let mut failed: BTreeMap<(bool, &str), BTreeSet<&str>> = BTreeMap::new();
        for run in self.runs {
            for test in run.score.failed() {
                let settings = failed.entry((!test.is_required(), &test.id)).or_default();
                settings.insert(run.settings.text());
            }
        }
        let named = |((is_optional, id), settings): ((bool, &str), BTreeSet<&str>)| {
            let kind = if is_optional { "optional" } else { "required" };
            let why = reason(id, Settings::Safe).unwrap_or("no reason is known");
            let settings: Vec<_> = settings.into_iter().collect();
            (format!("{kind}: {id}"), format!("{}: {why}", settings.join(" and ")))
        };
        failed.into_iter().map(named).collect()
    }

    fn unexpected(&self) -> impl Iterator<Item = (&Run, &Outcome)> {
        self.runs.iter().flat_map(|run| run.unexpected().into_iter().map(move |test| (run, test)))
    }

    /// Exceptions whose tests have passed in all places.
    fn obsolete(&self) -> Vec<(&'static str, Settings)> {
        let has_failed = |id: &str, settings| {
            self.runs_of(settings).any(|run| run.score.failed().any(|test| test.id == id))
        };
        let ids = EXCEPTIONS.iter().flat_map(|it| it.ids);
        let each = ids.flat_map(|id| Settings::ALL.map(|settings| (*id, settings)));
        let known = each.filter(|(id, settings)| reason(id, *settings).is_some());
        known.filter(|(id, settings)| !has_failed(id, *settings)).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{}, {}", self.alone, self.dependent))
    }
}

fn counts(score: &Score) -> [Counts; 2] {
    [Kind::Required, Kind::Optional].map(|kind| score.counts(kind))
}

/// The header of a table of scores, after the column headings in `first`, which are `columns` in number.
fn heading(first: &str, columns: usize) -> String {
    let line = "---|".repeat(columns + 4);
    format!("| {first} | required | with dependencies | optional | with dependencies |\n|{line}\n")
}

fn cells(score: &Score) -> String {
    let cells = counts(score).map(|it| format!("{} | {} |", it.alone, it.dependent));
    cells.join(" ")
}

fn exceptions_text() -> String {
    let mut text = String::from(
        "## Tests that fail\n\nThese, in all places alike.\n\n| test | under | reason |\n|---|---|---|\n",
    );
    for Exception { ids, is_safe_only, reason } in EXCEPTIONS {
        let ids: Vec<_> = ids.iter().map(|id| format!("`{id}`")).collect();
        let under = if *is_safe_only { Settings::Safe.text() } else { "both" };
        text += &format!("| {} | {under} | {reason} |\n", ids.join(", "));
    }
    text + "\n"
}

fn title(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
