//! Config files shown on a page must be accepted by Skep.
//!
//! A fence marked `toml` is a whole config; fragments are marked `text`.

use skep_config::Config;

use super::Finding;
use crate::repo::Page;

/// Finds samples that `skep config check` would refuse.
pub(crate) fn check(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, sample) in samples(&page.text) {
        let errors = Config::parse(&page.path, &sample).err().map(|all| all.errors);
        for error in errors.into_iter().flatten() {
            let what = format!("expected {}, found {}", error.expected, error.found);
            findings.push(Finding::new(&page.path, line + error.line, "sample", what));
        }
    }
    findings
}

/// The fences marked `toml`, each with the line (from 1) that opens it.
fn samples(text: &str) -> Vec<(usize, String)> {
    let mut samples = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        if line == "```toml" {
            let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            samples.push((number, inside.collect::<Vec<_>>().join("\n")));
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[node]]\nname = \"a\"\naddress = \"127.0.0.1:8080\"\n\n\
                        [[site]]\nroot = \"/srv/www\"\n";

    fn lines(text: String) -> Vec<usize> {
        let page = Page { path: "docs/x.md".to_owned(), text };
        check(&page).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn only_whole_and_valid_configs_pass() {
        let bad = GOOD.replace("root", "rooot");
        assert!(lines(format!("# X\n\n```toml\n{GOOD}```\n")).is_empty());
        assert!(lines(format!("```text\n{bad}```\n")).is_empty());
        let found = lines(format!("```toml\n{GOOD}```\n\n```toml\n{bad}```\n"));
        assert!(!found.is_empty() && found.iter().all(|&line| line > 10), "{found:?}");
    }
}
