//! Propagation of a purge to all nodes.

use skep_units::Now;
use skep_wire::cache::{PurgeKind, PurgeNews, PurgeStamp, PurgeWhat};
use skep_wire::message::Name;

use crate::{PurgeFate, PurgeOrder, Purger};

const LIMIT_MS: u64 = 1_000;

fn name(link: u32) -> Name {
    Name::new(&format!("node-{link}")).unwrap()
}

fn order() -> PurgeOrder {
    let what = vec![PurgeWhat::Tag("t".into())];
    PurgeOrder { kind: PurgeKind::Hard, what, limit_ms: LIMIT_MS, serving: Vec::new() }
}

fn begun(purger: &mut Purger<u32, ()>, at_ms: u64, links: &[u32]) -> PurgeStamp {
    let nodes = links.iter().map(|&link| (link, name(link)));
    let news = purger.begin((Now(at_ms), 1_000_000 + at_ms), order(), nodes, ());
    news.newest()
}

fn says(
    purger: &mut Purger<u32, ()>,
    at_ms: u64,
    link: u32,
    stamps: (PurgeStamp, PurgeStamp),
) -> Option<(PurgeKind, PurgeNews)> {
    purger.acknowledged((Now(at_ms), 1_000_000 + at_ms), link, stamps)
}

fn fates(purger: &mut Purger<u32, ()>, at_ms: u64) -> Option<Vec<PurgeFate>> {
    let mut ended = purger.ended(Now(at_ms));
    let (_, report) = ended.pop()?;
    Some(report.nodes.into_iter().map(|(_, fate)| fate).collect())
}

#[test]
fn it_ends_when_all_have_applied_it() {
    let mut purger = Purger::new(0);
    let stamp = begun(&mut purger, 5, &[1, 2]);
    assert_eq!(says(&mut purger, 7, 1, (stamp, stamp)), None);
    assert_eq!(fates(&mut purger, 7), None);
    assert_eq!(says(&mut purger, 9, 2, (stamp, stamp)), None);
    let fate = |ms| PurgeFate::Acknowledged { ms };
    assert_eq!(fates(&mut purger, 9), Some(vec![fate(2), fate(4)]));
    assert_eq!(fates(&mut purger, 9), None, "told once");
}

#[test]
fn the_silent_are_late_and_the_gone_are_lost() {
    let mut purger = Purger::new(0);
    let stamp = begun(&mut purger, 0, &[1, 2, 3]);
    says(&mut purger, 1, 1, (stamp, stamp));
    purger.left(2);
    // Acknowledgements of other purges, or from other links, do not count.
    says(&mut purger, 1, 3, (PurgeStamp(1), PurgeStamp(1)));
    says(&mut purger, 1, 4, (stamp, stamp));
    assert_eq!(fates(&mut purger, LIMIT_MS - 1), None);
    let expected = vec![PurgeFate::Acknowledged { ms: 1 }, PurgeFate::Lost, PurgeFate::Late];
    assert_eq!(fates(&mut purger, LIMIT_MS), Some(expected));
    begun(&mut purger, 0, &[1]);
    purger.left(1);
    assert_eq!(fates(&mut purger, 1), Some(vec![PurgeFate::Lost]), "at once");
}

