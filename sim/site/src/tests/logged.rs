//! Runs of access logs.

use skep_workload::{LogTrace, TraceReader};

use super::*;

/// A log of requests, each with its second, method and rest of the line.
fn log<'a>(requests: impl IntoIterator<Item = (u64, &'a str, String)>) -> LogTrace {
    let mut reader = TraceReader::default();
    for (number, (second, method, rest)) in (1..).zip(requests) {
        let (minute, second) = (second / 60, second % 60);
        let line = format!(
            "10.0.0.{} - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"{method} {rest}",
            number % 7
        );
        assert!(reader.line(number, line.as_bytes()), "{line}");
    }
    reader.finish().unwrap()
}

fn run(trace: &LogTrace, memory_bytes: u64, policy: &str, seed: u64) -> RunOutcome {
    let all = 0..trace.requests().len();
    let site = SiteWorkload::of_log(trace, all, 1.0, seed).unwrap();
    let mut cluster = SimulatedCluster::weighted(&[1; 4], SimulatedNode::usual(memory_bytes), 1.0);
    cluster.workers = 2;
    let requests = site.logged_requests();
    let run = SiteRun {
        site: &site,
        cluster: &cluster,
        load: OfferedLoad::Logged,
        requests,
        warm_up_share: 0.5,
        seed,
    };
    run.under(policy).unwrap()
}

#[test]
fn every_logged_request_ends_with_the_bytes_that_were_sent() {
    let segment = skep_units::SEGMENT_BYTES;
    let requests = (0..400).map(|number| {
        let (path, second) = (number % 9, number / 8);
        let rest = match number % 5 {
            0 => format!("/{path} HTTP/1.1\" 206 {}", segment + number),
            1 => format!("/{path} HTTP/1.1\" 304 -"),
            2 => format!("/{path} HTTP/1.1\" 404 162"),
            3 => format!("/{path} HTTP/1.1\" 200 {}", 1_000 * path),
            _ => format!("/{path} HTTP/1.1\" 200 {}", 3 * segment + path),
        };
        (second, if number % 11 == 0 { "HEAD" } else { "GET" }, rest)
    });
    let trace = log(requests);
    let sent = trace.requests().iter().filter(|it| it.has_body()).map(|it| it.bytes).sum();
    for policy in skep_policy::names() {
        let outcome = run(&trace, 10 * segment, policy, 1);
        let totals = outcome.totals;
        let seen = (totals.requests, totals.asked_bytes, totals.sent_bytes);
        assert_eq!(seen, (400, sent, sent), "{policy}");
        assert_eq!(outcome.all.count(), 200, "{policy}");
        assert_eq!(outcome, run(&trace, 10 * segment, policy, 1), "{policy}");
    }
}

#[test]
fn urls_that_fit_into_all_memories_but_not_into_one_want_a_policy_that_reads_them() {
    // 40 objects of 1 MB in turn; a node has room for 15.
    let requests = (0..2_000u64)
        .map(|number| (number / 20, "GET", format!("/{} HTTP/1.1\" 200 1000000", number * 7 % 40)));
    let trace = log(requests);
    let [turns, by_url] =
        ["round-robin", "maglev-url"].map(|policy| run(&trace, 15_000_000, policy, 1));
    let hits = |outcome: &RunOutcome| outcome.bytes.share(outcome.bytes.memory);
    assert!(hits(&by_url) > hits(&turns) + 0.3, "{} {}", hits(&by_url), hits(&turns));
    assert!(by_url.all.mean_s() < 0.8 * turns.all.mean_s());
}

#[test]
fn a_window_faster_than_logged_begins_at_once_and_has_its_objects_only() {
    let requests = (0..100u64).map(|at| (at, "GET", format!("/{} HTTP/1.1\" 200 {at}0", at / 10)));
    let trace = log(requests);
    let site = SiteWorkload::of_log(&trace, 50..100, 10.0, 1).unwrap();
    assert_eq!((site.logged_requests(), site.objects.len()), (50, 5));
    assert!((4.7..5.1).contains(&site.logged_s()), "{}", site.logged_s());
    assert_eq!(site.logged[0].at_ns, 0);
    assert_eq!(site.bytes(), [590, 690, 790, 890, 990].iter().sum::<u64>());
    let large = (0..20).map(|at| (at, "GET", format!("/{at} HTTP/1.1\" 200 {}", 1u64 << 40)));
    let trace = log(large);
    let all = SiteWorkload::of_log(&trace, 0..20, 1.0, 1);
    assert!(all.is_ok(), "5 million segments");
    let many = (0..60).map(|at| (at, "GET", format!("/{at} HTTP/1.1\" 200 {}", 1u64 << 40)));
    let trace = log(many);
    assert!(SiteWorkload::of_log(&trace, 0..60, 1.0, 1).is_err());
}
