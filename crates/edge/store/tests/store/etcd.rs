//! `store = "etcd"` against a real etcd: values, elections, failing members.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::etcd::{Cluster, is_missing};
use crate::common::{Twin, say, until};
use rustix::process::Signal;
use skep_store::{
    CONFIG_BYTES_MAX, Campaign, ENDPOINTS_MAX, Expected, Leader, LeadershipView, Store, StoreError,
    StoreSettings, VALUE_BYTES_MAX,
};

/// Length of a lease whose expiry tests wait for.
const TTL_S: u64 = 3;

/// Length of a lease that expires in no test, however slow the machine.
const LONG_TTL_S: u64 = 20;

const CLOSING: Duration = Duration::from_secs(10);

/// Puts until it succeeds: right after a member died, calls may still fail.
///
/// Only after a successful read, which requires a leader: without one, etcd keeps the attempts of a put, and
/// may execute an abandoned attempt after the one that it answered.
fn put(store: &Store, key: &str, value: &[u8]) -> u64 {
    until("a read", || store.get(key).wait().ok());
    until("a put", || store.put(key, value, Expected::Any).wait().ok())
}

fn campaign(store: &Store, name: &str) -> Campaign {
    store.campaign(name, TTL_S, |_| ()).unwrap()
}

fn until_leading(campaign: &Campaign) -> u64 {
    until("leadership", || {
        let view = campaign.view();
        view.is_leading().then_some(view.epoch)
    })
}

#[test]
fn values_epoch_and_config_are_shared_by_all_of_a_cluster() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let (one, two, foreign) = (etcd.store("a"), etcd.store("a"), etcd.store("b"));
    let first = put(&one, "k", b"1");
    assert_eq!(two.get("k").wait().unwrap().unwrap().revision, first);
    assert_eq!(foreign.get("k").wait().unwrap(), None);
    let second = two.put("k", b"2", Expected::Revision(first)).wait().unwrap();
    assert!(second > first);
    for expected in [Expected::Revision(first), Expected::Absent] {
        let error = one.put("k", b"3", expected).wait().unwrap_err();
        assert!(
            matches!(&error, StoreError::Conflict { key, found } if key == "kv/k" && *found == Some(second)),
            "{error}"
        );
    }
    one.put("new", b"", Expected::Absent).wait().unwrap();

    assert_eq!(one.last_epoch().wait().unwrap(), 0);
    for epoch in [3, 9, 4] {
        one.record_epoch(epoch).wait().unwrap();
    }
    assert_eq!(two.last_epoch().wait().unwrap(), 9);

    assert_eq!(one.config().wait().unwrap(), None);
    let text = "#".repeat(CONFIG_BYTES_MAX);
    let revision = one.publish_config(&text, Expected::Absent).wait().unwrap();
    assert_eq!(two.config().wait().unwrap(), Some((text, revision)));
    one.put("large", &[0xff; VALUE_BYTES_MAX], Expected::Any).wait().unwrap();
    until("health", || (one.health().to_string() == "1 of 1 endpoints answer").then_some(()));
}

#[test]
fn of_many_racing_writers_each_revision_has_one() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let stores: Vec<_> = (0..4).map(|_| etcd.store("a")).collect();
    let mut revision = put(&stores[0], "k", b"0");
    for round in 0..20 {
        let racing: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(at, store)| store.put("k", &[round, at as u8], Expected::Revision(revision)))
            .collect();
        let won: Vec<_> = racing.into_iter().filter_map(|one| one.wait().ok()).collect();
        assert_eq!(won.len(), 1);
        revision = won[0];
    }
    // Of concurrently recorded epochs the greatest is kept.
    let racing: Vec<_> =
        (0..12).map(|at| stores[at % 4].record_epoch(at as u64 * 7 % 12)).collect();
    for one in racing {
        one.wait().unwrap();
    }
    assert_eq!(stores[0].last_epoch().wait().unwrap(), 11);
}

