//! Handshakes over the two kinds of stream sockets.

use std::io;
use std::time::Duration;

use skep_serve::{Conn, ConnError, TimeoutCause};
use skep_wire::cache::hello::{HELLO_BYTES_MAX, NONCE_BYTES};
use skep_wire::cache::{Handshake, HelloError};
use skep_wire::message::Name;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::counts::{StreamCount, StreamCounts};
use crate::limits::{HANDSHAKE_MS, LINGER_BYTES_MAX, LINGER_MS};

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GreetError {
    #[error(transparent)]
    Hello(#[from] HelloError),
    #[error("the handshake took too long")]
    Late,
    #[error("the connection ended during the handshake: {0}")]
    Io(#[from] io::Error),
}

/// Unpredictable bytes.
pub(super) fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    // A read of up to 256 bytes is never truncated (getrandom(2)).
    rustix::rand::getrandom(&mut nonce[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(nonce)
}

/// Runs `handshake` over `stream`, until the other side is authenticated.
pub(super) async fn greet_stream(
    stream: &mut TcpStream,
    mut handshake: Handshake,
    counts: &StreamCounts,
) -> Result<Name, GreetError> {
    let limit = Duration::from_millis(HANDSHAKE_MS);
    let greeting = async {
        let mut buffer = [0; HELLO_BYTES_MAX];
        loop {
            stream.write_all(&handshake.output()).await?;
            if let Some(other) = handshake.other() {
                return Ok(other.clone());
            }
            let wanted = &mut buffer[..handshake.wants()];
            stream.read_exact(wanted).await?;
            if let Err(error) = handshake.take(wanted) {
                stream.write_all(&handshake.output()).await?;
                return Err(error.into());
            }
        }
    };
    let greeted = tokio::time::timeout(limit, greeting).await.unwrap_or(Err(GreetError::Late));
    count(counts, &greeted);
    greeted
}

/// As [`greet_stream`], over a worker's connection.
pub(super) async fn greet_conn(
    conn: &Conn,
    mut handshake: Handshake,
    counts: &StreamCounts,
) -> Result<Name, GreetError> {
    let greeted = async {
        let mut buffer = [0; HELLO_BYTES_MAX];
        loop {
            send(conn, &handshake.output()).await?;
            if let Some(other) = handshake.other() {
                return Ok(other.clone());
            }
            let wanted = &mut buffer[..handshake.wants()];
            conn.expire_after(HANDSHAKE_MS, TimeoutCause::Head);
            recv_exact(conn, wanted).await?;
            if let Err(error) = handshake.take(wanted) {
                send(conn, &handshake.output()).await?;
                return Err(error.into());
            }
        }
    };
    let greeted = greeted.await;
    count(counts, &greeted);
    greeted
}

/// Closes a refused stream only after the refusal has arrived: a close with unread bytes would send a reset.
pub(super) async fn linger(mut stream: TcpStream) {
    let limit = Duration::from_millis(LINGER_MS);
    let lingering = async {
        stream.shutdown().await?;
        let mut sink = tokio::io::sink();
        tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX as u64), &mut sink).await
    };
    // The connection ends in any case.
    let _ = tokio::time::timeout(limit, lingering).await;
}

/// Sends a few bytes.
pub(super) async fn send(conn: &Conn, bytes: &[u8]) -> Result<(), ConnError> {
    let mut output = conn.worker().take_output();
    output.copy(bytes);
    let sent = conn.send(&mut output, HANDSHAKE_MS).await;
    conn.worker().put_output(output);
    sent
}

async fn recv_exact(conn: &Conn, buffer: &mut [u8]) -> Result<(), GreetError> {
    let mut have = 0;
    while have < buffer.len() {
        have += match conn.recv(&mut buffer[have..]).await? {
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            n => n,
        };
    }
    Ok(())
}

fn count(counts: &StreamCounts, greeted: &Result<Name, GreetError>) {
    match greeted {
        Ok(_) => counts.count(StreamCount::Greeted),
        Err(GreetError::Hello(error)) => counts.count_refused(*error),
        Err(GreetError::Late | GreetError::Io(_)) => counts.count(StreamCount::Ungreeted),
    }
}

impl From<ConnError> for GreetError {
    fn from(error: ConnError) -> Self {
        match error {
            ConnError::Expired(_) => Self::Late,
            ConnError::Io(error) => Self::Io(error),
        }
    }
}
