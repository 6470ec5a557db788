//! Whether an SPDX licence expression can be met with allowed licences.
//!
//! The grammar is that of annex D of the SPDX specification 2.3, without `+` and without references to
//! documents; `/` means `OR`, as in old manifests.

use anyhow::{Result, bail, ensure};

/// Whether some choice among the `OR`s of `expression` uses only licences that `allows` accepts. A licence
/// `WITH` an exception is passed as one name. Returns an error if the expression is malformed.
pub(crate) fn is_allowed(expression: &str, allows: impl Fn(&str) -> bool) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allows };
    let is_allowed = parser.any_of()?;
    ensure!(parser.words.is_empty(), "`{}` is unexpected", parser.words[0]);
    Ok(is_allowed)
}

struct Parser<'a, F> {
    words: &'a [&'a str],
    allows: F,
}

impl<F: Fn(&str) -> bool> Parser<'_, F> {
    fn any_of(&mut self) -> Result<bool> {
        let mut is_allowed = self.all_of()?;
        while self.take("OR") {
            is_allowed |= self.all_of()?;
        }
        Ok(is_allowed)
    }

    fn all_of(&mut self) -> Result<bool> {
        let mut is_allowed = self.one()?;
        while self.take("AND") {
            is_allowed &= self.one()?;
        }
        Ok(is_allowed)
    }

    fn one(&mut self) -> Result<bool> {
        if self.take("(") {
            let is_allowed = self.any_of()?;
            ensure!(self.take(")"), "a bracket is not closed");
            return Ok(is_allowed);
        }
        let licence = self.name()?;
        if self.take("WITH") {
            let exception = self.name()?;
            return Ok((self.allows)(&format!("{licence} WITH {exception}")));
        }
        Ok((self.allows)(&licence))
    }

    fn name(&mut self) -> Result<String> {
        match self.words {
            [] => bail!("the expression ends too early"),
            [word @ ("OR" | "AND" | "WITH" | "(" | ")"), ..] => bail!("`{word}` is unexpected"),
            [word, rest @ ..] => {
                let word = (*word).to_owned();
                self.words = rest;
                Ok(word)
            }
        }
    }

    fn take(&mut self, wanted: &str) -> bool {
        let is_next = self.words.first() == Some(&wanted);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn expressions_are_met_or_not() {
        let allows = |id: &str| ["MIT", "Apache-2.0", "A WITH e"].contains(&id);
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only/MIT", true),
            ("GPL-3.0-only AND MIT", false),
            ("MIT AND (Apache-2.0 OR X)", true),
            ("MIT AND (Y OR X)", false),
            ("MIT OR X AND Y", true),
            ("(MIT OR X) AND Y", false),
            ("A", false),
            ("A WITH e", true),
            ("A WITH f OR MIT", true),
        ] {
            assert_eq!(is_allowed(expression, allows).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for expression in ["", "MIT OR", "MIT X", "(MIT", "MIT)", "OR MIT", "MIT WITH"] {
            assert!(is_allowed(expression, |_| true).is_err(), "{expression}");
        }
    }
}
