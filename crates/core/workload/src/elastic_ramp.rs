//! The elastic ramp of the Awesome Web Server: clients start a few at a time, stay, and leave
//! again.
//!
//! The kinds of content (a few pages, images of several sizes, three computations on three very
//! long texts) and the ramp are published. The sizes are our own.

/// How clients of a closed loop start and leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRamp {
    /// Clients that start at a time.
    pub step_clients: u32,
    /// Time between two steps, in milliseconds.
    pub step_ms: u64,
    /// How long each client stays, in milliseconds.
    pub stay_ms: u64,
}

impl ClientRamp {
    /// The published parameters.
    pub const PUBLISHED: Self = Self { step_clients: 3, step_ms: 5_000, stay_ms: 100_000 };

    /// When a client starts and leaves, in milliseconds since the beginning.
    pub fn times_ms(self, client: u32) -> (u64, u64) {
        let begin_ms = u64::from(client / self.step_clients) * self.step_ms;
        (begin_ms, begin_ms + self.stay_ms)
    }

    /// When the last of `clients` clients leaves, in milliseconds.
    pub fn end_ms(self, clients: u32) -> u64 {
        self.times_ms(clients.saturating_sub(1)).1
    }

    /// The same ramp, scaled so that the last of `clients` clients leaves at `end_ms`.
    pub fn within_ms(self, clients: u32, end_ms: u64) -> Self {
        let scaled = |ms: u64| {
            (u128::from(ms) * u128::from(end_ms) / u128::from(self.end_ms(clients))) as u64
        };
        Self { step_ms: scaled(self.step_ms), stay_ms: scaled(self.stay_ms), ..self }
    }
}

/// Small images at scale 1; the other files do not scale.
const SMALL: f64 = 2_000.0;
const SMALL_BYTES: (f64, f64) = (1_024.0, 16_384.0);

/// Pages, computations and large images: number and size in bytes.
const PAGES: (usize, u64) = (6, 12_288);
const COMPUTATIONS: (usize, u64) = (9, 262_144);
const LARGE: (usize, [u64; 4]) = (24, [131_072, 262_144, 524_288, 1_048_576]);

/// Shares of requests for pages, for large files (including computations), and for small images:
/// cache-friendly.
const FRIENDLY: [f64; 3] = [0.1, 0.8, 0.1];
/// The same, cache-unfriendly.
const UNFRIENDLY: [f64; 3] = [0.1, 0.1, 0.8];

/// Sizes of all files: pages, computations, large images, small images.
pub(crate) fn sizes(scale: f64) -> Vec<u64> {
    let small = (SMALL * scale).round().max(1.0) as usize;
    let (least, most) = SMALL_BYTES;
    let bytes = |at: usize| least * (most / least).powf(at as f64 / small as f64);
    let fixed = std::iter::repeat_n(PAGES.1, PAGES.0)
        .chain(std::iter::repeat_n(COMPUTATIONS.1, COMPUTATIONS.0))
        .chain(LARGE.1.into_iter().cycle().take(LARGE.0));
    fixed.chain((0..small).map(|at| bytes(at) as u64)).collect()
}

/// The weight of each file.
pub(crate) fn weights(files: usize, is_friendly: bool) -> Vec<f64> {
    let [pages, large, small] = if is_friendly { FRIENDLY } else { UNFRIENDLY };
    let large_files = COMPUTATIONS.0 + LARGE.0;
    let small_files = files - PAGES.0 - large_files;
    let of = |share: f64, files: usize| std::iter::repeat_n(share / files as f64, files);
    of(pages, PAGES.0).chain(of(large, large_files)).chain(of(small, small_files)).collect()
}

#[cfg(test)]
mod tests {
    use skep_units::Rng;

    use super::*;
    use crate::Popularity;

    #[test]
    fn three_clients_come_every_five_seconds_and_stay_for_a_hundred() {
        let ramp = ClientRamp::PUBLISHED;
        assert_eq!((ramp.times_ms(0), ramp.times_ms(2)), ((0, 100_000), (0, 100_000)));
        assert_eq!((ramp.times_ms(3), ramp.times_ms(47)), ((5_000, 105_000), (75_000, 175_000)));
        assert_eq!(ramp.end_ms(48), 175_000);
        let short = ramp.within_ms(48, 1_750);
        assert_eq!((short.step_ms, short.stay_ms, short.end_ms(48)), (50, 1_000, 1_750));
    }

    #[test]
    fn caches_are_liked_or_not_by_the_same_files() {
        let sizes = sizes(1.0);
        assert_eq!(sizes.len(), 2_039);
        for (is_friendly, wanted) in [(true, 0.8), (false, 0.1)] {
            let popularity = Popularity::weighted(weights(sizes.len(), is_friendly));
            let mut rng = Rng::new(5);
            let drawn = (0..50_000).map(|_| sizes[popularity.draw(&mut rng)]);
            let large = drawn.filter(|bytes| *bytes >= 131_072).count() as f64 / 50_000.0;
            assert!((large - wanted).abs() < 0.01, "{large}");
        }
    }
}
