//! The served content: three single files and the WebBench data set, the same in every run, and the list of
//! requests of the mix.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;
use skep_units::Rng;
use skep_workload::{WEBBENCH_CLASSES, WEBBENCH_PARTS};

use crate::limits::{MIX_REPLICAS, MIX_REQUESTS, SEED};

/// The single files, with path and size in bytes. The two large ones have the sizes of WebBench's classes 7
/// and 10.
pub(crate) const SMALL: (&str, usize) = ("/1k.bin", 1024);
/// The size of a picture.
pub(crate) const MEDIUM: (&str, usize) = ("/22k.bin", 22_132);
/// The size of a download.
pub(crate) const LARGE: (&str, usize) = ("/541k.bin", 541_761);

/// A long download; only in direct dispatch.
pub(crate) const HUGE: (&str, usize) = ("/16m.bin", 16 * 1024 * 1024);

/// Writes all files below `root`.
pub(crate) fn write_files(root: &Path) -> Result<()> {
    write(root, all_files())
}

/// Writes these files below `root`.
pub(crate) fn write(root: &Path, files: impl IntoIterator<Item = (String, usize)>) -> Result<()> {
    let mut rng = Rng::new(SEED);
    for (path, bytes) in files {
        let file = root.join(path.trim_start_matches('/'));
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(file, random_bytes(&mut rng, bytes))?;
    }
    Ok(())
}

/// Paths and sizes of all files.
pub(crate) fn all_files() -> Vec<(String, usize)> {
    let single = [SMALL, MEDIUM, LARGE].map(|(path, bytes)| (path.to_owned(), bytes));
    let mix = (0..MIX_REPLICAS).flat_map(|replica| {
        let file = move |(class, &(bytes, _)): (usize, &(u64, u64))| {
            (mix_path(replica, class), bytes as usize)
        };
        WEBBENCH_CLASSES.iter().enumerate().map(file)
    });
    single.into_iter().chain(mix).collect()
}

/// The requests of the mix, one path per line, drawn with a fixed seed.
pub(crate) fn mix_requests() -> String {
    let mut rng = Rng::new(SEED);
    let mut list = String::new();
    for _ in 0..MIX_REQUESTS {
        let class = draw_class(&mut rng);
        let path = mix_path(rng.below(MIX_REPLICAS), class);
        let _ = writeln!(list, "{path}");
    }
    list
}

fn draw_class(rng: &mut Rng) -> usize {
    let mut left = rng.below(WEBBENCH_PARTS);
    for (class, &(_, weight)) in WEBBENCH_CLASSES.iter().enumerate() {
        if left < weight {
            return class;
        }
        left -= weight;
    }
    unreachable!("the number drawn is below the sum of the shares")
}

fn mix_path(replica: u64, class: usize) -> String {
    format!("/mix/{replica:02}/{}.bin", class + 1)
}

fn random_bytes(rng: &mut Rng, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend(rng.next_u64().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_published_shares() {
        let list = mix_requests();
        let share = |class: usize| {
            let name = format!("/{}.bin", class + 1);
            list.lines().filter(|path| path.ends_with(&name)).count() as f64 / MIX_REQUESTS as f64
        };
        for (class, &(_, weight)) in WEBBENCH_CLASSES.iter().enumerate() {
            let wanted = weight as f64 / 1_000.0;
            assert!((share(class) - wanted).abs() < 0.005, "class {class}: {}", share(class));
        }
    }

    #[test]
    fn every_request_of_the_mix_has_its_file() {
        let files: Vec<String> = all_files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(files.len(), 203);
        assert!(mix_requests().lines().take(1000).all(|path| files.iter().any(|f| f == path)));
    }
}
