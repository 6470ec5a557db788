//! Reading and writing of checks and pings: as much as there is, bounded in time by who waits.

use skep_serve::{Conn, ConnError, Output};

/// Writes all of it.
pub(crate) async fn send(conn: &Conn, mut output: Output) -> Result<(), ConnError> {
    std::future::poll_fn(|cx| conn.poll_send(cx, &mut output)).await
}

/// Appends what comes next. False: the member has closed its side.
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
