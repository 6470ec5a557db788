//! Properties that hold for any head.

use proptest::prelude::*;
use skep_httpcache::{
    CachePolicy, CachingRule, ExchangeTimes, Freshness, HeuristicLifetime, RequestMeta,
    ResponseMeta, SetCookiePolicy, StatusLifetimes, StoredStatuses, store,
};

/// Fields that a cache reads, with meaningful values and with arbitrary bytes.
fn fields() -> impl Strategy<Value = Vec<(&'static str, Vec<u8>)>> {
    let names = prop::sample::select(vec![
        "Cache-Control",
        "CDN-Cache-Control",
        "Skep-Cache-Control",
        "Expires",
        "Date",
        "Age",
        "Vary",
        "ETag",
        "Last-Modified",
        "Set-Cookie",
        "Pragma",
        "Content-Type",
        "Cache-Groups",
    ]);
    let words = prop::sample::select(vec![
        "max-age=60",
        "s-maxage=5, public",
        "max-age=99999999999",
        "no-cache=\"a, b\"",
        "private=\"x\"",
        "must-understand",
        "must-revalidate",
        "stale-while-revalidate=5, stale-if-error=9",
        "\"a\"",
        "W/\"a\"",
        "*",
        "Accept",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "18446744073709551616",
        "-1",
        "0",
        "public",
        "immutable",
        "max-age=\"3\", \"",
    ]);
    let value = prop_oneof![
        4 => words.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec((names, value), 0..8)
}

fn policies() -> impl Strategy<Value = CachePolicy> {
    let statuses = prop::sample::select(vec![
        StoredStatuses::Usual,
        StoredStatuses::Any,
        StoredStatuses::Only(&[200, 404, 500]),
    ]);
    let numbers = (0..3u64, 0..3u64, 0..2u64);
    (statuses, any::<[bool; 4]>(), numbers).prop_map(|(statuses, flags, numbers)| CachePolicy {
        statuses,
        set_cookie: if flags[0] { SetCookiePolicy::Always } else { SetCookiePolicy::Shared },
        honours_field_names: flags[1],
        default_without_validator: flags[2],
        heuristic: flags[3].then(HeuristicLifetime::default),
        default_ms: numbers.0 * 1000,
        negative_ms: numbers.1 * 1000,
        stale_on_disconnect_ms: numbers.2 * 60_000,
        stale_while_ms: numbers.2 * 40_000,
        stale_error_ms: numbers.0 * 30_000,
        by_status: StatusLifetimes::new(vec![(500, numbers.1 * 700)], vec![(4, 900)]),
        ..CachePolicy::safe()
    })
}

fn parse(
    status: u16,
    fields: &[(&'static str, Vec<u8>)],
    (requested, received): (u64, u64),
) -> ResponseMeta {
    let lines = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_slice()));
    let times = ExchangeTimes { requested_unix_ms: requested, received_unix_ms: received };
    ResponseMeta::parse(status, lines, times)
}

proptest! {
    #[test]
    fn whatever_else_is_there_no_store_and_private_are_not_stored(
        mut fields in fields(),
        status in 100..700u16,
        policy in policies(),
        place in any::<prop::sample::Index>(),
        word in prop::sample::select(vec!["no-store", "NO-STORE", "private", "Private, x"]),
    ) {
        // Directives that take precedence according to the RFCs.
        let is_stronger = |(name, value): &(&str, Vec<u8>)| {
            name.ends_with("-Cache-Control") || (*name == "Cache-Control"
                && String::from_utf8_lossy(value).contains("must-understand"))
        };
        fields.retain(|field| !is_stronger(field));
        // An unterminated quote swallows only the rest of its line.
        let place = place.index(fields.len() + 1);
        fields.insert(place, ("Cache-Control", word.as_bytes().to_vec()));
        let meta = parse(status, &fields, (5_000, 6_000));
        let verdict = store(&RequestMeta::PLAIN_GET, &meta, &policy);
        prop_assert!(matches!(verdict, Err(CachingRule::NoStore | CachingRule::Private)));
    }

    #[test]
    fn a_targeted_field_alone_forbids(
        fields in fields(),
        status in 100..700u16,
        policy in policies(),
        word in prop::sample::select(vec!["no-store", "private"]),
    ) {
        let mut fields = fields;
        fields.retain(|(name, _)| !name.ends_with("-Cache-Control"));
        fields.push(("CDN-Cache-Control", word.as_bytes().to_vec()));
        let meta = parse(status, &fields, (5_000, 6_000));
        let verdict = store(&RequestMeta::PLAIN_GET, &meta, &policy);
        prop_assert!(matches!(verdict, Err(CachingRule::NoStore | CachingRule::Private)));
    }

    #[test]
    fn age_grows_and_freshness_ends_once(
        fields in fields(),
        status in 100..700u16,
        policy in policies(),
        times in (any::<u64>(), any::<u64>()),
        mut residents in prop::collection::vec(any::<u64>(), 2..6),
    ) {
        let meta = parse(status, &fields, times);
        let freshness = Freshness::of(&meta, &policy);
        residents.sort_unstable();
        let mut last = (0, true, i64::MAX);
        for resident_ms in residents {
            let now = (
                freshness.age_ms(resident_ms),
                freshness.is_fresh(resident_ms),
                freshness.ttl_s(resident_ms),
            );
            prop_assert!(now.0 >= last.0 && now.0 >= resident_ms, "age is never negative");
            prop_assert!(last.1 || !now.1, "what was stale is fresh again");
            prop_assert!(now.2 <= last.2);
            prop_assert_eq!(now.1, freshness.stale_ms(resident_ms) == 0 && now.0 < freshness.lifetime_ms);
            last = now;
        }
        prop_assert!(freshness.while_revalidating_until_ms() >= freshness.fresh_until_ms());
        prop_assert!(freshness.on_disconnect_ms >= freshness.if_error_ms);
        if freshness.initial_age_ms.checked_add(freshness.fresh_until_ms()).is_some() {
            prop_assert!(!freshness.is_fresh(freshness.fresh_until_ms()));
        }
    }

    #[test]
    fn a_head_that_is_handed_over_is_never_fresh_for_longer(
        fields in fields(),
        policy in policies(),
        resident_ms in 0..100_000u64,
        transit_ms in 0..10_000u64,
        later_ms in 0..100_000u64,
    ) {
        let freshness = Freshness::of(&parse(200, &fields, (5_000, 6_000)), &policy);
        let left_ms = freshness.fresh_until_ms().saturating_sub(resident_ms);
        // The other side parses the same head, with the current age in whole seconds.
        let there = Freshness { initial_age_ms: freshness.age_ms(resident_ms), ..freshness };
        let there = there.handed_over(left_ms, transit_ms);
        let here_fresh = freshness.is_fresh(resident_ms + later_ms);
        prop_assert!(here_fresh || !there.is_fresh(later_ms));
    }

    #[test]
    fn a_longer_lifetime_never_shortens_freshness(age in 0..200u64, a in 0..200u64, b in 0..200u64) {
        let of = |lifetime: u64| {
            let control = format!("max-age={lifetime}").into_bytes();
            let fields = [("Cache-Control", control), ("Age", age.to_string().into_bytes())];
            Freshness::of(&parse(200, &fields, (0, 0)), &CachePolicy::safe()).fresh_until_ms()
        };
        prop_assert!(of(a.min(b)) <= of(a.max(b)));
        prop_assert_eq!(of(a), a.saturating_sub(age) * 1000);
    }
}
