//! Application servers that violate their protocol: clients get no invalid reply, a log line names the server
//! and the reason, and no other client is affected.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use skep_tests::gateways::{ajp_lines, secret_file};
use skep_tests::{PATIENCE, Site, Skep, poll_until};

use super::pool_list;

/// Longer than any test waits.
const LONG_MS: u32 = 600_000;

/// The behaviour of a fake for a request, by its path.
type Lie = fn(&mut TcpStream, &str);

/// Accepts connections until the test's process ends; each has its own thread.
fn accept(serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn read_some(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 64 * 1024];
    let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
    buffer.truncate(read);
    Some(buffer)
}

/// Returns the last segment of the request's path: each request here fits into one small packet.
fn path_in(request: &[u8]) -> Option<String> {
    let text: String = request.iter().map(|byte| char::from(*byte)).collect();
    let from = text.find("/lie-")? + 5;
    let word = |c: char| c.is_ascii_lowercase() || c == '-';
    Some(text[from..].chars().take_while(|c| word(*c)).collect())
}

fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn hang(stream: &mut TcpStream) {
    while read_some(stream).is_some() {}
}

// === FastCGI ===

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

fn fcgi(mut stream: TcpStream) {
    let Some(mut request) = read_some(&mut stream) else { return };
    if request[1] == 9 {
        let _ = stream.write_all(&[1, 10, 0, 0, 0, 0, 0, 0]);
        return;
    }
    while path_in(&request).is_none() {
        let Some(more) = read_some(&mut stream) else { return };
        request.extend(more);
    }
    let lie = path_in(&request).unwrap_or_default();
    lie_by_fcgi(&mut stream, &lie);
}

const LIE_BY_FCGI: Lie = |stream, lie| {
    let head = b"Content-Type: text/plain\r\nContent-Length: 100\r\n\r\n";
    let end = record(3, &[0; 8]);
    let _ = match lie {
        "truth" => {
            stream.write_all(&[record(6, b"Content-Type: text/plain\r\n\r\ntrue"), end].concat())
        }
        "length" => stream.write_all(&[1, 6, 0, 1, 0xff, 0xff, 0, 0, b'C']),
        "short" => stream.write_all(&[record(6, head), record(6, b"five!"), end].concat()),
        "no-end" => stream.write_all(&record(6, b"Content-Type: a/b\r\n\r\nxxxxx")),
        "http" => stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        "two" => stream.write_all(
            &[record(6, b"Content-Type: a/b\r\n\r\n"), end.clone(), record(6, b"x")].concat(),
        ),
        "split" => stream.write_all(&[record(6, b"X: a\rSet-Cookie: b=c\r\n\r\n"), end].concat()),
        "full" => stream.write_all(&record(3, &[0, 0, 0, 0, 2, 0, 0, 0])),
        "reset" => {
            reset(stream);
            return;
        }
        "flood-body" => flood(stream, &record(6, b"x")),
        "flood-stderr" => flood(stream, &record(7, b"x")),
        "flood-lines" => flood(stream, &record(7, b"\n")),
        "body" => talk(stream, &record(6, &[b'x'; 100])),
        "stderr" => talk(stream, &record(7, b"on and on\n")),
        "empty" => talk(stream, &record(7, b"")),
        _ => {
            hang(stream);
            return;
        }
    };
};

/// Sends a head, then the same record periodically until the peer closes.
fn talk(stream: &mut TcpStream, record: &[u8]) -> std::io::Result<()> {
    stream.write_all(&self::record(6, b"Content-Type: a/b\r\n\r\n"))?;
    loop {
        stream.write_all(record)?;
        thread::sleep(Duration::from_millis(20));
    }
}

/// Floods the peer with the same small record, after a head if it is a record of standard output.
fn flood(stream: &mut TcpStream, record: &[u8]) -> std::io::Result<()> {
    if record[1] == 6 {
        stream.write_all(&self::record(6, b"Content-Type: a/b\r\n\r\n"))?;
    }
    let many = record.repeat(7000);
    loop {
        stream.write_all(&many)?;
    }
}

fn lie_by_fcgi(stream: &mut TcpStream, lie: &str) {
    LIE_BY_FCGI(stream, lie);
}

