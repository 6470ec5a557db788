//! A machine that loses processor time to others: no machine is declared dead for that.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use skep_lab::load::Requests;
use skep_tests::End;
use skep_tests::direct::{DirectCluster, Setup, figure};
use skep_units::Rng;

/// Time taken from each core at once, as by a neighbour on the same host: with [`EVERY_MS`], a tenth.
const TAKEN: Duration = Duration::from_millis(10);

/// Mean time between two thefts.
const EVERY_MS: u64 = 100;

/// Short requests per second meanwhile.
const PER_SECOND: u32 = 100;

/// Returns the duration from `SKEP_STEAL_MINUTES`, by default one hour.
fn duration() -> Duration {
    let minutes = std::env::var("SKEP_STEAL_MINUTES").map_or(60, |text| text.parse().unwrap());
    Duration::from_secs(60 * minutes)
}

#[test]
#[ignore = "takes an hour"]
fn a_tenth_of_the_time_taken_by_others_is_nobodys_death() {
    let setup = Setup { alone: true, ..Setup::default() };
    let Some(cluster) = DirectCluster::start(setup) else { return };
    let names = [cluster.wait_active(), cluster.standby()];
    let before = cluster.claims(&names);
    let client = cluster.machine("client-1");
    let duration_ms = 2 * duration().as_millis() as u64;
    let requests = Requests { duration_ms, ..cluster.stream(PER_SECOND) };
    let requests = requests.start_in(client).unwrap();
    let end = End::default();
    let begun = Instant::now();
    thread::scope(|scope| {
        let _end = end.with_this();
        let cores = sched_getaffinity(None).unwrap();
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| cores.is_set(core));
        cores.for_each(|core| {
            drop(scope.spawn({
                let end = &end;
                move || steal(core, end)
            }))
        });
        while begun.elapsed() < duration() && !requests.is_finished() {
            thread::sleep(Duration::from_millis(500));
        }
    });
    let report = requests.stop().unwrap();
    let takeovers = cluster.claims(&names) - before;
    let count = |words: &str| -> usize {
        names.iter().map(|name| cluster.log(name).matches(words).count()).sum()
    };
    let (silent, removed) = (count("no heartbeat from active"), count("no heartbeat from node"));
    let gaps = names.iter().map(|name| cluster.heartbeat_gaps_ms(name));
    let gaps = gaps.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap_or_default();
    figure(&format!(
        "{:.0} minutes with a tenth of each core's time taken, {TAKEN:?} at a time: \
         {takeovers} takeovers, {silent} dispatchers and {removed} nodes silent; at most {} ms from \
         one heartbeat of a dispatcher to the next, of 110, and {} ms of a node, of 525; {} \
         requests, {} failed, no good reply for {} ms at most",
        begun.elapsed().as_secs_f64() / 60.0,
        gaps.0,
        gaps.1,
        report.succeeded,
        report.failed,
        report.longest_gap_ms,
    ));
    assert_eq!((takeovers, silent, removed, report.failed), (0, 0, 0, 0), "{report:?}");
}

/// Occupies a core repeatedly, with priority over all other threads there, until the end.
fn steal(core: usize, end: &End) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).unwrap();
    let thread = gettid().as_raw_nonzero().to_string();
    // A higher priority than that of the heartbeat threads.
    let status = Command::new("chrt").args(["--fifo", "--pid", "90", &thread]).status().unwrap();
    assert!(status.success(), "chrt: {status}");
    let mut rng = Rng::new(core as u64);
    while !end.has_come() {
        let until = Instant::now() + TAKEN;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let rest_ms = EVERY_MS - TAKEN.as_millis() as u64;
        thread::sleep(Duration::from_millis(rest_ms / 2 + rng.below(rest_ms)));
    }
}
