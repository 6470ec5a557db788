//! Generates requests and replies: valid by construction, then mutated.

use skep_units::Rng;

use crate::limits::BODY_BYTES_MAX;

/// A message before it is serialised. After a mutation it may be invalid.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Request line or status line, without its line end.
    pub(crate) start: String,
    /// Field lines, without their line ends.
    pub(crate) fields: Vec<String>,
    /// The line end of each line of the head.
    pub(crate) line_end: &'static str,
    /// The bytes after the head.
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in std::iter::once(&self.start).chain(&self.fields) {
            bytes.extend(line.chars().map(|char| char as u32 as u8));
            bytes.extend(self.line_end.as_bytes());
        }
        bytes.extend(self.line_end.as_bytes());
        bytes.extend(&self.body);
        bytes
    }

    /// The index of a field's line.
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|line| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        })
    }

    /// Removes a field.
    pub(crate) fn without(&mut self, name: &str) {
        while let Some(at) = self.find(name) {
            self.fields.remove(at);
        }
    }
}

/// Picks one of the values.
pub(crate) fn pick<'a, T: ?Sized>(rng: &mut Rng, from: &[&'a T]) -> &'a T {
    from[rng.below(from.len() as u64) as usize]
}

/// Returns true once in `n` times.
pub(crate) fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/a/b.html",
    "/a?b=c",
    "/a?",
    "/a?b=/../c?d",
    "/a%20b",
    "/%7Euser/",
    "/a;p=1/b",
    "/a,b!c$d'e(f)*g+h",
    "/very/long/path/with/many/segments/0123456789/abcdefghijklmnop",
    "/@:x",
    "/a?%2f%2e",
    "/index.html?x=1&y=2&z=%C3%A9",
];

const METHODS: &[&str] =
    &["GET", "GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"];

const FIELDS: &[&str] = &[
    "User-Agent: fuzz/1.0 (x; y)",
    "Accept: text/html,*/*;q=0.8",
    "Accept-Encoding: gzip, br",
    "Accept-Language: de",
    "Cookie: a=b; c=\"d\"",
    "X-One: 1",
    "X-One: 2",
    "X-Empty:",
    "X-Spaces: \t a b \t",
    "x-lower: y",
    "Range: bytes=0-9",
    "If-None-Match: \"abc\"",
    "Cache-Control: no-cache",
    "Content-Type: text/plain",
    "Referer: http://a.example/?q",
    "Authorization: Basic YTpi",
    "X-Long: 012345678901234567890123456789012345678901234567890123",
    "X-Punct: !#$%&'()*+,-./:;<=>?@[]^_`{|}~",
    "If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT",
];

/// A request that every server should accept.
pub(crate) fn request(rng: &mut Rng) -> Message {
    let method = pick(rng, METHODS);
    let target = pick(rng, TARGETS);
    let host = pick(rng, &["a.example", "a.example:80", "127.0.0.1:8080", "xn--a-ecp.example"]);
    let is_old = one_in(rng, 20);
    let version = if is_old { "HTTP/1.0" } else { "HTTP/1.1" };
    let absolute = if one_in(rng, 25) { format!("http://{host}") } else { String::new() };
    let mut it = Message {
        start: format!("{method} {absolute}{target} {version}"),
        fields: vec![format!("Host: {host}")],
        line_end: "\r\n",
        body: Vec::new(),
    };
    for _ in 0..rng.below(5) {
        add_once(&mut it, pick(rng, FIELDS));
    }
    if is_old {
        it.fields.push("Connection: keep-alive".to_owned());
    } else if one_in(rng, 12) {
        it.fields.push(pick(rng, &["Connection: keep-alive", "Connection: Keep-Alive"]).to_owned());
    }
    let takes_body = matches!(method, "POST" | "PUT" | "PATCH") || one_in(rng, 12);
    if takes_body && method != "HEAD" && !(is_old && method == "GET") {
        add_body(rng, &mut it, !is_old, "T");
    }
    let at = rng.below(it.fields.len() as u64) as usize;
    // Host is the first field of most requests, but not of all.
    if one_in(rng, 4) {
        it.fields.swap(0, at);
    }
    it
}

/// A reply to `method` that every proxy should forward, and whether the connection must be closed after it.
pub(crate) fn reply(rng: &mut Rng) -> (Message, bool) {
    let status = pick(
        rng,
        &[
            "200 OK",
            "200 OK",
            "200 OK",
            "200 OK",
            "201 Created",
            "404 Not Found",
            "500 Oops",
            "301 Moved",
            "403 Forbidden",
            "204 No Content",
            "304 Not Modified",
            "299 Strange",
        ],
    );
    let mut it = Message {
        start: format!("HTTP/1.1 {status}"),
        fields: Vec::new(),
        line_end: "\r\n",
        body: Vec::new(),
    };
    const REPLY_FIELDS: &[&str] = &[
        "Content-Type: text/html",
        "ETag: \"a\"",
        "X-Reply: 1",
        "X-Reply: 2",
        "Set-Cookie: a=b",
        "Set-Cookie: c=d",
        "Cache-Control: no-store",
        "Location: /b",
        "X-Empty:",
        "Vary: Accept",
    ];
    for _ in 0..rng.below(4) {
        add_once(&mut it, pick(rng, REPLY_FIELDS));
    }
    if status.starts_with("204") || status.starts_with("304") {
        return (it, one_in(rng, 4));
    }
    let until_close = one_in(rng, 30);
    if until_close {
        it.body = body(rng, "R");
        it.fields.push("Connection: close".to_owned());
    } else {
        add_body(rng, &mut it, true, "R");
    }
    if one_in(rng, 40) {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        it.start = format!("{hint}{}", it.start);
    }
    (it, until_close || one_in(rng, 4))
}

/// Adds a line unless it exists: few fields may be repeated.
fn add_once(it: &mut Message, line: &str) {
    if !it.fields.iter().any(|known| known == line) {
        it.fields.push(line.to_owned());
    }
}

fn add_body(rng: &mut Rng, it: &mut Message, may_chunk: bool, mark: &str) {
    let body = body(rng, mark);
    if !may_chunk || !one_in(rng, 3) {
        it.fields.push(format!("Content-Length: {}", body.len()));
        it.body = body;
        return;
    }
    it.fields.push("Transfer-Encoding: chunked".to_owned());
    let mut rest = &body[..];
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
        let extension = if one_in(rng, 10) { ";a=b" } else { "" };
        let zeros = if one_in(rng, 10) { "00" } else { "" };
        it.body.extend(format!("{zeros}{:x}{extension}\r\n", piece.len()).into_bytes());
        it.body.extend(piece);
        it.body.extend(b"\r\n");
        rest = left;
    }
    let trailer = if one_in(rng, 8) { "X-Trailer: 1\r\n" } else { "" };
    it.body.extend(format!("0\r\n{trailer}\r\n").into_bytes());
}

/// Bytes that do not look like a message, so that an offset error becomes visible; occasionally bytes that
/// do, so that they are mistaken for one.
fn body(rng: &mut Rng, mark: &str) -> Vec<u8> {
    let len = match rng.below(6) {
        0 => 0,
        1 => 1,
        5 => rng.below(BODY_BYTES_MAX),
        _ => rng.below(60),
    };
    if one_in(rng, 10) {
        return b"GET /inner HTTP/1.1\r\nHost: inner\r\n\r\n".to_vec();
    }
    (0..len as usize)
        .map(|at| if at == 0 { mark.as_bytes()[0] } else { b'0' + (at % 10) as u8 })
        .collect()
}