#[test]
fn a_lying_fastcgi_application_is_named_and_harms_nobody() {
    let address = accept(fcgi);
    let lines = format!(
        "pool = \"php\"\n[[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n\
         response_timeout_ms = 2000\nstall_timeout_ms = 2000\nretries_max = 0\n\
         [pool.fastcgi]\nscript = \"below\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{address}\"\n"
    );
    let skep = Skep::node_of(&lines);
    for (lie, status, logged) in [
        ("length", 502, "the connection ended before a response: GET /lie-length"),
        ("short", 502, "expected 95 more bytes of the body"),
        ("http", 502, "expected a record of version 1, found 72: is it a FastCGI port?"),
        ("split", 502, "found one refused as field-value"),
        ("full", 503, "it has no room for the request"),
        ("reset", 502, "the connection ended before a response: GET /lie-reset"),
        ("silence", 504, "no response in time: GET /lie-silence"),
    ] {
        poll_until(PATIENCE, "it is up", || pool_list(&skep).contains(" up"));
        // The log contains at most one failure of a server per second.
        poll_until(PATIENCE, logged, || {
            let mut client = skep.connect();
            client.get(&format!("/lie-{lie}")).assert_status(status);
            client.get("/lie-truth").assert_status(200);
            skep.stderr_text().contains(logged)
        });
    }
    // Only the end is missing: a part was forwarded, and the client can detect it.
    let mut client = skep.connect();
    client.ask("/lie-no-end");
    let reply = client.try_response();
    assert!(reply.as_ref().map_or(true, |it| it.status == 502), "{:?}", reply.map(|it| it.text()));
    // Bytes after the end of a reply belong to no request.
    assert_eq!(skep.connect().get("/lie-two").status, 200);
    assert_eq!(skep.connect().get("/lie-truth").text(), "true");
}

/// A node with one FastCGI server, which has one slot.
fn one_place(settings: &str) -> Skep {
    let address = accept(fcgi);
    Skep::node_of(&format!(
        "pool = \"php\"\n[[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n{settings}\n\
         queue_timeout_ms = {LONG_MS}\n[pool.fastcgi]\nscript = \"below\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{address}\"\nconnections_max = 1\n"
    ))
}

#[test]
fn a_test_of_a_server_ends_however_much_it_sends() {
    let skep = one_place("");
    let test = |lie: &str| {
        let path = format!("--path=/lie-flood-{lie}");
        skep.command(&["pool", "test", "php", "s1", &path, "--timeout=20s"])
    };
    let body = test("body");
    assert!(body.code == Some(0) && body.stdout.contains("status 200, "), "{}", body.stderr);
    assert!(body.stdout.contains(" bytes and more\n"), "{}", body.stdout);
    for lie in ["stderr", "lines"] {
        let error = test(lie).stderr;
        assert!(error.contains("no head of an answer in the first 8388608 bytes"), "{error}");
    }
}

