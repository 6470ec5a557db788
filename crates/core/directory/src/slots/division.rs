//! Divides the slots of a server among nodes: max-min fair by demand; the rest is divided evenly.

/// What is due to each node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Slots of each node, without the remainder.
    pub(super) due: Vec<u32>,
    /// Nodes that want more than is due to them, ascending.
    pub(super) hungry: Vec<usize>,
    /// Slots that cannot be divided evenly among the hungry nodes, fewer than these: they take
    /// turns.
    pub(super) rest: usize,
}

/// Divides `slots` among nodes by the number of slots that each wants.
pub(super) fn divide(slots: u32, wanted: &[u32]) -> Division {
    let mut due = vec![0; wanted.len()];
    let mut left = slots;
    let hungry = loop {
        let hungry: Vec<_> = (0..wanted.len()).filter(|&it| due[it] < wanted[it]).collect();
        let (share, _) = shares(left, hungry.len());
        if share == 0 {
            break hungry;
        }
        for &node in &hungry {
            // Nodes that want less than their share leave the rest to the next round.
            let more = share.min(wanted[node] - due[node]);
            due[node] += more;
            left -= more;
        }
    };
    if !hungry.is_empty() {
        return Division { due, hungry, rest: left as usize };
    }
    // Always in the same order: unwanted slots should not move.
    let (share, rest) = shares(left, wanted.len());
    for (node, due) in due.iter_mut().enumerate() {
        *due += share + u32::from(node < rest);
    }
    Division { due, hungry, rest: 0 }
}

/// Slots for each of `nodes` nodes, and how many nodes get one more.
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
        let with_rest = |due: &[u32], hungry: &[usize], rest| Division {
            due: due.to_vec(),
            hungry: hungry.to_vec(),
            rest,
        };
        let all = |due: &[u32]| with_rest(due, &[], 0);
        assert_eq!(divide(10, &[1, 20, 20]), with_rest(&[1, 4, 4], &[1, 2], 1));
        assert_eq!(divide(10, &[0, 0, 4]), all(&[2, 2, 6]), "what is left, evenly");
        assert_eq!(divide(10, &[0, 0, 0]), all(&[4, 3, 3]), "and always alike");
        assert_eq!(divide(2, &[1, 0, 1, 1]), with_rest(&[0; 4], &[0, 2, 3], 2));
        assert_eq!(divide(4, &[5, 5]), with_rest(&[2, 2], &[0, 1], 0));
        assert_eq!(divide(0, &[5, 5]), with_rest(&[0, 0], &[0, 1], 0));
        assert_eq!(divide(7, &[]), all(&[]));
    }

    #[test]
    fn all_is_given_and_no_more() {
        for seed in 0..500 {
            let mut rng = skep_units::Rng::new(seed);
            let mut next = |below: u64| (rng.next_u64() % below) as u32;
            let slots = next(40);
            let wanted: Vec<_> = (0..1 + next(9)).map(|_| next(20)).collect();
            let Division { due, hungry, rest } = divide(slots, &wanted);
            assert_eq!(due.iter().sum::<u32>() + rest as u32, slots, "seed {seed}");
            assert!(rest == 0 || rest < hungry.len(), "seed {seed}: {rest} for {hungry:?}");
            let most = due.iter().max().copied().unwrap_or(0);
            let is_least = |&it: &usize| due[it] < wanted[it] && due[it] == most;
            assert!(hungry.iter().all(is_least), "seed {seed}: {due:?} of {wanted:?}");
        }
    }
}
