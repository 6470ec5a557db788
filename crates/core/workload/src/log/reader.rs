//! Reads the lines of a log into a trace.

use std::collections::BTreeMap;

use skep_units::stable_hash;

use super::line::{LogLineError, LoggedLine};
use super::summary::{LogLimit, LogSummary};
use super::target::path_of;
use super::trace::{LogTrace, LoggedObject, LoggedRequest};
use crate::limits::{
    LOG_CLIENTS_MAX, LOG_MALFORMED_NAMED_MAX, LOG_OBJECTS_MAX, LOG_PATHS_BYTES_MAX,
    LOG_REQUESTS_MAX,
};

/// Collects the lines of a log.
#[derive(Debug, Default)]
pub struct TraceReader {
    objects: BTreeMap<Box<str>, NumberedObject>,
    paths_bytes: usize,
    /// By the hash of the client's name, which may be long.
    clients: BTreeMap<u64, u32>,
    /// With times since 1970.
    requests: Vec<LoggedRequest>,
    has_seconds: bool,
    latest_ms: u64,
    summary: LogSummary,
}

/// Why a log contains no requests to replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("expected an access log, found no line")]
    Empty,
    #[error(
        "expected an access log in the combined or common format, or Skep's JSON: none of {lines} \
         lines is one; line {line}: {error}"
    )]
    Malformed {
        lines: u64,
        /// The first malformed line, counted from 1.
        line: u64,
        error: LogLineError,
    },
    #[error("expected requests of GET or HEAD: none of {lines} lines has one")]
    NothingToAsk { lines: u64 },
}

#[derive(Debug, Default)]
struct NumberedObject {
    number: u32,
    /// The largest body with status 200, and with status 206.
    whole_bytes: u64,
    part_bytes: u64,
}

impl TraceReader {
    /// Processes a line without its line end. Returns `false` once a bound is reached: no further
    /// line is processed.
    pub fn line(&mut self, number: u64, line: &[u8]) -> bool {
        if self.summary.cut_by.is_some() {
            return false;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return true;
        }
        self.summary.lines += 1;
        match LoggedLine::parse(line) {
            Ok(line) => self.summary.cut_by = self.add(&line).err(),
            Err(error) => {
                self.summary.malformed += 1;
                if self.summary.malformed_first.len() < LOG_MALFORMED_NAMED_MAX {
                    self.summary.malformed_first.push((number, error));
                }
            }
        }
        self.summary.cut_by.is_none()
    }

    /// The resulting trace.
    ///
    /// # Errors
    /// It contains no request.
    pub fn finish(mut self) -> Result<LogTrace, TraceError> {
        let lines = self.summary.lines;
        let Some(begin_ms) = self.requests.iter().map(|it| it.at_ms).min() else {
            return Err(match self.summary.malformed_first.first() {
                _ if lines == 0 => TraceError::Empty,
                Some(&(line, error)) if self.summary.malformed == lines => {
                    TraceError::Malformed { lines, line, error }
                }
                _ => TraceError::NothingToAsk { lines },
            });
        };
        self.requests.sort_by_key(|request| request.at_ms);
        self.requests.iter_mut().for_each(|request| request.at_ms -= begin_ms);
        let mut objects = vec![LoggedObject { path: "".into(), bytes: 0 }; self.objects.len()];
        for (path, object) in self.objects {
            let whole = Some(object.whole_bytes).filter(|it| *it > 0);
            let bytes = whole.unwrap_or(object.part_bytes);
            objects[object.number as usize] = LoggedObject { path, bytes };
        }
        self.summary.clients = self.clients.len() as u64;
        Ok(LogTrace {
            objects,
            requests: self.requests,
            resolution_ms: if self.has_seconds { 1_000 } else { 1 },
            summary: self.summary,
        })
    }

