//! Selects the origin to ask: the first one without a recent failure.
//!
//! Pure. An origin that failed is avoided for a time that doubles with each further failure; a
//! success resets it. If all are avoided, the one whose time ends first is asked: an unreliable
//! origin serves a client better than none.

/// The recent results of one origin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OriginHealth {
    failures: u32,
    avoid_until_ms: u64,
}

impl OriginHealth {
    /// Records a success.
    pub(crate) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Records a failure. Requests that fail together count once.
    pub(crate) fn fail(&mut self, now_ms: u64, avoid_ms: u64, avoid_ms_max: u64) {
        if now_ms < self.avoid_until_ms {
            return;
        }
        let factor = 1u64 << self.failures.min(32);
        self.failures = self.failures.saturating_add(1);
        self.avoid_until_ms = now_ms + avoid_ms.saturating_mul(factor).min(avoid_ms_max);
    }

    fn is_avoided(&self, now_ms: u64) -> bool {
        now_ms < self.avoid_until_ms
    }
}

/// The index of the origin to ask, other than those in `tried`.
pub(crate) fn pick(origins: &[OriginHealth], tried: &[usize], now_ms: u64) -> Option<usize> {
    let left = origins.iter().enumerate().filter(|(place, _)| !tried.contains(place));
    let rank = |health: &OriginHealth| match health.is_avoided(now_ms) {
        true => health.avoid_until_ms,
        false => 0,
    };
    // Of equal ones, the first.
    left.min_by_key(|(_, health)| rank(health)).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_well_is_asked() {
        let mut origins = [OriginHealth::default(); 3];
        assert_eq!(pick(&origins, &[], 0), Some(0));
        origins[0].fail(0, 100, 1_000);
        assert_eq!(pick(&origins, &[], 99), Some(1));
        assert_eq!(pick(&origins, &[1], 99), Some(2));
        assert_eq!(pick(&origins, &[1, 2], 99), Some(0), "a doubtful one before none");
        assert_eq!(pick(&origins, &[0, 1, 2], 99), None);
        assert_eq!(pick(&origins, &[], 100), Some(0));
        origins[1].fail(100, 100, 1_000);
        origins[2].fail(50, 100, 1_000);
        origins[0].fail(100, 100, 1_000);
        assert_eq!(pick(&origins, &[], 120), Some(2), "its time ends first");
    }

    #[test]
    fn avoidance_doubles_up_to_a_bound_and_is_forgiven() {
        let mut health = OriginHealth::default();
        let mut now_ms = 0;
        for expected_ms in [100, 200, 400, 500, 500] {
            health.fail(now_ms, 100, 500);
            health.fail(now_ms + 1, 100, 500);
            assert!(health.is_avoided(now_ms + expected_ms - 1));
            now_ms += expected_ms;
            assert!(!health.is_avoided(now_ms));
        }
        health.succeed();
        health.fail(now_ms, 100, 500);
        assert!(!health.is_avoided(now_ms + 100));
    }
}
