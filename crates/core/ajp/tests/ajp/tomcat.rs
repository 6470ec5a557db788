//! The codec against Debian's Tomcat 10: an instance with two connectors, with the smallest and
//! with the largest packet size.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use skep_ajp::limits::{PACKET_BYTES_DEFAULT, PACKET_BYTES_MAX};
use skep_ajp::{AjpError, AjpEvent, AjpExchange, AjpSettings, CPING, Pong, TlsAttributes};
use skep_http::gateway::{GatewayHead, GatewayRequest};
use skep_http::{BodyFraming, Method, ResponseFraming};

use crate::requests::get;

const HOME: &str = "/usr/share/tomcat10";
const COMPILER: &str = "/usr/share/java/eclipse-jdt-core.jar";
const SECRET: &str = "not known to others";

/// Timeout for replies of Tomcat.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One instance for all checks: it takes seconds to start.
#[test]
fn tomcat_and_the_codec_understand_each_other() {
    let tomcat = Tomcat::start();
    for (port, packet_bytes_max) in
        [(tomcat.ports[0], PACKET_BYTES_DEFAULT), (tomcat.ports[1], PACKET_BYTES_MAX)]
    {
        let settings = AjpSettings {
            packet_bytes_max,
            secret: Some(SECRET.as_bytes()),
            ..AjpSettings::default()
        };
        let new = || Client::new(port, settings);
        every_method_arrives(&mut new());
        what_is_told_arrives(&mut new());
        tls_arrives(port, &settings);
        bodies_arrive_whole(&mut new(), packet_bytes_max);
        bodies_that_nobody_reads_leave_the_connection_in_step(&mut new());
        replies_arrive_whole(&mut new());
        what_is_flushed_comes_at_once(&mut new());
        pings_are_answered(&mut new());
        requests_of_a_whole_packet_arrive(&mut new(), packet_bytes_max);
        a_wrong_secret_is_told(port, &settings);
    }
}

fn every_method_arrives(client: &mut Client) {
    for name in [
        "OPTIONS",
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "TRACE",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
        "UNLOCK",
        "ACL",
        "REPORT",
        "VERSION-CONTROL",
        "CHECKIN",
        "CHECKOUT",
        "UNCHECKOUT",
        "SEARCH",
        "MKWORKSPACE",
        "UPDATE",
        "LABEL",
        "MERGE",
        "BASELINE-CONTROL",
        "MKACTIVITY",
        "PATCH",
        "QUERY",
        "M-SEARCH",
    ] {
        let request = GatewayRequest { method: Method::of(name), path: b"/told", ..get() };
        let reply = client.ask(&request, b"");
        assert_eq!(reply.field("X-Method"), Some(name));
        let is_said = reply.text().contains(&format!("method={name}\n"));
        assert_eq!(is_said, name != "HEAD", "{name}: {}", reply.text());
    }
}

fn what_is_told_arrives(client: &mut Client) {
    let fields: &[(&str, &[u8])] = &[
        ("Accept", b"*/*"),
        ("X-Twice", b"1"),
        ("X-Twice", b"2"),
        ("X-Latin", b"caf\xe9"),
        ("Cookie", b"a=b"),
        ("Transfer-Encoding", b"chunked"),
    ];
    let (path, query) = (&b"/told"[..], Some(&b"a=b%20c&d"[..]));
    let reply = client.ask(&GatewayRequest { path, query, fields, ..get() }, b"");
    let told = reply.text();
    for line in [
        "uri=/told",
        "query=a=b%20c&d",
        "protocol=HTTP/1.1",
        "client=192.0.2.7 4711",
        "local=192.0.2.1",
        "server=ex.org 80",
        "secure=false",
        "cipher=null",
        "length=-1",
        "field host=ex.org",
        "field accept=*/*",
        "field x-twice=1",
        "field x-twice=2",
        "field x-latin=caf\u{e9}",
        "field cookie=a=b",
    ] {
        assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
    }
    assert!(!told.contains("transfer-encoding"), "{told}");
}

