//! Files that are written from code: `cargo xtask gen` writes them, `tidy`
//! compares.

use std::path::Path;

use anyhow::{Context, Result};

use crate::tidy::Finding;

/// A committed file and the function that knows what must stand in it.
struct Generated {
    path: &'static str,
    make: fn() -> String,
}

const FILES: &[Generated] = &[
    Generated { path: "docs/config.md", make: skep_config::reference_markdown },
    Generated { path: "docs/openapi.json", make: skep_console::openapi_json },
];

/// Writes every generated file below `root`.
pub(crate) fn write(root: &Path) -> Result<()> {
    for file in FILES {
        std::fs::write(root.join(file.path), (file.make)()).context(file.path)?;
        println!("gen: {}", file.path);
    }
    Ok(())
}

/// Finds generated files that differ from what would be written.
pub(crate) fn check(root: &Path) -> Vec<Finding> {
    FILES.iter().filter_map(|file| compare(file, &read(root, file.path))).collect()
}

/// The file's text; a missing file reads as empty, so it differs.
fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn compare(file: &Generated, committed: &str) -> Option<Finding> {
    let made = (file.make)();
    let line = first_difference(&made, committed)?;
    let what = "differs from what the code makes: run `cargo xtask gen` and commit the result";
    Some(Finding::new(file.path, line, "generated", what))
}

/// The first line, from 1, in which two texts differ.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.split('\n').zip(other.split('\n')).take_while(|(a, b)| a == b).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_found_at_its_first_difference() {
        let file = Generated { path: "docs/x.md", make: || "a\nb\nc\n".to_owned() };
        assert_eq!(compare(&file, "a\nb\nc\n"), None);
        for (committed, line) in [("", 1), ("a\nB\nc\n", 2), ("a\nb\nc", 4), ("a\nb\nc\nd\n", 4)] {
            let expected = Finding::new(
                "docs/x.md",
                line,
                "generated",
                "differs from what the code makes: run `cargo xtask gen` and commit the result",
            );
            assert_eq!(compare(&file, committed), Some(expected), "{committed:?}");
        }
    }
}
