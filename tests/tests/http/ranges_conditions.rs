//! Ranges (RFC 9110 section 14) and conditions (section 13) of files.

use std::fs::File;
use std::time::{Duration, SystemTime};

use skep_tests::content::{self, assert_same};
use skep_tests::{Response, Site, Skep};

const LEN: usize = 1000;
const MIB: usize = 1024 * 1024;
/// 2000-10-10 13:55:36 UTC.
const MODIFIED_S: u64 = 971_186_136;
const MODIFIED: &str = "Tue, 10 Oct 2000 13:55:36 GMT";
const BEFORE: &str = "Tue, 10 Oct 2000 13:55:35 GMT";
const AFTER: &str = "Tue, 10 Oct 2000 13:55:37 GMT";

/// Starts a site with `/f` of [`LEN`] bytes, modified at [`MODIFIED`].
fn server() -> (Site, Skep) {
    let site = Site::new().with_large("f", LEN).with("empty", "");
    for name in ["f", "empty"] {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_S);
        File::options().write(true).open(site.path(name)).unwrap().set_modified(modified).unwrap();
    }
    let skep = Skep::serve(site.root(), &[]);
    (site, skep)
}

fn get(skep: &Skep, target: &str, fields: &[(&str, &str)]) -> Response {
    skep.connect().request("GET", target, fields)
}

fn body() -> Vec<u8> {
    content::version(1, LEN)
}

#[test]
fn one_range() {
    let (_site, skep) = server();
    let cases = [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99", 0, 99),
        ("bytes=500-", 500, 999),
        ("bytes=-1", 999, 999),
        ("bytes=-200", 800, 999),
        ("bytes=-5000", 0, 999),
        ("bytes=900-5000", 900, 999),
        ("bytes=999-999", 999, 999),
        ("Bytes=0-9", 0, 9),
        ("bytes=0-18446744073709551615", 0, 999),
    ];
    for (range, first, last) in cases {
        let response = get(&skep, "/f", &[("Range", range)]);
        response.assert_status(206);
        response.assert_header("content-range", &format!("bytes {first}-{last}/{LEN}"));
        response.assert_header("content-length", &(last - first + 1).to_string());
        assert_same(&response.body, &body()[first..=last]);
        assert!(response.header("etag").is_some() && response.header("last-modified").is_some());
    }
}

#[test]
fn ranges_beyond_the_end_are_416() {
    let (_site, skep) = server();
    for range in ["bytes=1000-", "bytes=5000-6000", "bytes=-0", "bytes=1000-1000,2000-"] {
        let response = get(&skep, "/f", &[("Range", range)]);
        response.assert_status(416).assert_header("content-range", &format!("bytes */{LEN}"));
        assert!(!response.says_close(), "{range}");
    }
    let response = get(&skep, "/empty", &[("Range", "bytes=0-")]);
    assert!(matches!(response.status, 200 | 416), "{}", response.head_text());
}

#[test]
fn what_is_no_range_is_ignored() {
    let (_site, skep) = server();
    let ranges = [
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=5-2",
        "bytes=1-2-3",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes 0-9",
        "bytes=0-9,a",
        "lines=0-9",
        "bytes=99999999999999999999999-",
    ];
    for range in ranges {
        let response = get(&skep, "/f", &[("Range", range)]);
        let fine = response.status == 200 && response.body == body()
            || range.starts_with("bytes=9999") && response.status == 416;
        assert!(fine, "{range}: {}", response.head_text());
    }
}

#[test]
fn ranges_are_for_get_only() {
    let (_site, skep) = server();
    let response = skep.connect().request("HEAD", "/f", &[("Range", "bytes=0-9")]);
    response.assert_status(200).assert_header("content-length", "1000");
}

/// Parses the parts of a `multipart/byteranges` body: Content-Range and bytes.
fn parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let content_type = response.header("content-type").unwrap();
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let text = String::from_utf8(response.body.clone()).unwrap();
    let end = format!("{boundary}--");
    let (inner, epilogue) = text.split_once(&end).expect("closing boundary");
    assert!(epilogue.is_empty() || epilogue == "\r\n", "{epilogue:?}");
    let separator = format!("{boundary}\r\n");
    let mut pieces = inner.split(&separator);
    assert!(matches!(pieces.next(), Some("" | "\r\n")), "preamble");
    pieces
        .map(|piece| {
            let (head, rest) = piece.split_once("\r\n\r\n").unwrap();
            let range = head.split("\r\n").find_map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                name.eq_ignore_ascii_case("content-range").then(|| value.to_owned())
            });
            let bytes = rest.strip_suffix("\r\n").unwrap();
            (range.unwrap(), bytes.as_bytes().to_vec())
        })
        .collect()
}

