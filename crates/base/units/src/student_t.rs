//! Student's t-distribution, for confidence intervals.

/// Its 97.5 % quantile, for the two-sided 95 % interval of a mean of `freedom + 1` values.
///
/// # Panics
/// If `freedom` is 0: one value provides no estimate of the spread.
pub fn student_t_975(freedom: usize) -> f64 {
    /// For 1 to 9 degrees of freedom, from the tables.
    const FEW: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    assert!(freedom > 0, "no degree of freedom");
    // Cornish and Fisher's expansion around the normal quantile.
    let n = freedom as f64;
    let expansion = || 1.959_96 + 2.372_3 / n + 2.822_5 / n.powi(2) + 2.555_9 / n.powi(3);
    FEW.get(freedom - 1).copied().unwrap_or_else(expansion)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, table) in [(1, 12.706), (9, 2.262), (10, 2.228), (29, 2.045), (1_000, 1.962)]
        {
            assert!((student_t_975(freedom) - table).abs() < 0.001, "{freedom}");
        }
    }
}
