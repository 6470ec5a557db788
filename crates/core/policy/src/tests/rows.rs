//! Balance, history and agreement of the rows of direct dispatch.

use skep_units::stable_hash;
use skep_wire::steer::{NO_NODE, ROWS, Row, ServiceMember};

use crate::rows;

fn member(index: u16, weight: u32) -> ServiceMember {
    ServiceMember { index, name_hash: stable_hash(format!("node-{index}").as_bytes(), 0), weight }
}

fn members(count: u16) -> Vec<ServiceMember> {
    (0..count).map(|index| member(index, 1)).collect()
}

/// The number of rows in which each node is candidate `choice`.
fn tally(rows: &[Row], choice: usize, count: u16) -> Vec<usize> {
    (0..count).map(|index| rows.iter().filter(|row| row.0[choice] == index).count()).collect()
}

#[test]
fn every_candidate_is_balanced_and_no_row_names_a_node_twice() {
    for (count, choices) in [(1, 4), (2, 4), (3, 2), (4, 4), (5, 4), (8, 4), (64, 4)] {
        let rows = rows(choices, &[members(count)]);
        assert_eq!(rows.len(), ROWS);
        let full = choices.min(usize::from(count));
        for row in &rows {
            let mut named: Vec<u16> = row.0.iter().copied().filter(|&n| n != NO_NODE).collect();
            assert_eq!((named.len(), &row.0[full..].iter().all(|&n| n == NO_NODE)), (full, &true));
            named.sort_unstable();
            named.dedup();
            assert_eq!(named.len(), full);
        }
        for choice in 0..full {
            let due = ROWS / usize::from(count);
            for counted in tally(&rows, choice, count) {
                assert!(counted.abs_diff(due) * 50 <= due, "{count}/{choice}: {counted} of {due}");
            }
        }
    }
}

#[test]
fn first_candidates_follow_weights() {
    let rows = rows(1, &[vec![member(0, 3), member(1, 1)]]);
    let counted = tally(&rows, 0, 2);
    assert!((counted[0] as f64 / counted[1] as f64 - 3.0).abs() < 0.01, "{counted:?}");
}

#[test]
fn the_first_candidate_of_earlier_memberships_stays_in_the_row() {
    for choices in [1, 2, 4] {
        let mut history = vec![members(4)];
        let mut smaller = members(4);
        smaller.remove(1);
        history.insert(0, smaller);
        history.insert(0, members(5));
        let now = rows(choices, &history);
        for earlier in &history[1..] {
            for (row, then) in now.iter().zip(rows(choices, std::slice::from_ref(earlier))) {
                for &owner in then.0.iter().take(choices).filter(|&&n| n != NO_NODE) {
                    assert!(row.0.contains(&owner), "{row:?} lacks {owner}");
                }
            }
        }
    }
}

#[test]
fn machines_that_order_members_differently_agree() {
    let mut reversed = members(9);
    reversed.reverse();
    let (here, there) = (rows(4, &[members(9)]), rows(4, &[reversed]));
    let differing = here.iter().zip(&there).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 0);
}

#[test]
fn nobody_gives_empty_rows_that_still_name_the_past() {
    assert!(rows(2, &[]).iter().all(|row| row.0 == [NO_NODE; 8]));
    let drained = rows(2, &[vec![], members(2)]);
    assert!(drained.iter().all(|row| row.0[0] < 2 && row.0[1] < 2 && row.0[2] == NO_NODE));
}
