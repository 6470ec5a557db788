//! The seeds of mutations, and the words that mutations insert.

use std::path::Path;

use crate::{caching, gateways, handoffs, machines, streams};

#[path = "../../crates/core/http/tests/http/cases/table.rs"]
#[expect(dead_code, reason = "only its parser is wanted here")]
mod table;

const REQUESTS: &str = include_str!("../../crates/core/http/tests/http/cases/requests.txt");
const CHUNKED: &str = include_str!("../../crates/core/http/tests/http/cases/chunked.txt");
const RESPONSES: &str = include_str!("../../crates/core/http/tests/http/cases/responses.txt");
const PATHS: &str = include_str!("../../crates/core/http/tests/http/cases/paths.txt");
const TARGETS: &str = include_str!("../../crates/core/http/tests/http/cases/targets.txt");
const RANGES: &str = include_str!("../../crates/core/http/tests/http/cases/ranges.txt");
const CONDITIONS: &str = include_str!("../../crates/core/http/tests/http/cases/conditions.txt");
const CODINGS: &str = include_str!("../../crates/core/http/tests/http/cases/codings.txt");

/// Maximum length of a seed, in bytes: the largest cases of the tables would only slow mutation down.
const SEED_BYTES_MAX: usize = 2048;

/// Seeds of a target, from the case tables.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let column = |table, columns: usize| -> Vec<Vec<u8>> {
        let cases = table::parse(table, columns);
        cases.into_iter().filter_map(|mut case| case.columns.pop()).collect()
    };
    let seeds = match target {
        "request_head" | "gateway_request" => column(REQUESTS, 2),
        "body" => column(CHUNKED, 2),
        "response_head" => column(RESPONSES, 2),
        "path" => [column(PATHS, 2), column(TARGETS, 2)].concat(),
        "range_conditions" => {
            [column(RANGES, 3), column(CONDITIONS, 3), column(CODINGS, 3)].concat()
        }
        "datagram" => machines::datagrams(),
        "message" => machines::messages(),
        "lccp" => handoffs::seeds(),
        "cache_handshake" => streams::handshakes(),
        "cache_frames" => streams::framed(),
        "cache_message" => streams::messages(),
        "part_head" => streams::part_heads(),
        "ajp_reply" => gateways::ajp_replies(),
        "caching" => caching::exchanges(),
        "fastcgi_reply" => gateways::fastcgi_replies(),
        other => panic!("there is no target {other}"),
    };
    seeds.into_iter().filter(|seed| seed.len() <= SEED_BYTES_MAX).collect()
}

/// Inputs in `regressions/TARGET`, by name.
pub fn regressions(fuzz_dir: &Path, target: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(fuzz_dir.join("regressions").join(target)) else {
        return Vec::new();
    };
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((path.file_name()?.to_string_lossy().into_owned(), std::fs::read(&path).ok()?))
        })
        .collect();
    inputs.sort();
    inputs
}

/// Words that turn one protocol element into another.
pub const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"=",
    b"\"",
    b"\\",
    b"%",
    b"%2e",
    b"%2f",
    b"%00",
    b"/",
    b"//",
    b"/../",
    b"/./",
    b"..",
    b"?",
    b"#",
    b"*",
    b"_",
    b"@",
    b"[::1]",
    b"-",
    b"+",
    b"0",
    b"00",
    b"0x",
    b"5",
    b"ffffffffffffffff",
    b"18446744073709551615",
    b"18446744073709551616",
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"OPTIONS ",
    b"CONNECT ",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b"HTTP/1.1 200 OK",
    b"http://",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"Date: x\r\n",
    b"Cache-Control: ",
    b"CDN-Cache-Control: ",
    b"max-age=",
    b"no-store",
    b"private",
    b"Vary: ",
    b"Location: ",
    b"Cache-Groups: ",
    b"X-Forwarded-For: 6.6.6.6\r\n",
    b"chunked",
    b"identity",
    b"gzip",
    b"br",
    b";q=0",
    b";q=0.5",
    b"Range: bytes=0-9\r\n",
    b"bytes=",
    b"0-",
    b"-5",
    b"If-Range: ",
    b"If-None-Match: ",
    b"If-Match: ",
    b"If-Modified-Since: ",
    b"W/",
    b"\"v1\"",
    b"Sun, 06 Nov 1994 08:49:37 GMT",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b";a=b",
    b"AB\x00\x02\x05\x01",
    b"AB\x00\x03\x06\x1f\xfa",
    b"AB\x00\x04\x03\x00\x00\x00",
    b"\xa0\x03",
    b"\x01\x06\x00\x01",
    b"\x01\x07\x00\x01\x00\x02\x00\x00a\n",
    b"Status: 304\r\n",
    b".php",
    b"Proxy: x\r\n",
    b"\x7f",
    b"\x80",
    b"\xff",
];