fn tls_arrives(port: u16, settings: &AjpSettings<'static>) {
    let tls = TlsAttributes {
        protocol: Some(b"TLSv1.3"),
        cipher: Some(b"TLS_AES_128_GCM_SHA256"),
        key_bits: Some(128),
        ..TlsAttributes::default()
    };
    let request = GatewayRequest { path: b"/told", is_tls: true, server_port: 443, ..get() };
    let told = Client::new(port, AjpSettings { tls, ..*settings }).ask(&request, b"").text();
    for line in ["secure=true", "cipher=TLS_AES_128_GCM_SHA256", "bits=128", "server=ex.org 443"] {
        assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
    }
}

fn bodies_arrive_whole(client: &mut Client, packet_bytes_max: usize) {
    let data_bytes_max = packet_bytes_max - 6;
    let lengths = [0, 1, 100, data_bytes_max - 1, data_bytes_max, data_bytes_max + 1, 300_000];
    for length in lengths {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let known =
            if length == 0 { BodyFraming::None } else { BodyFraming::Length(length as u64) };
        for framing in [known, BodyFraming::Chunked] {
            let reply = client.ask(&posting(b"read=1000000", framing), &body);
            assert_eq!(reply.text(), format!("{length} {}", crc32(&body)), "{framing:?}");
        }
    }
    // A servlet that reads the body of a GET receives its end at once.
    let (path, query) = (&b"/body"[..], Some(&b"read=10"[..]));
    let reply = client.ask(&GatewayRequest { path, query, ..get() }, b"");
    assert_eq!((reply.text().as_str(), reply.questions), ("0 0", 1));
}

/// The same connection is used for all: out of step, it would not answer.
fn bodies_that_nobody_reads_leave_the_connection_in_step(client: &mut Client) {
    let body = vec![b'x'; 200_000];
    for query in [&b"read=0"[..], b"read=1", b"read=70000"] {
        for framing in [BodyFraming::Length(200_000), BodyFraming::Chunked] {
            let reply = client.ask(&posting(query, framing), &body);
            let read: usize = std::str::from_utf8(&query[5..]).unwrap().parse().unwrap();
            assert!(reply.text().starts_with(&format!("{read} ")), "{}", reply.text());
            assert!(reply.sent_bytes < body.len());
        }
    }
}

fn posting(query: &[u8], body: BodyFraming) -> GatewayRequest<'_> {
    GatewayRequest { method: Method::Post, path: b"/body", query: Some(query), body, ..get() }
}

fn replies_arrive_whole(client: &mut Client) {
    for (query, bytes, framing) in [
        (&b"bytes=1000000"[..], 1_000_000, ResponseFraming::Chunked),
        (b"bytes=1000000&length", 1_000_000, ResponseFraming::Length(1_000_000)),
        (b"bytes=0&length", 0, ResponseFraming::None),
    ] {
        let request = GatewayRequest { path: b"/big", query: Some(query), ..get() };
        let reply = client.ask(&request, b"");
        assert_eq!((reply.head.framing, reply.body.len()), (framing, bytes));
        let pattern = |(at, byte): (usize, &u8)| *byte == b'a' + (at % 23) as u8;
        assert!(reply.body.iter().enumerate().all(pattern));
        let reply = client.ask(&GatewayRequest { method: Method::Head, ..request }, b"");
        assert_eq!((reply.head.framing, reply.body.len()), (ResponseFraming::None, 0));
    }
    let reply = client.ask(&GatewayRequest { path: b"/none", ..get() }, b"");
    assert_eq!(reply.head.status, 404);
    let request = GatewayRequest { path: b"/head", query: Some(b"bytes=5000"), ..get() };
    let reply = client.ask(&request, b"");
    let head = String::from_utf8_lossy(&reply.head.bytes).into_owned();
    assert_eq!(reply.head.status, 418);
    assert_eq!(reply.field("X-Long").map(str::len), Some(5000));
    assert!(head.contains("Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"), "{head}");
}

fn what_is_flushed_comes_at_once(client: &mut Client) {
    let reply = client.ask(&GatewayRequest { path: b"/flush", ..get() }, b"");
    assert_eq!((reply.text().as_str(), reply.flushes > 0), ("ab", true));
}

fn pings_are_answered(client: &mut Client) {
    for _ in 0..3 {
        client.ping();
        client.ask(&GatewayRequest { path: b"/told", ..get() }, b"");
    }
    client.ping();
}

