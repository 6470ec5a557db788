//! A thousand clients of a cluster of four request a page that takes half a second: it is computed once; if
//! it turns out to be private, they wait for one computation, and later for none.
//!
//! The counts are asserted. Times are printed for docs/benchmarks.md: `cargo test -p skep-tests --test
//! cluster thousand -- --nocapture`.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use skep_tests::app::{App, response};
use skep_tests::cache::CacheCluster;
use skep_tests::{Crowd, PATIENCE, RawClient, Site};

use super::pool_cache::{NODES, asking, node};

const CLIENTS: usize = 1_000;
/// Duration of a computation of the page.
const COMPUTATION: Duration = Duration::from_millis(500);

/// Computations of an application: the number started, and the number that must run concurrently before any
/// of them ends.
#[derive(Default)]
struct Computations {
    counts: Mutex<BTreeMap<String, usize>>,
    more: Condvar,
}

impl Computations {
    fn begin(&self, line: &str) -> usize {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(line.to_owned()).or_default();
        *count += 1;
        self.more.notify_all();
        *count
    }

    /// Waits until `begun` have started; so none of them can have waited for another one.
    fn until(&self, line: &str, begun: usize) {
        let is_less = |counts: &mut BTreeMap<String, usize>| counts[line] < begun;
        let counts = self.counts.lock().unwrap();
        let (counts, waited) = self.more.wait_timeout_while(counts, PATIENCE, is_less).unwrap();
        let begun = counts[line];
        // Otherwise its panic would poison the lock for all others.
        drop(counts);
        assert!(!waited.timed_out(), "one waits for another one's computation: {begun} have begun");
    }

    fn of(&self, line: &str) -> usize {
        self.counts.lock().unwrap().get(line).copied().unwrap_or(0)
    }
}

fn cluster(app: &App) -> CacheCluster {
    let lines = format!(
        "pool = \"app\"\n[site.cache]\nenabled = true\n[[pool]]\nname = \"app\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\nconnections_max = {CLIENTS}\n",
        app.address()
    );
    let cluster = CacheCluster::start_of(1, NODES, Site::new(), &lines, "");
    cluster.wait_up();
    cluster
}

/// All clients send requests, then all read; returns the bodies, and the sorted latencies.
fn wave(cluster: &CacheCluster, target: &str) -> (Vec<String>, Vec<Duration>) {
    let ask = |number: usize| (Instant::now(), asking(cluster, number % NODES + 1, target));
    let clients: Vec<(Instant, RawClient)> = (0..CLIENTS).map(ask).collect();
    let read = |(asked, mut client): (Instant, RawClient)| {
        let reply = client.response();
        assert_eq!(reply.status, 200, "{}", reply.head_text());
        (reply.text(), asked.elapsed())
    };
    let (texts, mut times): (Vec<_>, Vec<_>) = clients.into_iter().map(read).unzip();
    times.sort_unstable();
    (texts, times)
}

fn print(what: &str, computations: usize, times: &[Duration]) {
    let of = |percent: usize| times[(times.len() - 1) * percent / 100].as_millis();
    let (median, late, last) = (of(50), of(99), of(100));
    println!(
        "{what}: {computations} computations for {CLIENTS} clients; {median} ms (median), \
         {late} ms (99th percentile), {last} ms (last)"
    );
}

#[test]
fn one_computation_serves_a_thousand_clients_and_a_private_page_holds_up_none() {
    // One connection per client, and one per request to the application.
    let Some(_crowd) = Crowd::of(2 * CLIENTS as u64) else { return };
    let computations = Arc::<Computations>::default();
    let seen = Arc::clone(&computations);
    let app = App::answering(move |request| {
        let line = request.line().to_owned();
        let count = seen.begin(&line);
        let fields = match line.contains("/private") {
            false => "Cache-Control: max-age=600\r\n",
            true => "Cache-Control: private\r\n",
        };
        // Later requests wait for all of their wave: in the first wave, for those released by the first
        // request; in the second, for all.
        match (line.contains("/private"), count) {
            (false, _) | (true, 1) => std::thread::sleep(COMPUTATION),
            (true, count) if count <= CLIENTS => {
                seen.until(&line, CLIENTS);
                std::thread::sleep(COMPUTATION);
            }
            (true, _) => {
                seen.until(&line, 2 * CLIENTS);
                std::thread::sleep(COMPUTATION);
            }
        }
        response(200, fields, format!("answer {count}"))
    });
    let cluster = cluster(&app);

    let (texts, times) = wave(&cluster, "/page");
    assert!(texts.iter().all(|text| text == "answer 1"), "all get the one that was computed");
    assert_eq!(computations.of("GET /page HTTP/1.1"), 1);
    print("a page that may be stored", 1, &times);

    for (wave_number, what) in [(1, "a page that turns out private"), (2, "the same, marked")] {
        let (mut texts, times) = wave(&cluster, "/private");
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), CLIENTS, "each gets its own");
        let begun = computations.of("GET /private HTTP/1.1");
        assert_eq!(begun, wave_number * CLIENTS);
        print(what, CLIENTS, &times);
    }
    for number in 1..=NODES {
        let refused = cluster.metric(&node(number), "skep_responses_total{class=\"5xx\"}");
        assert_eq!(refused, 0, "node {number}");
    }
}
