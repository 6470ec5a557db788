//! I/O of checks and pings, in pieces as available; the caller bounds the time.

use skep_serve::{Conn, ConnError, Output};

/// Writes all of it.
pub(crate) async fn send(conn: &Conn, mut output: Output) -> Result<(), ConnError> {
    std::future::poll_fn(|cx| conn.poll_send(cx, &mut output)).await
}

/// Appends the next bytes received. False: the member has closed its side.
pub(crate) async fn read_more(conn: &Conn, received: &mut Vec<u8>) -> Result<bool, ConnError> {
    std::future::poll_fn(|cx| {
        conn.worker().with_input(|input| {
            conn.poll_recv(cx, input).map_ok(|n| {
                received.extend_from_slice(&input[..n]);
                n > 0
            })
        })
    })
    .await
}
