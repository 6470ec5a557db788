//! Connections that cannot be moved, each with its cause, and states that no connection can have.

use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::thread;

use skep_repair::{RECEIVED_BYTES_MAX, RestoreError, SnapshotError, snapshot};
use skep_wire::handoff::tcp::{TcpState, WindowScales};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::common::{
    Bed, Connection, Ip, LIMITS, Place, create, poll_until, restored_socket, set_repair, tcp_info,
    unread_bytes,
};
use crate::talk::{begin_request, finish, stream_bytes};

/// Why the connection cannot be moved after `provoke`.
fn refusal(bed: &Bed, provoke: impl FnOnce(&mut Connection)) -> SnapshotError {
    let mut connection = bed.connection(Ip::V4);
    provoke(&mut connection);
    connection.freeze(bed).unwrap_err()
}

#[test]
fn what_cannot_travel_is_refused_with_its_cause() {
    let Some(bed) = Bed::new() else { return };
    let error = refusal(&bed, |it| {
        bed.steer(Place::Nowhere);
        it.server.write_all(b"0123456789").unwrap();
    });
    assert!(matches!(error, SnapshotError::SendQueue { bytes: 10 }), "{error}");
    let error = refusal(&bed, |it| {
        it.client.write_all(&[7; RECEIVED_BYTES_MAX + 1]).unwrap();
        poll_until("all came", || unread_bytes(&it.server) as usize > RECEIVED_BYTES_MAX);
    });
    let bytes_max = RECEIVED_BYTES_MAX;
    assert!(
        matches!(error, SnapshotError::ReceiveQueue { bytes, bytes_max: max }
        if bytes == bytes_max + 1 && max == bytes_max),
        "{error}"
    );
    let error = refusal(&bed, |it| {
        it.client.shutdown(Shutdown::Write).unwrap();
        poll_until("the FIN came", || tcp_info(&it.server)[0] & 0xff == 8);
    });
    assert!(matches!(error, SnapshotError::FinSeen), "{error}");
    let error = refusal(&bed, |it| {
        it.server.shutdown(Shutdown::Write).unwrap();
        poll_until("the FIN is acknowledged", || tcp_info(&it.server)[0] & 0xff == 5);
    });
    assert!(matches!(error, SnapshotError::NotEstablished { state: 5 }), "{error}");
}

#[test]
fn urgent_data_stays() {
    let Some(bed) = Bed::new() else { return };
    for is_inline in [false, true] {
        let error = refusal(&bed, |it| {
            SockRef::from(&it.server).set_out_of_band_inline(is_inline).unwrap();
            it.client.write_all(b"before").unwrap();
            SockRef::from(&it.client).send_out_of_band(b"!").unwrap();
            it.client.write_all(b"after").unwrap();
            poll_until("all came", || tcp_info(&it.server)[32] == 12);
        });
        assert!(matches!(error, SnapshotError::UrgentData), "{is_inline}: {error}");
    }
}

#[test]
fn segments_that_the_kernel_cannot_be_told_stay() {
    let Some(bed) = Bed::new() else { return };
    bed.client.ip("route change 10.8.0.0/24 dev br0 src 10.8.0.2 advmss 80");
    let error = refusal(&bed, |_| ());
    assert!(matches!(error, SnapshotError::SmallSegments { mss_bytes: 80 }), "{error}");
}

#[test]
fn sockets_of_other_kinds_are_refused() {
    let Some(bed) = Bed::new() else { return };
    let connection = bed.connection(Ip::V4);
    let error = snapshot(&connection.server, LIMITS).unwrap_err();
    assert!(matches!(error, SnapshotError::NotInRepair), "{error}");
    let error = snapshot(&UdpSocket::bind("127.0.0.1:0").unwrap(), LIMITS).unwrap_err();
    assert!(matches!(error, SnapshotError::NotTcp), "{error}");
    let error = snapshot(&std::fs::File::open("/dev/null").unwrap(), LIMITS).unwrap_err();
    assert!(matches!(error, SnapshotError::System { .. }), "{error}");
    let closed = bed.donor.run(|| create(connection.id));
    let error = snapshot(&closed, LIMITS).unwrap_err();
    assert!(matches!(error, SnapshotError::NotEstablished { state: 7 }), "{error}");
    match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
        Ok(multipath) => {
            let error = snapshot(&multipath, LIMITS).unwrap_err();
            assert!(matches!(error, SnapshotError::Multipath), "{error}");
        }
        Err(error) => eprintln!("SKIPPED: no Multipath TCP here: {error}"),
    }
}

#[test]
fn a_flow_that_is_not_blocked_is_noticed() {
    let Some(bed) = Bed::new() else { return };
    let mut connection = bed.connection(Ip::V4);
    connection.client.set_nodelay(true).unwrap();
    poll_until("a snapshot meets a packet", || {
        set_repair(&connection.server, true);
        let is_noticed = is_noticed(&mut connection);
        set_repair(&connection.server, false);
        connection.server.read_exact(&mut [0; BURST_BYTES]).unwrap();
        is_noticed
    });
    begin_request(&mut connection);
    finish(connection);
}

const BURST_BYTES: usize = 500;

/// Whether one of the snapshots taken during a burst from the client reports that packets arrived. All others
/// must be right.
fn is_noticed(connection: &mut Connection) -> bool {
    let first = snapshot(&connection.server, LIMITS).unwrap();
    let Connection { client, server, .. } = connection;
    thread::scope(|scope| {
        let burst = stream_bytes(0..BURST_BYTES);
        let sender = scope.spawn(move || {
            burst.iter().for_each(|&byte| client.write_all(&[byte]).unwrap());
        });
        let mut is_noticed = false;
        while !sender.is_finished() || (unread_bytes(server) as usize) < BURST_BYTES {
            match snapshot(server, LIMITS) {
                Ok(state) => {
                    let came = state.receive_next.wrapping_sub(first.receive_next) as usize;
                    assert_eq!(state.received, stream_bytes(0..came));
                }
                Err(error) => {
                    assert!(matches!(error, SnapshotError::Moved), "{error}");
                    is_noticed = true;
                }
            }
        }
        is_noticed
    })
}

#[test]
fn states_that_cannot_be_are_refused() {
    let Some(bed) = Bed::new() else { return };
    let mut connection = bed.connection(Ip::V4);
    begin_request(&mut connection);
    let state = connection.freeze(&bed).unwrap();
    let refused = |change: fn(&mut TcpState)| {
        let mut wrong = state.clone();
        change(&mut wrong);
        restored_socket(&bed.receiver, &connection.id, &wrong).unwrap_err()
    };
    for change in [
        (|it| it.mss_clamp = 87) as fn(&mut TcpState),
        |it| it.received = vec![0; RECEIVED_BYTES_MAX + 1],
        |it| it.options.window_scales = Some(WindowScales { send: 15, receive: 0 }),
        |it| it.options.window_scales = Some(WindowScales { send: 0, receive: 255 }),
    ] {
        let error = refused(change);
        assert!(matches!(error, RestoreError::Invalid { .. }), "{error}");
    }
    for change in [
        (|it| it.window.send_max = 0) as fn(&mut TcpState),
        |it| it.window.receive_updated_at = it.receive_next.wrapping_add(1),
        |it| it.window.send_updated_at = it.receive_next.wrapping_add(1 << 30),
    ] {
        let error = refused(change);
        assert!(matches!(error, RestoreError::System { .. }), "{error}");
    }
    // None of the refused snapshots has done any harm.
    finish(connection.restored(&bed, Place::Receiver, &state));
}
