//! Single requests, which check that a server answers correctly before it is measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use skep_testclient::{RawClient, Response, request_bytes};

use crate::limits::ANSWER_TIMEOUT;

/// Requests a path from a server of this machine, on a new connection.
pub(crate) fn get(port: u16, path: &str) -> Result<Response> {
    get_at((Ipv4Addr::LOCALHOST, port).into(), path)
}

/// Requests a path from a server at any address.
pub(crate) fn get_at(server: SocketAddr, path: &str) -> Result<Response> {
    let mut client = RawClient::try_connect_within(server, ANSWER_TIMEOUT)?;
    get_on(&mut client, path).with_context(|| format!("GET {path}"))
}

/// Requests a path on an open connection.
pub(crate) fn get_on(client: &mut RawClient, path: &str) -> Result<Response> {
    client.set_timeout(ANSWER_TIMEOUT);
    client.try_send(request_bytes("GET", path, &[("Host", "127.0.0.1")]))?;
    let answer = client.try_response()?;
    ensure!(answer.header_all("content-length").count() == 1, "no Content-Length");
    ensure!(client.take_buffered(1).is_empty(), "more bytes than announced");
    Ok(answer)
}

/// Returns an error unless the answer is the file, byte for byte.
pub(crate) fn same_file(port: u16, root: &Path, path: &str) -> Result<Response> {
    let answer = get(port, path)?;
    let wanted = std::fs::read(root.join(path.trim_start_matches('/')))?;
    ensure!(answer.status == 200, "GET {path}: status {}", answer.status);
    ensure!(answer.body == wanted, "GET {path}: not the bytes of the file");
    Ok(answer)
}
