//! Selection of objects by popularity: Zipf's law over a seeded order of the objects.

use skep_units::Rng;

/// Draws objects by their shares in constant time (Vose's alias method).
#[derive(Clone, Debug)]
pub struct Popularity {
    shares: Vec<f64>,
    /// For each column, its own part, and the object that has the rest.
    columns: Vec<(f64, u32)>,
}

impl Popularity {
    /// The object of rank `r` has a share proportional to `1 / r^exponent`; the ranks are a seeded
    /// shuffle, so they are independent of sizes. With an exponent of 0 all objects are equally
    /// popular.
    pub fn zipf(objects: usize, exponent: f64, rng: &mut Rng) -> Self {
        let mut ranks: Vec<usize> = (1..=objects).collect();
        for last in (1..objects).rev() {
            ranks.swap(last, rng.below(last as u64 + 1) as usize);
        }
        Self::weighted(ranks.into_iter().map(|rank| (rank as f64).powf(-exponent)).collect())
    }

    /// Popularity by weights, which need not add up to 1.
    ///
    /// # Panics
    /// If there are no weights.
    pub fn weighted(weights: Vec<f64>) -> Self {
        assert!(!weights.is_empty(), "there is something to ask for");
        let sum: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.into_iter().map(|weight| weight / sum).collect();
        let columns = columns(&shares);
        Self { shares, columns }
    }

    /// The share of requests of each object.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The next object.
    pub fn draw(&self, rng: &mut Rng) -> usize {
        let column = rng.below(self.columns.len() as u64) as usize;
        let (own, other) = self.columns[column];
        if rng.unit() < own { column } else { other as usize }
    }
}

fn columns(shares: &[f64]) -> Vec<(f64, u32)> {
    let count = shares.len() as f64;
    let mut left: Vec<f64> = shares.iter().map(|share| share * count).collect();
    let mut columns: Vec<(f64, u32)> = (0..shares.len()).map(|it| (1.0, it as u32)).collect();
    let (mut low, mut high): (Vec<_>, Vec<_>) = (0..shares.len()).partition(|it| left[*it] < 1.0);
    while let (Some(small), Some(&large)) = (low.pop(), high.last()) {
        columns[small] = (left[small], large as u32);
        left[large] -= 1.0 - left[small];
        if left[large] < 1.0 {
            high.pop();
            low.push(large);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_drawn_by_their_shares() {
        let mut rng = Rng::new(3);
        let popularity = Popularity::zipf(50, 0.9, &mut rng);
        let mut counts = [0u32; 50];
        let draws = 400_000;
        for _ in 0..draws {
            counts[popularity.draw(&mut rng)] += 1;
        }
        for (count, share) in counts.iter().zip(popularity.shares()) {
            let expected = share * f64::from(draws);
            assert!((f64::from(*count) - expected).abs() < 5.0 * expected.sqrt());
        }
        let mut sorted = popularity.shares().to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        assert!((sorted[0] / sorted[9] - 10f64.powf(0.9)).abs() < 1e-9, "Zipf's law");
        assert_ne!(sorted, popularity.shares(), "ranks are shuffled");
    }
}