#[test]
fn watches_hear_what_others_write() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let (one, two) = (etcd.store("a"), etcd.store("a"));
    let (heard, hears) = mpsc::sync_channel(16);
    let _watch = one.watch_config(move |seen| heard.send(seen.clone()).unwrap()).unwrap();
    // The first notification may be that the store is unavailable, while etcd starts.
    while !hears.recv().unwrap().is_current {}
    for text in ["a", "b", "c"] {
        let published = Instant::now();
        two.publish_config(text, Expected::Any).wait().unwrap();
        let seen = hears.recv().unwrap();
        eprintln!("a config is seen after {:?}", published.elapsed());
        assert_eq!(seen.entry.unwrap().value, text.as_bytes());
    }
}

#[test]
fn the_candidate_of_a_dead_process_is_succeeded() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(3);
    let mut first =
        Twin::start(&[], "etcd::child", &format!("lead {}", etcd.endpoints().join(",")));
    let led = until("a leader", || first.next()?.strip_prefix("Me ").map(str::to_owned));
    let first_epoch: u64 = led.parse().unwrap();
    let store = etcd.store("a");
    let second = campaign(&store, "second");
    let known = LeadershipView { leader: Leader::Other("twin".to_owned()), epoch: first_epoch };
    until("the leader's name", || (second.view() == known).then_some(()));

    let killed = Instant::now();
    first.process.kill();
    let epoch = until_leading(&second);
    eprintln!("lease of {TTL_S} s: kill -9 to next leader {:?}", killed.elapsed());
    assert!(epoch > first_epoch);

    // There is no wait for the lease of a leader that resigns.
    let others = etcd.store("a");
    let third = campaign(&others, "third");
    until("the leader's name", || {
        (third.view() == LeadershipView { leader: Leader::Other("second".to_owned()), epoch })
            .then_some(())
    });
    let resigned = Instant::now();
    drop(second);
    let last_epoch = until_leading(&third);
    eprintln!("resigned to next leader {:?}", resigned.elapsed());
    assert!(last_epoch > epoch);
}

#[test]
fn a_process_that_was_stopped_knows_that_its_lease_is_over() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let mut first =
        Twin::start(&[], "etcd::child", &format!("lead {}", etcd.endpoints().join(",")));
    until("a leader", || first.next()?.starts_with("Me ").then_some(()));
    let store = etcd.store("a");
    let second = campaign(&store, "second");
    first.process.signal(Signal::STOP);
    let epoch = until_leading(&second);
    first.process.signal(Signal::CONT);
    // It reads its view continuously, so the line after those of its last term is what it read first after
    // resuming.
    let next = until("the next word", || first.next());
    assert!(next.starts_with("Unknown") || next == format!("Other {epoch}"), "{next}");
    until("the other", || (first.next()? == format!("Other {epoch}")).then_some(()));
    assert!(second.view().is_leading());
}

#[test]
fn one_of_three_members_may_die_even_the_leading_one() {
    if is_missing() {
        return;
    }
    let mut etcd = Cluster::start(3);
    let store = etcd.store("a");
    put(&store, "k", b"1");
    let leading = store.campaign("first", LONG_TTL_S, |_| ()).unwrap();
    let epoch = until_leading(&leading);
    let watch = store.watch("k", |_| ()).unwrap();
    until("health", || (store.health().to_string() == "3 of 3 endpoints answer").then_some(()));
    for at in 0..3 {
        let at = if at == 0 { etcd.leading_member() } else { at };
        etcd.kill(at);
        let killed = Instant::now();
        let value = format!("without {at}");
        put(&store, "k", value.as_bytes());
        eprintln!("one of three members killed: next put done after {:?}", killed.elapsed());
        until("the watch", || {
            let seen = watch.seen();
            (seen.is_current && seen.entry.as_ref()?.value == value.as_bytes()).then_some(())
        });
        until("health", || store.health().to_string().starts_with("2 of 3").then_some(()));
        // The lease continues to exist in the remaining members: the term is the same.
        assert_eq!(until_leading(&leading), epoch);
        etcd.start_one(at);
        until("health", || store.health().is_good().then_some(()));
    }
}

#[test]
fn the_first_member_hangs_and_is_passed_over() {
    a_member_hangs(0);
}

#[test]
fn the_second_member_hangs_and_is_passed_over() {
    a_member_hangs(1);
}

