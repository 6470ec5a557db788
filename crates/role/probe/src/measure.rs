//! Measures one URL: follows its redirects, each on a connection of its own, and records the ends
//! of the phases, so that the phases of a complete response add up to its total.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderMap, HeaderName, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::failure::Failure;
use crate::http_client::{clean, redirect};
use crate::limits::{HEAD_BYTES_MAX, HEAD_FIELDS_MAX, NODE_CHARS_MAX, REDIRECTS_MAX};
use crate::sample::{ProbeFailure, ProbePhase, ProbeSample};
use crate::timed_stream::{ArrivalTimes, TimedStream};
use crate::url::ProbeUrl;

/// The field that names the node, if configured.
const NODE: HeaderName = HeaderName::from_static("x-skep-node");

/// Measures URLs.
pub(crate) struct Prober {
    tls: TlsConnector,
    timeout: Duration,
}

impl Prober {
    pub(crate) fn new(tls: TlsConnector, timeout_ms: u64) -> Self {
        Self { tls, timeout: Duration::from_millis(timeout_ms) }
    }

    /// Measures `url` once, within the timeout; the caller sets turn and time stamps.
    pub(crate) async fn measure(&self, url: &ProbeUrl) -> ProbeSample {
        let mut measuring = Measuring::begin(self);
        let ended = timeout(self.timeout, measuring.follow(url)).await;
        let failure = match ended {
            Ok(result) => result.err(),
            Err(_) => Some(Failure::Timeout(measuring.awaited)),
        };
        measuring.finish(url, failure)
    }
}

/// A measurement in progress.
struct Measuring<'a> {
    prober: &'a Prober,
    begin: Instant,
    /// The end of the last phase.
    cut: Instant,
    /// What is being waited for, as text.
    awaited: &'static str,
    sample: ProbeSample,
}

/// The result of a response.
enum Hop {
    End,
    Redirect(String),
}

impl<'a> Measuring<'a> {
    fn begin(prober: &'a Prober) -> Self {
        let begin = Instant::now();
        Self { prober, begin, cut: begin, awaited: "address", sample: ProbeSample::default() }
    }

    async fn follow(&mut self, url: &ProbeUrl) -> Result<(), Failure> {
        let mut at = url.clone();
        while let Hop::Redirect(location) = self.hop(&at).await? {
            if self.sample.redirects == REDIRECTS_MAX {
                return Err(Failure::TooManyRedirects);
            }
            at = at
                .join(&location)
                .map_err(|error| Failure::BadRedirect(clean(&error.to_string())))?;
            self.sample.redirects += 1;
            self.sample.node = Some(clean(at.authority()).chars().take(NODE_CHARS_MAX).collect());
        }
        Ok(())
    }

    /// Sends the request to one server. A phase that has ended is recorded, whatever happens in the
    /// next.
    async fn hop(&mut self, at: &ProbeUrl) -> Result<Hop, Failure> {
        self.awaited = "address";
        let addresses = look_up(at).await?;
        self.end_phase(ProbePhase::Lookup);
        self.awaited = "connection";
        let stream = connect(&addresses, self.remaining()).await?;
        self.end_phase(ProbePhase::Connect);
        if !at.is_tls() {
            self.sample.set_phase(ProbePhase::Tls, 0);
            return self.exchange(stream, at).await;
        }
        self.awaited = "TLS handshake";
        let name = ServerName::try_from(at.host().to_owned())
            .map_err(|_| Failure::Tls("the host is no name that a certificate can have".into()))?;
        let handshake = self.prober.tls.connect(name, stream).await;
        let stream = handshake.map_err(|error| Failure::of_tls(&error))?;
        self.end_phase(ProbePhase::Tls);
        self.exchange(stream, at).await
    }

