//! An operator's test request to one member, whatever its state: returns its response and the times.
//!
//! It is sent on a connection of its own, outside all limits, like a check, and is not counted. If its
//! target is that of checks, a check is made as well, which determines the result.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use skep_cluster::Failure;
use skep_fastcgi::FcgiExchange;
use skep_http::limits::{INTERIM_RESPONSES_MAX, RESPONSE_BODY, RESPONSE_HEAD};
use skep_http::{BodyDecoder, FieldSlots, HeadScanner, Method, parse_response};
use skep_serve::{Conn, Output, Worker, WorkerHandle};
use skep_units::ServerAddress;
use skep_upstream::UpstreamError;

use crate::limits::{
    TEST_BODY_BYTES_MAX, TEST_BODY_BYTES_SHOWN, TEST_BYTES_MAX, TEST_STDERR_LINES_MAX,
};
use crate::members::cause::Cause;
use crate::members::conn_io::{read_more, send};
use crate::members::control::GroupControlError;
use crate::members::group::Group;
use crate::members::probe::{failure_of, host_of, probe, write_get};
use crate::members::probe_request::probe_request;
use crate::members::protocol::MemberProtocol;
use crate::members::settings::{CheckSettings, GroupSettings};
use crate::members::state::CheckOutcome;
use crate::request::gateway::codec::{GatewayCodec, GatewayEvent};

/// The request of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestRequest {
    /// GET of a path and query, with this Host in place of that of checks.
    Get { target: String, host: Option<String> },
    /// The request that checks send.
    Check,
}

/// The response of a member. Times are measured from the start of the test, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberTest {
    /// The requested path and query, if any.
    pub target: Option<String>,
    /// Time at which the connection was established.
    pub connected_us: Option<u64>,
    /// Time at which the head of the response was complete.
    pub head_us: Option<u64>,
    /// End of the test.
    pub ended_us: u64,
    pub status: Option<u16>,
    /// Fields of the response, in its order.
    pub fields: Vec<(String, String)>,
    /// Received bytes of the body.
    pub body_bytes: u64,
    /// The first bytes of the body; bytes that are not text are replaced.
    pub body: String,
    /// Whether reading stopped before the end of the body.
    pub is_cut: bool,
    /// The result of a check, if one was made.
    pub check: Option<String>,
    /// Why there is no complete response, or what is wrong with it.
    pub error: Option<String>,
}

impl Group {
    /// Sends `request` to the member called `name`, on `worker`. The result is sent within `limit_ms`; if
    /// there is none, the worker is gone.
    ///
    /// # Errors
    /// [`GroupControlError::UnknownMember`].
    pub fn test_member(
        &self,
        worker: &WorkerHandle,
        name: &str,
        request: TestRequest,
        limit_ms: u64,
    ) -> Result<Receiver<MemberTest>, GroupControlError> {
        let (address, settings) = self.address_of(name)?;
        let (tell, told) = sync_channel(1);
        worker.run(move |worker| {
            let worker = Rc::clone(worker);
            tokio::task::spawn_local(async move {
                let mut test = Testing::new(&worker, address, &settings.protocol);
                let asked = test.run(request, &settings, limit_ms);
                let error = within(limit_ms, asked).await;
                // The receiver may be gone.
                let _ = tell.send(test.end(error));
            });
        });
        Ok(told)
    }
}

/// The operator's own GET request to one server.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path and query, percent-encoded.
    pub target: String,
    /// Field Host; `None`: the server's address.
    pub host: Option<String>,
    /// Additional fields.
    pub fields: Vec<(&'static str, String)>,
    /// Field User-Agent.
    pub agent: &'static str,
    /// Bytes of the body after which reading stops.
    pub body_bytes_max: u64,
    /// Bytes of the body that are returned.
    pub body_bytes_kept: usize,
}

impl Question {
    /// The request of a test; its default host is that of checks.
    fn of_test(target: String, host: Option<String>, check: &CheckSettings) -> Self {
        Self {
            target,
            host: host.or_else(|| check.host.clone()),
            fields: Vec::new(),
            agent: "skep-test",
            body_bytes_max: TEST_BODY_BYTES_MAX,
            body_bytes_kept: TEST_BODY_BYTES_SHOWN,
        }
    }
}

/// Sends one request to a server on a connection of its own, which is not counted; returns within
/// `limit_ms`.
pub async fn ask_once(
    worker: &Rc<Worker>,
    address: ServerAddress,
    protocol: &MemberProtocol,
    question: &Question,
    limit_ms: u64,
) -> MemberTest {
    let mut test = Testing::new(worker, address, protocol);
    let error = match test.start(question) {
        Ok(started) => within(limit_ms, test.ask(question, started, limit_ms)).await,
        Err(why) => Some(why),
    };
    test.end(error)
}