#[test]
fn a_node_that_serves_has_all_the_time_to_link() {
    let begun = |purger: &mut Purger<u32, ()>| {
        let order = PurgeOrder { serving: vec![name(1), name(2), name(3)], ..order() };
        let nodes = [1, 2].map(|link| (link, name(link)));
        purger.begin((Now(0), 1_000_000), order, nodes, ()).newest()
    };
    let fate = |ms| PurgeFate::Acknowledged { ms };
    let mut purger = Purger::new(0);
    let stamp = begun(&mut purger);
    says(&mut purger, 1, 1, (stamp, stamp));
    purger.left(2);
    assert_eq!(fates(&mut purger, 2), None);
    // The third links for the first time; the second on another link, before the loss of the old
    // one is noticed.
    purger.joined(33, &name(3));
    purger.joined(22, &name(2));
    purger.left(2);
    says(&mut purger, 3, 2, (stamp, stamp));
    assert_eq!(fates(&mut purger, 4), None, "not on the link that is gone");
    says(&mut purger, 5, 33, (stamp, stamp));
    says(&mut purger, 6, 22, (stamp, stamp));
    assert_eq!(fates(&mut purger, 6), Some(vec![fate(1), fate(6), fate(5)]));
    let stamp = begun(&mut purger);
    purger.left(1);
    says(&mut purger, 1, 2, (stamp, stamp));
    assert_eq!(fates(&mut purger, LIMIT_MS - 1), None);
    let expected = Some(vec![PurgeFate::Lost, fate(1), PurgeFate::Unlinked]);
    assert_eq!(fates(&mut purger, LIMIT_MS), expected);
    // Nodes that were found dead are not waited for.
    let stamp = begun(&mut purger);
    purger.left(1);
    says(&mut purger, 1, 2, (stamp, stamp));
    purger.set_serving(&[name(1), name(2)]);
    assert_eq!(fates(&mut purger, 2), None);
    purger.set_serving(&[name(2)]);
    assert_eq!(fates(&mut purger, 2), expected);
}

#[test]
fn one_that_was_overtaken_gets_a_new_stamp() {
    let mut purger = Purger::new(0);
    let first = begun(&mut purger, 0, &[1, 2]);
    says(&mut purger, 1, 1, (first, first));
    let newer = PurgeStamp(first.0 + 1_000_000);
    let (_, news) = says(&mut purger, 2, 2, (first, newer)).unwrap();
    let second = news.newest();
    assert!(second > newer);
    assert_eq!(news.purges, vec![(order().what[0].clone(), second)]);
    says(&mut purger, 3, 2, (first, newer));
    says(&mut purger, 3, 2, (second, second));
    assert_eq!(fates(&mut purger, 3), None, "the first has to apply it again");
    says(&mut purger, 4, 1, (second, second));
    assert!(fates(&mut purger, 4).is_some());
    assert_eq!(purger.purges().of(PurgeKind::Hard).of_tag("t"), second);
}

#[test]
fn a_soft_purge_that_was_overtaken_by_a_hard_one_stays_soft() {
    let mut purger = Purger::<u32, ()>::new(0);
    let order = PurgeOrder { kind: PurgeKind::Soft, ..order() };
    let first = purger.begin((Now(0), 1_000_000), order, [(1, name(1))], ()).newest();
    // From another dispatcher, known only to the node.
    let newer = PurgeStamp(first.0 + 1_000_000);
    let (kind, news) = says(&mut purger, 1, 1, (first, newer)).unwrap();
    assert_eq!(kind, PurgeKind::Soft);
    let tables = purger.purges();
    assert_eq!(tables.of(PurgeKind::Soft).of_tag("t"), news.newest());
    assert_eq!(tables.of(PurgeKind::Hard).of_tag("t"), PurgeStamp::NONE);
    assert!(news.newest() > newer && tables.newest() == news.newest());
}

#[test]
fn stamps_grow_whatever_the_clock_does() {
    let mut purger = Purger::<u32, ()>::new(3);
    let mut last = PurgeStamp::NONE;
    for unix_ms in [1_000, 1_000, 10, 2_000] {
        let news = purger.begin((Now(0), unix_ms), order(), [], ());
        assert!(news.newest() > last);
        last = news.newest();
    }
    let theirs = PurgeStamp(last.0 << 4);
    let news = PurgeNews { floor: theirs, ..PurgeNews::default() };
    assert_eq!(purger.learn(PurgeKind::Hard, &news), Some(news.clone()));
    assert!(begun(&mut purger, 0, &[]) > theirs);
}