#[test]
fn the_third_member_hangs_and_is_passed_over() {
    a_member_hangs(2);
}

fn a_member_hangs(at: usize) {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(3);
    let store = etcd.store("a");
    put(&store, "k", b"1");
    // A store that makes no other calls recovers as well.
    let quiet = etcd.store("a");
    let leading = quiet.campaign("first", LONG_TTL_S, |_| ()).unwrap();
    let epoch = until_leading(&leading);
    until("health", || store.health().is_good().then_some(()));
    let leading_member = etcd.leading_member();
    etcd.signal(at, Signal::STOP);
    let stopped = Instant::now();
    put(&store, "k", &[at as u8]);
    eprintln!("one of three members hangs: next put done after {:?}", stopped.elapsed());
    until("health", || store.health().to_string().starts_with("2 of 3").then_some(()));
    // Longer than the lease would last without renewal. Not for etcd's own leader: until the end of 2023 a
    // leader that resumed revoked leases that had expired by its own reckoning, although others had renewed
    // them (etcd's issue 15247).
    let while_s = if at == leading_member { LONG_TTL_S / 2 } else { LONG_TTL_S + 1 };
    let enough = Instant::now() + Duration::from_secs(while_s);
    until("renewals", || (Instant::now() > enough).then_some(()));
    assert_eq!(until_leading(&leading), epoch);
    etcd.signal(at, Signal::CONT);
    until("health", || store.health().is_good().then_some(()));
}

#[test]
fn without_any_member_the_leader_is_unknown_and_calls_fail_until_they_are_back() {
    if is_missing() {
        return;
    }
    let mut etcd = Cluster::start(3);
    let store = etcd.store("a");
    let (heard, hears) = mpsc::sync_channel(64);
    let leading =
        store.campaign("first", TTL_S, move |view| heard.send(view.clone()).unwrap()).unwrap();
    let epoch = until_leading(&leading);
    let others = etcd.store("a");
    let following = campaign(&others, "second");
    until("the leader", || (following.view().epoch == epoch).then_some(()));
    let revision = put(&store, "k", b"kept");
    let watch = store.watch("k", |_| ()).unwrap();
    until("the watch", || watch.seen().is_current.then_some(()));

    let killed = Instant::now();
    etcd.kill_all();
    let unknown = LeadershipView { leader: Leader::Unknown, epoch };
    until("no leader", || (leading.view() == unknown).then_some(()));
    eprintln!("all members killed: no leader any more after {:?}", killed.elapsed());
    until("no leader", || (following.view() == unknown).then_some(()));
    until("the watch", || (!watch.seen().is_current).then_some(()));
    assert_eq!(watch.seen().entry.as_ref().unwrap().revision, revision, "the last value stays");
    let calls = (store.get("k"), store.put("k", b"2", Expected::Any), store.last_epoch());
    for error in [calls.0.wait().err(), calls.1.wait().err(), calls.2.wait().err()] {
        let error = error.unwrap();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        eprintln!("a call fails with: {error}");
    }
    until("health", || store.health().to_string().starts_with("0 of 3").then_some(()));
    eprintln!("health: {}", store.health());

    etcd.start_all();
    let next = until("a leader", || {
        [&leading, &following].iter().map(|one| one.view()).find(LeadershipView::is_leading)
    });
    assert!(next.epoch >= epoch);
    until("the other knows", || {
        let views = [leading.view(), following.view()];
        (views[0].epoch == views[1].epoch
            && views.iter().all(|view| view.leader != Leader::Unknown))
        .then_some(())
    });
    until("the watch", || watch.seen().is_current.then_some(()));
    assert_eq!(store.get("k").wait().unwrap().unwrap().value[..1], b"k"[..]);
    until("health", || store.health().is_good().then_some(()));
    // The callback was notified of the same changes, and of a missing leader only while the store answered.
    let heard: Vec<_> = hears.try_iter().map(|view| view.leader).collect();
    let at = heard.iter().position(|leader| *leader == Leader::Me).unwrap();
    assert_eq!(heard[at + 1], Leader::Unknown, "{heard:?}");
}

