//! Slow clients: a steady reader receives every byte, however slow it is above the minimum rate; a client
//! that reads nothing, or too little, is disconnected.
//!
//! The times are short so that tests take seconds. What matters is their proportion to the rates: a reader of
//! 32 KB/s with the default of 20 s corresponds to one of 340 KiB/s with 2 s. (They are long enough that a
//! busy machine does not keep a reader from reading for that time.)

use std::net::SocketAddr;
use std::thread;

use skep_tests::content::{self, assert_same};
use skep_tests::origin::{Answer, Origin};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, SourceAddress, Steady, poll_until};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A node that disconnects clients which read nothing for two seconds, or less than 85 KiB/s averaged over
/// six seconds; with its metrics port.
fn strict(site: &Site) -> (Skep, FreePort) {
    let port = FreePort::claim();
    let settings = format!(
        "[timeouts]\nwrite_stall_ms = \"2s\"\nsend_min_bytes_per_s = \"85KiB\"\n\
         send_average_ms = \"6s\"\n[metrics]\nlisten = \"{}\"\n",
        port.address()
    );
    (Skep::node(site.root(), &settings), port)
}

/// Returns a sample of its metrics.
pub(super) fn value(port: &FreePort, sample: &str) -> f64 {
    let text = RawClient::connect(port.address()).get("/metrics").text();
    let of = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(of).unwrap_or_else(|| panic!("no {sample} in:\n{text}"))
}

fn closed(port: &FreePort, reason: &str) -> f64 {
    value(port, &format!("skep_connections_closed_total{{reason=\"{reason}\"}}"))
}

/// Runs this number of concurrent readers, each of which reads `bytes` bytes of `/large`.
fn read_all(address: SocketAddr, readers: usize, bytes: usize, rate_bytes_s: u64) {
    let read = || Steady::get(address, "/large", rate_bytes_s).0.read(bytes);
    let bodies: Vec<_> = thread::scope(|scope| {
        let readers: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let whole = content::version(1, bytes);
    for body in bodies {
        assert_same(&body, &whole);
    }
}

/// The kernel requests more data only when a third of a send buffer of megabytes is free: that is no stall.
#[test]
fn steady_readers_get_every_byte() {
    const SIZE: usize = 8 * MIB;
    let site = Site::new().with_large("large", SIZE);
    let (skep, _) = strict(&site);
    read_all(skep.address(), 12, SIZE, 340 * KIB as u64);
}

/// On the loopback a closed window opens by 64 KiB: this reader acknowledges nothing for two seconds at a
/// time, but meets the minimum rate.
#[test]
fn a_step_of_the_window_is_waited_for() {
    const SIZE: usize = 768 * KIB;
    let site = Site::new().with_large("large", SIZE);
    let settings = "[timeouts]\nwrite_stall_ms = \"1s\"\nsend_min_bytes_per_s = \"5KiB\"\n";
    let skep = Skep::node(site.root(), settings);
    read_all(skep.address(), 4, SIZE, 32 * KIB as u64);
}

#[test]
fn who_takes_nothing_is_cut_off_and_counted() {
    /// More than socket buffers hold.
    const SIZE: usize = 64 * MIB;
    const FAST: usize = 4 * MIB;
    let site = Site::new().with_large("large", SIZE);
    let (skep, metrics) = strict(&site);
    // One that stalls from the first byte on, and one that was fast before.
    let (mut idle, _) = Steady::get(skep.address(), "/large", 1);
    let (mut fast, _) = Steady::get(skep.address(), "/large", SIZE as u64);
    assert_same(&fast.read(FAST), &content::version(1, FAST));
    poll_until(PATIENCE, "both are cut off", || skep.connections() == 0);
    // The fast one's last bytes may have made it too slow before its stall timeout.
    let counted = ["write_stall", "send_slow"].map(|reason| closed(&metrics, reason));
    assert!(counted == [2.0, 0.0] || counted == [1.0, 1.0], "{counted:?}");
    for (reader, read) in [(&mut idle, 0), (&mut fast, FAST)] {
        let rest = reader.read_to_close();
        assert!(read + rest.len() < SIZE, "{} bytes more came", rest.len());
    }
}

/// It reads continuously: it is not disconnected for stalling.
#[test]
fn who_takes_less_than_the_least_rate_is_cut_off_and_counted() {
    const SIZE: usize = 16 * MIB;
    let site = Site::new().with_large("large", SIZE);
    let port = FreePort::claim();
    let settings = format!(
        "[timeouts]\nwrite_stall_ms = \"1m\"\nsend_min_bytes_per_s = \"4MiB\"\n\
         send_average_ms = \"1s\"\n[metrics]\nlisten = \"{}\"\n",
        port.address()
    );
    let skep = Skep::node(site.root(), &settings);
    let (mut slow, _) = Steady::get(skep.address(), "/large", MIB as u64);
    let received = slow.read(SIZE);
    assert!(received.len() < SIZE);
    assert_same(&received, &content::version(1, received.len()));
    poll_until(PATIENCE, "it is counted", || closed(&port, "send_slow") == 1.0);
}

/// Twelve readers of 60 MB at 32 KB/s, and twelve that read an eighth of it at 4 KB/s, with default settings.
/// `cargo test -p skep-tests --test http -- --ignored --nocapture slow::by_default`
#[test]
#[ignore = "takes half an hour"]
fn by_default_readers_of_32_and_4_kilobytes_a_second_get_every_byte() {
    const SIZE: usize = 60 * 1000 * 1000;
    let site = |bytes| Site::new().with_large("large", bytes);
    thread::scope(|scope| {
        for part in [1, 8] {
            scope.spawn(move || {
                let site = site(SIZE / part);
                let skep = Skep::serve(site.root(), &[]);
                read_all(skep.address(), 12, SIZE / part, (32 * KIB / part) as u64);
            });
        }
    });
}

/// A response that may not be stored occupies its origin connection until the client has read it. Slow
/// clients of one address get a limited number of these, and leave the others to other clients.
#[test]
fn slow_clients_of_one_address_leave_the_origins_connections_to_others() {
    const PLACES: usize = 4;
    let body = content::version(1, 32 * MIB);
    let origin = Origin::start(move |asked| match asked.target.as_str() {
        "/large" => Answer::new(200, "Cache-Control: no-store\r\n", &body),
        _ => Answer::new(200, "Cache-Control: no-store\r\n", "small"),
    });
    let port = FreePort::claim();
    // No other limit ends them.
    let settings = format!(
        "[site.fetch]\nconnections_max = {}\n[machine]\nthreads = 1\n\
         [timeouts]\nwrite_stall_ms = \"1h\"\nsend_min_bytes_per_s = 0\n\
         [metrics]\nlisten = \"{}\"\n",
        2 * PLACES,
        port.address()
    );
    let skep = origin.node(&settings);
    let greedy = SourceAddress::new();
    let held: Vec<_> = (0..PLACES)
        .map(|_| {
            let mut client = greedy.connect(skep.address());
            client.ask("/large");
            client.try_head().unwrap().assert_status(200);
            client
        })
        .collect();
    let ask = || RawClient::connect(skep.address()).get("/small");
    poll_until(PATIENCE, "others get theirs again", || ask().status == 200);
    let cut = "skep_slow_passes_cut_total";
    poll_until(PATIENCE, "one of them is left", || value(&port, cut) == (PLACES - 1) as f64);
    for _ in 0..3 {
        assert_eq!(ask().assert_status(200).text(), "small");
    }
    drop(held);
}