#[test]
fn a_reply_without_a_body_is_complete_with_its_head() {
    let skep = one_place(&format!("stall_timeout_ms = {LONG_MS}"));
    let mut client = skep.connect();
    for lie in ["body", "stderr", "empty"] {
        client.send(format!("HEAD /lie-{lie} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.try_response_to("HEAD").unwrap().assert_status(200);
        // Otherwise it would wait for the slot.
        client.get("/lie-truth").assert_status(200);
    }
    assert!(!skep.stderr_text().contains("lie-body"), "no failure");
}

#[test]
fn what_has_nothing_for_the_client_is_no_sign_of_life() {
    let skep = one_place("stall_timeout_ms = 300");
    for lie in ["stderr", "empty"] {
        // The log contains at most one failure of a server per second.
        poll_until(PATIENCE, "it is named", || {
            let mut client = skep.connect();
            client.ask(&format!("/lie-{lie}"));
            assert!(client.try_response().is_err(), "it has no end");
            skep.connect().get("/lie-truth").assert_status(200);
            skep.stderr_text().contains(&format!(": GET /lie-{lie}"))
        });
    }
}

#[test]
fn a_client_that_leaves_an_endless_reply_frees_its_server() {
    let skep = one_place(&format!("stall_timeout_ms = {LONG_MS}"));
    for lie in ["stderr", "empty"] {
        let mut client = skep.connect();
        client.ask(&format!("/lie-{lie}"));
        client.try_head().unwrap().assert_status(200);
        drop(client);
        skep.connect().get("/lie-truth").assert_status(200);
    }
}

/// Checks REQUEST_URI as received by the server.
#[test]
fn the_uri_is_the_path_as_routed() {
    let address = accept(|mut stream| {
        let Some(request) = read_some(&mut stream) else { return };
        if request[1] == 9 {
            let _ = stream.write_all(&[1, 10, 0, 0, 0, 0, 0, 0]);
            return;
        }
        let text: String = request.iter().map(|byte| char::from(*byte)).collect();
        let uri = text.split("REQUEST_URI").nth(1).unwrap_or_default();
        let uri = uri.split("QUERY_STRING").next().unwrap_or_default();
        // It is followed by the lengths of the next parameter.
        let uri = uri.split(|c: char| c.is_control()).next().unwrap_or_default();
        let body = format!("Content-Type: text/plain\r\n\r\n{uri}");
        let _ = stream.write_all(&[record(6, body.as_bytes()), record(3, &[0; 8])].concat());
    });
    let skep = Skep::node_of(&format!(
        "pool = \"php\"\n[[site.route]]\npath = \"/api/*\"\npool = \"php\"\n\
         [site.route.forward]\nstrip_prefix = \"/api\"\n\
         [[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n[pool.fastcgi]\nscript = \"below\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{address}\"\n"
    ));
    for (asked, told) in [
        ("/a/../b?c=/../%20", "/b?c=/../%20"),
        ("/x/%2e%2e/admin/%75sers", "/admin/users"),
        ("/api/v1?q", "/v1?q"),
        ("/x/../api/v2", "/v2"),
        ("/", "/"),
    ] {
        assert_eq!(skep.connect().get(asked).assert_status(200).text(), told, "{asked}");
    }
}

// === AJP ===

fn packet(payload: &[u8]) -> Vec<u8> {
    [b"AB", &(payload.len() as u16).to_be_bytes()[..], payload].concat()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes(), &[0]].concat()
}

fn head(status: u16, length: &str) -> Vec<u8> {
    let fields = [&[0xa0, 3][..], &string(length)].concat();
    packet(&[&[4], &status.to_be_bytes()[..], &string("x"), &[0, 1], &fields].concat())
}

fn chunk(data: &[u8]) -> Vec<u8> {
    packet(&[&[3], &(data.len() as u16).to_be_bytes()[..], data, &[0]].concat())
}

fn ajp(mut stream: TcpStream) {
    let end = packet(&[5, 1]);
    while let Some(request) = read_some(&mut stream) {
        if request == [0x12, 0x34, 0, 1, 10] {
            let _ = stream.write_all(&[0x41, 0x42, 0, 1, 9]);
            continue;
        }
        let Some(lie) = path_in(&request) else {
            let _ = stream.write_all(&[head(200, "0"), end.clone()].concat());
            continue;
        };
        let truth = [head(200, "4"), chunk(b"true"), end.clone()].concat();
        let _ = match &*lie {
            "truth" => stream.write_all(&truth),
            "chunk" => {
                stream.write_all(&[head(200, "100"), packet(&[3, 0xff, 0xff, b'x'])].concat())
            }
            "packet" => stream.write_all(&[0x41, 0x42, 0xff, 0xff, 4]),
            "short" => stream.write_all(&[head(200, "100"), chunk(b"x"), end.clone()].concat()),
            "string" => {
                stream.write_all(&packet(&[4, 0, 200, 0, 1, b'x', 0, 0, 1, 0x0f, 0xff, b'X']))
            }
            "http" => stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "asks" => {
                stream.write_all(&[packet(&[6, 0x1f, 0xfa]), packet(&[6, 0x1f, 0xfa])].concat())
            }
            "flush" => {
                let mut written = stream.write_all(&head(200, "4"));
                while written.is_ok() {
                    thread::sleep(Duration::from_millis(20));
                    written = stream.write_all(&chunk(b""));
                }
                written
            }
            // The next request must not receive it (CVE-2022-1319).
            "two" => stream.write_all(&[truth.clone(), head(500, "0"), end.clone()].concat()),
            "reset" => {
                reset(&stream);
                return;
            }
            _ => {
                hang(&mut stream);
                return;
            }
        };
    }
}

#[test]
fn a_lying_servlet_engine_is_named_and_harms_nobody() {
    let folder = Site::new();
    let address = accept(ajp).to_string();
    let settings = "response_timeout_ms = 2000\nstall_timeout_ms = 2000\nretries_max = 0";
    let skep = Skep::node_of(&ajp_lines(settings, &secret_file(&folder, "k"), &address));
    for (lie, status, logged) in [
        ("chunk", 502, "expected a chunk that fills its packet"),
        ("packet", 502, "set the packet size here to the server's `packetSize`"),
        ("short", 502, "expected 99 more bytes of the body"),
        ("string", 502, "raise the packet size here and `packetSize` at the server"),
        ("http", 502, "is it an AJP port?"),
        ("asks", 502, "found GET_BODY_CHUNK"),
        ("reset", 502, "the connection ended before a response: GET /lie-reset"),
        ("silence", 504, "no response in time: GET /lie-silence"),
    ] {
        poll_until(PATIENCE, "it is up", || pool_list(&skep).contains(" up"));
        poll_until(PATIENCE, logged, || {
            let mut client = skep.connect();
            client.get(&format!("/lie-{lie}")).assert_status(status);
            client.get("/lie-truth").assert_status(200);
            skep.stderr_text().contains(logged)
        });
    }
    let mut client = skep.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/lie-two").text(), "true");
        assert_eq!(client.get("/lie-truth").text(), "true");
    }
}

