//! A request by which an operator tests one member, whatever its state: what it answers, and when.
//!
//! It is sent on a connection of its own, beside all limits, as a check is, and counts nowhere.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use skep_http::gateway::GatewayRequest;
use skep_http::limits::{INTERIM_RESPONSES_MAX, RESPONSE_BODY, RESPONSE_HEAD};
use skep_http::{
    BodyDecoder, BodyFraming, FieldSlots, HeadScanner, Host, Method, Version, parse_response,
};
use skep_serve::{Conn, Output, Worker, WorkerHandle};
use skep_units::ServerAddress;
use skep_upstream::UpstreamError;

use crate::limits::{TEST_BODY_BYTES_MAX, TEST_BODY_BYTES_SHOWN, TEST_STDERR_LINES_MAX};
use crate::members::cause::Cause;
use crate::members::conn_io::{read_more, send};
use crate::members::control::GroupControlError;
use crate::members::group::Group;
use crate::members::probe::failure_of;
use crate::members::protocol::MemberProtocol;
use crate::request::gateway::codec::{GatewayCodec, GatewayEvent};

/// Nobody's address: the request has no client.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a member answered. Times are from the beginning of the test, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberTest {
    /// Its address was reached.
    pub connected_us: Option<u64>,
    /// The head of its answer had come.
    pub head_us: Option<u64>,
    /// The end of the test.
    pub ended_us: u64,
    pub status: Option<u16>,
    /// Fields of the answer, in its order.
    pub fields: Vec<(String, String)>,
    /// Bytes of the body that came.
    pub body_bytes: u64,
    /// The first of them; what is no text stands for nothing.
    pub body: String,
    /// What of the body was not waited for.
    pub is_cut: bool,
    /// Why there is no whole answer.
    pub error: Option<String>,
}

impl Group {
    /// Sends GET `target` to the member called `name`, on `worker`. The answer comes within
    /// `limit_ms`; none at all: the worker is gone.
    ///
    /// # Errors
    /// [`GroupControlError::UnknownMember`].
    pub fn test_member(
        &self,
        worker: &WorkerHandle,
        name: &str,
        (target, host): (String, Option<String>),
        limit_ms: u64,
    ) -> Result<Receiver<MemberTest>, GroupControlError> {
        let (address, settings) = self.address_of(name)?;
        let (tell, told) = sync_channel(1);
        worker.run(move |worker| {
            let worker = Rc::clone(worker);
            tokio::task::spawn_local(async move {
                let host = host.or_else(|| settings.check.host.clone());
                let question = Question {
                    target,
                    host,
                    fields: Vec::new(),
                    agent: "skep-test",
                    body_bytes_max: TEST_BODY_BYTES_MAX,
                    body_bytes_kept: TEST_BODY_BYTES_SHOWN,
                };
                let answer = ask_once(&worker, address, &settings.protocol, &question, limit_ms);
                // Who asked may be gone.
                let _ = tell.send(answer.await);
            });
        });
        Ok(told)
    }
}

/// A GET of the operator's own to one server.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path and query, percent-encoded.
    pub target: String,
    /// Field Host; `None`: the server's address.
    pub host: Option<String>,
    /// Further fields.
    pub fields: Vec<(&'static str, String)>,
    /// Field User-Agent.
    pub agent: &'static str,
    /// Bytes of the body after which no more are waited for.
    pub body_bytes_max: u64,
    /// Bytes of the body that the answer has.
    pub body_bytes_kept: usize,
}

/// Asks a server once, on a connection of its own, which counts nowhere; the answer comes within
/// `limit_ms`.
pub async fn ask_once(
    worker: &Rc<Worker>,
    address: ServerAddress,
    protocol: &MemberProtocol,
    question: &Question,
    limit_ms: u64,
) -> MemberTest {
    let mut test = Testing::new(worker, address, protocol, question);
    let asked = test.ask(limit_ms);
    let error = match tokio::time::timeout(Duration::from_millis(limit_ms), asked).await {
        Ok(asked) => asked.err(),
        Err(_) => Some(format!("no whole answer within {limit_ms} ms")),
    };
    test.end(error)
}