    fn add(&mut self, line: &LoggedLine<'_>) -> Result<(), LogLimit> {
        self.note_time(line.unix_ms);
        let is_head = line.method == "HEAD";
        if line.method != "GET" && !is_head {
            self.summary.other_methods += 1;
            return Ok(());
        }
        let Some(path) = path_of(&line.target) else {
            self.summary.without_path += 1;
            return Ok(());
        };
        if self.requests.len() == LOG_REQUESTS_MAX {
            return Err(LogLimit::Requests);
        }
        let object = self.object(path)?;
        let sent = if is_head { 0 } else { line.bytes };
        match line.status {
            200 => object.whole_bytes = object.whole_bytes.max(sent),
            206 => object.part_bytes = object.part_bytes.max(sent),
            _ => {}
        }
        let object = object.number;
        self.has_seconds |= !line.has_ms;
        let client = self.client(&line.client);
        self.requests.push(LoggedRequest {
            at_ms: line.unix_ms.saturating_sub(line.took_ms),
            client,
            object,
            bytes: sent,
            status: line.status,
            is_head,
        });
        Ok(())
    }

    fn note_time(&mut self, unix_ms: u64) {
        let back_ms = self.latest_ms.saturating_sub(unix_ms);
        self.summary.back_in_time += u64::from(back_ms > 0);
        self.summary.back_ms_max = self.summary.back_ms_max.max(back_ms);
        self.latest_ms = self.latest_ms.max(unix_ms);
    }

    fn object(&mut self, path: Box<str>) -> Result<&mut NumberedObject, LogLimit> {
        if !self.objects.contains_key(&path) {
            if self.objects.len() == LOG_OBJECTS_MAX {
                return Err(LogLimit::Objects);
            }
            self.paths_bytes += path.len();
            if self.paths_bytes > LOG_PATHS_BYTES_MAX {
                return Err(LogLimit::Paths);
            }
        }
        let number = self.objects.len() as u32;
        let new = || NumberedObject { number, ..NumberedObject::default() };
        Ok(self.objects.entry(path).or_insert_with(new))
    }

