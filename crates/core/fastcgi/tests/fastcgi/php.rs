//! The codec against Debian's php-fpm, on a Unix socket.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use skep_fastcgi::{FcgiError, FcgiEvent, FcgiExchange, FcgiSettings, ScriptRule};
use skep_http::gateway::{GatewayHead, GatewayRequest};
use skep_http::limits::RESPONSE_HEAD;
use skep_http::{BodyFraming, Method, ResponseFraming};

use crate::requests::get;

/// Timeout for replies of php-fpm.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One instance for all checks.
#[test]
fn php_fpm_and_the_codec_understand_each_other() {
    let php = PhpFpm::start();
    parameters_arrive(&php);
    php_reads_a_dot_as_an_underscore(&php);
    every_method_arrives(&php);
    bodies_arrive_whole(&php);
    an_early_reply_to_a_long_body_is_heard(&php);
    replies_arrive_whole(&php);
    heads_arrive(&php);
    lies_about_lengths_are_found(&php);
    complaints_come_line_by_line(&php);
    scripts_are_found_by_path(&php);
    a_kept_connection_carries_many_requests(&php);
    what_fpm_answers_itself(&php);
}

fn parameters_arrive(php: &PhpFpm) {
    let long = vec![b'x'; 40_000];
    let fields: &[(&str, &[u8])] = &[
        ("Content-Type", b"text/plain"),
        ("Cookie", b"a=1"),
        ("Cookie", b"b=2"),
        ("X-Twice", b"1"),
        ("X-Twice", b"2"),
        ("X-Latin", b"caf\xe9"),
        ("X_Twice", b"3"),
        ("Proxy", b"http://evil/"),
        ("Authorization", b"Basic YTpi"),
        // Together they need more than one record.
        ("X-Long", &long),
        ("X-Longer", &long),
    ];
    let request = GatewayRequest {
        target: b"/peer.php/info/x?do=told&b=%20",
        path: b"/peer.php/info/x",
        query: Some(b"do=told&b=%20"),
        fields,
        is_tls: true,
        server_port: 443,
        ..get()
    };
    let told = php.ask(&request, b"").text();
    let long = format!("HTTP_X_LONGER={}", "x".repeat(40_000));
    for line in [
        "REQUEST_METHOD=GET",
        "REQUEST_URI=/peer.php/info/x?do=told&b=%20",
        "QUERY_STRING=do=told&b=%20",
        "SCRIPT_NAME=/peer.php",
        "PATH_INFO=/info/x",
        "PHP_SELF=/peer.php/info/x",
        "SERVER_PROTOCOL=HTTP/1.1",
        "REMOTE_ADDR=192.0.2.7",
        "REMOTE_PORT=4711",
        "SERVER_ADDR=192.0.2.1",
        "SERVER_PORT=443",
        "SERVER_NAME=ex.org",
        "HTTP_HOST=ex.org:8080",
        "HTTPS=on",
        "CONTENT_TYPE=text/plain",
        "HTTP_COOKIE=a=1; b=2",
        "HTTP_X_TWICE=1, 2",
        "HTTP_X_LATIN=caf\u{e9}",
        "HTTP_AUTHORIZATION=Basic YTpi",
        "PHP_AUTH_USER=a",
        long.as_str(),
    ] {
        assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
    }
    assert!(!told.contains("HTTP_PROXY"), "{told}");
}

/// Why names with a dot are dropped: through them a client could set any variable.
fn php_reads_a_dot_as_an_underscore(php: &PhpFpm) {
    let settings = FcgiSettings { params: &[(b"HTTP_X.DOT", b"1")], ..php.settings() };
    let (path, query) = (&b"/peer.php"[..], Some(&b"do=told"[..]));
    let told = php.ask_by(&GatewayRequest { path, query, ..get() }, &settings, b"").unwrap().text();
    assert!(told.lines().any(|it| it == "HTTP_X_DOT=1"), "{told}");
}

fn every_method_arrives(php: &PhpFpm) {
    for name in ["OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "PATCH", "PROPFIND"] {
        let reply = php.ask(&GatewayRequest { method: Method::of(name), ..asking("do=told") }, b"");
        let is_said = reply.text().contains(&format!("REQUEST_METHOD={name}\n"));
        assert_eq!(is_said, name != "HEAD", "{name}: {}", reply.text());
    }
}

fn bodies_arrive_whole(php: &PhpFpm) {
    for length in [0, 1, 100, 65_527, 65_528, 65_529, 1_000_000] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let reply = php.ask(&posting("do=body", length), &body);
        assert_eq!(reply.text(), format!("{length} {}", crc32(&body)));
    }
}

fn an_early_reply_to_a_long_body_is_heard(php: &PhpFpm) {
    let body = vec![b'x'; 8 << 20];
    let reply = php.ask(&posting("do=early", body.len()), &body);
    assert_eq!(reply.text(), "early");
}