    /// Sends the request, and reads the response as far as it is measured.
    async fn exchange<T>(&mut self, stream: T, at: &ProbeUrl) -> Result<Hop, Failure>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.awaited = "response";
        let times = ArrivalTimes::default();
        let io = TokioIo::new(TimedStream::new(stream, times.clone()));
        let of_head = |error| match times.is_flooded() {
            true => Failure::TooManyInformational,
            false => Failure::of_exchange(&error, None),
        };
        let mut client = http1::Builder::new();
        client.max_buf_size(HEAD_BYTES_MAX).max_headers(HEAD_FIELDS_MAX);
        let (mut sender, connection) = client.handshake(io).await.map_err(of_head)?;
        // Ends with this exchange.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let mut request = request(at)?;
        let informational = times.clone();
        hyper::ext::on_informational(&mut request, move |_| informational.count_informational());
        let response = sender.send_request(request).await.map_err(of_head)?;
        times.end_heads();
        if times.is_flooded() {
            return Err(Failure::TooManyInformational);
        }
        if let Some(location) = redirect(&response) {
            self.end_redirect(times.last());
            self.sample.status = Some(response.status().as_u16());
            return Ok(Hop::Redirect(location));
        }
        let first_byte_us = self.lap_at(times.first());
        self.sample.set_phase(ProbePhase::FirstByte, first_byte_us);
        self.read_response(response, &times).await
    }

    /// Reads a response that is not a redirect to its end.
    async fn read_response(
        &mut self,
        response: Response<Incoming>,
        times: &ArrivalTimes,
    ) -> Result<Hop, Failure> {
        self.awaited = "end of the response";
        let status = response.status();
        self.sample.status = Some(status.as_u16());
        if let Some(node) = node_of(response.headers()) {
            self.sample.node = Some(node);
        }
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let got = self.sample.body_bytes;
            let frame = frame.map_err(|error| Failure::of_exchange(&error, Some(got)))?;
            self.sample.body_bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        let data_us = self.lap_at(times.last());
        self.sample.set_phase(ProbePhase::Data, data_us);
        match status.is_success() {
            true => Ok(Hop::End),
            false => Err(Failure::Status(status.as_u16())),
        }
    }

    /// Assigns the connection of a redirect, whose head ended at `end`, to the redirect phases.
    fn end_redirect(&mut self, end: Option<Instant>) {
        for phase in [ProbePhase::Lookup, ProbePhase::Connect, ProbePhase::Tls] {
            let us = self.sample.take_phase(phase).unwrap_or(0);
            self.sample.add_to_phase(ProbePhase::RedirectConnect, us);
        }
        let redirect_us = self.lap_at(end);
        self.sample.add_to_phase(ProbePhase::Redirect, redirect_us);
    }

    /// Ends a phase now.
    fn end_phase(&mut self, phase: ProbePhase) {
        let us = self.lap_at(Some(Instant::now()));
        self.sample.set_phase(phase, us);
    }

    /// Ends a phase at `end`, or where the last one ended.
    fn lap_at(&mut self, end: Option<Instant>) -> u64 {
        let from_us = micros(self.cut - self.begin);
        self.cut = end.unwrap_or(self.cut).max(self.cut);
        micros(self.cut - self.begin) - from_us
    }

    fn remaining(&self) -> Duration {
        self.prober.timeout.saturating_sub(self.begin.elapsed())
    }

    fn finish(mut self, url: &ProbeUrl, failure: Option<Failure>) -> ProbeSample {
        let end = if failure.is_some() { Instant::now() } else { self.cut };
        self.sample.url = url.as_str().to_owned();
        self.sample.total_us = micros(end - self.begin);
        if failure.is_none() {
            for phase in [ProbePhase::RedirectConnect, ProbePhase::Redirect] {
                self.sample.add_to_phase(phase, 0);
            }
        }
        self.sample.failure =
            failure.map(|it| ProbeFailure { kind: it.kind().to_owned(), text: it.to_string() });
        self.sample
    }
}

async fn look_up(at: &ProbeUrl) -> Result<Vec<SocketAddr>, Failure> {
    let found = tokio::net::lookup_host((at.host(), at.port())).await;
    let addresses: Vec<SocketAddr> =
        found.map_err(|error| Failure::Lookup(clean(&error.to_string())))?.collect();
    match addresses.is_empty() {
        true => Err(Failure::Lookup("the name has no address".to_owned())),
        false => Ok(addresses),
    }
}

/// Connects to the first address that accepts; each gets its share of the time.
async fn connect(addresses: &[SocketAddr], remaining: Duration) -> Result<TcpStream, Failure> {
    let share = remaining / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut failure = Failure::Unreachable("no address".to_owned());
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without it the request would still be one packet, so a failure changes nothing.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => failure = Failure::of_connect(&error),
            Err(_) => failure = Failure::Timeout("connection"),
        }
    }
    Err(failure)
}

fn request(at: &ProbeUrl) -> Result<Request<Empty<Bytes>>, Failure> {
    Request::get(at.path())
        .header(HOST, at.authority())
        .header(USER_AGENT, concat!("skep-probe/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "*/*")
        .header(ACCEPT_ENCODING, "identity")
        .header(CONNECTION, "close")
        .body(Empty::new())
        .map_err(|error| Failure::Http(clean(&error.to_string())))
}

fn node_of(fields: &HeaderMap) -> Option<String> {
    let name = String::from_utf8_lossy(fields.get(NODE)?.as_bytes()).into_owned();
    Some(clean(&name).chars().take(NODE_CHARS_MAX).collect())
}

/// Whole microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
