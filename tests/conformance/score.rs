//! Scores, counted by the suite's own code (`score.mjs`).

use anyhow::{Context, Result};
use serde_json::Value;

/// The suite's words for a test that passes; `yes` for tests where nothing is right or wrong.
const PASSED: [&str; 2] = ["pass", "yes"];

/// The result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    kind: Kind,
    /// Whether the test passes by itself.
    has_passed: bool,
    /// Whether it passes with all tests that it depends on.
    counts: bool,
    /// The IDs of the tests that it depends on.
    pub(crate) dependencies: Vec<String>,
    /// The suite's message for a failure.
    pub(crate) why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Required,
    /// "Optimal" in the suite's terms.
    Optional,
    /// Records how caches behave; no result is right or wrong.
    Check,
}

/// The results of all tests that need no browser.
#[derive(Debug)]
pub(crate) struct Score(Vec<Outcome>);

/// The results of another cache, as published by the suite's authors.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) score: Score,
}

/// Numbers of tests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that pass by themselves.
    pub(crate) alone: usize,
    /// Tests that pass with the tests they depend on.
    pub(crate) dependent: usize,
    pub(crate) all: usize,
}

impl Score {
    pub(crate) fn counts(&self, kind: Kind) -> Counts {
        let of_kind = || self.0.iter().filter(|test| test.kind == kind);
        Counts {
            alone: of_kind().filter(|test| test.has_passed).count(),
            dependent: of_kind().filter(|test| test.counts).count(),
            all: of_kind().count(),
        }
    }

    /// Required and optional tests that fail by themselves.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().filter(|test| test.kind != Kind::Check && !test.has_passed)
    }

    /// Whether a test passes together with the tests it depends on.
    pub(crate) fn counts_test(&self, id: &str) -> bool {
        self.0.iter().any(|test| test.id == id && test.counts)
    }

    /// Required and optional tests that pass, but do not count because a test they depend on fails.
    pub(crate) fn uncounted(&self) -> impl Iterator<Item = &Outcome> {
        self.0.iter().filter(|test| test.kind != Kind::Check && test.has_passed && !test.counts)
    }
}

impl Outcome {
    pub(crate) fn is_required(&self) -> bool {
        self.kind == Kind::Required
    }

    fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str();
        let kind = match text("kind")? {
            "required" => Kind::Required,
            "optimal" => Kind::Optional,
            "check" => Kind::Check,
            _ => return None,
        };
        let dependencies = value["dependencies"].as_array()?.iter();
        Some(Self {
            id: text("id")?.to_owned(),
            kind,
            has_passed: PASSED.contains(&text("alone")?),
            counts: PASSED.contains(&text("dependent")?),
            dependencies: dependencies.filter_map(|it| Some(it.as_str()?.to_owned())).collect(),
            why: text("why")?.to_owned(),
        })
    }
}

/// Parses the output of `score.mjs`.
pub(crate) fn parse(text: &str) -> Result<(Vec<Published>, Vec<Score>)> {
    let all: Value = serde_json::from_str(text).context("the score")?;
    let published = list(&all["published"])?.iter().map(|value| {
        let text =
            |name: &str| value[name].as_str().map(str::to_owned).context("a published result");
        Ok(Published {
            name: text("name")?,
            version: text("version")?,
            score: score(&value["tests"])?,
        })
    });
    let runs = list(&all["runs"])?.iter().map(score);
    Ok((published.collect::<Result<_>>()?, runs.collect::<Result<_>>()?))
}

fn score(tests: &Value) -> Result<Score> {
    let read =
        |test| Outcome::parse(test).with_context(|| format!("not a result of a test: {test}"));
    Ok(Score(list(tests)?.iter().map(read).collect::<Result<_>>()?))
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("a list in the score")
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// The output of `score.mjs` for three tests, of which `broken` fails.
    pub(crate) fn printed() -> String {
        let test = |id: &str, kind: &str, alone: &str, dependent: &str, why: &str| {
            serde_json::json!({
                "id": id, "kind": kind, "alone": alone, "dependent": dependent,
                "dependencies": ["broken"], "why": why,
            })
        };
        let tests = serde_json::json!([
            test("broken", "optimal", "optional_fail", "optional_fail", "Assertion: it differs"),
            test("sound", "required", "pass", "dependency_fail", ""),
            test("curious", "check", "no", "no", "Assertion: no"),
        ]);
        let published = serde_json::json!([{ "name": "peer", "version": "1", "tests": tests }]);
        serde_json::json!({ "published": published, "runs": [tests] }).to_string()
    }

    #[test]
    fn a_test_counts_only_with_what_it_depends_on() {
        let (published, runs) = parse(&printed()).unwrap();
        assert_eq!((published[0].name.as_str(), runs.len()), ("peer", 1));
        let score = &runs[0];
        let required = Counts { alone: 1, dependent: 0, all: 1 };
        assert_eq!(score.counts(Kind::Required), required);
        assert_eq!(score.counts(Kind::Optional), Counts { alone: 0, dependent: 0, all: 1 });
        let ids = |tests: Vec<&Outcome>| tests.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(score.failed().collect()), ["broken"]);
        assert_eq!(ids(score.uncounted().collect()), ["sound"]);
        assert!(!score.counts_test("sound") && !score.counts_test("unheard-of"));
    }

    #[test]
    fn what_is_no_score_is_an_error() {
        assert!(parse("").is_err());
        assert!(parse("{}").is_err());
        assert!(parse(&printed().replace("optimal", "vital")).is_err());
    }
}
