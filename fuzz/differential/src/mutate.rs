//! tidy: table
//!
//! The mutations of valid messages: the classes of request smuggling and of broken framing that are known
//! from other servers, and noise.

use skep_units::Rng;

use crate::message::{Message, one_in, pick};

type Bend = fn(&mut Rng, &mut Message);

/// Mutates a request in one way.
pub(crate) fn request(rng: &mut Rng, it: &mut Message) {
    let bend = pick_bend(rng, &[OF_REQUESTS, OF_BOTH]);
    bend(rng, it);
}

/// Mutates a reply in one way.
pub(crate) fn reply(rng: &mut Rng, it: &mut Message) {
    let bend = pick_bend(rng, &[OF_REPLIES, OF_BOTH]);
    bend(rng, it);
}

/// Changes a few bytes at random positions.
pub(crate) fn noise(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const WORDS: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b",",
        b"0",
        b"\r\n\r\n",
        b"\xff",
        b"%00",
        b"chunked",
        b"\r\nX: ",
        b";",
        b"/",
        b"?",
        b"\x0b",
        b"_",
        b"-",
    ];
    for _ in 0..=rng.below(2) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(4) {
            0 if at < bytes.len() => drop(bytes.remove(at)),
            1 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
            2 => {
                let end = bytes.len().min(at + rng.below(12) as usize);
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => drop(bytes.splice(at..at, pick(rng, WORDS).iter().copied())),
        }
    }
}

fn pick_bend(rng: &mut Rng, tables: &[&[Bend]]) -> Bend {
    let all = tables.concat();
    all[rng.below(all.len() as u64) as usize]
}

/// Inserts a line at a random position among the fields.
fn put(rng: &mut Rng, it: &mut Message, line: impl Into<String>) {
    let at = rng.below(it.fields.len() as u64 + 1) as usize;
    it.fields.insert(at, line.into());
}

fn replace_start(it: &mut Message, from: &str, to: &str) {
    it.start = it.start.replacen(from, to, 1);
}

/// Replaces the value of a field, if it exists.
fn set(it: &mut Message, name: &str, line: impl Fn(&str) -> String) {
    if let Some(at) = it.find(name) {
        let value = it.fields[at].split_once(':').map_or("", |(_, value)| value.trim()).to_owned();
        it.fields[at] = line(&value);
    }
}

fn length(it: &Message) -> String {
    it.body.len().to_string()
}

/// Gives the body a Content-Length, so that mutations of lengths find one.
fn by_length(it: &mut Message) {
    it.without("Content-Length");
    it.without("Transfer-Encoding");
    it.fields.push(format!("Content-Length: {}", it.body.len()));
}

/// Gives the body chunked framing.
fn by_chunks(it: &mut Message, wire: &[u8]) {
    it.without("Content-Length");
    it.without("Transfer-Encoding");
    it.fields.push("Transfer-Encoding: chunked".into());
    it.body = wire.to_vec();
}

