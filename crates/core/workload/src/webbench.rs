//! The mix of WebBench, as published in the WhizzBee paper (table 1): ten classes of files.
//! Requests are distributed over the classes like the files, so all files are equally popular.

/// Size of each class in bytes, and its share of files and of requests in thousandths. The shares
/// add up to 1000.
pub const WEBBENCH_CLASSES: [(u64, u64); 10] = [
    (223, 200),
    (735, 80),
    (1_522, 120),
    (2_895, 200),
    (6_040, 150),
    (11_426, 170),
    (22_132, 70),
    (41_518, 8),
    (87_360, 1),
    (541_761, 1),
];

/// The sum of the shares in [`WEBBENCH_CLASSES`].
pub const WEBBENCH_PARTS: u64 = 1_000;

/// Size of the data set, in bytes: 20 replicas.
const BYTES: f64 = 1.2e9;

/// Sizes of the files at a scale, class by class.
pub(crate) fn sizes(scale: f64) -> Vec<u64> {
    let share = |parts: u64| parts as f64 / 1_000.0;
    let mean: f64 =
        WEBBENCH_CLASSES.iter().map(|(bytes, parts)| *bytes as f64 * share(*parts)).sum();
    let files = |parts: u64| (BYTES * scale / mean * share(parts)).round() as usize;
    let class = |(bytes, parts): &(u64, u64)| std::iter::repeat_n(*bytes, files(*parts));
    WEBBENCH_CLASSES.iter().flat_map(class).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_published_shares() {
        let sizes = sizes(1.0);
        assert_eq!(WEBBENCH_CLASSES.iter().map(|(_, parts)| parts).sum::<u64>(), WEBBENCH_PARTS);
        for (bytes, parts) in WEBBENCH_CLASSES {
            let files = sizes.iter().filter(|it| **it == bytes).count() as f64;
            let share = files / sizes.len() as f64;
            assert!((share - parts as f64 / 1_000.0).abs() < 1e-4, "{bytes}: {share}");
        }
    }
}
