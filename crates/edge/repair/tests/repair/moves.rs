//! A request begins at the donor, and the receiver sends the reply.

use std::net::TcpStream;
use std::os::fd::AsFd;
use std::thread;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use skep_repair::{allow_rebind, close_silently, restore, snapshot};

use crate::common::{
    BOTH, Bed, CONGESTION_WINDOW, Connection, Ip, LIMITS, Place, UNACKED, create, listen, patient,
    poll_until, set_repair, tcp_info,
};
use crate::talk::{begin_request, finish, pass};

#[test]
fn a_reply_comes_whole_from_the_receiver() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        finish(connection.handed_off(&bed));
    }
}

#[test]
fn a_connection_moves_on_and_back() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        for place in [Place::Receiver, Place::Donor, Place::Receiver, Place::Donor] {
            let state = connection.freeze(&bed).unwrap();
            connection = connection.restored(&bed, place, &state);
            pass(&mut connection.server, &mut connection.client, &[7; 100_000]);
            pass(&mut connection.client, &mut connection.server, &[8; 100_000]);
            poll_until("all is acknowledged", || is_idle(&connection.server));
        }
        begin_request(&mut connection);
        finish(connection);
    }
}

#[test]
fn a_connection_that_stays_goes_on() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        connection.freeze(&bed).unwrap();
        connection.thaw(&bed);
        finish(connection);
    }
}

#[test]
fn bytes_that_the_donor_has_read_are_read_again() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        let mut read = [0; 4];
        std::io::Read::read_exact(&mut connection.server, &mut read).unwrap();
        let mut state = connection.freeze(&bed).unwrap();
        assert_eq!(state.received, b"/long");
        state.received.splice(0..0, read);
        finish(connection.restored(&bed, Place::Receiver, &state));
    }
}

#[test]
fn a_listener_can_be_bound_beside_a_moved_connection() {
    let Some(bed) = Bed::new() else { return };
    let mut connection = bed.connection(Ip::V4).handed_off(&bed);
    let bind = || bed.receiver.run(|| std::panic::catch_unwind(|| listen(Ip::V4)).is_ok());
    assert!(!bind(), "repair mode takes SO_REUSEADDR away");
    allow_rebind(&connection.server).unwrap();
    assert!(bind());
    begin_request(&mut connection);
    finish(connection);
}

#[test]
fn the_route_to_the_client_sets_the_congestion_window() {
    let Some(bed) = Bed::new() else { return };
    let connection = bed.connection(Ip::V4).handed_off(&bed);
    assert_eq!(tcp_info(&connection.server)[CONGESTION_WINDOW], 10);
    bed.receiver.ip("route change 10.8.0.0/24 dev eth0 src 10.8.0.12 initcwnd 100");
    let mut connection = bed.connection(Ip::V4).handed_off(&bed);
    assert_eq!(tcp_info(&connection.server)[CONGESTION_WINDOW], 100);
    begin_request(&mut connection);
    finish(connection);
}

#[test]
fn no_privilege_is_needed_but_for_the_mode() {
    let Some(bed) = Bed::new() else { return };
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        bed.steer(Place::Nowhere);
        set_repair(&connection.server, true);
        let socket = bed.receiver.run(|| create(connection.id));
        let Connection { client, server, id } = connection;
        without_privilege(|| {
            let state = snapshot(&server, LIMITS).unwrap();
            restore(&socket, &id, &state).unwrap();
            close_silently(server.into()).unwrap();
        });
        bed.steer(Place::Receiver);
        set_repair(&socket, false);
        without_privilege(|| allow_rebind(&socket).unwrap());
        socket.set_nonblocking(false).unwrap();
        finish(Connection { client, server: patient(socket.into()), id });
    }
}

/// Runs `work` on a thread without capabilities.
fn without_privilege(work: impl FnOnce() + Send) {
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    let done = thread::scope(|scope| {
        let inside = || {
            set_capabilities(None, none).unwrap();
            work();
        };
        scope.spawn(inside).join()
    });
    done.unwrap();
}

#[test]
fn a_socket_outside_of_repair_mode_is_not_closed() {
    let Some(bed) = Bed::new() else { return };
    let mut connection = bed.connection(Ip::V4);
    let kept = close_silently(connection.server.into()).unwrap_err().socket;
    connection.server = TcpStream::from(kept);
    begin_request(&mut connection);
    finish(connection);
}

fn is_idle(server: &impl AsFd) -> bool {
    tcp_info(server)[UNACKED] == 0
}
