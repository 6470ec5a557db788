//! Origin web servers controlled by a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::Skep;
use crate::acceptor::Acceptor;

/// Header fields of a response that stays fresh longer than any test runs.
pub const FRESH: &str = "Cache-Control: max-age=3600\r\n";

/// The first range requested of an object: its first segment.
pub const HEAD_RANGE: &str = "bytes=0-4194303";

/// A received request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// Path and query.
    pub target: String,
    fields: Vec<(String, String)>,
}

impl Asked {
    /// Returns the value of a field; its name is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the request without this field.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut asked = self.clone();
        asked.fields.retain(|(known, _)| known != name);
        asked
    }

    /// Returns the requested range of bytes, limited to `len`.
    pub fn range(&self, len: usize) -> Option<Range<usize>> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let first: usize = first.parse().ok()?;
        let end = last.parse::<usize>().map_or(len, |last| (last + 1).min(len));
        Some(first..end)
    }
}

/// What an origin sends.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The head, including the empty line.
    pub head: String,
    /// The bytes after the head.
    pub body: Vec<u8>,
    /// The bytes sent after [`Origin::go_on`].
    pub rest: Vec<u8>,
    /// What follows the answer.
    pub then: Then,
}

/// What an origin does after an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// Waits for the next request.
    #[default]
    Next,
    /// Closes.
    Close,
    /// Keeps the connection open and sends nothing more.
    Hang,
}

impl Answer {
    /// A whole answer; `fields` are lines.
    pub fn new(status: u16, fields: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let head =
            format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n{fields}\r\n", body.len());
        Self { head, body, ..Self::default() }
    }

    /// The answer of a server that has `bytes` with `etag`, and supports ranges and conditional requests.
    pub fn of(asked: &Asked, bytes: &[u8], etag: &str, fields: &str) -> Self {
        let fields = format!("ETag: {etag}\r\n{fields}");
        if asked.field("if-none-match") == Some(etag) {
            let head = format!("HTTP/1.1 304 Same\r\n{fields}\r\n");
            return Self { head, ..Self::default() };
        }
        let is_pinned_to_other = asked.field("if-range").is_some_and(|pinned| pinned != etag);
        match asked.range(bytes.len()).filter(|_| !is_pinned_to_other) {
            Some(range) if range.start < range.end => {
                let (first, last, len) = (range.start, range.end - 1, bytes.len());
                let fields = format!("Content-Range: bytes {first}-{last}/{len}\r\n{fields}");
                Self::new(206, &fields, &bytes[range])
            }
            Some(_) => {
                let fields = format!("Content-Range: bytes */{}\r\n{fields}", bytes.len());
                Self::new(416, &fields, "")
            }
            None => Self::new(200, &fields, bytes),
        }
    }

    /// Sends only the first `bytes` bytes of the body, until [`Origin::go_on`].
    #[must_use]
    pub fn halt(mut self, bytes: usize) -> Self {
        self.rest = self.body.split_off(bytes);
        self
    }

    /// Sends only the first `bytes` bytes of the body, then does `then`.
    #[must_use]
    pub fn cut(mut self, bytes: usize, then: Then) -> Self {
        self.body.truncate(bytes);
        self.then = then;
        self
    }
}

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;

struct Shared {
    script: Mutex<Arc<Script>>,
    asked: Mutex<Vec<Asked>>,
    /// Blocks each answer.
    answers: Gate,
    /// Blocks the rest of an answer.
    rests: Gate,
    is_over: AtomicBool,
}

/// Blocks threads until it is open.
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn new(is_open: bool) -> Self {
        Self { is_open: Mutex::new(is_open), opened: Condvar::new() }
    }

    fn set(&self, is_open: bool) {
        *lock(&self.is_open) = is_open;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut is_open = lock(&self.is_open);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A running origin. Closes its port and releases all waiting threads when dropped.
pub struct Origin {
    shared: Arc<Shared>,
    acceptor: Acceptor,
}

impl Origin {
    /// Starts an origin that answers by `script`.
    pub fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            asked: Mutex::default(),
            answers: Gate::new(true),
            rests: Gate::new(false),
            is_over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let acceptor = Acceptor::start(listener, move |stream| drop(serve(&serving, &stream)));
        Self { shared, acceptor }
    }

    /// Starts an origin that serves `bytes` under every path.
    pub fn of(bytes: impl Into<Vec<u8>>, etag: &'static str, fields: &'static str) -> Self {
        let bytes = bytes.into();
        Self::start(move |asked| Answer::of(asked, &bytes, etag, fields))
    }

    /// Starts an origin whose n-th answer is `script(n, asked)`.
    pub fn counting(script: impl Fn(usize, &Asked) -> Answer + Send + Sync + 'static) -> Self {
        let count = AtomicUsize::new(0);
        Self::start(move |asked| script(count.fetch_add(1, Ordering::SeqCst), asked))
    }

    /// Starts a single node with this origin; `settings` are more lines of its site.
    #[track_caller]
    pub fn node(&self, settings: &str) -> Skep {
        Skep::node_of(&(self.line() + settings))
    }

    /// Replaces the script.
    pub fn follow(&self, script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.acceptor.address())
    }

    /// Returns the config line of a site that uses it.
    pub fn line(&self) -> String {
        format!("origins = [\"{}\"]\n", self.url())
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// Returns the ranges of all requests so far.
    pub fn ranges(&self) -> Vec<String> {
        let range = |asked: &Asked| asked.field("range").unwrap_or("all").to_owned();
        lock(&self.shared.asked).iter().map(range).collect()
    }

    /// Blocks answers until [`Self::open`].
    pub fn close(&self) {
        self.shared.answers.set(false);
    }

    /// Unblocks answers.
    pub fn open(&self) {
        self.shared.answers.set(true);
    }

    /// Sends the rests of answers that are halted.
    pub fn go_on(&self) {
        self.shared.rests.set(true);
    }

    /// Blocks the rests of answers again.
    pub fn halt_again(&self) {
        self.shared.rests.set(false);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.open();
        self.go_on();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(shared: &Shared, stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader)? {
        lock(&shared.asked).push(asked.clone());
        shared.answers.pass();
        let script = Arc::clone(&lock(&shared.script));
        let answer = script(&asked);
        if shared.is_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut out = stream;
        out.write_all(answer.head.as_bytes())?;
        out.write_all(&answer.body)?;
        if !answer.rest.is_empty() {
            shared.rests.pass();
            if shared.is_over.load(Ordering::Acquire) {
                return Ok(());
            }
            out.write_all(&answer.rest)?;
        }
        match answer.then {
            Then::Next => {}
            Then::Close => return Ok(()),
            // Until the peer closes.
            Then::Hang => return reader.read_to_end(&mut Vec::new()).map(drop),
        }
    }
    Ok(())
}

/// Reads the next request, without its body; `None` if the peer has closed.
pub(crate) fn read(reader: &mut BufReader<&TcpStream>) -> std::io::Result<Option<Asked>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let word = |number| lines.first().and_then(|line| line.split(' ').nth(number));
    let [method, target] = [0, 1].map(|number| word(number).unwrap_or_default().to_owned());
    let field = |line: &String| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let fields = lines.iter().skip(1).filter_map(field).collect();
    Ok(Some(Asked { method, target, fields }))
}
