//! Paths, ranges, conditions and codings: the semantics of well-formed requests.

use skep_http::conditional::{evaluate, names_tag};
use skep_http::negotiate::{AcceptEncoding, Encoding, EncodingSet};
use skep_http::path::{self, Reading};
use skep_http::range::{RangeVerdict, ranges};
use skep_http::{FieldSlots, HeadLimits, Precondition, RequestHead, Validators, parse_request};

use super::table::{Case, check};

const NOW_UNIX: u64 = 1_795_000_000; // November 2026
const RANGES_MAX: usize = 8;

#[test]
fn names_of_files() {
    check("paths", include_str!("paths.txt"), 2, |case| key_of(case, Reading::Files));
}

#[test]
fn targets_of_origins() {
    check("targets", include_str!("targets.txt"), 2, |case| key_of(case, Reading::Origins));
}

fn key_of(case: &Case, reading: Reading) -> Vec<u8> {
    match path::read(&case.columns[1], reading) {
        Err(reject) => reject.to_string().into_bytes(),
        Ok(read) => {
            // Normalising again changes nothing.
            let again = path::read(read.target(), reading).unwrap();
            assert_eq!(again, read, "{}", case.name);
            [b"ok ", read.key()].concat()
        }
    }
}

#[test]
fn byte_ranges() {
    let current = Validators { etag: "\"v1\"", last_modified: Some(784_111_777) };
    check("ranges", include_str!("ranges.txt"), 3, |case| {
        let about = case.text(1);
        let (method, len_bytes) = about.split_once(' ').unwrap();
        let len_bytes: u64 = len_bytes.parse().unwrap();
        let verdict = with_request(method, &case.columns[2], |head| {
            ranges(head, &current, NOW_UNIX, len_bytes, RANGES_MAX)
        });
        match verdict {
            RangeVerdict::Whole => b"whole".to_vec(),
            RangeVerdict::Unsatisfiable => b"unsatisfiable".to_vec(),
            RangeVerdict::Parts(parts) => {
                let parts = parts.iter().map(|part| format!("{}-{}", part.start, part.end - 1));
                parts.collect::<Vec<String>>().join(" ").into_bytes()
            }
        }
    });
}

/// RFC 9110 8.8.2.2: at least one second lies between change and reply.
#[test]
fn a_date_is_strong_if_nothing_could_change_within_its_second() {
    let modified = 784_111_777;
    let current = Validators { etag: "", last_modified: Some(modified) };
    let fields = b"Range: bytes=0-0\r\nIf-Range: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (made, is_strong) in
        [(modified + 1, true), (modified + 60, true), (modified, false), (modified - 1, false)]
    {
        let verdict =
            with_request("GET", fields, |head| ranges(head, &current, made, 9, RANGES_MAX));
        assert_eq!(verdict != RangeVerdict::Whole, is_strong, "{made}");
    }
}

#[test]
fn conditions() {
    check("conditions", include_str!("conditions.txt"), 3, |case| {
        let about = case.text(1);
        let about: Vec<&str> = about.split(' ').collect();
        let current = Validators {
            etag: if about[1] == "-" { "" } else { about[1] },
            last_modified: about[2].parse().ok(),
        };
        let verdict =
            with_request(about[0], &case.columns[2], |head| evaluate(head, &current, NOW_UNIX));
        match verdict {
            Precondition::Proceed => b"proceed".to_vec(),
            Precondition::NotModified => b"not-modified".to_vec(),
            Precondition::Failed => b"failed".to_vec(),
        }
    });
}

#[test]
fn codings() {
    check("codings", include_str!("codings.txt"), 3, |case| {
        let there = case.text(1);
        let has = |coding| there.split(' ').any(|c| c == coding);
        let available = EncodingSet { br: has("br"), zstd: has("zstd"), gzip: has("gzip") };
        with_request("GET", &case.columns[2], |head| {
            let accept = AcceptEncoding::parse(head);
            accept.choose(available).map_or("plain", |encoding| encoding.as_str()).into()
        })
    });
}

/// RFC 9110 12.5.3: weights are the client's; among equals the server chooses.
#[test]
fn the_order_of_the_server_decides_between_equal_weights() {
    use Encoding::{Br, Gzip, Zstd};
    for (accept, order, chosen) in [
        ("br, gzip, zstd", &[Zstd, Br, Gzip][..], Some(Zstd)),
        ("br, gzip, zstd", &[Gzip, Zstd], Some(Gzip)),
        ("br, gzip;q=0.9, zstd;q=0.8", &[Zstd, Gzip], Some(Gzip)),
        ("br", &[Zstd, Gzip], None),
        ("*", &[Gzip], Some(Gzip)),
        ("gzip;q=0.5, identity", &[Gzip], None),
        ("gzip;q=0.5, identity;q=0.5", &[Gzip], Some(Gzip)),
        ("gzip", &[], None),
    ] {
        let field = format!("Accept-Encoding: {accept}\r\n");
        let found = with_request("GET", field.as_bytes(), |head| {
            AcceptEncoding::parse(head).choose_among(order)
        });
        assert_eq!(found, chosen, "{accept} of {order:?}");
    }
}

#[test]
fn a_tag_is_named_in_any_of_three_fields() {
    for (field, names) in [
        ("If-None-Match: \"a\", \"v1\"", true),
        ("If-None-Match: W/\"v1\"", true),
        ("If-Match: \"v1\"", true),
        ("If-Range: \"v1\"", true),
        ("If-None-Match: \"v1-br\"", false),
        ("If-None-Match: *", false),
        ("If-Range: Sun, 06 Nov 1994 08:49:37 GMT", false),
        ("ETag: \"v1\"", false),
    ] {
        let fields = format!("{field}\r\n");
        let found = with_request("GET", fields.as_bytes(), |head| names_tag(head, "\"v1\""));
        assert_eq!(found, names, "{field}");
        assert!(!with_request("GET", fields.as_bytes(), |head| names_tag(head, "")), "{field}");
    }
}

fn with_request<T>(method: &str, fields: &[u8], read: impl Fn(&RequestHead<'_, '_>) -> T) -> T {
    let line = format!("{method} / HTTP/1.1\r\nHost: a\r\n");
    let head = [line.as_bytes(), fields, b"\r\n"].concat();
    let mut slots = FieldSlots::new();
    read(&parse_request(&mut slots, &head, &HeadLimits::default()).unwrap())
}
