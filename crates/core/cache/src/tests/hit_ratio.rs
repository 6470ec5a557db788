//! Hit ratios on seeded traces, compared with those of an LRU cache of the same size.

use std::collections::{BTreeMap, HashMap};

use skep_units::Rng;

use super::Item;
use crate::{CacheEntry, S3Fifo};

const OBJECTS: u64 = 10_000;
const REQUESTS: u64 = 300_000;

/// Popularity of rank r is proportional to 1 / r^alpha.
struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    fn new(objects: u64, alpha: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=objects).map(|rank| (rank as f64).powf(-alpha));
        let cumulative = weights.map(|weight| {
            sum += weight;
            sum
        });
        Self { cumulative: cumulative.collect() }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let drawn = rng.unit() * self.cumulative.last().unwrap();
        self.cumulative.partition_point(|&sum| sum <= drawn) as u64
    }
}

/// Size of an object in bytes: 1 to 64 KiB, fixed by its key.
fn size(key: u64) -> u64 {
    1_024 + Rng::new(key).below(63 * 1_024)
}

/// A cache that returns for each request whether it was a hit, and admits misses.
trait Cache {
    fn request(&mut self, key: u64) -> bool;
}

struct Fifo {
    cache: S3Fifo<u64, Item>,
    evicted: Vec<(u64, Item)>,
}

impl Cache for Fifo {
    fn request(&mut self, key: u64) -> bool {
        if let Some(item) = self.cache.get(&key) {
            item.touch();
            return true;
        }
        self.evicted.clear();
        self.cache.insert(key, Item::new(size(key)), &mut self.evicted).unwrap();
        assert!(self.cache.bytes() <= self.cache.capacity_bytes());
        false
    }
}

#[derive(Default)]
struct Lru {
    capacity: u64,
    bytes: u64,
    clock: u64,
    last_use: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Cache for Lru {
    fn request(&mut self, key: u64) -> bool {
        self.clock += 1;
        let before = self.last_use.insert(key, self.clock);
        before.map(|clock| self.by_use.remove(&clock));
        self.by_use.insert(self.clock, key);
        if before.is_none() {
            self.bytes += size(key);
        }
        while self.bytes > self.capacity {
            let (_, oldest) = self.by_use.pop_first().unwrap();
            self.last_use.remove(&oldest);
            self.bytes -= size(oldest);
        }
        before.is_some()
    }
}

fn caches(capacity: u64) -> (Fifo, Lru) {
    let fifo = Fifo { cache: S3Fifo::new(capacity), evicted: Vec::new() };
    (fifo, Lru { capacity, ..Lru::default() })
}

/// A percentage of the site's bytes, that of `OBJECTS` objects.
fn capacity(percent: u64) -> u64 {
    (0..OBJECTS).map(size).sum::<u64>() * percent / 100
}

/// Hit ratio of the Zipf requests in a trace that runs a scan over
/// `scan_objects` objects, each asked for once, after every 30,000 of them.
fn hit_ratio(cache: &mut impl Cache, scan_objects: u64) -> f64 {
    let zipf = Zipf::new(OBJECTS, 0.9);
    let mut rng = Rng::new(42);
    let mut hits = 0;
    let mut never_seen = OBJECTS;
    for request in 1..=REQUESTS {
        hits += u64::from(cache.request(zipf.draw(&mut rng)));
        if request % 30_000 == 0 {
            for _ in 0..scan_objects {
                cache.request(never_seen);
                never_seen += 1;
            }
        }
    }
    hits as f64 / REQUESTS as f64
}

#[test]
fn beats_lru_on_a_zipf_trace_at_every_size() {
    for percent in [1, 5, 10, 30] {
        let (mut fifo, mut lru) = caches(capacity(percent));
        let (ours, theirs) = (hit_ratio(&mut fifo, 0), hit_ratio(&mut lru, 0));
        println!("zipf 0.9, cache {percent} % of bytes: S3-FIFO {ours:.3}, LRU {theirs:.3}");
        assert!(ours > theirs, "{percent} %: {ours} against {theirs}");
    }
}

#[test]
fn a_scan_costs_lru_more_than_us() {
    let (mut fifo, mut lru) = caches(capacity(10));
    let (ours, theirs) = (hit_ratio(&mut fifo, 0), hit_ratio(&mut lru, 0));
    let (mut fifo, mut lru) = caches(capacity(10));
    // Each scan alone is twice as large as the cache.
    let (ours_scanned, theirs_scanned) =
        (hit_ratio(&mut fifo, OBJECTS / 5), hit_ratio(&mut lru, OBJECTS / 5));
    println!(
        "scans: S3-FIFO {ours:.4} -> {ours_scanned:.4}, LRU {theirs:.4} -> {theirs_scanned:.4}"
    );
    assert!(ours_scanned > theirs_scanned);
    assert!(ours - ours_scanned < (theirs - theirs_scanned) / 2.0);
}
