//! Receive queues and windows of both sides, across a move.

use std::io::{Read, Write};

use skep_repair::RECEIVED_BYTES_MAX;

use crate::common::{BOTH, Bed, Place, SEND_WINDOW, UNACKED, poll_until, tcp_info, unread_bytes};
use crate::talk::{begin_request, finish, pass, stream_bytes};

#[test]
fn a_full_receive_queue_moves() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        let sent = stream_bytes(0..RECEIVED_BYTES_MAX);
        connection.client.write_all(&sent).unwrap();
        poll_until("all came", || unread_bytes(&connection.server) as usize == sent.len());
        let mut connection = connection.handed_off(&bed);
        assert_eq!(unread_bytes(&connection.server) as usize, sent.len());
        let mut received = vec![0; sent.len()];
        connection.server.read_exact(&mut received).unwrap();
        assert!(received == sent);
        begin_request(&mut connection);
        finish(connection);
    }
}

#[test]
fn a_client_without_window_gets_the_rest_when_it_reads() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection =
            bed.connection_with(ip, |client| client.set_recv_buffer_size(8_192).unwrap());
        let mut sent_bytes = 0;
        // At most one window at a time, so that the send queue is empty at the end.
        loop {
            let window_bytes = tcp_info(&connection.server)[SEND_WINDOW] as usize;
            if window_bytes == 0 {
                break;
            }
            let bytes = stream_bytes(sent_bytes..sent_bytes + window_bytes.min(1_000));
            connection.server.write_all(&bytes).unwrap();
            sent_bytes += bytes.len();
            poll_until("acknowledged", || tcp_info(&connection.server)[UNACKED] == 0);
        }
        let state = connection.freeze(&bed).unwrap();
        assert_eq!(state.window.send, 0);
        let mut connection = connection.restored(&bed, Place::Receiver, &state);
        let rest = stream_bytes(sent_bytes..sent_bytes + 1_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| connection.server.write_all(&rest).unwrap());
            let mut received = vec![0; sent_bytes + rest.len()];
            connection.client.read_exact(&mut received).unwrap();
            assert!(received == stream_bytes(0..received.len()));
        });
        begin_request(&mut connection);
        finish(connection);
    }
}

#[test]
fn the_window_that_the_donor_announced_is_honoured() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        // Makes the donor's window grow.
        pass(&mut connection.client, &mut connection.server, &stream_bytes(0..30_000_000));
        let state = connection.freeze(&bed).unwrap();
        let window = state.window;
        let announced = window.receive_updated_at.wrapping_add(window.receive);
        let open_bytes = announced.wrapping_sub(state.receive_next) as usize;
        assert!(open_bytes > 1_000_000, "{window:?}");
        let mut connection = connection.restored(&bed, Place::Receiver, &state);
        let sent = stream_bytes(0..open_bytes);
        connection.client.set_nonblocking(true).unwrap();
        let mut written = 0;
        poll_until("all is acknowledged, though nobody reads", || {
            match connection.client.write(&sent[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            unread_bytes(&connection.server) as usize == open_bytes
        });
        connection.client.set_nonblocking(false).unwrap();
        let mut received = vec![0; open_bytes];
        connection.server.read_exact(&mut received).unwrap();
        assert!(received == sent);
        begin_request(&mut connection);
        finish(connection);
    }
}
