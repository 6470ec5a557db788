//! One client: its connections, one for each server to which it was redirected, and its requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, HeaderValue, SET_COOKIE, USER_AGENT,
};
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::TokioIo;
use skep_probe::{ProbeUrl, clean, redirect};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, timeout};

use crate::body_check::BodyCheck;
use crate::failure::RequestFailure;
use crate::form::RequestForm;
use crate::limits::{
    ADDRESSES_MAX, HEAD_BYTES_MAX, HEAD_FIELDS_MAX, KEPT_CONNECTIONS_MAX, REDIRECTS_MAX,
};
use crate::tally::Answer;

/// Settings and state shared by the clients of a process.
pub(crate) struct ClientSettings {
    pub(crate) is_http10: bool,
    pub(crate) per_connection: u64,
    pub(crate) timeout_ms: u64,
    /// Cache of look-ups of host names.
    pub(crate) addresses: RefCell<HashMap<String, Vec<SocketAddr>>>,
    pub(crate) counts: RefCell<ConnectionCounts>,
    /// Called for each piece of a body.
    pub(crate) received: Box<dyn Fn(u64)>,
}

/// Connections that were opened, and kept ones that were found closed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionCounts {
    pub(crate) made: u64,
    pub(crate) reopened: u64,
}

/// A client.
pub(crate) struct LoadClient {
    settings: Rc<ClientSettings>,
    /// The most recently used connection is last.
    kept: Vec<(String, Connection)>,
}

struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    driver: AbortHandle,
    used: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The result of a hop.
enum Hop {
    Redirect(String),
    End(Answer, Option<[u8; 32]>),
}

impl LoadClient {
    pub(crate) fn new(settings: Rc<ClientSettings>) -> Self {
        Self { settings, kept: Vec::new() }
    }

    /// Sends one request, whose latency is measured from `from`; `check` creates the check of the body.
    /// Returns the hash of a body that is hashed.
    pub(crate) async fn request(
        &mut self,
        (url, form): (&ProbeUrl, &RequestForm),
        from: Instant,
        check: impl Fn() -> BodyCheck,
    ) -> Result<(Answer, Option<[u8; 32]>), RequestFailure> {
        let limit = Duration::from_millis(self.settings.timeout_ms);
        let followed = timeout(limit, self.follow((url, form), from, check)).await;
        let result = followed.unwrap_or(Err(RequestFailure::Timeout));
        if result.is_err() {
            self.kept.clear();
        }
        result
    }

    async fn follow(
        &mut self,
        (url, form): (&ProbeUrl, &RequestForm),
        from: Instant,
        check: impl Fn() -> BodyCheck,
    ) -> Result<(Answer, Option<[u8; 32]>), RequestFailure> {
        let (mut at, mut redirects) = (url.clone(), 0);
        loop {
            match self.hop((&at, form), from, check()).await? {
                Hop::End(answer, hash) => return Ok((Answer { redirects, ..answer }, hash)),
                Hop::Redirect(_) if redirects == REDIRECTS_MAX => {
                    return Err(RequestFailure::TooManyRedirects);
                }
                Hop::Redirect(location) => {
                    let bad = |why: String| RequestFailure::BadRedirect(clean(&why));
                    at = at.join(&location).map_err(|error| bad(error.to_string()))?;
                    if at.is_tls() {
                        return Err(bad(format!("{at}: expected http")));
                    }
                    redirects += 1;
                }
            }
        }
    }

