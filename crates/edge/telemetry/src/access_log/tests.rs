//! Tests of the access log: formats, escaping, batching, dropping, rotation.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::thread;

use super::encode::decode;
use super::format::Formatter;
use super::*;
use crate::limits::*;

const RECORD: LogRecord<'_> = LogRecord {
    unix_ms: 971_186_136_042,
    client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)),
    method: b"GET",
    target: b"/index.html?a=b",
    version10: false,
    host: b"example.org",
    status: 200,
    bytes_sent: 2326,
    referer: b"http://example.org/",
    user_agent: b"curl/8.5.0",
    node: Some("n3"),
    accepted_by: Some("n2"),
    cache: CacheResult::Fill,
    total_us: 4_000,
    queue_us: 1_000,
    connect_us: 200,
    first_byte_us: 3_000,
};

fn line(format: Format, record: &LogRecord<'_>) -> String {
    let mut encoded = Vec::new();
    encode(record, &mut encoded);
    let mut input = encoded.as_slice();
    let mut out = Vec::new();
    Formatter::new(format).line(&decode(&mut input).unwrap(), &mut out);
    assert!(input.is_empty() && decode(&mut input).is_none());
    let text = String::from_utf8(out).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

fn json(record: &LogRecord<'_>) -> serde_json::Value {
    serde_json::from_str(&line(Format::Json, record)).unwrap()
}

#[test]
fn combined_line_as_apache_writes_it() {
    assert_eq!(
        line(Format::Combined, &RECORD),
        "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET /index.html?a=b HTTP/1.1\" 200 2326 \
         \"http://example.org/\" \"curl/8.5.0\""
    );
}

#[test]
fn combined_line_with_nothing_sent() {
    let record = LogRecord {
        client: IpAddr::V6(Ipv6Addr::LOCALHOST),
        version10: true,
        status: 304,
        bytes_sent: 0,
        referer: b"",
        user_agent: b"",
        unix_ms: 0,
        ..RECORD
    };
    assert_eq!(
        line(Format::Combined, &record),
        "::1 - - [01/Jan/1970:00:00:00 +0000] \"GET /index.html?a=b HTTP/1.0\" 304 0 \"-\" \"-\""
    );
}

#[test]
fn json_line_has_every_field() {
    assert_eq!(
        json(&RECORD),
        serde_json::json!({
            "time": "2000-10-10T13:55:36.042Z", "client": "192.0.2.7", "method": "GET",
            "target": "/index.html?a=b", "version": "HTTP/1.1", "host": "example.org",
            "status": 200, "bytes_sent": 2326, "referer": "http://example.org/",
            "user_agent": "curl/8.5.0", "node": "n3", "accepted_by": "n2", "cache": "fill", "queue_us": 1000,
            "connect_us": 200, "first_byte_us": 3000, "total_us": 4000
        })
    );
}

#[test]
fn json_shows_what_was_not_sent_as_null() {
    let record =
        LogRecord { node: None, referer: b"", cache: CacheResult::None, host: b"", ..RECORD };
    let json = json(&record);
    for key in ["node", "referer", "cache", "host"] {
        assert!(json[key].is_null(), "{key}");
    }
}

#[test]
fn every_cache_result_survives_the_way() {
    use CacheResult::*;
    let words = [Hit, Miss, Fill, Revalidated, Stream, Peer].map(|cache| {
        let json = json(&LogRecord { cache, ..RECORD });
        json["cache"].as_str().unwrap().to_owned()
    });
    assert_eq!(words, ["hit", "miss", "fill", "revalidated", "stream", "peer"]);
}

#[test]
fn no_byte_can_forge_a_line_or_break_a_quote() {
    let all: Vec<u8> = (0..=255).collect();
    let record =
        LogRecord { method: &all, target: &all, referer: &all, user_agent: &all, ..RECORD };
    let text = line(Format::Combined, &record);
    assert!(text.bytes().all(|b| (0x20..0x7f).contains(&b)));
    assert_eq!(text.matches('"').count(), 6);
    assert!(text.contains("\\x0A") && text.contains("\\x22") && text.contains("\\x5C"));
    assert!(text.contains("\\xFF") && text.contains("\\x1B") && text.contains("\\x7F"));
}

#[test]
fn json_takes_any_byte_and_stays_json() {
    let all: Vec<u8> = (0..=255).collect();
    let record = LogRecord { target: &all, user_agent: "é\u{9b}31m\"".as_bytes(), ..RECORD };
    let text = line(Format::Json, &record);
    assert!(!text.chars().any(char::is_control));
    let json = json(&record);
    let target = json["target"].as_str().unwrap();
    assert!(target.starts_with('\0') && target.contains("\"") && target.ends_with("\\xFF"));
    assert_eq!(json["user_agent"], "é\u{9b}31m\"");
}

#[test]
fn long_fields_are_cut_at_their_bounds() {
    let long = vec![b'x'; 100_000];
    let name = "é".repeat(100);
    let record = LogRecord {
        method: &long,
        target: &long,
        host: &long,
        referer: &long,
        user_agent: &long,
        node: Some(&name),
        accepted_by: Some(&name),
        ..RECORD
    };
    let mut encoded = Vec::new();
    encode(&record, &mut encoded);
    assert_eq!(encoded.len(), RECORD_BYTES_MAX);
    let decoded = decode(&mut encoded.as_slice()).unwrap();
    assert_eq!(decoded.method.len(), LOG_METHOD_BYTES_MAX);
    assert_eq!(decoded.target.len(), LOG_TARGET_BYTES_MAX);
    assert_eq!(decoded.host.len(), LOG_HOST_BYTES_MAX);
    assert_eq!(decoded.referer.len(), LOG_REFERER_BYTES_MAX);
    assert_eq!(decoded.user_agent.len(), LOG_USER_AGENT_BYTES_MAX);
    assert_eq!(decoded.node.unwrap().len(), LOG_NODE_BYTES_MAX);
    assert_eq!(decoded.accepted_by.unwrap().len(), LOG_NODE_BYTES_MAX);
}

#[test]
fn dates_through_leap_years_and_centuries() {
    let dates = [
        (951_782_400, "2000-02-29"),
        (951_868_800, "2000-03-01"),
        (1_709_164_800, "2024-02-29"),
        (1_735_603_200, "2024-12-31"),
        (1_735_689_600, "2025-01-01"),
        (4_107_542_400, "2100-03-01"),
    ];
    for (second, date) in dates {
        let json = json(&LogRecord { unix_ms: second * 1000, ..RECORD });
        assert_eq!(json["time"], format!("{date}T00:00:00.000Z"));
    }
}

/// A log that is written to a file of its own.
struct Fixture {
    dir: tempfile::TempDir,
    log: AccessLog,
    writer: Arc<CoreCounters>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let writer = Arc::new(CoreCounters::default());
        let target = LogTarget::Path(dir.path().join("access.log"));
        let log = AccessLog::start(target, Format::Combined, Arc::clone(&writer)).unwrap();
        Self { dir, log, writer }
    }

    /// Ends the writer and returns the lines of the file.
    fn finish(self) -> Vec<String> {
        self.log.shutdown();
        lines_of(&self.dir.path().join("access.log"))
    }
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_tick_brings_the_line_to_the_file() {
    let fixture = Fixture::new();
    let mut worker = fixture.log.handle().worker(Arc::default());
    assert!(worker.is_on());
    worker.push(&RECORD);
    worker.tick();
    worker.tick();
    let writer = Arc::clone(&fixture.writer);
    assert_eq!(fixture.finish(), [line(Format::Combined, &RECORD)]);
    assert_eq!(writer.get(Counter::LogLines), 1);
}

#[test]
fn a_worker_that_ends_leaves_its_lines() {
    let fixture = Fixture::new();
    let mut worker = fixture.log.handle().worker(Arc::default());
    worker.push(&RECORD);
    drop(worker);
    assert_eq!(fixture.finish().len(), 1);
}

#[test]
fn lines_of_many_workers_arrive_whole_and_none_is_lost_or_uncounted() {
    const WORKERS: usize = 8;
    const LINES: usize = 20_000;
    let fixture = Fixture::new();
    let cores: Vec<Arc<CoreCounters>> = (0..WORKERS).map(|_| Arc::default()).collect();
    thread::scope(|scope| {
        for (number, core) in cores.iter().enumerate() {
            let mut worker = fixture.log.handle().worker(Arc::clone(core));
            scope.spawn(move || {
                for n in 0..LINES {
                    let target = format!("/{number}/{n}");
                    worker.push(&LogRecord { target: target.as_bytes(), ..RECORD });
                }
            });
        }
    });
    let writer = Arc::clone(&fixture.writer);
    let lines = fixture.finish();
    let dropped: u64 = cores.iter().map(|core| core.get(Counter::LogDropped)).sum();
    assert_eq!(writer.get(Counter::LogLines), lines.len() as u64);
    assert_eq!(lines.len() as u64 + dropped, (WORKERS * LINES) as u64);
    let mut last = [None; WORKERS];
    for line in lines {
        let path = line.split(' ').nth(6).unwrap();
        let mut numbers = path[1..].split('/').map(|part| part.parse::<usize>().unwrap());
        let (worker, n) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert!(last[worker] < Some(n), "out of order: {line}");
        last[worker] = Some(n);
    }
}

#[test]
fn nothing_is_dropped_when_the_writer_keeps_up() {
    const ROUNDS: u64 = 200;
    const LINES: u64 = 100;
    let fixture = Fixture::new();
    let core = Arc::new(CoreCounters::default());
    let mut worker = fixture.log.handle().worker(Arc::clone(&core));
    for round in 1..=ROUNDS {
        (0..LINES).for_each(|_| worker.push(&RECORD));
        worker.tick();
        // The writer keeps up by construction, without relying on time.
        while fixture.writer.get(Counter::LogLines) < round * LINES {
            thread::yield_now();
        }
    }
    drop(worker);
    assert_eq!(fixture.finish().len() as u64, ROUNDS * LINES);
    assert_eq!(core.get(Counter::LogDropped), 0);
}

/// A worker's log whose writer never accepts anything: the test holds the other end of the queue.
fn stuck_worker(queue_max: usize) -> (WorkerLog, Arc<CoreCounters>, Receiver<WriterMessage>) {
    let (queue, messages) = sync_channel(queue_max);
    let handle = LogHandle { link: Some(WriterHandle { queue, control: Arc::default() }) };
    let core = Arc::new(CoreCounters::default());
    (handle.worker(Arc::clone(&core)), core, messages)
}

fn lines_in(messages: &Receiver<WriterMessage>) -> u64 {
    let lines = |message| match message {
        WriterMessage::Batch(batch) => batch.lines,
        WriterMessage::Wake => 0,
    };
    messages.try_iter().map(lines).sum()
}

#[test]
fn a_stuck_writer_costs_lines_not_memory_and_totals_add_up() {
    let (mut worker, core, messages) = stuck_worker(LOG_QUEUE_BUFFERS_MAX);
    (0..50_000).for_each(|_| worker.push(&RECORD));
    worker.tick();
    assert_eq!(worker.made, LOG_BUFFERS_PER_WORKER_MAX);
    assert!(worker.current.capacity() <= 2 * (LOG_BATCH_BYTES + RECORD_BYTES_MAX));
    drop(worker);
    let dropped = core.get(Counter::LogDropped);
    assert!(dropped > 0);
    assert_eq!(lines_in(&messages) + dropped, 50_000);
}

#[test]
fn a_full_queue_keeps_the_lines_until_there_is_room() {
    let (mut worker, core, messages) = stuck_worker(1);
    worker.push(&RECORD);
    worker.tick();
    worker.push(&RECORD);
    worker.tick();
    assert_eq!(worker.lines, 1, "kept");
    assert_eq!(lines_in(&messages), 1);
    worker.tick();
    assert_eq!(lines_in(&messages), 1);
    assert_eq!(core.get(Counter::LogDropped), 0);
}

#[test]
fn a_full_queue_at_the_end_is_counted() {
    let (mut worker, core, messages) = stuck_worker(1);
    worker.push(&RECORD);
    worker.tick();
    worker.push(&RECORD);
    drop(worker);
    assert_eq!((lines_in(&messages), core.get(Counter::LogDropped)), (1, 1));
}

#[test]
fn lines_after_the_writer_has_gone_are_counted() {
    let (mut worker, core, messages) = stuck_worker(1);
    drop(messages);
    (0..3).for_each(|_| worker.push(&RECORD));
    worker.tick();
    worker.push(&RECORD);
    drop(worker);
    assert_eq!(core.get(Counter::LogDropped), 4);
}

#[test]
fn buffers_come_back_and_are_used_again() {
    let (mut worker, _core, messages) = stuck_worker(LOG_QUEUE_BUFFERS_MAX);
    for _ in 0..1000 {
        worker.push(&RECORD);
        worker.tick();
        let WriterMessage::Batch(mut batch) = messages.try_recv().unwrap() else { unreachable!() };
        batch.records.clear();
        batch.home.try_send(batch.records).unwrap();
    }
    assert_eq!(worker.made, 1);
}

#[test]
fn off_keeps_nothing() {
    let log = AccessLog::start(LogTarget::Off, Format::Json, Arc::default()).unwrap();
    let mut worker = log.handle().worker(Arc::default());
    assert!(!worker.is_on());
    worker.push(&RECORD);
    worker.tick();
    log.handle().reopen();
    assert_eq!((worker.lines, worker.current.capacity()), (0, 0));
}

#[test]
fn reopen_after_rotation_writes_to_the_new_file() {
    let fixture = Fixture::new();
    let (path, rotated) =
        (fixture.dir.path().join("access.log"), fixture.dir.path().join("access.log.1"));
    let mut worker = fixture.log.handle().worker(Arc::default());
    worker.push(&RECORD);
    worker.tick();
    while fixture.writer.get(Counter::LogLines) < 1 {
        thread::yield_now();
    }
    fs::rename(&path, &rotated).unwrap();
    fixture.log.handle().reopen();
    while !path.exists() {
        thread::yield_now();
    }
    worker.push(&LogRecord { status: 404, ..RECORD });
    drop(worker);
    assert_eq!(lines_of(&rotated).len(), 1);
    let new = fixture.finish();
    assert!(new.len() == 1 && new[0].contains(" 404 "), "{new:?}");
}

#[test]
fn when_reopening_fails_the_old_file_stays_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    let writer = Arc::new(CoreCounters::default());
    let target = LogTarget::Path(logs.join("access.log"));
    let log = AccessLog::start(target, Format::Combined, Arc::clone(&writer)).unwrap();
    let moved = dir.path().join("moved");
    fs::rename(&logs, &moved).unwrap();
    log.handle().reopen();
    while writer.get(Counter::LogWriteErrors) == 0 {
        thread::yield_now();
    }
    let mut worker = log.handle().worker(Arc::default());
    worker.push(&RECORD);
    drop(worker);
    log.shutdown();
    assert_eq!(lines_of(&moved.join("access.log")).len(), 1);
}

#[test]
fn a_path_that_cannot_be_opened_is_named_with_the_cause() {
    let target = LogTarget::Path(PathBuf::from("/nonexistent/access.log"));
    let error = AccessLog::start(target, Format::Combined, Arc::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("/nonexistent/access.log") && text.contains("No such file"), "{text}");
}

#[test]
fn a_full_disk_is_counted_and_the_log_goes_on() {
    let writer = Arc::new(CoreCounters::default());
    let target = LogTarget::Path(PathBuf::from("/dev/full"));
    let log = AccessLog::start(target, Format::Combined, Arc::clone(&writer)).unwrap();
    let mut worker = log.handle().worker(Arc::default());
    for round in 1..=3 {
        (0..10).for_each(|_| worker.push(&RECORD));
        worker.tick();
        while writer.get(Counter::LogWriteErrors) < round {
            thread::yield_now();
        }
    }
    drop(worker);
    log.shutdown();
    let counts = [Counter::LogLines, Counter::LogDropped].map(|counter| writer.get(counter));
    assert_eq!(counts, [0, 30]);
}