#[test]
fn a_minority_says_that_it_knows_no_leader() {
    if is_missing() {
        return;
    }
    let mut etcd = Cluster::start(3);
    let store = etcd.store("a");
    let leading = campaign(&store, "first");
    until_leading(&leading);
    etcd.kill(0);
    etcd.kill(1);
    until("no leader", || (leading.view().leader == Leader::Unknown).then_some(()));
    let error = store.get("k").wait().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let health = until("health", || {
        let health = store.health().to_string();

        (health.starts_with("1 of 3") && health.contains("has no leader")).then_some(health)
    });
    eprintln!("{error}\n{health}");
}

#[test]
fn members_of_two_etcds_are_told_apart() {
    if is_missing() {
        return;
    }
    let (one, two) = (Cluster::start(1), Cluster::start(1));
    let endpoints = [one.endpoints(), two.endpoints()].concat();
    let store = Store::open(&StoreSettings::Etcd { endpoints, cluster: "a".to_owned() }).unwrap();
    until("health", || store.health().to_string().contains("another etcd").then_some(()));
}

#[test]
fn a_resigned_candidate_and_its_store_are_gone_once_closed() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    for round in 0..3 {
        let store = etcd.store("a");
        let leading = store.campaign("again", 60, |_| ()).unwrap();
        // With a lease of one minute, only a revoked lease makes way for the next leader.
        let epoch = until_leading(&leading);
        eprintln!("round {round}: epoch {epoch}");
        drop(leading);
        assert!(store.close(CLOSING));
    }
}

#[test]
fn a_full_etcd_refuses_and_says_why() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start_with(&["--quota-backend-bytes", "1048576"]);
    let store = etcd.store("a");
    put(&store, "kept", b"1");
    let error = until("a refusal", || {
        let error = store.put("k", &[1; VALUE_BYTES_MAX], Expected::Any).wait().err()?;
        matches!(error, StoreError::Refused { .. }).then_some(error)
    });
    assert!(error.to_string().contains("space exceeded"), "{error}");
    assert_eq!(store.get("kept").wait().unwrap().unwrap().value, b"1");
    until("health", || store.health().to_string().contains("NOSPACE").then_some(()));
    eprintln!("{error}\n{}", store.health());
}

#[test]
fn a_lease_too_short_for_etcd_is_made_longer() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let store = etcd.store("a");
    let leading = store.campaign("first", 0, |_| ()).unwrap();
    until_leading(&leading);
}

/// Listens on a port, replies `reply` to anything, and then waits; returns its URL.
fn impostor(reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            // The client may have disconnected already.
            let _ = stream.write_all(reply);
            kept.push(stream);
        }
    });
    format!("http://{address}")
}

/// The errors of a call and of the health check for `endpoints`.
fn verdicts(endpoints: &[&str]) -> (String, String) {
    let endpoints = endpoints.iter().map(|&url| url.to_owned()).collect();
    let store = Store::open(&StoreSettings::Etcd { endpoints, cluster: "a".to_owned() }).unwrap();
    let error = store.get("k").wait().unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    let health = until("health", || {
        let health = store.health();
        health.problems.iter().all(|problem| problem != "not asked yet").then_some(health)
    });
    assert_eq!(health.answering, 0);
    (error.to_string(), health.to_string())
}

#[test]
fn what_is_not_etcd_is_told_as_such() {
    let cases = [
        (&b"\x00\xffgarbage\r\n\r\n"[..], "not speak as etcd does"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "not speak as etcd does"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not speak as etcd does"),
        // A fatal alert of TLS: the reply of a TLS port to plain text.
        (b"\x15\x03\x01\x00\x02\x02\x46", "not speak as etcd does"),
        // An empty HTTP/2 SETTINGS frame, then nothing.
        (b"\0\0\0\x04\0\0\0\0\0", "no answer"),
        (b"", "no answer"),
    ];
    let tell = |reply: &'static [u8], words: &str| {
        let url = impostor(reply);
        let (error, health) = verdicts(&[&url]);
        eprintln!("{:?}\n  {error}\n  {health}", reply.escape_ascii().to_string());
        assert!(error.contains(words) && error.contains(&url), "{error}");
        assert!(health.contains(words) && health.contains(&url), "{health}");
    };
    // In parallel, since each waits for a timeout.
    std::thread::scope(|scope| {
        for (reply, words) in cases {
            scope.spawn(move || tell(reply, words));
        }
    });
}