fn requests_of_a_whole_packet_arrive(client: &mut Client, packet_bytes_max: usize) {
    let mut out = Vec::new();
    let request = GatewayRequest { path: b"/told", fields: &[("X-Fill", b"")], ..get() };
    AjpExchange::start(&mut out, &request, &client.settings).unwrap();
    let fill = vec![b'x'; packet_bytes_max - out.len()];
    let fields: &[(&str, &[u8])] = &[("X-Fill", &fill)];
    let reply = client.ask(&GatewayRequest { fields, ..request }, b"");
    let line = format!("field x-fill={}", "x".repeat(fill.len()));
    assert!(reply.text().lines().any(|it| it == line));
}

/// The connection must be closed here: Tomcat 10.1.60 does not close it.
fn a_wrong_secret_is_told(port: u16, settings: &AjpSettings<'static>) {
    for secret in [None, Some(&b"guessed"[..])] {
        let mut client = Client::new(port, AjpSettings { secret, ..*settings });
        let reply = client.try_ask(&GatewayRequest { path: b"/told", ..get() }, b"").unwrap();
        assert_eq!((reply.head.status, reply.is_reusable), (403, false));
    }
}

/// A connection to Tomcat.
struct Client {
    stream: TcpStream,
    settings: AjpSettings<'static>,
}

struct Reply {
    head: GatewayHead,
    body: Vec<u8>,
    flushes: usize,
    questions: usize,
    sent_bytes: usize,
    is_reusable: bool,
}