#[test]
fn flushes_of_nothing_are_no_sign_of_life() {
    let folder = Site::new();
    let address = accept(ajp).to_string();
    let settings = "stall_timeout_ms = 300\nretries_max = 0";
    let skep = Skep::node_of(&ajp_lines(settings, &secret_file(&folder, "k"), &address));
    let mut client = skep.connect();
    client.ask("/lie-flush");
    assert!(client.try_response().is_err(), "it has no end");
    poll_until(PATIENCE, "it is named", || skep.stderr_text().contains(": GET /lie-flush"));
    // A response to HEAD consists of its head.
    let mut client = skep.connect();
    client.send("HEAD /lie-flush HTTP/1.1\r\nHost: a\r\n\r\n");
    client.try_response_to("HEAD").unwrap().assert_status(200);
    assert_eq!(client.get("/lie-truth").text(), "true");
}

#[test]
fn a_secret_that_was_reloaded_is_that_of_requests_that_wait() {
    let asked = |mut stream: TcpStream| {
        while let Some(request) = read_some(&mut stream) {
            if request == [0x12, 0x34, 0, 1, 10] {
                let _ = stream.write_all(&[0x41, 0x42, 0, 1, 9]);
                continue;
            }
            let is_first = path_in(&request).as_deref() == Some("first");
            if is_first {
                FIRST.store(true, Ordering::SeqCst);
                while !RELOADED.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            }
            let has =
                |secret: &str| request.windows(secret.len()).any(|it| it == secret.as_bytes());
            let word: &[u8] = match (has("secret-old"), has("secret-new")) {
                (true, false) => b"old!",
                (false, true) => b"new!",
                _ => b"none",
            };
            let reply = [head(200, "4"), chunk(word), packet(&[5, 1])].concat();
            let _ = stream.write_all(&reply);
        }
    };
    static FIRST: AtomicBool = AtomicBool::new(false);
    static RELOADED: AtomicBool = AtomicBool::new(false);
    let folder = Site::new();
    let address = accept(asked).to_string();
    let of_secret = |secret: &str| {
        let lines = ajp_lines("", &secret_file(&folder, secret), &address);
        format!("{lines}\nconnections_max = 1\n")
    };
    let skep = Skep::node_of(&of_secret("secret-old"));
    let is_queued = || {
        let listed = skep.command(&["pool", "list", "--json"]).stdout;
        serde_json::from_str::<serde_json::Value>(&listed).unwrap()[0]["queued_requests"] == 1
    };
    let mut first = skep.connect();
    first.ask("/lie-first");
    poll_until(PATIENCE, "the server has a request", || FIRST.load(Ordering::SeqCst));
    let mut waiting = skep.connect();
    waiting.ask("/lie-second");
    poll_until(PATIENCE, "another waits", is_queued);
    skep.reconfigure_of(&of_secret("secret-new"));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    RELOADED.store(true, Ordering::SeqCst);
    assert_eq!(first.response().text(), "old!");
    assert_eq!(waiting.response().text(), "new!");
}