struct Testing<'a> {
    worker: &'a Rc<Worker>,
    address: ServerAddress,
    protocol: &'a MemberProtocol,
    question: &'a Question,
    began: Instant,
    test: MemberTest,
    body: Vec<u8>,
    stderr_lines: usize,
    interim_responses: usize,
}

/// Whether the answer is complete.
type IsWhole = bool;

impl<'a> Testing<'a> {
    fn new(
        worker: &'a Rc<Worker>,
        address: ServerAddress,
        protocol: &'a MemberProtocol,
        question: &'a Question,
    ) -> Self {
        let test = MemberTest::default();
        Self {
            worker,
            address,
            protocol,
            question,
            began: Instant::now(),
            test,
            body: Vec::new(),
            stderr_lines: 0,
            interim_responses: 0,
        }
    }

    async fn ask(&mut self, limit_ms: u64) -> Result<(), String> {
        let connected = Conn::connect(self.worker, self.address, limit_ms).await;
        let conn =
            connected.map_err(|error| failure_of(&UpstreamError::from(error)).to_string())?;
        self.test.connected_us = Some(self.now_us());
        let default =
            self.address.tcp().map_or_else(|| "localhost".to_owned(), |it| it.to_string());
        let host = self.question.host.as_deref().unwrap_or(&default);
        let (mut out, mut wire) = (Vec::new(), Wire::Http(None));
        match self.protocol {
            MemberProtocol::Http => write_request(&mut out, self.question, host),
            protocol => {
                let fields = fields(self.question);
                let request = request(&self.question.target, host, &fields);
                let codec = GatewayCodec::start(&mut out, &request, protocol, false);
                wire = Wire::Gateway(codec.map_err(|(_, why)| why)?);
            }
        }
        let mut output = Output::default();
        output.copy(&out);
        send(&conn, output).await.map_err(|error| error.to_string())?;
        let mut pending = Vec::new();
        loop {
            if self.receive(&mut wire, &mut pending)? || self.has_enough() {
                return Ok(());
            }
            if !read_more(&conn, &mut pending).await.map_err(|error| error.to_string())? {
                return self.closed(&mut wire);
            }
        }
    }

    /// Takes what it can of what came.
    fn receive(&mut self, wire: &mut Wire, pending: &mut Vec<u8>) -> Result<IsWhole, String> {
        match wire {
            Wire::Http(decoder) => self.receive_http(decoder, pending),
            Wire::Gateway(codec) => self.receive_gateway(codec, pending),
        }
    }

    fn receive_http(
        &mut self,
        decoder: &mut Option<BodyDecoder>,
        pending: &mut Vec<u8>,
    ) -> Result<IsWhole, String> {
        while decoder.is_none() {
            let scanned = HeadScanner::response().scan(pending, &RESPONSE_HEAD);
            let Some(len) = scanned.map_err(|it| it.to_string())? else { return Ok(false) };
            let head: Vec<u8> = pending.drain(..len).collect();
            *decoder = self.head(&head)?;
        }
        let Some(decoder) = decoder else { return Ok(false) };
        let mut at = 0;
        while !decoder.is_done() && at < pending.len() {
            let decoded = decoder.decode(&pending[at..]).map_err(|it| it.to_string())?;
            self.body(&pending[at..][decoded.data.clone()]);
            at += decoded.consumed;
            if decoded.consumed == 0 {
                break;
            }
        }
        pending.drain(..at);
        Ok(decoder.is_done())
    }

    fn receive_gateway(
        &mut self,
        codec: &mut GatewayCodec,
        pending: &mut Vec<u8>,
    ) -> Result<IsWhole, String> {
        loop {
            let (consumed, event) = codec.receive(pending).map_err(word)?;
            let came: Vec<u8> = pending.drain(..consumed).collect();
            match event {
                Some(GatewayEvent::Head(head)) => drop(self.head(&head.bytes)?),
                Some(GatewayEvent::Body(range)) => self.body(&came[range]),
                Some(GatewayEvent::End) => return Ok(true),
                Some(GatewayEvent::Stderr(line)) => self.stderr(&line),
                Some(GatewayEvent::Wants | GatewayEvent::Flush) => {}
                None => return Ok(false),
            }
        }
    }

