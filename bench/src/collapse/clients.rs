//! The clients: all are connected, and send their requests at the same moment.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::page_body;
use crate::limits::ANSWER_TIMEOUT;

/// Returns the times from the common request to the end of each page, in milliseconds, in ascending order.
/// Fails if any client receives something else.
pub(super) fn ask_at_once(ports: &[u16], clients: u32, path: &str) -> Result<Vec<f64>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let barrier = Arc::new(Barrier::new(clients as usize));
        let mut asking = JoinSet::new();
        for &port in ports.iter().cycle().take(clients as usize) {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            stream.set_nodelay(true)?;
            let (barrier, path) = (Arc::clone(&barrier), path.to_owned());
            asking.spawn(async move {
                barrier.wait().await;
                let begun = Instant::now();
                timeout(ANSWER_TIMEOUT, ask(stream, &path)).await.context("no answer")??;
                Ok::<_, anyhow::Error>(begun.elapsed().as_secs_f64() * 1e3)
            });
        }
        let mut times = Vec::new();
        while let Some(ended) = asking.join_next().await {
            times.push(ended??);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    })
}

/// Sends one request, and reads the whole page.
async fn ask(mut stream: TcpStream, path: &str) -> Result<()> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes()).await?;
    let (wanted, mut read) = (page_body(path), Vec::new());
    // Nothing follows the page, since there is no other request on its connection.
    while !read.ends_with(wanted.as_bytes()) {
        let n = stream.read_buf(&mut read).await?;
        ensure!(n > 0, "a node closed its connection after {} bytes", read.len());
        let is_good = read.len() < 12 || read.starts_with(b"HTTP/1.1 200");
        ensure!(is_good, "{}", String::from_utf8_lossy(&read).lines().next().unwrap_or_default());
    }
    Ok(())
}
