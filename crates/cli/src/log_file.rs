//! Reads access logs from files, plain or compressed by gzip.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;
use skep_advise::{LogTrace, TraceReader};

/// Bytes kept of a line: slightly more than the maximum length of a line, so that a longer one is detected.
const LINE_BYTES_KEPT: usize = skep_advise::LOG_LINE_BYTES_MAX + 2;

/// The first bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a log; `progress` is called with the file and its length, and wraps the file.
///
/// # Errors
/// The file does not exist, or is not a log.
pub(crate) fn read_log<R: Read>(
    path: &Path,
    progress: impl FnOnce(File, u64) -> R,
) -> anyhow::Result<LogTrace> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    let about = file.metadata().with_context(|| format!("cannot read {name}"))?;
    if about.is_dir() {
        bail!("{name}: expected an access log, found a folder");
    }
    let mut input = BufReader::new(progress(file, about.len()));
    let begin = input.fill_buf().with_context(|| format!("cannot read {name}"))?;
    let read = match begin.starts_with(&GZIP) {
        true => lines(BufReader::new(MultiGzDecoder::new(input))),
        false => lines(input),
    };
    let reader = read.with_context(|| format!("cannot read {name}"))?;
    reader.finish().with_context(|| name.to_string())
}

fn lines(mut input: impl BufRead) -> io::Result<TraceReader> {
    let mut reader = TraceReader::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if !read_line(&mut input, &mut line)? || !reader.line(number, &line) {
            break;
        }
    }
    Ok(reader)
}

/// Reads a line without its line end; a line that is too long is truncated. Returns `false` at the end of the
/// file.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let mut is_begun = false;
    loop {
        let part = input.fill_buf()?;
        if part.is_empty() {
            return Ok(is_begun);
        }
        is_begun = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let bytes = &part[..end.unwrap_or(part.len())];
        line.extend_from_slice(&bytes[..bytes.len().min(LINE_BYTES_KEPT - line.len())]);
        let used = end.map_or(part.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use super::*;

    const LINE: &str = "a - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.1\" 200 1\n";

    fn read(bytes: &[u8]) -> anyhow::Result<LogTrace> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read_log(file.path(), |file, _| file)
    }

    #[test]
    fn logs_are_read_compressed_or_not_and_lines_without_end_are_cut() {
        let long = [&b"x".repeat(1 << 20)[..], b"\n", LINE.as_bytes()].concat();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&long).unwrap();
        let gzip = gzip.finish().unwrap();
        let twice = [gzip.clone(), gzip.clone()].concat();
        for (bytes, requests) in [
            (LINE.as_bytes(), 1),
            (LINE.trim_end().as_bytes(), 1),
            (&LINE.replace('\n', "\r\n").repeat(3).into_bytes()[..], 3),
            (&long, 1),
            (&gzip, 1),
            (&twice, 2),
        ] {
            assert_eq!(read(bytes).unwrap().requests().len(), requests);
        }
        assert_eq!(read(&long).unwrap().summary().malformed, 1);
    }

    #[test]
    fn what_is_no_log_is_refused_with_the_reason() {
        let told = |result: anyhow::Result<LogTrace>| format!("{:#}", result.unwrap_err());
        assert!(told(read(b"")).ends_with("expected an access log, found no line"));
        assert!(told(read(b"x\n")).contains("none of 1 lines is one; line 1: expected a client"));
        assert!(told(read(&[0x1f, 0x8b, 1, 2])).contains("cannot read"));
        let folder = read_log(Path::new("/"), |file, _| file);
        assert!(told(folder).contains("/: expected an access log, found a folder"));
        let missing = read_log(Path::new("/no/such/log"), |file, _| file);
        assert!(told(missing).contains("cannot read /no/such/log"));
    }
}
