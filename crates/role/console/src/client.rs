//! The API's client: one request per connection, over the unix socket or TCP.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::limits::{ANSWER_BYTES_MAX, ANSWER_MS};
use crate::model::ProcessStatus;
use crate::problem::Problem;
use crate::token::Token;

/// The address of a process's API.
#[derive(Clone, Debug)]
pub struct ApiClient {
    endpoint: Endpoint,
    token: Option<Token>,
}

#[derive(Clone, Debug)]
enum Endpoint {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

/// A response of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResponse(String);

/// There is no response, or it is an error.
#[derive(Debug, thiserror::Error)]
pub enum ApiClientError {
    /// The URL is not that of an API.
    #[error("{url:?} is no address of an admin API: expected http://HOST:PORT{hint}")]
    BadUrl {
        /// The URL given.
        url: String,
        /// What is expected instead.
        hint: String,
    },
    /// No process responds.
    #[error("no answer from {endpoint}: {why}")]
    NoAnswer {
        /// The endpoint called.
        endpoint: String,
        /// The error of the kernel or the protocol.
        why: String,
    },
    /// The API refused the request.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The response is not one of this API.
    #[error("what answers at {endpoint} is not this version's admin API: {why}")]
    Foreign {
        /// The endpoint called.
        endpoint: String,
        /// What is wrong with the response.
        why: String,
    },
}

impl ApiClient {
    /// The API on a unix socket.
    pub fn socket(path: &Path) -> Self {
        Self { endpoint: Endpoint::Socket(path.to_owned()), token: None }
    }

    /// The API at `http://HOST:PORT`.
    ///
    /// # Errors
    /// [`ApiClientError::BadUrl`].
    pub fn tcp(url: &str, token: Option<Token>) -> Result<Self, ApiClientError> {
        let bad =
            |hint: &str| ApiClientError::BadUrl { url: url.to_owned(), hint: hint.to_owned() };
        if url.starts_with("https://") {
            return Err(bad(" (this version speaks no TLS)"));
        }
        let authority = url.strip_prefix("http://").ok_or_else(|| bad(""))?;
        let mut addresses = authority
            .trim_end_matches('/')
            .to_socket_addrs()
            .map_err(|error| bad(&format!(" ({error})")))?;
        let address = addresses.next().ok_or_else(|| bad(" (the host has no address)"))?;
        Ok(Self { endpoint: Endpoint::Tcp(address), token })
    }

    /// The current state of the process.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn status(&self) -> Result<ProcessStatus, ApiClientError> {
        self.decode(&self.get("/api/v1/status")?)
    }

    /// The resource at `path`.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn get(&self, path: &str) -> Result<ApiResponse, ApiClientError> {
        self.wait_for(self.call(Method::GET, path, Bytes::new()))
    }

    /// [`Self::status`], for callers on a tokio runtime.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub async fn status_async(&self) -> Result<ProcessStatus, ApiClientError> {
        self.decode(&self.call(Method::GET, "/api/v1/status", Bytes::new()).await?)
    }

    /// Sends a POST without a body.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn post(&self, path: &str) -> Result<ApiResponse, ApiClientError> {
        self.wait_for(self.call(Method::POST, path, Bytes::new()))
    }

    /// Sends a POST with `body`.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn post_json(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ApiResponse, ApiClientError> {
        self.wait_for(self.call(Method::POST, path, json(body)))
    }

    /// Replaces the resource at `path` by `body`.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn put_json(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ApiResponse, ApiClientError> {
        self.wait_for(self.call(Method::PUT, path, json(body)))
    }

    /// Deletes the resource at `path`.
    ///
    /// # Errors
    /// [`ApiClientError`].
    pub fn delete(&self, path: &str) -> Result<ApiResponse, ApiClientError> {
        self.wait_for(self.call(Method::DELETE, path, Bytes::new()))
    }

    /// Parses a response as the expected type.
    ///
    /// # Errors
    /// [`ApiClientError::Foreign`].
    pub fn decode<T: DeserializeOwned>(&self, answer: &ApiResponse) -> Result<T, ApiClientError> {
        serde_json::from_str(&answer.0).map_err(|error| self.foreign(error))
    }

    fn wait_for(
        &self,
        call: impl Future<Output = Result<ApiResponse, ApiClientError>>,
    ) -> Result<ApiResponse, ApiClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|error| self.no_answer(error))?.block_on(call)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<ApiResponse, ApiClientError> {
        let exchange = async {
            match &self.endpoint {
                Endpoint::Socket(socket) => {
                    let stream = UnixStream::connect(socket).await;
                    let stream = stream.map_err(|error| self.no_answer(error))?;
                    self.exchange(stream, "localhost", method, path, body).await
                }
                Endpoint::Tcp(address) => {
                    let stream = TcpStream::connect(address).await;
                    let stream = stream.map_err(|error| self.no_answer(error))?;
                    self.exchange(stream, &address.to_string(), method, path, body).await
                }
            }
        };
        let patience = Duration::from_millis(ANSWER_MS);
        let in_time = tokio::time::timeout(patience, exchange).await;
        in_time.unwrap_or_else(|_| Err(self.no_answer("it takes too long")))
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        host: &str,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<ApiResponse, ApiClientError> {
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.no_answer(error))?;
        let mut request = Request::builder().method(method).uri(path).header(HOST, host);
        request = request.header(CONNECTION, "close");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.authorization());
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| self.no_answer(error))?;
        let answer = async { self.read(sender.send_request(request).await).await };
        let mut answer = std::pin::pin!(answer);
        // The connection ends with the response, possibly before the response was read.
        tokio::select! {
            answer = &mut answer => answer,
            _ = connection => answer.await,
        }
    }

    async fn read(
        &self,
        response: hyper::Result<Response<Incoming>>,
    ) -> Result<ApiResponse, ApiClientError> {
        let (head, body) = response.map_err(|error| self.no_answer(error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|error| self.no_answer(error))?.to_bytes();
        let text = String::from_utf8(bytes.into()).map_err(|error| self.foreign(error))?;
        if head.status.is_success() {
            return Ok(ApiResponse(text));
        }
        Err(match serde_json::from_str(&text) {
            Ok(problem) => ApiClientError::Refused(problem),
            Err(_) => self.foreign(format!("status {}", head.status)),
        })
    }

    fn no_answer(&self, why: impl fmt::Display) -> ApiClientError {
        ApiClientError::NoAnswer { endpoint: self.to_string(), why: why.to_string() }
    }

    fn foreign(&self, why: impl fmt::Display) -> ApiClientError {
        ApiClientError::Foreign { endpoint: self.to_string(), why: why.to_string() }
    }
}

impl ApiResponse {
    /// The body, as received.
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Endpoint::Socket(path) => write!(f, "{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}

fn json(body: &impl Serialize) -> Bytes {
    // Our own types have text keys and finite numbers only, so they can be serialised; the server
    // would refuse an empty body with a reason.
    serde_json::to_vec(body).unwrap_or_default().into()
}
