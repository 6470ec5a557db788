//! What becomes of a packet, by seed and number alone.

use serde::{Deserialize, Serialize};

use crate::limits::{LATE_US_MAX, LOSS_PARTS};
use crate::rules::parts_of;

/// What a relay does to packets, each for itself: at most one of these.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayFaults {
    /// The same one does the same to the packet with the same number.
    pub seed: u64,
    /// Packets that go nowhere, in percent.
    pub lost_percent: f64,
    /// Packets that come twice, in percent: half of the copies at once, the others late.
    pub doubled_percent: f64,
    /// Packets that come late, so that others overtake them, in percent.
    pub late_percent: f64,
    /// How late at least, in microseconds.
    pub late_us_min: u32,
    /// And at most.
    pub late_us_max: u32,
}

/// What becomes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Passed,
    Lost,
    /// It goes on, and a copy of it so much later.
    Doubled {
        after_us: u32,
    },
    /// It goes on so much later.
    Late {
        after_us: u32,
    },
}

impl RelayFaults {
    /// Whether it can be done.
    pub(crate) fn check(&self) -> Result<(), String> {
        let shares = [self.lost_percent, self.doubled_percent, self.late_percent];
        let are_shares = shares.iter().all(|share| (0.0..=100.0).contains(share));
        if !are_shares || shares.iter().sum::<f64>() > 100.0 {
            return Err(format!(
                "a relay's shares are {shares:?}: expected 0 to 100 percent in all"
            ));
        }
        let (min, max) = (self.late_us_min, self.late_us_max);
        if min > max || max > LATE_US_MAX {
            return Err(format!(
                "a relay's packets are {min} to {max} us late: expected {LATE_US_MAX} at most"
            ));
        }
        Ok(())
    }

    /// What becomes of the packet with this number.
    pub(crate) fn fate(&self, number: u64) -> Fate {
        let random = scatter(self.seed.wrapping_add(number.wrapping_mul(STEP)));
        // Its low half, its high half, and the last bit of that.
        let part = share(random as u32, LOSS_PARTS);
        let span = self.late_us_max - self.late_us_min;
        let late_us = self.late_us_min + share((random >> 32) as u32, span + 1);
        let is_at_once = (random >> 32).is_multiple_of(2);
        let lost = parts_of(self.lost_percent);
        let doubled = lost + parts_of(self.doubled_percent);
        let late = doubled + parts_of(self.late_percent);
        match part {
            part if part < lost => Fate::Lost,
            part if part < doubled => {
                Fate::Doubled { after_us: if is_at_once { 0 } else { late_us } }
            }
            part if part < late => Fate::Late { after_us: late_us },
            _ => Fate::Passed,
        }
    }
}

/// The increment and the mixing of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn scatter(mut word: u64) -> u64 {
    word = word.wrapping_add(STEP);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A number below `of`, as likely as any other.
fn share(random: u32, of: u32) -> u32 {
    ((u64::from(random) * u64::from(of)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: RelayFaults = RelayFaults {
        seed: 1,
        lost_percent: 0.0,
        doubled_percent: 0.0,
        late_percent: 0.0,
        late_us_min: 1_000,
        late_us_max: 10_000,
    };
    const SOME: RelayFaults =
        RelayFaults { lost_percent: 1.0, doubled_percent: 2.0, late_percent: 4.0, ..NONE };

    fn fates(faults: RelayFaults) -> Vec<Fate> {
        (0..100_000).map(|number| faults.fate(number)).collect()
    }

    #[test]
    fn shares_are_as_asked_for() {
        let fates = fates(SOME);
        let count = |is: fn(&Fate) -> bool| fates.iter().filter(|fate| is(fate)).count();
        // Deviations are 31, 44 and 62: five of these either way.
        assert!((845..1_155).contains(&count(|it| *it == Fate::Lost)));
        let doubled = count(|it| matches!(it, Fate::Doubled { .. }));
        assert!((1_780..2_220).contains(&doubled), "{doubled}");
        assert!((3_690..4_310).contains(&count(|it| matches!(it, Fate::Late { .. }))));
        let at_once = count(|it| *it == Fate::Doubled { after_us: 0 });
        assert!((doubled * 2 / 5..doubled * 3 / 5).contains(&at_once), "{at_once} of {doubled}");
    }

    #[test]
    fn late_ones_are_from_the_least_to_the_most() {
        let late = fates(SOME).into_iter().filter_map(|fate| match fate {
            Fate::Late { after_us } => Some(after_us),
            _ => None,
        });
        let late: Vec<u32> = late.collect();
        assert!(late.iter().all(|us| (1_000..=10_000).contains(us)));
        let (min, max) = (late.iter().min().copied(), late.iter().max().copied());
        assert!(min < Some(1_100) && max > Some(9_900), "{min:?} {max:?}");
        let exact = RelayFaults { late_percent: 100.0, late_us_min: 7, late_us_max: 7, ..NONE };
        assert!(fates(exact).iter().all(|fate| *fate == Fate::Late { after_us: 7 }));
    }

    #[test]
    fn a_seed_does_the_same_again_and_another_does_not() {
        assert_eq!(fates(SOME), fates(SOME));
        assert_ne!(fates(SOME), fates(RelayFaults { seed: 2, ..SOME }));
        assert!(fates(NONE).iter().all(|fate| *fate == Fate::Passed));
        let all = RelayFaults { lost_percent: 100.0, ..NONE };
        assert!(fates(all).iter().all(|fate| *fate == Fate::Lost));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert_eq!(SOME.check(), Ok(()));
        for faults in [
            RelayFaults { lost_percent: -1.0, ..NONE },
            RelayFaults { late_percent: f64::NAN, ..NONE },
            RelayFaults { lost_percent: 60.0, doubled_percent: 60.0, ..NONE },
            RelayFaults { late_us_min: 2, late_us_max: 1, ..NONE },
            RelayFaults { late_us_max: LATE_US_MAX + 1, ..NONE },
        ] {
            assert!(faults.check().is_err(), "{faults:?}");
        }
    }
}