/// Why there is no complete response within `limit_ms`, if there is none.
async fn within(limit_ms: u64, asked: impl Future<Output = Result<(), String>>) -> Option<String> {
    match tokio::time::timeout(Duration::from_millis(limit_ms), asked).await {
        Ok(asked) => asked.err(),
        Err(_) => Some(format!("no whole answer within {limit_ms} ms")),
    }
}

struct Testing<'a> {
    worker: &'a Rc<Worker>,
    address: ServerAddress,
    protocol: &'a MemberProtocol,
    began: Instant,
    test: MemberTest,
    body: Vec<u8>,
    /// Bytes of the body after which reading stops, and those that are returned.
    body_bytes_max: u64,
    body_bytes_kept: usize,
    /// Bytes of the response, including its framing, that may still be received.
    bytes_left: u64,
    stderr_lines: usize,
    interim_responses: usize,
}

/// Whether the response is complete.
type IsWhole = bool;

impl<'a> Testing<'a> {
    fn new(worker: &'a Rc<Worker>, address: ServerAddress, protocol: &'a MemberProtocol) -> Self {
        let test = MemberTest::default();
        Self {
            worker,
            address,
            protocol,
            began: Instant::now(),
            test,
            body: Vec::new(),
            body_bytes_max: 0,
            body_bytes_kept: 0,
            bytes_left: TEST_BYTES_MAX,
            stderr_lines: 0,
            interim_responses: 0,
        }
    }

    /// Sends the operator's request, and adds the result of a check if that is more informative.
    async fn run(
        &mut self,
        request: TestRequest,
        settings: &GroupSettings,
        limit_ms: u64,
    ) -> Result<(), String> {
        let check = &settings.check;
        match request {
            TestRequest::Get { target, host } => {
                let is_checked = check.path.as_ref() == Some(&target);
                let question = Question::of_test(target, host, check);
                let started = self.start(&question).map_err(|why| {
                    let hint = if is_checked { " (checks do otherwise: --health)" } else { "" };
                    format!("nothing was sent: {why}{hint}")
                })?;
                self.ask(&question, started, limit_ms).await?;
                self.explain_refusal(settings).await
            }
            TestRequest::Check => {
                if let Some(path) = &check.path {
                    let question = Question::of_test(path.clone(), None, check);
                    let started = self.start_check(&question)?;
                    self.ask(&question, started, limit_ms).await?;
                }
                self.check(settings).await
            }
        }
    }

    fn start(&self, question: &Question) -> Result<(Vec<u8>, AnswerDecoder), String> {
        let Question { target, host, fields, agent, .. } = question;
        let host = host.clone().unwrap_or_else(|| host_of(self.address));
        let agent = ("User-Agent", agent.as_bytes());
        let others = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let fields: Vec<_> = [agent].into_iter().chain(others).collect();
        let mut out = Vec::new();
        let wire = match self.protocol {
            MemberProtocol::Http => {
                write_get(&mut out, target, &host, &fields);
                AnswerDecoder::Http(None)
            }
            protocol => {
                let request = probe_request(Method::Get, target, &host, &fields);
                let started = GatewayCodec::start(&mut out, &request, protocol, false);
                AnswerDecoder::Gateway(started.map_err(|error| error.reason)?)
            }
        };
        Ok((out, wire))
    }

    /// Checks request a target from FastCGI applications that is not a script.
    fn start_check(&self, question: &Question) -> Result<(Vec<u8>, AnswerDecoder), String> {
        let MemberProtocol::Fcgi(_) = self.protocol else { return self.start(question) };
        let (mut out, path) = (Vec::new(), question.target.as_bytes());
        let probe = FcgiExchange::probe(&mut out, path, b"", &RESPONSE_HEAD);
        let exchange = probe.map_err(|error| error.to_string())?;
        Ok((out, AnswerDecoder::Gateway(GatewayCodec::Fcgi(exchange))))
    }

    async fn ask(
        &mut self,
        question: &Question,
        (request, mut wire): (Vec<u8>, AnswerDecoder),
        limit_ms: u64,
    ) -> Result<(), String> {
        self.test.target = Some(question.target.clone());
        self.body_bytes_max = question.body_bytes_max;
        self.body_bytes_kept = question.body_bytes_kept;
        let connected = Conn::connect(self.worker, self.address, limit_ms).await;
        let conn =
            connected.map_err(|error| failure_of(&UpstreamError::from(error)).to_string())?;
        self.test.connected_us = Some(self.now_us());
        let mut output = Output::default();
        output.copy(&request);
        send(&conn, output).await.map_err(|error| error.to_string())?;
        let mut pending = Vec::new();
        loop {
            if self.receive(&mut wire, &mut pending)? || self.has_enough()? {
                return Ok(());
            }
            let before = pending.len();
            if !read_more(&conn, &mut pending).await.map_err(|error| error.to_string())? {
                return self.closed(&mut wire);
            }
            self.bytes_left = self.bytes_left.saturating_sub((pending.len() - before) as u64);
            // Lets this worker's clients proceed, however fast the member sends.
            tokio::task::yield_now().await;
        }
    }

