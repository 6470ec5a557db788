//! The application: every page takes half a second, regardless of the load, and each computation is counted.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::page_body;
use crate::limits::COMPUTATION;

/// Maximum length of a request's head, in bytes: ours have a few hundred.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The number of computations so far, by path.
#[derive(Clone, Default)]
pub(super) struct Computations(Arc<Mutex<HashMap<String, u64>>>);

impl Computations {
    /// The number of computations of a path.
    pub(super) fn of(&self, path: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or(0)
    }

    fn count(&self, path: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(path.to_owned()).or_default() += 1;
    }
}

/// Starts the application on a thread that ends with this process; returns its port and its counts.
pub(super) fn start() -> Result<(u16, Computations)> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let computations = Computations::default();
    let counted = computations.clone();
    thread::spawn(move || runtime.block_on(serve(listener, counted)));
    Ok((port, computations))
}

async fn serve(listener: std::net::TcpListener, computations: Computations) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let computations = computations.clone();
        // It is no error if a node closes the connection.
        tokio::spawn(async move { drop(answer(stream, computations).await) });
    }
}

/// Answers the requests of one connection.
async fn answer(mut stream: TcpStream, computations: Computations) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            if read.len() > HEAD_BYTES_MAX || stream.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        };
        let head: Vec<u8> = read.drain(..end).collect();
        let head = String::from_utf8_lossy(&head);
        let path = head.split(' ').nth(1).unwrap_or_default();
        computations.count(path);
        sleep(COMPUTATION).await;
        stream.write_all(response(path).as_bytes()).await?;
    }
}

/// The response of a path: private below /private, and cacheable elsewhere.
fn response(path: &str) -> String {
    let may = if path.starts_with("/private") { "private" } else { "max-age=600" };
    let body = page_body(path);
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: {may}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