const OF_BOTH: &[Bend] = &[
    // Two framings, or a repeated one
    |rng, it| {
        by_chunks(it, b"5\r\nabcde\r\n0\r\n\r\n");
        let line = pick(rng, &["Content-Length: 5", "Content-Length: 15", "Content-Length: 0"]);
        put(rng, it, line);
    },
    |rng, it| {
        by_length(it);
        let (more, same) = (it.body.len() + 1, length(it));
        let second = if one_in(rng, 2) { same } else { more.to_string() };
        put(rng, it, format!("Content-Length: {second}"));
    },
    |rng, it| {
        by_length(it);
        let other = pick(rng, &["0", "1", "3"]).to_owned();
        put(rng, it, format!("Content-Length: {other}"));
    },
    |rng, it| {
        by_length(it);
        let form = pick(
            rng,
            &[
                "+N",
                "-N",
                " N",
                "N ",
                "0N",
                "00N",
                "0xN",
                "N,N",
                "N, N",
                "N;",
                "N.0",
                "\"N\"",
                "",
                "N N",
                "\tN",
                "N\x0b",
                "1844674407370955161N",
                "99999999999999999999N",
            ],
        );
        set(it, "Content-Length", |value| format!("Content-Length: {}", form.replace('N', value)));
    },
    |rng, it| {
        by_length(it);
        let line = pick(
            rng,
            &[
                "Content-Length :",
                "Content-Length\t:",
                " Content-Length:",
                "Content_Length:",
                "Content-Length\x0b:",
                "content-LENGTH:",
                "Content-Length\r:",
            ],
        );
        set(it, "Content-Length", |value| format!("{line} {value}"));
    },
    |rng, it| {
        by_chunks(it, b"5\r\nabcde\r\n0\r\n\r\n");
        let line = pick(
            rng,
            &[
                "Transfer-Encoding: xchunked",
                "Transfer-Encoding: chunked, chunked",
                "Transfer-Encoding: gzip, chunked",
                "Transfer-Encoding: chunked, gzip",
                "Transfer-Encoding: identity",
                "Transfer-Encoding: chunked;a",
                "Transfer-Encoding: \"chunked\"",
                "Transfer-Encoding: CHUNKED",
                "Transfer-Encoding:chunked",
                "Transfer-Encoding: \tchunked ",
                "Transfer-Encoding : chunked",
                "Transfer-Encoding:\x0bchunked",
                "Transfer-Encoding: ,chunked",
                "Transfer-Encoding: chunked,",
                "Transfer-Encoding:",
                "Transfer_Encoding: chunked",
                "Transfer-Encoding\0: chunked",
                "Transfer-Encoding:\r\n chunked",
            ],
        );
        set(it, "Transfer-Encoding", |_| line.to_owned());
    },
    |rng, it| {
        by_chunks(it, b"5\r\nabcde\r\n0\r\n\r\n");
        let line = pick(
            rng,
            &[
                "Transfer-Encoding: chunked",
                "Transfer-Encoding: identity",
                "Transfer-Encoding: gzip",
            ],
        );
        put(rng, it, line);
    },
    |_, it| {
        by_chunks(it, b"5\r\nabcde\r\n0\r\n\r\n");
        replace_start(it, "HTTP/1.1", "HTTP/1.0");
    },
    // Chunks
    |rng, it| {
        let wire = pick::<[u8]>(
            rng,
            &[
                b"5\nabcde\n0\n\n",
                b"5\r\nabcde0\r\n\r\n",
                b"5\r\nabcdefg0\r\n\r\n",
                b"5\r\nabcdeXX0\r\n\r\n",
                b"5\r\nabcde\r\n0\r\n",
                b"+5\r\nabcde\r\n0\r\n\r\n",
                b"-5\r\nabcde\r\n0\r\n\r\n",
                b"0x5\r\nabcde\r\n0\r\n\r\n",
                b" 5\r\nabcde\r\n0\r\n\r\n",
                b"5 \r\nabcde\r\n0\r\n\r\n",
                b"5\t;a\r\nabcde\r\n0\r\n\r\n",
                b"5;a=\"b\nc\"\r\nabcde\r\n0\r\n\r\n",
                b"10000000000000005\r\nabcde\r\n0\r\n\r\n",
                b"ffffffffffffffff\r\nabcde\r\n0\r\n\r\n",
                b"100000005\r\nabcde\r\n0\r\n\r\n",
                b"8000000000000005\r\nabcde\r\n0\r\n\r\n",
                b"00000000000000000000005\r\nabcde\r\n0\r\n\r\n",
                b"5;\r\nabcde\r\n0\r\n\r\n",
                b"5;;\r\nabcde\r\n0\r\n\r\n",
                b"5;a\r\nabcde\r\n0;b=c\r\n\r\n",
                b"\r\n5\r\nabcde\r\n0\r\n\r\n",
                b"5\r\nabcde\r\n\r\n0\r\n\r\n",
                b"g\r\nabcde\r\n0\r\n\r\n",
                b"5\r\nabcde\r\n0\r\nX: y\r\n\r\n",
                b"5\r\nabcde\r\n0\r\nX y\r\n\r\n",
                b"5\r\nabcde\r\n0\r\nContent-Length: 9\r\n\r\n",
                b"5\r\nabcde\r\n0\r\nHost: b\r\n\r\n",
                b"5\r\nabcde\r\n0\r\n\n",
                b"5\r\nabcde\r\n00\r\n\r\n",
                b"5\r\nabcde\r\n0\r\n\rX",
                b"5\r\nabcde\n0\r\n\r\n",
                b"5\r\nabcde\r0\r\n\r\n",
                b"5\rXabcde\r\n0\r\n\r\n",
                b"5\r\nabcde\r\nG0\r\n\r\n",
                b"5\r\nabcde\r\n0_\r\n\r\n",
                b"5\r\nabcde\r\n0\r\nX:\x01\r\n\r\n",
            ],
        );
        by_chunks(it, wire);
    },
    // Fields
    |rng, it| {
        let line = pick(
            rng,
            &[
                "X-Bad",
                ": x",
                "X Y: z",
                " X: y",
                "X : y",
                "X\t: y",
                "X_Y: z",
                "X\0: y",
                "X: a\0b",
                "X: a\rb",
                "X: a\nY: b",
                "X: \x01",
                "X: \x7f",
                "X: \u{e9}",
                "X\u{e9}: y",
                "X(: y",
                "\"X\": y",
                "X: y\r\n folded",
                "X: y\r\n\tfolded",
                "X: y\r\n",
                "X:",
                "X: ,",
                "@: y",
                "X\r: y",
                "X: \r",
                "X: a\r\r",
                "X/Y: z",
                "X: \x0b",
                "X: \x08",
                "X.Y: z",
                "!#$%&'*+-.^`|~: y",
            ],
        );
        put(rng, it, line);
    },
    |rng, it| {
        it.line_end = "\n";
        if one_in(rng, 2) {
            it.body.clear();
            by_length(it);
        }
    },
    |_, it| it.line_end = "\r",
    |_, it| it.line_end = "\r\r\n",
    |rng, it| {
        for _ in 0..rng.below(200) {
            it.fields.push("X-Many: y".into());
        }
    },
    |rng, it| it.fields.push(format!("X-Large: {}", "y".repeat(rng.below(20_000) as usize))),
    // Connection
    |rng, it| {
        let line = pick(
            rng,
            &[
                "Connection: close",
                "Connection: close, X-One",
                "Connection: X-One, Host",
                "Connection: Content-Length",
                "Connection: Transfer-Encoding",
                "Connection: keep-alive, close",
                "Connection:",
                "Connection: ,",
                "Connection: upgrade",
                "Connection: Cookie",
                "Keep-Alive: timeout=5",
                "Proxy-Connection: keep-alive",
                "TE: trailers",
                "TE: chunked",
                "Trailer: X-End",
                "Upgrade: h2c",
                "Connection: \"close\"",
                "Connection: a b",
                "Proxy-Authorization: Basic YTpi",
                "Proxy-Authenticate: Basic",
            ],
        );
        put(rng, it, line);
    },
    // Bytes after the message, or missing bytes
    |rng, it| {
        it.body.extend(pick::<[u8]>(rng, &[b"\r\n", b"\n", b"x", b"\0", b"0\r\n\r\n", b"\r\n\r\n"]))
    },
    |_, it| {
        it.body.pop();
    },
];

