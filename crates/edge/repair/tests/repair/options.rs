//! Connections with and without each handshake option are moved, between machines that would have negotiated
//! other options.

use skep_wire::handoff::tcp::{TcpOptions, WindowScales};

use crate::common::{BOTH, Bed, Ip, Place, SEND_MSS, tcp_info};
use crate::talk::{begin_request, finish};

/// Minimum, default and maximum memory of a socket; the maximum determines the window scale.
const SMALL_MEMORY: &str = "4096 131072 131072";
const HUGE_MEMORY: &str = "4096 131072 1073741824";

/// Bytes per segment (RFC 7323, appendix A).
const TIMESTAMPS_BYTES: u32 = 12;

#[test]
fn without_timestamps() {
    each_ip(
        |bed| bed.client.set("ipv4/tcp_timestamps", "0"),
        |options| assert_eq!(options.timestamp, None),
    );
}

#[test]
fn without_selective_acknowledgements() {
    each_ip(|bed| bed.client.set("ipv4/tcp_sack", "0"), |options| assert!(!options.sack));
}

#[test]
fn without_window_scaling() {
    each_ip(
        |bed| bed.client.set("ipv4/tcp_window_scaling", "0"),
        |options| assert_eq!(options.window_scales, None),
    );
}

#[test]
fn without_any_option() {
    let settings = ["ipv4/tcp_timestamps", "ipv4/tcp_sack", "ipv4/tcp_window_scaling"];
    each_ip(
        |bed| settings.iter().for_each(|setting| bed.client.set(setting, "0")),
        |options| {
            let none = TcpOptions { sack: false, window_scales: None, timestamp: None };
            assert_eq!(options, none);
        },
    );
}

#[test]
fn to_a_receiver_that_would_negotiate_none() {
    let settings = ["ipv4/tcp_timestamps", "ipv4/tcp_sack", "ipv4/tcp_window_scaling"];
    each_ip(
        |bed| settings.iter().for_each(|setting| bed.receiver.set(setting, "0")),
        |options| assert!(options.sack && options.timestamp.is_some()),
    );
}

#[test]
fn with_the_largest_window_scales() {
    each_ip(
        |bed| {
            [&bed.client, &bed.donor].iter().for_each(|it| it.set("ipv4/tcp_rmem", HUGE_MEMORY));
            bed.receiver.set("ipv4/tcp_rmem", SMALL_MEMORY);
        },
        |options| {
            assert_eq!(options.window_scales, Some(WindowScales { send: 14, receive: 14 }));
        },
    );
}

#[test]
fn with_different_window_scales() {
    each_ip(
        |bed| {
            bed.client.set("ipv4/tcp_rmem", HUGE_MEMORY);
            bed.donor.set("ipv4/tcp_rmem", "4096 131072 6291456");
        },
        |options| {
            assert_eq!(options.window_scales, Some(WindowScales { send: 14, receive: 7 }));
        },
    );
}

#[test]
fn with_timestamps_of_microseconds() {
    let feature = "features tcp_usec_ts";
    let Some(bed) = Bed::new() else { return };
    let route = format!("route change 10.8.0.0/24 dev eth0 src 10.8.0.11 {feature}");
    if !bed.donor.run(|| crate::common::try_ip(&route)) {
        eprintln!("SKIPPED: this `ip` does not know `{feature}`");
        return;
    }
    let mut connection = bed.connection(Ip::V4);
    begin_request(&mut connection);
    let state = connection.freeze(&bed).unwrap();
    assert_eq!(state.options.timestamp.unwrap() & 1, 1, "the unit");
    finish(connection.restored(&bed, Place::Receiver, &state));
}

#[test]
fn with_small_segments() {
    let Some(bed) = Bed::new() else { return };
    for (ip, mss) in BOTH.into_iter().flat_map(|ip| [(ip, 88), (ip, 536), (ip, 1_000)]) {
        let mut connection = bed.connection_with(ip, |client| client.set_tcp_mss(mss).unwrap());
        begin_request(&mut connection);
        let before = tcp_info(&connection.server)[SEND_MSS];
        let state = connection.freeze(&bed).unwrap();
        assert_eq!(u32::from(state.mss_clamp), mss);
        let connection = connection.restored(&bed, Place::Receiver, &state);
        assert_eq!(tcp_info(&connection.server)[SEND_MSS], before, "{ip:?} {mss}");
        finish(connection);
    }
}

#[test]
fn with_segments_as_large_as_the_network_takes() {
    each_ip(|_| (), |options| assert!(options.sack));
}

/// Moves a connection over each version of IP, in a bed that `prepare` has changed; `check` gets the
/// negotiated options.
fn each_ip(prepare: impl Fn(&Bed), check: impl Fn(TcpOptions)) {
    let Some(bed) = Bed::new() else { return };
    prepare(&bed);
    for ip in BOTH {
        let mut connection = bed.connection(ip);
        begin_request(&mut connection);
        let before = tcp_info(&connection.server)[SEND_MSS];
        let state = connection.freeze(&bed).unwrap();
        check(state.options);
        let connection = connection.restored(&bed, Place::Receiver, &state);
        let after = tcp_info(&connection.server)[SEND_MSS];
        // The kernel reports it with the timestamps that it would have used, but sends none.
        assert!(after.abs_diff(before) <= TIMESTAMPS_BYTES, "{before} bytes, then {after}");
        finish(connection);
    }
}