fn replies_arrive_whole(php: &PhpFpm) {
    for (query, bytes, framing) in [
        ("do=big&bytes=3000000", 3_000_000, ResponseFraming::Chunked),
        ("do=big&bytes=3000000&length", 3_000_000, ResponseFraming::Length(3_000_000)),
        ("do=big&bytes=0&length", 0, ResponseFraming::None),
        ("do=flush", 2, ResponseFraming::Chunked),
    ] {
        let reply = php.ask(&asking(query), b"");
        assert_eq!((reply.head.framing, reply.body.len()), (framing, bytes), "{query}");
        let pattern = |(at, byte): (usize, &u8)| *byte == b'a' + (at % 23) as u8;
        assert!(reply.body.iter().enumerate().all(pattern));
        let reply = php.ask(&GatewayRequest { method: Method::Head, ..asking(query) }, b"");
        assert_eq!((reply.head.framing, reply.body.len()), (ResponseFraming::None, 0));
    }
}

fn heads_arrive(php: &PhpFpm) {
    for (code, body) in
        [(200, "body"), (201, "body"), (404, "body"), (599, "body"), (204, ""), (304, "")]
    {
        let reply = php.ask(&asking(&format!("do=status&code={code}")), b"");
        assert_eq!((reply.head.status, reply.text().as_str()), (code, body));
        let head = String::from_utf8_lossy(&reply.head.bytes).into_owned();
        assert!(head.contains("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"), "{head}");
    }
    let reply = php.ask(&asking("do=location"), b"");
    let head = String::from_utf8_lossy(&reply.head.bytes).into_owned();
    assert!(reply.head.status == 302 && head.contains("Location: /elsewhere\r\n"), "{head}");
    let error = php.ask_by(&asking("do=status&code=103"), &php.settings(), b"").unwrap_err();
    assert!(matches!(error, FcgiError::Head(_)), "{error}");
}

fn lies_about_lengths_are_found(php: &PhpFpm) {
    let error = |query| php.ask_by(&asking(query), &php.settings(), b"").unwrap_err();
    assert_eq!(error("do=short"), FcgiError::BodyShort { missing_bytes: 5 });
    assert_eq!(error("do=long"), FcgiError::BodyLong);
}

fn complaints_come_line_by_line(php: &PhpFpm) {
    let reply = php.ask(&asking("do=complain"), b"");
    assert_eq!(reply.text(), "fine");
    let complaints = reply.stderr.join("\n");
    for text in ["first line", "second line", "after the head"] {
        assert!(complaints.contains(text), "{complaints}");
    }
    let reply = php.ask(&asking("do=fatal"), b"");
    assert_eq!(reply.head.status, 500);
    assert!(reply.stderr.join("\n").contains("no_such_function"), "{:?}", reply.stderr);
}

fn scripts_are_found_by_path(php: &PhpFpm) {
    let settings = FcgiSettings { script: ScriptRule::Always(b"/peer.php"), ..php.settings() };
    let request = GatewayRequest { target: b"/blog/1", path: b"/blog/1", query: None, ..get() };
    let told = php.ask_by(&request, &settings, b"").unwrap().text();
    assert!(told.contains("SCRIPT_NAME=/peer.php\n") && told.contains("REQUEST_URI=/blog/1\n"));
    assert!(!told.contains("PATH_INFO="), "{told}");
    let reply = php.ask(&GatewayRequest { path: b"/none.php", ..get() }, b"");
    assert_eq!((reply.head.status, reply.text().as_str()), (404, "File not found.\n"));
    assert!(reply.stderr.join("").contains("Primary script unknown"), "{:?}", reply.stderr);
}

fn a_kept_connection_carries_many_requests(php: &PhpFpm) {
    let settings = FcgiSettings { keep_conn: true, ..php.settings() };
    let mut stream = php.connect();
    for length in [0, 70_000, 3] {
        let body = vec![b'k'; length];
        let reply = exchange(&mut stream, &posting("do=body", length), &settings, &body).unwrap();
        assert!(reply.is_reusable && reply.text().starts_with(&format!("{length} ")));
    }
    // Unless asked to, it does not keep the connection.
    let mut stream = php.connect();
    let reply = exchange(&mut stream, &asking("do=told"), &php.settings(), b"").unwrap();
    assert!(!reply.is_reusable);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn what_fpm_answers_itself(php: &PhpFpm) {
    let probe = |path: &[u8], query: &[u8]| {
        let mut out = Vec::new();
        let exchange = FcgiExchange::probe(&mut out, path, query, &RESPONSE_HEAD).unwrap();
        let mut stream = php.connect();
        stream.write_all(&out).unwrap();
        hear(&mut stream, exchange).unwrap()
    };
    let reply = probe(b"/ping", b"");
    assert_eq!((reply.head.status, reply.text().as_str()), (200, "pong"));
    let reply = probe(b"/status", b"json");
    assert!(reply.text().contains("\"idle processes\":"), "{}", reply.text());
}

fn asking(query: &str) -> GatewayRequest<'_> {
    GatewayRequest { path: b"/peer.php", query: Some(query.as_bytes()), ..get() }
}

fn posting(query: &str, bytes: usize) -> GatewayRequest<'_> {
    let body = if bytes == 0 { BodyFraming::None } else { BodyFraming::Length(bytes as u64) };
    GatewayRequest { method: Method::Post, body, ..asking(query) }
}