    /// The number of a client; beyond the bound, a number assigned by hash.
    fn client(&mut self, name: &str) -> u32 {
        let hash = stable_hash(name.as_bytes(), 0);
        if let Some(&number) = self.clients.get(&hash) {
            return number;
        }
        let number = self.clients.len();
        if number == LOG_CLIENTS_MAX {
            return (hash % LOG_CLIENTS_MAX as u64) as u32;
        }
        self.clients.insert(hash, number as u32);
        number as u32
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str]) -> Result<LogTrace, TraceError> {
        let mut reader = TraceReader::default();
        for (number, line) in (1..).zip(lines) {
            reader.line(number, line.as_bytes());
        }
        reader.finish()
    }

    /// A log line of a client at a given second.
    fn line(client: &str, second: u32, request: &str, answer: &str) -> String {
        let (minute, second) = (second / 60, second % 60);
        format!(
            "{client} - - [10/Oct/2000:13:{minute:02}:{second:02} +0000] \"{request} HTTP/1.1\" {answer}"
        )
    }

    #[test]
    fn an_object_has_the_size_of_its_largest_whole_body() {
        let lines = [
            line("a", 5, "GET /x", "206 100"),
            line("a", 5, "GET /x", "200 4000"),
            line("b", 6, "GET /x", "200 5000"),
            line("b", 6, "GET /x", "206 9000"),
            line("b", 7, "HEAD /x", "200 7000"),
            line("a", 7, "GET /part", "206 300"),
            line("a", 8, "GET /part", "206 200"),
            line("a", 9, "GET /same", "304 -"),
            line("a", 9, "GET /none", "404 162"),
            line("a", 9, "GET /empty", "200 0"),
            line("a", 9, "POST /x", "200 1"),
            line("a", 9, "OPTIONS *", "200 1"),
            line("a", 9, "GET *", "400 1"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let trace = read(&[&lines[..], &["", "nothing\r"]].concat()).unwrap();
        let sizes: Vec<(&str, u64)> =
            trace.objects().iter().map(|it| (&*it.path, it.bytes)).collect();
        let expected = [("/x", 5_000), ("/part", 300), ("/same", 0), ("/none", 0), ("/empty", 0)];
        assert_eq!(sizes, expected);
        assert_eq!(trace.requests().len(), 10);
        assert_eq!(trace.requests().iter().filter(|it| it.has_body()).count(), 6);
        let last = trace.requests()[4];
        assert_eq!((last.at_ms, last.client, last.is_head, last.bytes), (2_000, 1, true, 0));
        let summary = trace.summary();
        assert_eq!((summary.lines, summary.malformed, summary.clients), (14, 1, 2));
        assert_eq!(summary.malformed_first, [(15, LogLineError::NoTime)]);
        assert_eq!((summary.other_methods, summary.without_path), (2, 1));
    }

    #[test]
    fn times_that_jump_back_are_counted_and_put_in_order() {
        let lines = [60, 62, 0, 61, 63].map(|second| line("a", second, "GET /", "200 1"));
        let trace = read(&lines.each_ref().map(String::as_str)).unwrap();
        let times: Vec<u64> = trace.requests().iter().map(|it| it.at_ms).collect();
        assert_eq!(times, [0, 60_000, 61_000, 62_000, 63_000]);
        let summary = trace.summary();
        assert_eq!((summary.back_in_time, summary.back_ms_max), (2, 62_000));
        assert_eq!(trace.length_ms(), 63_000);
    }

    #[test]
    fn requests_of_a_second_are_spread_over_it_in_their_order_and_by_their_seed() {
        let lines = [0, 0, 0, 0, 1, 3].map(|second| line("a", second, "GET /", "200 1"));
        let trace = read(&lines.each_ref().map(String::as_str)).unwrap();
        let times = |first, seed| trace.times_us(first, seed).collect::<Vec<u64>>();
        let all = times(0, 1);
        assert!(all.is_sorted() && all.len() == 6, "{all:?}");
        let seconds: Vec<u64> = all.iter().map(|it| it / 1_000_000).collect();
        assert_eq!(seconds, [0, 0, 0, 0, 1, 3]);
        assert_eq!(all, times(0, 1));
        assert_ne!(all, times(0, 2));
        assert_eq!(times(5, 1).len(), 1);
        let exact = r#"{"time":"2000-10-10T20:55:36.250Z","client":"a","method":"GET","target":"/","status":200,"bytes_sent":1,"total_us":200000}"#;
        let trace = read(&[exact, &exact.replace("36.250", "36.150")]).unwrap();
        let times: Vec<u64> = trace.times_us(0, 1).map(|us| us / 1_000).collect();
        assert_eq!(times, [0, 100]);
    }

    #[test]
    fn a_log_without_requests_is_refused_with_the_reason() {
        assert_eq!(read(&[]).unwrap_err(), TraceError::Empty);
        assert_eq!(read(&["", "\r"]).unwrap_err(), TraceError::Empty);
        let error = read(&["", "x", "y"]).unwrap_err();
        let expected = TraceError::Malformed { lines: 2, line: 2, error: LogLineError::NoTime };
        assert_eq!(error, expected);
        let post = line("a", 1, "POST /", "200 1");
        assert_eq!(read(&[&post, "x"]).unwrap_err(), TraceError::NothingToAsk { lines: 2 });
    }

    #[test]
    fn only_the_first_malformed_lines_are_named() {
        let good = line("a", 1, "GET /", "200 1");
        let mut lines = vec!["x"; 50];
        lines.push(&good);
        let trace = read(&lines).unwrap();
        assert_eq!(trace.summary().malformed, 50);
        let named: Vec<u64> = trace.summary().malformed_first.iter().map(|it| it.0).collect();
        assert_eq!(named, (1..=LOG_MALFORMED_NAMED_MAX as u64).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn every_log_is_read_and_all_of_it_is_counted(
            lines in prop::collection::vec(
                (0..3u8, 0..120u32, "(GET|HEAD|POST) (/[a-c]|\\*)", "(200|206|304|404) (-|[0-9]{1,4})"),
                1..40,
            ),
        ) {
            let text: Vec<String> = lines
                .iter()
                .map(|(client, second, request, answer)| {
                    line(&format!("c{client}"), *second, request, answer)
                })
                .collect();
            let count = text.len() as u64;
            match read(&text.iter().map(String::as_str).collect::<Vec<_>>()) {
                Ok(trace) => {
                    let summary = trace.summary();
                    let left_out = summary.malformed + summary.other_methods + summary.without_path;
                    prop_assert_eq!(summary.lines, count);
                    prop_assert_eq!(trace.requests().len() as u64 + left_out, count);
                    prop_assert!(trace.requests().is_sorted_by_key(|it| it.at_ms));
                    for request in trace.requests() {
                        let object = &trace.objects()[request.object as usize];
                        prop_assert!(request.status != 200 || object.bytes >= request.bytes);
                    }
                }
                Err(error) => prop_assert_eq!(error, TraceError::NothingToAsk { lines: count }),
            }
        }
    }
}
