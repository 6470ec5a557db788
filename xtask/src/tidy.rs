//! `cargo xtask tidy`: the rules that the compiler does not check.
//!
//! A rule is a pure function from text to findings, with tests of what it finds and what it accepts. All
//! rules run, and all findings are printed; one is enough to fail. A rule never changes a file.

mod absences;
mod circles;
mod escapes;
mod homonyms;
mod layers;
mod links;
mod manifest;
mod metrics;
mod module_doc;
mod names;
mod samples;
mod sizes;

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::generated;
use crate::repo::Repo;

/// Something that must be changed before it can land.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    what: String,
}

impl Finding {
    /// A finding of `rule` at a line (from 1) of a file; `what` states what to do.
    pub(crate) fn new(
        path: &str,
        line: usize,
        rule: &'static str,
        what: impl Into<String>,
    ) -> Self {
        Self { path: path.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.what)
    }
}

/// Applies every rule to the tree and prints what they find.
pub(crate) fn run(repo: &Repo) -> Result<()> {
    let mut findings = findings(repo)?;
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!(
            "tidy: {} sources, {} manifests, {} pages, nothing to say",
            repo.sources.len(),
            repo.manifests.len(),
            repo.pages.len()
        ),
        count => bail!("tidy: {count} findings"),
    }
    Ok(())
}

fn findings(repo: &Repo) -> Result<Vec<Finding>> {
    let ratchet_path = "xtask/ratchet.toml";
    let ratchet = std::fs::read_to_string(repo.root.join(ratchet_path)).context(ratchet_path)?;
    let test_only = escapes::test_only_files(&repo.sources);

    let mut findings = layers::check(&repo.manifests)?;
    for source in &repo.sources {
        findings.extend(module_doc::check(source));
        findings.extend(absences::check(source, &test_only));
        findings.extend(names::check(source));
        findings.extend(escapes::check(source, &test_only));
    }
    findings.extend(sizes::check(&repo.sources, &ratchet)?);
    findings.extend(circles::check(&repo.sources, &test_only));
    findings.extend(metrics::check(&repo.sources, &repo.pages, &test_only));
    findings.extend(homonyms::check(&repo.sources, &repo.manifests, &test_only)?);
    for page in &repo.pages {
        findings.extend(links::check(page, &repo.pages, |target| repo.root.join(target).exists()));
        findings.extend(samples::check(page));
        findings.extend(names::check_page(page));
    }
    findings.extend(generated::stale(&repo.root).map(|(path, line)| {
        let what = "differs from what the code makes: run `cargo xtask gen` and commit the result";
        Finding::new(path, line, "generated", what)
    }));
    Ok(findings)
}