#[test]
fn several_ranges() {
    let (_site, skep) = server();
    let response = get(&skep, "/f", &[("Range", "bytes=0-9, 100-199 ,-5")]);
    response.assert_status(206);
    assert_eq!(response.header("content-range"), None);
    let whole = body();
    let expected = [(0, 9), (100, 199), (995, 999)].map(|(first, last): (usize, usize)| {
        (format!("bytes {first}-{last}/{LEN}"), whole[first..=last].to_vec())
    });
    assert_eq!(parts(&response), expected);
}

#[test]
fn of_several_ranges_only_those_within_are_sent() {
    let (_site, skep) = server();
    let response = get(&skep, "/f", &[("Range", "bytes=0-9,5000-")]);
    response.assert_status(206);
    let range = response.header("content-range").map(str::to_owned);
    let range = range.unwrap_or_else(|| parts(&response)[0].0.clone());
    assert_eq!(range, format!("bytes 0-9/{LEN}"));
}

/// CVE-2011-3192: many overlapping ranges must not multiply the work.
#[test]
fn greedy_ranges_cost_no_more_than_the_file() {
    let (_site, skep) = server();
    let many = (0..600).map(|n| format!("{n}-")).collect::<Vec<_>>().join(",");
    let response = get(&skep, "/f", &[("Range", &format!("bytes={many}"))]);
    assert!(matches!(response.status, 200 | 206 | 416), "{}", response.head_text());
    assert!(response.body.len() < 2 * LEN, "{} bytes", response.body.len());
}

#[test]
fn ranges_across_segments_of_a_large_file() {
    const SIZE: usize = 13 * MIB + 7;
    let site = Site::new().with_large("large", SIZE);
    let skep = Skep::serve(site.root(), &["--cache-size", "32MiB"]);
    let whole = content::version(1, SIZE);
    let mut client = skep.connect();
    for (first, last) in [
        (4 * MIB - 1, 4 * MIB),
        (4 * MIB, 8 * MIB - 1),
        (3 * MIB, 9 * MIB),
        (SIZE - 1, SIZE - 1),
        (12 * MIB + 1, SIZE - 1),
        (0, SIZE - 1),
    ] {
        let range = format!("bytes={first}-{last}");
        let response = client.request("GET", "/large", &[("Range", &range)]);
        response.assert_status(206);
        assert_same(&response.body, &whole[first..=last]);
    }
}

#[test]
fn a_range_with_if_range_holds_for_the_same_version_only() {
    let (_site, skep) = server();
    let etag = get(&skep, "/f", &[]).header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let cases = [
        (etag.as_str(), 206),
        ("\"other\"", 200),
        (weak.as_str(), 200),
        // RFC 9110, section 8.8.2.2: a file may have been written twice within the second of its date.
        (MODIFIED, 200),
        (BEFORE, 200),
        (AFTER, 200),
        ("rubbish", 200),
    ];
    for (if_range, status) in cases {
        let response = get(&skep, "/f", &[("Range", "bytes=0-9"), ("If-Range", if_range)]);
        assert_eq!(response.status, status, "{if_range}");
        assert_eq!(response.body.len(), if status == 206 { 10 } else { LEN });
    }
    let alone = get(&skep, "/f", &[("If-Range", &etag)]);
    alone.assert_status(200);
}

/// RFC 9110, section 8.8.2.2: a date whose second has not ended is no strong validator, as the file may still
/// change within it.
#[test]
fn a_date_that_is_not_over_pins_no_version() {
    let site = Site::new().with_large("f", LEN);
    let later = SystemTime::now() + Duration::from_secs(3600);
    File::options().write(true).open(site.path("f")).unwrap().set_modified(later).unwrap();
    let skep = Skep::serve(site.root(), &[]);
    let whole = get(&skep, "/f", &[]);
    let (date, etag) = (whole.header("last-modified").unwrap(), whole.header("etag").unwrap());
    let part = |if_range| get(&skep, "/f", &[("Range", "bytes=0-9"), ("If-Range", if_range)]);
    for _ in 0..2 {
        assert_eq!(part(date).assert_status(200).body.len(), LEN);
        assert_eq!(part(etag).assert_status(206).body.len(), 10);
    }
}

