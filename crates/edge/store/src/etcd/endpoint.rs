//! One endpoint of etcd: its address, its connection and its errors.

use std::error::Error;
use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{StreamExt, once, pending};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, ConnectError, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::error::StoreOpenError;
use crate::limits::{ATTEMPT_TIMEOUT_MS, PROBE_INTERVAL_MS, REPLY_BYTES_MAX};

/// An endpoint. It connects with the first request, and reconnects after its connection broke.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// As configured.
    pub(super) url: String,
    channel: Channel,
}

impl Endpoint {
    /// Creates an endpoint for `http://HOST:PORT`; must be called within a runtime.
    pub(super) fn new(url: &str) -> Result<Self, StoreOpenError> {
        check(url)?;
        let invalid = |error: tonic::transport::Error| bad(url, &chain_end(&error).to_string());
        let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).map_err(invalid)?;
        let probe = Duration::from_millis(PROBE_INTERVAL_MS);
        let channel = endpoint
            .connect_timeout(Duration::from_millis(ATTEMPT_TIMEOUT_MS))
            .http2_keep_alive_interval(probe)
            .keep_alive_timeout(probe)
            .tcp_nodelay(true)
            .connect_lazy();
        Ok(Self { url: url.to_owned(), channel })
    }

    /// Sends one request, and returns the reply.
    pub(super) async fn ask<Q, R>(&self, method: &'static str, request: Q) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(method);
        let reply = grpc.unary(Request::new(request), path, ProstCodec::<Q, R>::default()).await?;
        Ok(reply.into_inner())
    }

    /// As [`Self::ask`], but a member without a leader fails at once instead of waiting for one.
    pub(super) async fn ask_led<Q, R>(&self, method: &'static str, request: Q) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(method);
        let reply = grpc.unary(led(request), path, ProstCodec::<Q, R>::default()).await?;
        Ok(reply.into_inner())
    }

    /// Sends one request, and returns replies until the stream is dropped or the member loses its leader.
    pub(super) async fn follow<Q, R>(
        &self,
        method: &'static str,
        request: Q,
    ) -> Result<Streaming<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(method);
        // etcd ends a watch when the stream of requests ends.
        let requests = led(once(request).chain(pending()));
        let replies = grpc.streaming(requests, path, ProstCodec::<Q, R>::default()).await?;
        Ok(replies.into_inner())
    }

    async fn grpc(&self) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(REPLY_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }
}

/// Marks a request so that only a member with a leader accepts it (`rpctypes.MetadataRequireLeaderKey`).
fn led<Q>(message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// Whether etcd itself refused, so that every other member would, too.
pub(super) fn is_refusal(status: &Status) -> bool {
    let refusals = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::PermissionDenied,
        Code::Unauthenticated,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::OutOfRange,
    ];
    refusals.contains(&status.code()) && status.source().is_none()
}

/// A failure, as a sentence for the operator.
pub(super) fn describe(status: &Status) -> String {
    let Some(source) = status.source() else {
        return match status.code() {
            Code::Unimplemented => "answers, but is not etcd 3.4 or newer".to_owned(),
            _ => status.message().to_owned(),
        };
    };
    let end = chain_end(source);
    if is_in_chain::<ConnectError>(source) {
        return end.to_string();
    }
    format!("{end}: does not speak as etcd does; is this its client port, and without TLS?")
}

fn chain_end<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut end = error;
    while let Some(source) = end.source() {
        end = source;
    }
    end
}

fn is_in_chain<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    error.is::<E>() || error.source().is_some_and(is_in_chain::<E>)
}

/// Rejects endpoints that could be connected to, but not as intended.
fn check(url: &str) -> Result<(), StoreOpenError> {
    if url.starts_with("https://") {
        return Err(bad(url, "TLS to etcd is not supported"));
    }
    let Some(authority) = url.strip_prefix("http://") else {
        return Err(bad(url, "does not start with http://"));
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(1..)) if !authority.contains(['/', '@', '?', '#']) => Ok(()),
        _ => Err(bad(url, "is not a host and a port")),
    }
}

fn bad(endpoint: &str, reason: &str) -> StoreOpenError {
    StoreOpenError::Endpoint { endpoint: endpoint.to_owned(), reason: reason.to_owned() }
}