const OF_REQUESTS: &[Bend] = &[
    |rng, it| {
        let version = pick(
            rng,
            &[
                "HTTP/1.0",
                "HTTP/1.2",
                "HTTP/1.9",
                "HTTP/2.0",
                "HTTP/0.9",
                "http/1.1",
                "HTTP/1.1 ",
                "HTTP/1.10",
                "HTTP/01.1",
                "HTTP/1,1",
                "HTTP /1.1",
                "HTTP/1.",
                "",
                "HTTP/1.1 x",
                "HTTP/3",
            ],
        );
        replace_start(it, "HTTP/1.1", version);
    },
    |_, it| replace_start(it, "HTTP/1.1", "HTTP/1.0"),
    |_, it| {
        // HTTP/1.0 connections close by default.
        replace_start(it, "HTTP/1.1", "HTTP/1.0");
        it.without("Connection");
    },
    |rng, it| {
        let gap = pick(rng, &["  ", "\t", " \t", "\r", "\x0b", "\x0c", "\u{a0}", ""]);
        replace_start(it, " ", gap);
    },
    |rng, it| {
        let method = pick(
            rng,
            &[
                "get ",
                "GeT ",
                "G\tET ",
                "GET: ",
                "\"GET\" ",
                "CONNECT ",
                "TRACE ",
                "PROPFIND ",
                "M-SEARCH ",
                "X_Y ",
                "GET, ",
                "(GET) ",
                "PRI ",
                "QUERY ",
                "0 ",
                "\r\nGET ",
                "\r\n\r\nGET ",
                "\nGET ",
                " GET ",
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA ",
            ],
        );
        if let Some((_, rest)) = it.start.clone().split_once(' ') {
            it.start = format!("{method}{rest}");
        }
    },
    |rng, it| {
        let target = pick(
            rng,
            &[
                "*",
                "a",
                "",
                "//",
                "//a",
                "/a//b",
                "/../a",
                "/a/../../b",
                "/a/./b",
                "/%2e%2e/a",
                "/a%2Fb",
                "/a%5cb",
                "/a\\b",
                "/%00",
                "/a%",
                "/a%zz",
                "/a%u0041",
                "/#",
                "/a#b",
                "/a?#",
                "/\u{e9}",
                "/a\x01",
                "/a\x7f",
                "/<>",
                "/\"",
                "/[x]",
                "/{x}|^`",
                "http://b.example/",
                "http://a.example",
                "http://a.example?x",
                "HTTP://a.example/",
                "https://a.example/",
                "http:///a",
                "http://u@a.example/",
                "ftp://a.example/",
                "http://a.example:99999/",
                "a.example:80",
                "/a b",
                "/a\tb",
                "?a",
                "/;",
                "/a;b=c",
                "/.a",
                "/..a",
                "/a/..;/b",
                "/~%7e",
                "http://a.example/../b",
                "http://[::1]/",
                "http:a",
            ],
        );
        let words: Vec<_> = it.start.split(' ').map(str::to_owned).collect();
        if let [method, .., version] = &words[..] {
            it.start = format!("{method} {target} {version}");
        }
    },
    |rng, it| {
        let host = pick(
            rng,
            &[
                "Host:",
                "Host: ",
                "Host: a b",
                "Host: a,b",
                "Host: a.example, b.example",
                "Host: a/b",
                "Host: u@a.example",
                "Host: a:",
                "Host: a:b",
                "Host: a:99999",
                "Host: :80",
                "Host: [::1]",
                "Host: [::1",
                "Host: a..b",
                "Host: .a",
                "Host: a%41",
                "Host: a\\b",
                "Host: a_b",
                "Host: A.EXAMPLE",
                "Host: a.example.",
                "Host : a.example",
                "Host: a\0b",
                "Host: \u{e9}.example",
                "Host: a?b",
                "Host: a#b",
                "Host: http://a",
                "Host: a:080",
                "Host: a:+80",
                "Host: a\tb",
                "Host: -",
                "Host: a;b",
            ],
        );
        set(it, "Host", |_| host.to_owned());
    },
    |rng, it| {
        let line = pick(rng, &["Host: b.example", "Host: a.example", "host: a.example", "Host:"]);
        put(rng, it, line);
    },
    |_, it| it.without("Host"),
    |_, it| {
        it.without("Host");
        replace_start(it, "HTTP/1.1", "HTTP/1.0");
    },
    |rng, it| {
        let line = pick(
            rng,
            &[
                "Expect: 100-continue",
                "Expect: 100-Continue",
                "Expect: x",
                "Expect:",
                "Expect: 100-continue, x",
            ],
        );
        put(rng, it, line);
    },
    |rng, it| {
        let line = pick(
            rng,
            &[
                "X-Forwarded-For: 1.2.3.4",
                "Forwarded: for=1.2.3.4",
                "X-Real-IP: 1.2.3.4",
                "Via: 1.1 x",
                "Proxy: http://x",
                "HTTP2-Settings: AAAA",
                "X-Forwarded-Host: evil",
                "Max-Forwards: 0",
            ],
        );
        put(rng, it, line);
    },
    // A body where few servers expect one
    |_, it| {
        replace_start(it, "POST", "GET");
        it.body = b"GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n".to_vec();
        by_length(it);
    },
    |rng, it| {
        let method = pick(rng, &["HEAD ", "DELETE ", "OPTIONS ", "TRACE "]);
        if let Some((_, rest)) = it.start.clone().split_once(' ') {
            it.start = format!("{method}{rest}");
        }
        it.body = b"GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n".to_vec();
        by_length(it);
    },
];