    /// The head of an answer; `None`: an interim one.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<BodyDecoder>, String> {
        let mut slots = FieldSlots::new();
        let head = parse_response(&mut slots, bytes, Method::Get, &RESPONSE_HEAD)
            .map_err(|it| it.to_string())?;
        if head.status < 200 {
            self.interim_responses += 1;
            let is_flood = self.interim_responses > INTERIM_RESPONSES_MAX;
            return if is_flood { Err("too many interim responses".to_owned()) } else { Ok(None) };
        }
        self.test.head_us = Some(self.now_us());
        self.test.status = Some(head.status);
        let shown = |value: &[u8]| String::from_utf8_lossy(value).escape_debug().to_string();
        let fields = head.fields.iter().map(|(name, value)| (name.to_owned(), shown(value)));
        self.test.fields.extend(fields);
        BodyDecoder::new(head.framing, &RESPONSE_BODY).map(Some).map_err(|it| it.to_string())
    }

    /// A line for the log of the application; an endless log is cut.
    fn stderr(&mut self, line: &[u8]) {
        self.stderr_lines += 1;
        if self.stderr_lines <= TEST_STDERR_LINES_MAX {
            let line = String::from_utf8_lossy(line).escape_debug().to_string();
            self.test.fields.push(("(stderr)".to_owned(), line));
        }
    }

    fn body(&mut self, data: &[u8]) {
        self.test.body_bytes += data.len() as u64;
        let room = self.question.body_bytes_kept.saturating_sub(self.body.len());
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }

    fn has_enough(&mut self) -> bool {
        self.test.is_cut = self.test.body_bytes > self.question.body_bytes_max;
        self.test.is_cut
    }

    /// The member has closed its side.
    fn closed(&mut self, wire: &mut Wire) -> Result<(), String> {
        match wire {
            Wire::Http(None) => Err("the connection ended before the answer".to_owned()),
            Wire::Http(Some(decoder)) => {
                decoder.finish().map_err(|_| "the connection ended inside the answer".to_owned())
            }
            Wire::Gateway(codec) => codec.close().map_err(word),
        }
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn end(self, error: Option<String>) -> MemberTest {
        let ended_us = self.now_us();
        let body = String::from_utf8_lossy(&self.body).into_owned();
        MemberTest { ended_us, body, error, ..self.test }
    }
}

enum Wire {
    /// The body, once the head came.
    Http(Option<BodyDecoder>),
    Gateway(GatewayCodec),
}

fn write_request(out: &mut Vec<u8>, question: &Question, host: &str) {
    let mut head = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n", question.target);
    for (name, value) in fields(question) {
        head += &format!("{name}: {}\r\n", String::from_utf8_lossy(value));
    }
    head += "Connection: close\r\n\r\n";
    out.extend_from_slice(head.as_bytes());
}

fn fields(question: &Question) -> Vec<(&str, &[u8])> {
    let agent = [("User-Agent", question.agent.as_bytes())];
    let others = question.fields.iter().map(|(name, value)| (*name, value.as_bytes()));
    agent.into_iter().chain(others).collect()
}

fn request<'a>(
    target: &'a str,
    host: &'a str,
    fields: &'a [(&'a str, &'a [u8])],
) -> GatewayRequest<'a> {
    let path = target.split('?').next().unwrap_or(target);
    let named = Host::parse(host.as_bytes()).ok();
    GatewayRequest {
        method: Method::Get,
        target: target.as_bytes(),
        path: path.as_bytes(),
        query: target.get(path.len() + 1..).map(str::as_bytes),
        version: Version::Http11,
        host: host.as_bytes(),
        fields,
        client: NOBODY,
        local: NOBODY,
        server_name: named.map_or(host.as_bytes(), |it| it.name),
        server_port: named.and_then(|it| it.port).unwrap_or(80),
        is_tls: false,
        body: BodyFraming::None,
    }
}

fn word(cause: Cause) -> String {
    cause.to_string()
}
