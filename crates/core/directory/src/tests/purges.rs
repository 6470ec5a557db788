//! Merging, lookup and expiry of purges.

use proptest::prelude::*;
use skep_wire::cache::{PurgeKind, PurgeNews, PurgePlace, PurgeStamp, PurgeWhat, ToNode};
use skep_wire::limits::{PURGE_TARGET_BYTES_MAX, PURGES_PER_MESSAGE_MAX};

use crate::purges::PurgeBounds;
use crate::{PurgeTable, PurgeTables, Queries};

fn place(text: &str) -> PurgePlace {
    let (host, target) = match text.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap()),
        None => ("", text),
    };
    let host = Some(host).filter(|host| !host.is_empty()).map(str::to_owned);
    PurgePlace { target: target.to_owned(), host }
}

/// Parses a purge as an operator types it, except for `//host/path`.
fn what(text: &str) -> PurgeWhat {
    match (text.strip_prefix("tag:"), text.strip_suffix('*')) {
        (Some(tag), _) => PurgeWhat::Tag(tag.to_owned()),
        (_, Some(prefix)) => PurgeWhat::Prefix(place(prefix)),
        _ => PurgeWhat::Url(place(text)),
    }
}

fn news(purges: &[(&str, u64)]) -> PurgeNews {
    let purges = purges.iter().map(|&(text, stamp)| (what(text), PurgeStamp(stamp)));
    PurgeNews { purges: purges.collect(), ..PurgeNews::default() }
}

fn of(purges: &PurgeTable, target: &str) -> u64 {
    purges.of_target(target, Queries::Matter, |host| host == "own").0
}

#[test]
fn the_latest_purge_that_hits_counts() {
    let mut purges = PurgeTable::default();
    purges.learn(&news(&[("/a", 1), ("/a/*", 2), ("//own/a/b", 3), ("//other/a/b", 9)]));
    purges.learn(&news(&[("/a", 5), ("/a", 4), ("tag:t", 7)]));
    assert_eq!((of(&purges, "/a"), of(&purges, "/a/"), of(&purges, "/a/b")), (5, 2, 3));
    assert_eq!((of(&purges, "/"), of(&purges, "/ab"), of(&purges, "/a?x")), (0, 0, 0));
    assert_eq!((purges.of_tag("t").0, purges.of_tag("u").0), (7, 0));
    assert_eq!(purges.newest(), PurgeStamp(9));
}

#[test]
fn queries_count_where_they_matter() {
    let mut purges = PurgeTable::default();
    purges.learn(&news(&[("/a?x", 1), ("/a?y*", 2), ("/b", 3), ("/a/c?x", 4)]));
    let folder = |target| purges.of_target(target, Queries::DoNot, |_| true).0;
    assert_eq!((folder("/a"), folder("/a/"), folder("/b")), (2, 0, 3));
    assert_eq!((of(&purges, "/a?x"), of(&purges, "/a?yes"), of(&purges, "/a")), (1, 2, 0));
}

#[test]
fn only_what_is_new_is_told_on() {
    let mut purges = PurgeTable::default();
    assert_eq!(purges.learn(&news(&[("/a", 2)])), Some(news(&[("/a", 2)])));
    assert_eq!(purges.learn(&news(&[("/a", 2)])), None);
    assert_eq!(purges.learn(&news(&[("/a", 1)])), None);
    assert_eq!(purges.learn(&news(&[("/a", 1), ("/b", 1)])), Some(news(&[("/b", 1)])));
}

