//! Origins of a node, and nodes of a dispatcher, that lie: see [`crate::lies`].

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;

use skep_tests::content::assert_same;
use skep_tests::liar::{Act, Liar};
use skep_tests::origin::{Answer, Asked};
use skep_tests::{PATIENCE, poll_until};

use crate::judge::{self, Ask};
use crate::lies::{BODY, Lie, OF_ALL, OF_ORIGINS};
use crate::nodes::{HEALTH, healthy};
use crate::victim::{BRISK, PATIENT, Victim};

/// Maximum number of concurrent cases, each with up to five connections.
const AT_ONCE: usize = 24;

/// Starts a server that tells the lie `NAME` to requests for `/NAME/...`.
pub(crate) fn liar(lies: &'static [&'static [Lie]]) -> Liar {
    let counts: Mutex<HashMap<String, usize>> = Mutex::default();
    Liar::start(move |asked| {
        if asked.target == HEALTH {
            return healthy();
        }
        let name = asked.target.split('/').nth(1).unwrap_or_default();
        let lie = lies.iter().flat_map(|some| some.iter()).find(|lie| lie.name == name);
        let count = {
            let mut counts = counts.lock().unwrap();
            let count = counts.entry(asked.target.clone()).or_default();
            std::mem::replace(count, *count + 1)
        };
        lie.map_or_else(|| well(asked), |lie| (lie.acts)(asked, count))
    })
}

/// Answers as a correct server.
pub(crate) fn well(asked: &Asked) -> Vec<Act> {
    let answer = Answer::of(asked, &BODY, "\"well\"", "");
    vec![Act::Send([answer.head.as_bytes(), &answer.body].concat())]
}

/// A lie, told to these clients at a separate target.
struct Case {
    lie: &'static Lie,
    target: String,
    asks: Vec<Ask>,
}

/// Returns the cases: each lie told to a single client, and to clients of all kinds that share the reply.
fn cases(lies: &[&'static [Lie]], round: usize) -> Vec<Case> {
    let mut cases = Vec::new();
    for lie in lies.iter().flat_map(|some| some.iter()) {
        for asks in [vec![Ask::Get], Ask::ALL.to_vec()] {
            let target = format!("/{}/{}/{round}", lie.name, asks.len());
            cases.push(Case { lie, target, asks });
        }
    }
    cases
}

/// Runs a case; returns what is wrong with the replies.
fn tell(victim: &Victim, case: &Case) -> Vec<String> {
    let expect = case.lie.expect();
    thread::scope(|scope| {
        let asking: Vec<_> = case
            .asks
            .iter()
            .map(|ask| {
                let (ask, expect) = (*ask, &expect);
                (ask, scope.spawn(move || judge::ask(victim, &case.target, ask, expect)))
            })
            .collect();
        let wrong = asking.into_iter().filter_map(|(ask, asking)| {
            let wrong = asking.join().unwrap().err()?;
            Some(format!("{} ({ask:?}): {wrong}", case.target))
        });
        wrong.collect()
    })
}

/// Runs all cases of a round, many concurrently.
fn round(victim: &Victim, lies: &[&'static [Lie]], number: usize) -> Vec<String> {
    let cases = Mutex::new(cases(lies, number).into_iter());
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(case) = cases.lock().unwrap().next() else { return };
                    // Evaluated before the lock is taken: otherwise cases would wait for each other.
                    let found = tell(victim, &case);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// Tells all lies twice: growth in the second round is a leak.
fn all_at_once(victim: &Victim, lies: &'static [&'static [Lie]]) {
    let mut wrong = round(victim, lies, 0);
    let before = victim.rest("the first round");
    wrong.extend(round(victim, lies, 1));
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n---\n"));
    victim.assert_rests(&before, "the second round");
    is_well_again(victim, lies);
}

/// Tells one lie after the other.
fn one_by_one(victim: &Victim, lies: &'static [&'static [Lie]]) {
    let mut wrong = round(victim, lies, 0);
    let before = victim.rest("the first round");
    for case in cases(lies, 1) {
        wrong.extend(tell(victim, &case));
        victim.assert_rests_tightly(&before, &case.target);
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n---\n"));
}

/// Checks that correct replies follow once the liar tells the truth, for everything that was requested
/// before.
fn is_well_again(victim: &Victim, lies: &[&'static [Lie]]) {
    victim.liar().follow(|asked| if asked.target == HEALTH { healthy() } else { well(asked) });
    for case in cases(lies, 1).iter().filter(|case| case.asks.len() > 1) {
        let expect = case.lie.expect();
        poll_until(PATIENCE, &format!("{} is well", case.target), || {
            let found = judge::whole(&mut victim.connect(), &case.target);
            // Lies that were marked as fresh may still be cached.
            found.is_some_and(|found| found == *BODY || expect.allows(&found))
        });
    }
    let found = judge::whole(&mut victim.connect(), "/well");
    assert_same(&found.unwrap_or_default(), &BODY);
}

const ALL: &[&[Lie]] = &[OF_ALL, OF_ORIGINS];

#[test]
fn origins_that_lie_leave_nothing_at_a_node() {
    all_at_once(&Victim::node(liar(ALL), PATIENT), ALL);
}

#[test]
fn nodes_that_lie_leave_nothing_at_a_dispatcher() {
    all_at_once(&Victim::dispatcher(liar(&[OF_ALL]), PATIENT), &[OF_ALL]);
}

#[test]
fn applications_that_lie_leave_nothing_at_a_node() {
    all_at_once(&Victim::application(liar(&[OF_ALL]), PATIENT), &[OF_ALL]);
}

#[test]
#[ignore = "takes minutes: names the lie that leaves something"]
fn applications_that_lie_one_by_one() {
    one_by_one(&Victim::application(liar(&[OF_ALL]), BRISK), &[OF_ALL]);
}

#[test]
#[ignore = "takes minutes: names the lie that leaves something"]
fn origins_that_lie_one_by_one() {
    one_by_one(&Victim::node(liar(ALL), BRISK), ALL);
}

#[test]
#[ignore = "takes minutes: names the lie that leaves something"]
fn nodes_that_lie_one_by_one() {
    one_by_one(&Victim::dispatcher(liar(&[OF_ALL]), BRISK), &[OF_ALL]);
}
