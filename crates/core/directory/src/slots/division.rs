//! Divides the slots of a server among nodes: max-min fair by what they want, what is left evenly.

/// The slots of each node, of `slots` in all. What cannot be divided evenly among those who want more goes
/// to some of them in turn, by the number of the `turn`, so that with time each gets some.
pub(super) fn divide(slots: u32, wanted: &[u32], turn: usize) -> Vec<u32> {
    let mut given = vec![0; wanted.len()];
    let mut left = slots;
    loop {
        let mut hungry: Vec<_> = (0..wanted.len()).filter(|&it| given[it] < wanted[it]).collect();
        if !hungry.is_empty() {
            // Among themselves: else those behind nodes that want nothing would have their turns, too.
            let first = turn % hungry.len();
            hungry.rotate_left(first);
        }
        let (share, rest) = shares(left, hungry.len());
        if hungry.is_empty() || left == 0 {
            break;
        }
        for (place, &node) in hungry.iter().enumerate() {
            // Those who want less than their share leave the rest to the next round.
            let due = share + u32::from(share == 0 && place < rest);
            let due = due.min(wanted[node] - given[node]);
            given[node] += due;
            left -= due;
        }
    }
    // In one order always: what nobody asks for should not move.
    let (share, rest) = shares(left, wanted.len());
    for (node, given) in given.iter_mut().enumerate() {
        *given += share + u32::from(node < rest);
    }
    given
}

/// Slots for each of so many nodes, and how many of them get one more.
fn shares(slots: u32, nodes: usize) -> (u32, usize) {
    let nodes_u32 = u32::try_from(nodes.max(1)).unwrap_or(u32::MAX);
    let rest = if nodes == 0 { 0 } else { (slots % nodes_u32) as usize };
    (if nodes == 0 { 0 } else { slots / nodes_u32 }, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_little_gets_it_and_the_others_share_the_rest() {
        assert_eq!(divide(10, &[1, 20, 20], 0), [1, 5, 4]);
        assert_eq!(divide(10, &[1, 20, 20], 1), [1, 4, 5]);
        assert_eq!(divide(10, &[0, 0, 4], 0), [2, 2, 6], "what is left, evenly");
        assert_eq!(divide(10, &[0, 0, 0], 1), [4, 3, 3], "and always alike");
        assert_eq!(divide(2, &[1, 1, 1], 1), [0, 1, 1]);
        assert_eq!(divide(0, &[5, 5], 0), [0, 0]);
        assert!(divide(7, &[], 3).is_empty());
    }

    #[test]
    fn turns_are_fair_whoever_wants_nothing() {
        let mut wanted = [0; 10];
        (wanted[0], wanted[1]) = (5, 5);
        let turns = (0..20).map(|turn| divide(1, &wanted, turn));
        assert_eq!(turns.filter(|given| given[0] == 1).count(), 10);
    }

    #[test]
    fn all_is_given_and_no_more() {
        for seed in 0..500 {
            let mut rng = skep_units::Rng::new(seed);
            let mut next = |below: u64| (rng.next_u64() % below) as u32;
            let slots = next(40);
            let wanted: Vec<_> = (0..1 + next(9)).map(|_| next(20)).collect();
            let given = divide(slots, &wanted, next(9) as usize);
            assert_eq!(given.iter().sum::<u32>(), slots, "seed {seed}");
            let least = given.iter().zip(&wanted).filter(|(given, wanted)| given < wanted);
            let least = least.map(|(given, _)| *given).min().unwrap_or(u32::MAX);
            let most = given.iter().max().copied().unwrap_or(0);
            assert!(
                least >= most.saturating_sub(1) || least == u32::MAX,
                "seed {seed}: {given:?} of {wanted:?}"
            );
        }
    }
}