    /// Determines whether a 403 is from a servlet engine that expects another secret, not from an
    /// application.
    async fn explain_refusal(&mut self, settings: &GroupSettings) -> Result<(), String> {
        let is_ajp = matches!(self.protocol, MemberProtocol::Ajp(_));
        if is_ajp && self.test.status == Some(403) {
            let outcome = probe(self.worker, self.address, settings, || false).await;
            if let Some(CheckOutcome::Bad(failure @ Failure::Secret)) = outcome {
                return Err(format!("{failure}: all its requests get 403"));
            }
        }
        Ok(())
    }

    /// Makes a check.
    async fn check(&mut self, settings: &GroupSettings) -> Result<(), String> {
        let outcome = probe(self.worker, self.address, settings, || false).await;
        let (said, result) = match outcome {
            Some(CheckOutcome::Good) => ("good".to_owned(), Ok(())),
            Some(CheckOutcome::DrainAnnounced) => ("it drains".to_owned(), Ok(())),
            Some(CheckOutcome::Bad(failure)) => {
                (failure.to_string(), Err(format!("the check fails: {failure}")))
            }
            None => return Err("the check could not be made: see the log".to_owned()),
        };
        self.test.check = Some(said);
        result
    }

    /// Handles as many of the received bytes as possible.
    fn receive(
        &mut self,
        wire: &mut AnswerDecoder,
        pending: &mut Vec<u8>,
    ) -> Result<IsWhole, String> {
        match wire {
            AnswerDecoder::Http(decoder) => self.receive_http(decoder, pending),
            AnswerDecoder::Gateway(codec) => self.receive_gateway(codec, pending),
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
            *decoder = self.head(&head, |_| false)?;
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
        // Bytes are moved only after all were read: records may be of one byte each.
        let mut at = 0;
        loop {
            let rest = &pending[at..];
            let (consumed, event) = codec.receive(rest).map_err(word)?;
            match event {
                Some(GatewayEvent::Head(head)) => drop(self.head(&head.bytes, is_of_codec)?),
                Some(GatewayEvent::Body(range)) => self.body(&rest[range]),
                Some(GatewayEvent::End) => return Ok(true),
                Some(GatewayEvent::Stderr(line)) => self.stderr(&line),
                Some(GatewayEvent::Wants | GatewayEvent::Flush) => {}
                None => {
                    pending.drain(..at + consumed);
                    return Ok(false);
                }
            }
            at += consumed;
        }
    }

    /// Handles the head of a response, without the fields for which `is_left_out`; `None`: it is an interim
    /// response.
    fn head(
        &mut self,
        bytes: &[u8],
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<Option<BodyDecoder>, String> {
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
        let fields = head.fields.iter().filter(|(name, _)| !is_left_out(name));
        let fields = fields.map(|(name, value)| (name.to_owned(), shown(value)));
        self.test.fields.extend(fields);
        BodyDecoder::new(head.framing, &RESPONSE_BODY).map(Some).map_err(|it| it.to_string())
    }

    /// Records a line of the application's standard error; an endless log is cut.
    fn stderr(&mut self, line: &[u8]) {
        self.stderr_lines += 1;
        if self.stderr_lines <= TEST_STDERR_LINES_MAX {
            let line = String::from_utf8_lossy(line).escape_debug().to_string();
            self.test.fields.push(("(stderr)".to_owned(), line));
        }
    }

    fn body(&mut self, data: &[u8]) {
        self.test.body_bytes += data.len() as u64;
        let room = self.body_bytes_kept.saturating_sub(self.body.len());
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }

    fn has_enough(&mut self) -> Result<bool, String> {
        let is_spent = self.bytes_left == 0;
        if is_spent && self.test.status.is_none() {
            return Err(format!("no head of an answer in the first {TEST_BYTES_MAX} bytes"));
        }
        self.test.is_cut = is_spent || self.test.body_bytes > self.body_bytes_max;
        Ok(self.test.is_cut)
    }

    /// Handles the end of the member's side.
    fn closed(&mut self, wire: &mut AnswerDecoder) -> Result<(), String> {
        match wire {
            AnswerDecoder::Http(None) => Err("the connection ended before the answer".to_owned()),
            AnswerDecoder::Http(Some(decoder)) => {
                decoder.finish().map_err(|_| "the connection ended inside the answer".to_owned())
            }
            AnswerDecoder::Gateway(codec) => codec.close().map_err(word),
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

enum AnswerDecoder {
    /// The decoder of the body, after the head.
    Http(Option<BodyDecoder>),
    Gateway(GatewayCodec),
}

/// Fields that the codec derived from the protocol's own framing.
fn is_of_codec(name: &str) -> bool {
    name.eq_ignore_ascii_case("transfer-encoding")
}

fn word(cause: Cause) -> String {
    cause.to_string()
}