    /// Sends the request to one server; a kept connection that is found closed is replaced once.
    async fn hop(
        &mut self,
        (at, form): (&ProbeUrl, &RequestForm),
        from: Instant,
        check: BodyCheck,
    ) -> Result<Hop, RequestFailure> {
        if let Some(mut connection) = self.take(at.authority()) {
            match self.ask(&mut connection, at, form).await {
                Ok(response) => {
                    return self.read(connection, response, (at, form), from, check).await;
                }
                Err(RequestFailure::Closed | RequestFailure::Reset) => {
                    self.settings.counts.borrow_mut().reopened += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        let mut connection = self.connect(at).await?;
        let response = self.ask(&mut connection, at, form).await?;
        self.read(connection, response, (at, form), from, check).await
    }

    fn take(&mut self, authority: &str) -> Option<Connection> {
        let at = self.kept.iter().position(|(it, _)| it == authority)?;
        Some(self.kept.remove(at).1)
    }

    fn keep(&mut self, authority: &str, connection: Connection) {
        if self.kept.len() == KEPT_CONNECTIONS_MAX {
            self.kept.remove(0);
        }
        self.kept.push((authority.to_owned(), connection));
    }

    async fn connect(&self, at: &ProbeUrl) -> Result<Connection, RequestFailure> {
        let name = at.authority().to_ascii_lowercase();
        let known = self.settings.addresses.borrow().get(&name).cloned();
        let addresses = match known {
            Some(addresses) => addresses,
            None => {
                let addresses = look_up(at).await?;
                let mut all = self.settings.addresses.borrow_mut();
                // A server could redirect to an unbounded number of names.
                if all.len() >= ADDRESSES_MAX {
                    all.clear();
                }
                all.insert(name, addresses.clone());
                addresses
            }
        };
        let mut failure = RequestFailure::Lookup("the name has no address".to_owned());
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return self.shake_hands(stream).await,
                Err(error) => failure = RequestFailure::of_connect(&error),
            }
        }
        Err(failure)
    }

    async fn shake_hands(&self, stream: TcpStream) -> Result<Connection, RequestFailure> {
        // Without it the request would still be one packet, so a failure changes nothing.
        let _ = stream.set_nodelay(true);
        self.settings.counts.borrow_mut().made += 1;
        let mut client = http1::Builder::new();
        client.max_buf_size(HEAD_BYTES_MAX).max_headers(HEAD_FIELDS_MAX);
        let shaken = client.handshake(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.map_err(|error| RequestFailure::of_exchange(&error, None))?;
        let driver = spawn_local(driver).abort_handle();
        Ok(Connection { sender, driver, used: 0 })
    }

    async fn ask(
        &self,
        connection: &mut Connection,
        at: &ProbeUrl,
        form: &RequestForm,
    ) -> Result<Response<Incoming>, RequestFailure> {
        connection.used += 1;
        let is_last = connection.used >= self.settings.per_connection;
        let request = request(at, form, self.settings.is_http10, is_last)?;
        let failed = |error| RequestFailure::of_exchange(&error, None);
        connection.sender.ready().await.map_err(failed)?;
        connection.sender.send_request(request).await.map_err(failed)
    }

    /// Reads a response to its end, and keeps the connection if another request may use it.
    async fn read(
        &mut self,
        connection: Connection,
        response: Response<Incoming>,
        (at, form): (&ProbeUrl, &RequestForm),
        from: Instant,
        mut check: BodyCheck,
    ) -> Result<Hop, RequestFailure> {
        let first_byte_us = micros(from);
        let status = response.status();
        let is_right = form.is_right(status.as_u16());
        let location = redirect(&response).filter(|_| !is_right);
        let sets_cookie = response.headers().contains_key(SET_COOKIE);
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|it| RequestFailure::of_exchange(&it, Some(bytes)))?;
            if let Some(data) = frame.data_ref() {
                bytes += data.len() as u64;
                (self.settings.received)(data.len() as u64);
                if is_right {
                    check.take(data)?;
                }
            }
        }
        if connection.used < self.settings.per_connection && !connection.sender.is_closed() {
            self.keep(at.authority(), connection);
        }
        match location {
            Some(location) => Ok(Hop::Redirect(location)),
            None if !is_right => Err(RequestFailure::Status(status.as_u16())),
            None => {
                let hash = check.end()?;
                let total_us = micros(from);
                let answer = Answer { bytes, first_byte_us, total_us, redirects: 0, sets_cookie };
                Ok(Hop::End(answer, hash))
            }
        }
    }
}

async fn look_up(at: &ProbeUrl) -> Result<Vec<SocketAddr>, RequestFailure> {
    let found = tokio::net::lookup_host((at.host(), at.port())).await;
    found.map(Iterator::collect).map_err(|error| RequestFailure::Lookup(clean(&error.to_string())))
}

fn request(
    at: &ProbeUrl,
    form: &RequestForm,
    is_http10: bool,
    is_last: bool,
) -> Result<Request<Empty<Bytes>>, RequestFailure> {
    let connection = if is_last { "close" } else { "keep-alive" };
    let mut request = Request::builder()
        .method(if form.is_head { Method::HEAD } else { Method::GET })
        .uri(at.path())
        .version(if is_http10 { Version::HTTP_10 } else { Version::HTTP_11 })
        .header(HOST, at.authority())
        .header(USER_AGENT, concat!("skep-bench/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "*/*")
        .header(ACCEPT_ENCODING, "identity")
        .header(CONNECTION, HeaderValue::from_static(connection));
    if let Some((name, value)) = &form.field {
        request = request.header(name, value);
    }
    request.body(Empty::new()).map_err(|error| RequestFailure::Http(clean(&error.to_string())))
}

fn micros(from: Instant) -> u64 {
    from.elapsed().as_micros() as u64
}