#[test]
fn endpoints_that_nobody_is_at_are_named() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = format!("http://{}", unused.local_addr().unwrap());
    drop(unused);
    let (error, health) = verdicts(&[&refusing, "http://no-such-host.invalid:2379"]);
    eprintln!("{error}\n{health}");
    for text in [error, health] {
        assert!(text.contains(&format!("{refusing}: Connection refused")), "{text}");
        assert!(text.contains("http://no-such-host.invalid:2379: "), "{text}");
    }
}

#[test]
fn wrong_endpoints_beside_a_right_one_do_no_harm() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start(1);
    let mut endpoints = vec![impostor(b"garbage"), impostor(b""), "http://127.0.0.1:9".to_owned()];
    endpoints.extend(etcd.endpoints());
    let store = Store::open(&StoreSettings::Etcd { endpoints, cluster: "a".to_owned() }).unwrap();
    put(&store, "k", b"1");
    let leading = campaign(&store, "first");
    until_leading(&leading);
    until("health", || store.health().to_string().starts_with("1 of 4").then_some(()));
}

#[test]
fn a_member_that_wants_tls_is_told_as_such() {
    if is_missing() {
        return;
    }
    let etcd = Cluster::start_with_tls();
    // Its port is open before it answers.
    until("its answer", || {
        let (error, health) = verdicts(&[&etcd.endpoints()[0]]);
        eprintln!("{error}\n{health}");
        (error.contains("without TLS?") && health.contains("without TLS?")).then_some(())
    });
}

#[test]
fn endpoints_that_cannot_be_are_refused_at_once() {
    let open = |endpoints: &[&str], cluster: &str| {
        let endpoints = endpoints.iter().map(|&url| url.to_owned()).collect();
        Store::open(&StoreSettings::Etcd { endpoints, cluster: cluster.to_owned() }).map(drop)
    };
    for (url, words) in [
        ("https://127.0.0.1:2379", "TLS to etcd is not supported"),
        ("127.0.0.1:2379", "does not start with http://"),
        ("", "does not start with http://"),
        ("http://", "is not a host and a port"),
        ("http://host", "is not a host and a port"),
        ("http://host:0", "is not a host and a port"),
        ("http://host:65536", "is not a host and a port"),
        ("http://host:2379/v3", "is not a host and a port"),
        ("http://user@host:2379", "is not a host and a port"),
        ("http://a b:2379", "invalid"),
    ] {
        let error = open(&[url], "a").unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(url), "{error}");
        assert!(error.contains("usually 2379"), "{error}");
    }
    for url in ["http://[::1]:2379", "http://host:2379/"] {
        open(&[url], "a").unwrap();
    }
    let many = vec!["http://host:1"; ENDPOINTS_MAX + 1];
    for endpoints in [&[][..], &many] {
        let error = open(endpoints, "a").unwrap_err().to_string();
        assert!(error.contains("expected 1 to 16"), "{error}");
    }
    for cluster in ["", "a/b", "a b", "ä"] {
        let error = open(&["http://host:1"], cluster).unwrap_err();
        assert!(error.to_string().contains("cluster name"), "{error}");
    }
}

/// The role of this binary when another test has started it.
#[test]
#[ignore = "a role that other tests start"]
fn child() {
    let role = std::env::var(crate::common::ROLE).unwrap_or_default();
    let Some(("lead", endpoints)) = role.split_once(' ') else { return };
    let endpoints = endpoints.split(',').map(str::to_owned).collect();
    let store = Store::open(&StoreSettings::Etcd { endpoints, cluster: "a".to_owned() }).unwrap();
    let campaign = campaign(&store, "twin");
    let mut last = String::new();
    loop {
        let LeadershipView { leader, epoch } = campaign.view();
        let said = match leader {
            Leader::Other(_) => format!("Other {epoch}"),
            leader => format!("{leader:?} {epoch}"),
        };
        if said != last {
            say(&said);
            last = said;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