#[test]
fn conditions_one_by_one() {
    let (_site, skep) = server();
    let etag = get(&skep, "/f", &[]).header("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let list = format!("\"x\", {etag} , \"y\"");
    let other_list = "\"x\", W/\"y\"";
    let cases: &[(&str, &str, u16)] = &[
        ("If-None-Match", &etag, 304),
        ("If-None-Match", &weak, 304),
        ("If-None-Match", &list, 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", other_list, 200),
        ("If-None-Match", "\"\"", 200),
        ("If-Modified-Since", MODIFIED, 304),
        ("If-Modified-Since", AFTER, 304),
        ("If-Modified-Since", BEFORE, 200),
        ("If-Modified-Since", "rubbish", 200),
        ("If-Modified-Since", "Tuesday, 10-Oct-00 13:55:36 GMT", 304),
        ("If-Modified-Since", "Tue Oct 10 13:55:36 2000", 304),
        ("If-Match", &etag, 200),
        ("If-Match", &list, 200),
        ("If-Match", "*", 200),
        ("If-Match", &weak, 412),
        ("If-Match", other_list, 412),
        ("If-Unmodified-Since", MODIFIED, 200),
        ("If-Unmodified-Since", AFTER, 200),
        ("If-Unmodified-Since", BEFORE, 412),
        ("If-Unmodified-Since", "rubbish", 200),
    ];
    let mut client = skep.connect();
    for (name, value, status) in cases {
        for method in ["GET", "HEAD"] {
            let response = client.request(method, "/f", &[(name, value)]);
            assert_eq!(response.status, *status, "{method} {name}: {value}");
        }
    }
}

#[test]
fn not_modified_has_the_fields_of_200_and_no_body() {
    let (_site, skep) = server();
    let mut client = skep.connect();
    let whole = client.get("/f");
    let etag = whole.header("etag").unwrap();
    let response = client.request("GET", "/f", &[("If-None-Match", etag)]);
    response.assert_status(304);
    for name in ["etag", "last-modified", "cache-control", "vary"] {
        // RFC 9110, section 15.4.5: the fields that a 200 would have.
        assert_eq!(response.header(name), whole.header(name), "{name}");
    }
    assert!(response.header("date").is_some());
    let length = response.header("content-length");
    assert!(length.is_none_or(|length| length == "1000"), "{length:?}");
    assert_same(&client.get("/f").body, &body());
}

#[test]
fn conditions_together_in_the_order_of_the_rfc() {
    let (_site, skep) = server();
    let etag = get(&skep, "/f", &[]).header("etag").unwrap().to_owned();
    let cases: &[(&[(&str, &str)], u16)] = &[
        // RFC 9110, section 13.2.2: If-Match before If-None-Match.
        (&[("If-Match", "\"x\""), ("If-None-Match", &etag)], 412),
        (&[("If-Match", &etag), ("If-None-Match", &etag)], 304),
        // Section 13.1.4: If-Unmodified-Since is ignored with If-Match.
        (&[("If-Match", &etag), ("If-Unmodified-Since", BEFORE)], 200),
        // Section 13.1.3: If-Modified-Since is ignored with If-None-Match.
        (&[("If-None-Match", "\"x\""), ("If-Modified-Since", AFTER)], 200),
        (&[("If-None-Match", &etag), ("If-Modified-Since", BEFORE)], 304),
        // Conditions before ranges.
        (&[("If-None-Match", &etag), ("Range", "bytes=0-9")], 304),
        (&[("If-Match", "\"x\""), ("Range", "bytes=0-9")], 412),
        (&[("If-Match", &etag), ("Range", "bytes=0-9")], 206),
    ];
    for (fields, status) in cases {
        assert_eq!(get(&skep, "/f", fields).status, *status, "{fields:?}");
    }
}

#[test]
fn conditions_do_not_touch_what_is_not_there() {
    let (_site, skep) = server();
    for (name, value) in [("If-None-Match", "*"), ("If-Modified-Since", AFTER)] {
        get(&skep, "/none", &[(name, value)]).assert_status(404);
    }
}

#[test]
fn a_last_modified_is_what_the_file_says() {
    let (_site, skep) = server();
    get(&skep, "/f", &[]).assert_header("last-modified", MODIFIED);
}