impl Reply {
    fn text(&self) -> String {
        self.body.iter().map(|byte| char::from(*byte)).collect()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.head.bytes).unwrap();
        head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Client {
    fn new(port: u16, settings: AjpSettings<'static>) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, settings }
    }

    /// A reply after which the connection is reusable.
    fn ask(&mut self, request: &GatewayRequest<'_>, body: &[u8]) -> Reply {
        let reply = self.try_ask(request, body).unwrap_or_else(|error| panic!("{error}"));
        assert!(reply.is_reusable, "{}", reply.text());
        reply
    }

    fn try_ask(&mut self, request: &GatewayRequest<'_>, body: &[u8]) -> Result<Reply, AjpError> {
        let mut out = Vec::new();
        let mut exchange = AjpExchange::start(&mut out, request, &self.settings).unwrap();
        let mut reply = None;
        let (mut flushes, mut questions, mut sent) = (0, 0, 0);
        let mut buffer = vec![0; 5000];
        loop {
            if exchange.is_awaited() {
                let bytes = exchange.wanted().min(body.len() - sent);
                match bytes {
                    0 => out.extend(exchange.body_end()),
                    _ => out.extend(exchange.body_head(bytes)),
                }
                out.extend(&body[sent..][..bytes]);
                sent += bytes;
            }
            self.stream.write_all(&out).unwrap();
            out.clear();
            let count = self.stream.read(&mut buffer).unwrap();
            if count == 0 {
                exchange.close()?;
            }
            let mut rest = &buffer[..count];
            loop {
                let received = exchange.receive(rest)?;
                match received.event {
                    None => break,
                    Some(AjpEvent::Head(head)) => reply = Some((head, Vec::new())),
                    Some(AjpEvent::Body(range)) => {
                        reply.as_mut().unwrap().1.extend_from_slice(&rest[range]);
                    }
                    Some(AjpEvent::Flush) => flushes += 1,
                    Some(AjpEvent::Wants(_)) => questions += 1,
                    Some(AjpEvent::End) => {
                        let (head, body) = reply.unwrap();
                        let is_reusable = exchange.is_reusable(rest.len() - received.consumed);
                        let sent_bytes = sent;
                        return Ok(Reply {
                            head,
                            body,
                            flushes,
                            questions,
                            sent_bytes,
                            is_reusable,
                        });
                    }
                }
                rest = &rest[received.consumed..];
            }
        }
    }

    fn ping(&mut self) {
        self.stream.write_all(&CPING).unwrap();
        let mut pong = Pong::default();
        let mut buffer = [0; 16];
        loop {
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed instead of CPONG");
            if pong.receive(&buffer[..count]).unwrap() {
                return;
            }
        }
    }
}

/// A Tomcat process of the test's own, which ends with the test.
struct Tomcat {
    process: Child,
    folder: PathBuf,
    /// Ports of the connectors, in the order of the file.
    ports: Vec<u16>,
}

impl Drop for Tomcat {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Tomcat {
    fn start() -> Tomcat {
        let folder = std::env::temp_dir().join(format!("skep-ajp-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let classes = folder.join("webapps/ROOT/WEB-INF/classes");
        for part in [&classes, &folder.join("conf"), &folder.join("temp")] {
            fs::create_dir_all(part).unwrap();
        }
        fs::write(folder.join("conf/server.xml"), server_xml()).unwrap();
        fs::write(classes.with_file_name("web.xml"), WEB_XML).unwrap();
        compile(&classes);
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "java"])
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
            .arg(format!("-Dcatalina.home={HOME}"))
            .arg(format!("-Dcatalina.base={}", folder.display()))
            .arg(format!("-Djava.io.tmpdir={}", folder.join("temp").display()))
            .arg("-cp")
            .arg(format!("{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar"))
            .args(["org.apache.catalina.startup.Bootstrap", "start"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv (util-linux) and java (default-jre-headless)");
        let log = BufReader::new(process.stderr.take().unwrap());
        // From here on, it is stopped even if the test fails.
        let mut tomcat = Tomcat { process, folder, ports: Vec::new() };
        tomcat.ports = ports_of(log);
        tomcat
    }
}

/// Reads the log until all have started; the rest is discarded, so that no writer blocks.
fn ports_of(mut log: impl BufRead + Send + 'static) -> Vec<u16> {
    let (mut ports, mut read) = (Vec::new(), String::new());
    loop {
        let start = read.len();
        assert!(log.read_line(&mut read).unwrap() > 0, "Tomcat has ended:\n{read}");
        let line = &read[start..];
        // Starting ProtocolHandler ["ajp-nio-127.0.0.1-auto-1-40001"]
        if let Some((_, name)) = line.split_once("Starting ProtocolHandler [\"ajp-") {
            let port = name.trim_end().trim_end_matches("\"]").rsplit('-').next();
            ports.push(port.unwrap().parse().unwrap());
        }
        if line.contains("Server startup in") {
            break;
        }
    }
    assert_eq!(ports.len(), 2, "{read}");
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    ports
}

fn compile(classes: &Path) {
    assert!(
        Path::new(HOME).exists() && Path::new(COMPILER).exists(),
        "no Tomcat 10 in {HOME}: install the Debian package tomcat10-user"
    );
    let compiled = Command::new("java")
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", COMPILER])
        .args(["org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn", "-proc:none"])
        .args(["-cp", &format!("{HOME}/lib/servlet-api.jar"), "-d"])
        .arg(classes)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ajp/Peer.java"))
        .output()
        .expect("java (default-jre-headless)");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

fn server_xml() -> String {
    let connector = |packet_bytes: usize| {
        format!(
            r#"<Connector protocol="AJP/1.3" address="127.0.0.1" port="0" secret="{SECRET}"
                packetSize="{packet_bytes}" allowTrace="true" />"#
        )
    };
    format!(
        r#"<Server port="-1"><Service name="Catalina">{}{}
        <Engine name="Catalina" defaultHost="localhost">
        <Host name="localhost" appBase="webapps" autoDeploy="false" />
        </Engine></Service></Server>"#,
        connector(PACKET_BYTES_DEFAULT),
        connector(PACKET_BYTES_MAX)
    )
}

const WEB_XML: &str = r#"<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="6.0"
  metadata-complete="true">
  <absolute-ordering />
  <servlet><servlet-name>peer</servlet-name><servlet-class>Peer</servlet-class></servlet>
  <servlet-mapping><servlet-name>peer</servlet-name>
    <url-pattern>/told</url-pattern><url-pattern>/body</url-pattern>
    <url-pattern>/big</url-pattern><url-pattern>/flush</url-pattern>
    <url-pattern>/head</url-pattern><url-pattern>/</url-pattern>
  </servlet-mapping>
</web-app>"#;

/// CRC-32 (ISO-HDLC), as in Java.
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