#[derive(Debug)]
struct Reply {
    head: GatewayHead,
    body: Vec<u8>,
    stderr: Vec<String>,
    is_reusable: bool,
}

impl Reply {
    fn text(&self) -> String {
        self.body.iter().map(|byte| char::from(*byte)).collect()
    }
}

/// Sends a request while receiving its reply.
fn exchange(
    stream: &mut UnixStream,
    request: &GatewayRequest<'_>,
    settings: &FcgiSettings<'_>,
    body: &[u8],
) -> Result<Reply, FcgiError> {
    let mut out = Vec::new();
    let mut exchange = FcgiExchange::start(&mut out, request, settings).unwrap();
    let mut sent = 0;
    while exchange.is_awaited() {
        let bytes = exchange.wanted();
        match bytes {
            0 => out.extend(exchange.body_end()),
            _ => out.extend(exchange.body_head(bytes)),
        }
        out.extend(&body[sent..][..bytes]);
        sent += bytes;
    }
    let mut writing = stream.try_clone().unwrap();
    thread::scope(|scope| {
        // php-fpm does not read all of a body that the script does not use.
        scope.spawn(move || writing.write_all(&out));
        let reply = hear(stream, exchange);
        if !reply.as_ref().is_ok_and(|reply| reply.is_reusable) {
            let _ = stream.shutdown(Shutdown::Write);
        }
        reply
    })
}

fn hear(stream: &mut UnixStream, mut exchange: FcgiExchange) -> Result<Reply, FcgiError> {
    let (mut head, mut body, mut stderr) = (None, Vec::new(), Vec::new());
    let mut buffer = vec![0; 5000];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        if count == 0 {
            exchange.close()?;
        }
        let mut rest = &buffer[..count];
        loop {
            let received = exchange.receive(rest)?;
            match received.event {
                None => break,
                Some(FcgiEvent::Head(it)) => head = Some(it),
                Some(FcgiEvent::Body(range)) => body.extend_from_slice(&rest[range]),
                Some(FcgiEvent::Stderr(line)) => {
                    stderr.push(String::from_utf8_lossy(&line).into_owned());
                }
                Some(FcgiEvent::End { app_status }) => {
                    assert_eq!(app_status, 0);
                    let is_reusable = exchange.is_reusable(rest.len() - received.consumed);
                    return Ok(Reply { head: head.unwrap(), body, stderr, is_reusable });
                }
            }
            rest = &rest[received.consumed..];
        }
    }
}

/// A php-fpm process of the test's own, which ends with the test.
struct PhpFpm {
    process: Child,
    folder: PathBuf,
    root: String,
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // Otherwise its workers would outlive it.
        let kill = format!("kill {}", self.process.id());
        let _ = Command::new("sh").args(["-c", &kill]).status();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl PhpFpm {
    fn start() -> PhpFpm {
        let folder = std::env::temp_dir().join(format!("skep-fcgi-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fastcgi/peer.php");
        fs::copy(script, folder.join("peer.php")).unwrap();
        let conf = folder.join("fpm.conf");
        fs::write(&conf, CONF.replace("FOLDER", folder.to_str().unwrap())).unwrap();
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "php-fpm8.2", "--nodaemonize", "-n", "--fpm-config"])
            .arg(&conf)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv (util-linux)");
        let log = BufReader::new(process.stderr.take().unwrap());
        let root = folder.to_str().unwrap().to_owned();
        // From here on, it is stopped even if the test fails.
        let php = PhpFpm { process, folder, root };
        wait_for_start(log);
        php
    }

    fn settings(&self) -> FcgiSettings<'_> {
        FcgiSettings {
            root: self.root.as_bytes(),
            script: ScriptRule::Extension { extension: b".php", index: b"index.php" },
            ..FcgiSettings::default()
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.join("fpm.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    fn ask(&self, request: &GatewayRequest<'_>, body: &[u8]) -> Reply {
        let reply = self.ask_by(request, &self.settings(), body);
        reply.unwrap_or_else(|error| panic!("{error}"))
    }

    fn ask_by(
        &self,
        request: &GatewayRequest<'_>,
        settings: &FcgiSettings<'_>,
        body: &[u8],
    ) -> Result<Reply, FcgiError> {
        exchange(&mut self.connect(), request, settings, body)
    }
}

/// Reads the log until all have started; the rest is discarded, so that no writer blocks.
fn wait_for_start(mut log: impl BufRead + Send + 'static) {
    let mut read = String::new();
    while !read.contains("ready to handle connections") {
        assert!(log.read_line(&mut read).unwrap() > 0, "php-fpm (php8.2-fpm) has ended:\n{read}");
    }
    thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}

/// The user is ignored unless the test runs as root.
const CONF: &str = "[global]
error_log = /dev/stderr
[www]
user = www-data
group = www-data
listen = FOLDER/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 3
ping.path = /ping
pm.status_path = /status
php_admin_flag[log_errors] = on
php_admin_flag[display_errors] = off
";

/// CRC-32 (ISO-HDLC), as in PHP.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    !crc
}
