//! What client and server send to each other, all of which must arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use sha2::{Digest, Sha256};

use crate::common::{Connection, poll_until, unread_bytes};

const REPLY_BYTES: usize = 20 * 1024 * 1024;
const UPLOAD_BYTES: usize = 2 * 1024 * 1024;

/// Bytes of a stream that depend only on their positions.
pub(crate) fn stream_bytes(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Sends `bytes` in one direction, and checks that all arrive.
pub(crate) fn pass(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(bytes).unwrap());
        let mut received = vec![0; bytes.len()];
        to.read_exact(&mut received).unwrap();
        assert_eq!(Sha256::digest(&received), Sha256::digest(bytes));
    });
}

/// Sends the first half of a request from the client, which the server does not read yet.
pub(crate) fn begin_request(connection: &mut Connection) {
    connection.client.write_all(b"GET /long").unwrap();
    poll_until("half a request", || unread_bytes(&connection.server) == 9);
}

/// Sends the second half, a long reply and an upload, and closes the client's side.
pub(crate) fn finish(connection: Connection) {
    let Connection { mut client, mut server, .. } = connection;
    client.write_all(b" HTTP/1.1\r\n\r\n").unwrap();
    let mut request = [0; 22];
    server.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"GET /long HTTP/1.1\r\n\r\n");
    pass(&mut server, &mut client, &stream_bytes(0..REPLY_BYTES));
    pass(&mut client, &mut server, &stream_bytes(0..UPLOAD_BYTES));
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "the client's end");
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the server's end");
}