const OF_REPLIES: &[Bend] = &[
    |rng, it| {
        let version = pick(
            rng,
            &[
                "HTTP/1.0",
                "HTTP/1.2",
                "HTTP/2.0",
                "HTTP/0.9",
                "ICY",
                "http/1.1",
                "HTTP/1.1\t",
                " HTTP/1.1",
                "\r\nHTTP/1.1",
                "HTTP/1.10",
            ],
        );
        replace_start(it, "HTTP/1.1", version);
    },
    |rng, it| {
        let status = pick(
            rng,
            &[
                "200",
                "200 ",
                "20 OK",
                "2000 OK",
                "000 OK",
                "600 OK",
                "099 OK",
                "999 OK",
                "2x0 OK",
                "200OK",
                "200\tOK",
                "-200 OK",
                "100 Continue",
                "101 Switch",
                "102 Go",
                "199 Hm",
                "205 Reset",
                "416 No",
                "200 \u{e9}",
                "200 O\0K",
            ],
        );
        if it.start.starts_with("HTTP/1.1 ") {
            it.start = format!("HTTP/1.1 {status}");
        }
    },
    |_, it| {
        it.start = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n{}",
            it.start
        )
    },
    |rng, it| {
        let count = 1 + rng.below(30) as usize;
        it.start = format!("{}{}", "HTTP/1.1 100 Continue\r\n\r\n".repeat(count), it.start);
    },
    |_, it| it.start = format!("HTTP/1.1 103 Hints\r\nContent-Length: 3\r\n\r\n{}", it.start),
    // No body according to the status, but one according to the fields
    |rng, it| {
        it.start = pick(rng, &["HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"]).to_owned();
        it.body = b"abc".to_vec();
        by_length(it);
    },
    |_, it| {
        it.start = "HTTP/1.1 304 Not Modified".to_owned();
        it.body.clear();
        it.without("Transfer-Encoding");
        it.without("Content-Length");
        it.fields.push("Content-Length: 100".into());
    },
    |rng, it| {
        let line = pick(
            rng,
            &[
                "Date: x",
                "Server: y",
                "Content-Encoding: gzip",
                "Age: 5",
                "X-Accel-Redirect: /b",
                "X-Accel-Buffering: no",
                "X-Accel-Expires: 1",
                "Content-Range: bytes 0-1/2",
            ],
        );
        put(rng, it, line);
    },
];