#[test]
fn kinds_are_told_apart_and_an_echo_of_a_soft_purge_is_not_hard() {
    let mut tables = PurgeTables::default();
    let stamps = |tables: &PurgeTables| {
        [PurgeKind::Hard, PurgeKind::Soft].map(|kind| of(tables.of(kind), "/a"))
    };
    tables.learn(PurgeKind::Soft, &news(&[("/a", 2)]));
    assert_eq!((stamps(&tables), tables.newest()), ([0, 2], PurgeStamp(2)));
    // A node without soft purges reports one as hard, together with a hard one.
    let echo = news(&[("/a", 2), ("/b", 1)]);
    assert_eq!(tables.learn(PurgeKind::Hard, &echo), Some(news(&[("/b", 1)])));
    assert_eq!(stamps(&tables), [0, 2]);
    tables.learn(PurgeKind::Hard, &news(&[("/a", 3)]));
    assert_eq!((stamps(&tables), tables.newest()), ([3, 2], PurgeStamp(3)));
    let mut told = PurgeTables::default();
    tables.told().iter().for_each(|(kind, news)| _ = told.learn(*kind, news));
    assert_eq!(told, tables);
}

#[test]
fn old_ones_hit_more_and_never_less() {
    let bounds = PurgeBounds { purges_max: 10, prefixes_max: 3, text_bytes_max: 1000 };
    let mut purges = PurgeTable::new(bounds);
    for stamp in 1..=1000 {
        let (url, tag) = (format!("/{stamp}"), format!("tag:{stamp}"));
        purges.learn(&news(&[(&url, 2 * stamp), (&tag, 2 * stamp + 1)]));
    }
    for stamp in 1..=1000 {
        assert!(of(&purges, &format!("/{stamp}")) >= 2 * stamp);
        assert!(purges.of_tag(&stamp.to_string()).0 > 2 * stamp);
    }
    assert_eq!(of(&purges, "/1000"), 2000);
    let others = (0..10_000).filter(|it| of(&purges, &format!("/other/{it}")) > 0).count();
    assert!(others < 600, "{others} of 10000 hit by 2000 cells of 65536");
    purges.learn(&news(&[("/x/a*", 3000), ("/x/b*", 3001), ("/y/*", 3002), ("/z/*", 3003)]));
    assert_eq!((of(&purges, "/x/c"), of(&purges, "/y/c")), (3000, 3002), "its folder");
    assert!(of(&purges, "/none") < 3000);
    purges.learn(&news(&[("/p*", 1500), ("/q/*", 4000)]));
    assert_eq!(of(&purges, "/none"), 1500, "what is in no folder hits all");
}

#[test]
fn purges_of_long_names_get_coarse_before_they_are_many() {
    let bounds = PurgeBounds { purges_max: 100, prefixes_max: 100, text_bytes_max: 40 };
    let mut purges = PurgeTable::new(bounds);
    let names = ["a", "b", "c"].map(|it| format!("/{}", it.repeat(19)));
    for (name, stamp) in names.iter().zip(1..) {
        purges.learn(&news(&[(name, stamp)]));
    }
    // Coarse purges ignore queries: two are stored exactly, the oldest is not.
    let hits = |query: &str| names.each_ref().map(|name| of(&purges, &format!("{name}{query}")));
    assert_eq!((hits(""), hits("?x")), ([1, 2, 3], [1, 0, 0]));
}

#[test]
fn all_that_is_known_is_told_in_messages_that_fit() {
    let mut purges = PurgeTable::default();
    let long = "/long".repeat(PURGE_TARGET_BYTES_MAX / 5);
    for stamp in 1..=5_000u64 {
        let text = format!("/{stamp}{}", &long[..long.len() - 10]);
        purges.learn(&news(&[(&text, stamp), (&format!("tag:{stamp}"), stamp)]));
    }
    purges.learn(&PurgeNews { floor: PurgeStamp(3), ..PurgeNews::default() });
    let mut told = PurgeTable::default();
    for news in purges.told() {
        let message = ToNode::Purges(news.clone());
        assert_eq!(ToNode::decode(&message.encode()), Ok(message));
        told.learn(&news);
    }
    assert_eq!(told, purges);
    assert!(purges.told().len() > PURGES_PER_MESSAGE_MAX / 128);
    assert!(PurgeTable::default().told().is_empty());
}

