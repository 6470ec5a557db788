//! Files generated from code: `cargo xtask gen` writes them, `tidy` compares them.

use std::path::Path;

use anyhow::{Context, Result};

/// A committed file, and the function that returns its expected content.
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

/// Generated files that differ from their expected content, each with the first line, from 1, that differs.
pub(crate) fn stale(root: &Path) -> impl Iterator<Item = (&'static str, usize)> {
    FILES.iter().filter_map(move |file| {
        let line = first_difference(&(file.make)(), &read(root, file.path))?;
        Some((file.path, line))
    })
}

/// The file's text; a missing file is treated as empty, so it differs.
fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_default()
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
        let made = "a\nb\nc\n";
        assert_eq!(first_difference(made, made), None);
        for (committed, line) in [("", 1), ("a\nB\nc\n", 2), ("a\nb\nc", 4), ("a\nb\nc\nd\n", 4)] {
            assert_eq!(first_difference(made, committed), Some(line), "{committed:?}");
        }
    }
}