/// Few words, so that purges match each other; small bounds, so that they become coarse.
fn any_news() -> impl Strategy<Value = Vec<(String, u64)>> {
    let text = prop_oneof![
        "/[ab]{1,2}(/[ab])?(\\?[ab])?\\*?",
        "//(own|other)/[ab](/[ab])?\\*?",
        "tag:[abc]{1,2}",
    ];
    prop::collection::vec((text, 1..100u64), 0..25)
}

fn learnt(all: &[(String, u64)]) -> PurgeTable {
    let bounds = PurgeBounds { purges_max: 6, prefixes_max: 3, text_bytes_max: 40 };
    let mut purges = PurgeTable::new(bounds);
    for (text, stamp) in all {
        purges.learn(&news(&[(text, *stamp)]));
    }
    purges
}

fn join(mut own: PurgeTable, other: &PurgeTable) -> PurgeTable {
    let told: Vec<_> = other.told();
    let mut all = PurgeNews::default();
    for news in told {
        all.floor = all.floor.max(news.floor);
        all.cells.extend(news.cells);
        all.purges.extend(news.purges);
    }
    own.learn(&all);
    own.heard_of(other.newest());
    own
}

/// The table's answers for all places and tags that the words can form.
fn answers(purges: &PurgeTable) -> Vec<u64> {
    let words = ["a", "b", "aa", "ab", "ba", "bb"];
    let paths = words
        .iter()
        .flat_map(|word| ["", "/", "/a", "/b", "/aa"].map(|end| format!("/{word}{end}")));
    let targets = paths.flat_map(|path| ["", "?a", "?b"].map(|query| format!("{path}{query}")));
    let tags = words.iter().map(|tag| purges.of_tag(tag).0);
    targets.map(|target| of(purges, &target)).chain(tags).collect()
}

proptest! {
    #[test]
    fn joining_knows_no_order_and_no_repetition(a in any_news(), b in any_news()) {
        let (a, b) = (learnt(&a), learnt(&b));
        let joined = join(a.clone(), &b);
        prop_assert_eq!(&joined, &join(b.clone(), &a));
        prop_assert_eq!(&join(joined.clone(), &a), &joined);
        prop_assert_eq!(&join(joined.clone(), &joined), &joined);
        for (all, own) in answers(&joined).into_iter().zip(answers(&a)) {
            prop_assert!(all >= own);
        }
    }

    #[test]
    fn nothing_is_ever_unpurged(all in any_news(), later in any_news()) {
        let exact = |all: &[(String, u64)]| {
            let mut purges = PurgeTable::default();
            all.iter().for_each(|(text, stamp)| drop(purges.learn(&news(&[(text, *stamp)]))));
            answers(&purges)
        };
        let both = [all.clone(), later].concat();
        let purges = learnt(&both);
        for (answer, exact) in answers(&purges).into_iter().zip(exact(&both)) {
            prop_assert!(answer >= exact);
        }
        let newest = both.iter().map(|(_, stamp)| *stamp).max().unwrap_or_default();
        prop_assert_eq!(purges.newest(), PurgeStamp(newest));
        prop_assert!(answers(&purges).into_iter().all(|answer| answer <= newest));
    }

    /// Two tables that exchange what is new to them stop eventually, and are then equal.
    #[test]
    fn telling_on_ends(a in any_news(), b in any_news()) {
        let (mut a, mut b) = (learnt(&a), learnt(&b));
        let mut on_its_way: Vec<_> = a.told().into_iter().map(|it| (true, it)).collect();
        on_its_way.extend(b.told().into_iter().map(|it| (false, it)));
        let mut turns = 0;
        while let Some((to_b, news)) = on_its_way.pop() {
            let hearer = if to_b { &mut b } else { &mut a };
            on_its_way.extend(hearer.learn(&news).map(|news| (!to_b, news)));
            turns += 1;
            prop_assert!(turns < 10_000);
        }
    }
}
