//! The control messages of moves over IP, UDP and TCP: the costs of the transports.
//!
//! Two nodes exchange the messages of moves, sealed as in production, and do nothing else, so that only the
//! transport differs: the real LCCP socket, or TCP connections.

mod datagrams;
mod exchange;
mod meter;
pub(super) mod page;
mod ready;
mod streams;

use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};
use skep_testbed::{Bed, Frames, Machine, Topology};

use super::Plan;
use super::load::spread;
use crate::experiments::account::percent_of_cores;
use crate::experiments::metrics::Quantiles;
use crate::experiments::{Failure, interrupted};
use exchange::{DonorEnd, LccpDonor, REQUEST_BYTES, Tally, Window};
use meter::{Meter, THREADS};

const CLUSTER: &str = "hive";
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The names of both ends in seals.
const DONOR: &str = "donor";
const RECEIVER: &str = "receiver";

/// Loss rates of each transport's packets, in percent.
const LOSSES: &[f64] = &[0.0, 1.0, 5.0];
const QUICK_LOSSES: &[f64] = &[0.0, 1.0];

/// Protocols whose packets are dropped: LCCP's (RFC 3692), UDP, TCP.
const PROTOCOLS: [u8; 3] = [253, 17, 6];

/// Concurrent exchanges in the measurement of many.
const IN_FLIGHT: usize = 64;

/// TCP's minimum retransmission timeout, in microseconds: Linux's, and LCCP's (`RETRY_MS`).
const RTO_US: u64 = 200_000;
const RTO_SHORT_US: u64 = skep_handoff::limits::RETRY_MS * 1_000;

/// The transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Transport {
    /// LCCP over IP.
    Ip,
    /// LCCP over UDP.
    Udp,
    /// One connection for all exchanges; the messages of one turn are sent with one write.
    Tcp,
    /// The same, with one write per message.
    TcpUnbatched,
    /// As [`Tcp`](Self::Tcp), but with LCCP's retransmission timeout.
    TcpShortRto,
    /// One connection per exchange.
    TcpEach,
}

/// The results of this part.
#[derive(Serialize, Deserialize)]
pub(super) struct Transports {
    request_bytes: usize,
    in_flight: usize,
    cells: Vec<TransportsCell>,
}

/// The results of one transport with one loss rate.
#[derive(Serialize, Deserialize)]
struct TransportsCell {
    transport: Transport,
    lost_percent: f64,
    /// One sample per round.
    samples: Vec<TransportsSample>,
}

#[derive(Serialize, Deserialize)]
struct TransportsSample {
    /// One exchange at a time.
    alone: Exchanges,
    /// Many exchanges at a time.
    many: Exchanges,
}

/// The results of a window. CPU times and packets are per exchange.
#[derive(Serialize, Deserialize)]
struct Exchanges {
    seconds: f64,
    /// Exchanges that ended in the window.
    ended: u64,
    /// Times from OFFER to DONE, of exchanges that began in the window.
    times: Quantiles,
    /// Number of these exchanges whose READY was received too late for a move.
    late: u64,
    /// CPU time of both ends and their kernels.
    cpu_us: f64,
    donor_us: f64,
    receiver_us: f64,
    packets: f64,
    /// Utilisation of all cores by other processes.
    others_percent: f64,
}

/// The receiver's end of a transport.
trait ReceiverEnd: Send {
    /// Answers until the donor's end of `over` is closed.
    fn serve(self: Box<Self>, over: UnixStream) -> Result<(), Failure>;
}

/// The donor's end and the receiver's.
type Ends = (Box<dyn DonorEnd>, Box<dyn ReceiverEnd>);

/// The location of an end: a machine of a bed, or this process's network.
#[derive(Clone, Copy)]
struct Namespace<'a> {
    address: Ipv4Addr,
    machine: Option<&'a Machine>,
}

pub(super) fn measure(plan: &Plan) -> Result<Transports, Failure> {
    let bed = new_bed()?;
    let cell = |(transport, lost_percent)| {
        let samples = Vec::new();
        TransportsCell { transport, lost_percent, samples }
    };
    let losses = plan.pick(LOSSES, QUICK_LOSSES).iter();
    let pairs = losses.flat_map(|&lost| Transport::ALL.map(|it| (it, lost)));
    let mut cells: Vec<TransportsCell> = pairs.map(cell).collect();
    for _ in 0..plan.pick(3, 1) {
        for cell in &mut cells {
            interrupted()?;
            let sample = cell.measure(&bed, plan)?;
            cell.print(&sample);
            cell.samples.push(sample);
        }
    }
    Ok(Transports { request_bytes: REQUEST_BYTES, in_flight: IN_FLIGHT, cells })
}

fn new_bed() -> Result<Bed, Failure> {
    let (frames, control_first) = (Frames::Wire, true);
    let topology = Topology {
        clients: 0,
        dispatchers: 0,
        nodes: 2,
        frames,
        control_first,
        ..Topology::default()
    };
    let bed = Bed::new(&topology)?;
    for machine in bed.machines() {
        // Not paced, and permitted on every host. In a LAN cubic grows in the same way (RFC 9438, 4.3).
        machine.set_kernel("net.ipv4.tcp_congestion_control", "reno")?;
        // With a connection per exchange, ports are reused after a second.
        machine.set_kernel("net.ipv4.ip_local_port_range", "1024 65535")?;
        machine.set_kernel("net.ipv4.tcp_tw_reuse", "1")?;
        // No connection inherits metrics of losses from another.
        machine.set_kernel("net.ipv4.tcp_no_metrics_save", "1")?;
    }
    Ok(bed)
}

/// Drops this share of the packets of all transports, in both directions.
fn lose(bed: &Bed, percent: f64) -> Result<(), Failure> {
    for node in bed.nodes() {
        for protocol in PROTOCOLS {
            node.set_protocol_loss(protocol, percent)?;
        }
    }
    Ok(())
}

/// The machines of donor and receiver.
fn two_nodes(bed: &Bed) -> Result<[Namespace<'_>; 2], Failure> {
    let [donor, receiver] = bed.nodes() else { return Err("the bed has no two nodes".into()) };
    Ok([donor, receiver].map(|it| Namespace { address: it.ipv4(), machine: Some(it) }))
}

impl Transport {
    const ALL: [Self; 6] =
        [Self::Ip, Self::Udp, Self::Tcp, Self::TcpUnbatched, Self::TcpShortRto, Self::TcpEach];

    fn name(self) -> &'static str {
        match self {
            Self::Ip => "LCCP on IP",
            Self::Udp => "LCCP on UDP",
            Self::Tcp => "TCP",
            Self::TcpUnbatched => "TCP, a write for each",
            Self::TcpShortRto => "TCP, RTO from 5 ms on",
            Self::TcpEach => "TCP, a connection for each",
        }
    }

    /// Whether it is Skep's own transport.
    fn is_ours(self) -> bool {
        matches!(self, Self::Ip | Self::Udp)
    }

    /// Whether one connection carries all exchanges.
    fn is_kept(self) -> bool {
        self != Self::TcpEach
    }

    /// Whether messages are sent together with others of the same turn.
    fn is_batched(self) -> bool {
        self != Self::TcpUnbatched
    }

    fn rto_us(self) -> u64 {
        if self == Self::TcpShortRto { RTO_SHORT_US } else { RTO_US }
    }
}

impl TransportsCell {
    fn measure(&self, bed: &Bed, plan: &Plan) -> Result<TransportsSample, Failure> {
        lose(bed, self.lost_percent)?;
        for node in bed.nodes() {
            let rto_us = self.transport.rto_us().to_string();
            node.set_kernel("net.ipv4.tcp_rto_min_us", &rto_us)?;
        }
        // If packets are lost, an exchange takes up to seconds.
        let alone_ms = if self.lost_percent > 0.0 { 3_000 } else { 1_500 };
        let window = |in_flight, window_ms| Window {
            in_flight,
            settle_ms: plan.pick(200, 50),
            window_ms: plan.pick(window_ms, 100),
            ended_min: plan.pick(30, 3),
        };
        let windows = [window(1, alone_ms), window(IN_FLIGHT, 1_200)];
        let [alone, many] = exchange(self.transport, two_nodes(bed)?, windows)?;
        Ok(TransportsSample { alone: Exchanges::new(&alone)?, many: Exchanges::new(&many)? })
    }

    fn print(&self, sample: &TransportsSample) {
        let TransportsSample { alone, many } = sample;
        println!(
            "  {} % lost, {:<26} {:>6} exchanges, {:>6.0} us at the median, 90 % {:>6.0}, 99 % {:>8.0}, {:>4.1} packets, {} late; \
             many: {:>6.0}/s, {:>4.1} packets, {:>5.1} us CPU each, donor {:>4.1}, receiver {:>4.1}, 99 % {:>6.0} us, {} late, others {:.0} %",
            self.lost_percent,
            self.transport.name(),
            alone.times.count,
            alone.times.p50_us,
            alone.times.p90_us,
            alone.times.p99_us,
            alone.packets,
            alone.late,
            many.per_s(),
            many.packets,
            many.cpu_us,
            many.donor_us,
            many.receiver_us,
            many.times.p99_us,
            many.late,
            many.others_percent,
        );
    }

    /// Median, minimum and maximum over all rounds.
    fn spread(&self, figure: impl Fn(&TransportsSample) -> f64) -> (f64, f64, f64) {
        spread(self.samples.iter().map(figure))
    }
}

impl Exchanges {
    fn new(tally: &Tally) -> Result<Self, Failure> {
        let Tally { times_ns, ended, late, seconds, usage } = tally;
        if times_ns.is_empty() || *ended == 0 {
            return Err("no exchange of messages has ended".into());
        }
        let each = |all: u64| all as f64 / *ended as f64;
        let [donor_ns, receiver_ns] = usage.threads_ns;
        Ok(Self {
            seconds: *seconds,
            ended: *ended,
            times: quantiles(times_ns),
            late: *late,
            cpu_us: each(usage.cpu_ns) / 1e3,
            donor_us: each(donor_ns) / 1e3,
            receiver_us: each(receiver_ns) / 1e3,
            packets: each(usage.packets),
            others_percent: percent_of_cores(usage.others_ns, *seconds),
        })
    }

    fn per_s(&self) -> f64 {
        self.ended as f64 / self.seconds
    }
}

/// Runs exchanges over a transport, in several consecutive windows.
fn exchange<const N: usize>(
    transport: Transport,
    [at_donor, at_receiver]: [Namespace<'_>; 2],
    windows: [Window; N],
) -> Result<[Tally; N], Failure> {
    let (end, receiver) = ends(transport, at_donor, at_receiver)?;
    let (over, is_over) = UnixStream::pair()?;
    let serving = at_receiver.spawn(THREADS[1], move || receiver.serve(is_over))?;
    let device = at_donor.machine.map_or("lo", Machine::device);
    let measuring = at_donor.spawn(THREADS[0], move || {
        // Dropping it ends the receiver, too.
        let _over = over;
        let mut donor = LccpDonor::new(end, Meter::new(device));
        donor.greet()?;
        windows.iter().map(|window| donor.run(window)).collect::<Result<Vec<_>, _>>()
    })?;
    let (tallies, served) = (joined(measuring), joined(serving));
    // If both fail, the donor's error is less informative.
    served?;
    tallies?.try_into().map_err(|_| "a window is missing".into())
}

/// Creates both ends of a transport.
fn ends(
    transport: Transport,
    at_donor: Namespace<'_>,
    at_receiver: Namespace<'_>,
) -> Result<Ends, Failure> {
    if transport.is_ours() {
        let is_raw = transport == Transport::Ip;
        let open = |namespace: Namespace<'_>, name| {
            namespace.run(move || datagrams::open(is_raw, name, namespace.address))
        };
        let (donor, receiver) =
            datagrams::ends(open(at_donor, DONOR)?, open(at_receiver, RECEIVER)?)?;
        return Ok((Box::new(donor), Box::new(receiver)));
    }
    let address = at_receiver.address;
    let receiver = at_receiver.run(|| streams::StreamReceiver::listen(address, transport))?;
    let donor = streams::StreamDonor::new(receiver.address()?, transport, IN_FLIGHT)?;
    Ok((Box::new(donor), Box::new(receiver)))
}

impl Namespace<'_> {
    /// Runs `work` there, and waits for its end.
    fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        match self.machine {
            Some(machine) => machine.run(work)?,
            None => work(),
        }
    }

    /// Starts a thread there with this name, by which its CPU time is found.
    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<JoinHandle<std::io::Result<Result<T, Failure>>>, Failure> {
        match self.machine {
            // Named after its machine.
            Some(machine) => Ok(machine.spawn(work)?),
            None => Ok(thread::Builder::new().name(name.to_owned()).spawn(|| Ok(work()))?),
        }
    }
}

fn joined<T>(thread: JoinHandle<std::io::Result<Result<T, Failure>>>) -> Result<T, Failure> {
    match thread.join() {
        Ok(done) => done?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Quantiles of all values, in nanoseconds.
fn quantiles(times_ns: &[u64]) -> Quantiles {
    let mut times_ns = times_ns.to_vec();
    times_ns.sort_unstable();
    let at = |share: f64| {
        let rank = (times_ns.len() as f64 * share) as usize;
        times_ns.get(rank.min(times_ns.len() - 1)).map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    Quantiles {
        count: times_ns.len() as u64,
        p10_us: at(0.1),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        mean_us: times_ns.iter().sum::<u64>() as f64 / 1e3 / times_ns.len().max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::{Write, stderr};

    use super::*;

    /// Without a bed, and without the capability for raw sockets.
    #[test]
    fn exchanges_end_on_udp_and_on_tcp() {
        let namespace = |last| Namespace { address: Ipv4Addr::new(127, 0, 0, last), machine: None };
        for transport in Transport::ALL.into_iter().filter(|it| *it != Transport::Ip) {
            let window =
                |in_flight| Window { in_flight, settle_ms: 10, window_ms: 50, ended_min: 3 };
            let windows = [window(1), window(IN_FLIGHT)];
            for tally in exchange(transport, [namespace(1), namespace(2)], windows).unwrap() {
                let found = Exchanges::new(&tally).unwrap();
                assert!(found.times.p50_us > 0.0 && found.times.p50_us <= found.times.p99_us);
                // CPU time is not checked: threads of other tests that end meanwhile distort it.
                assert!(found.packets > 0.0, "{transport:?}");
            }
        }
    }

    #[test]
    fn packets_of_ip_are_exchanged_in_a_bed_also_if_some_are_lost() {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(stderr(), "SKIPPED: needs root, to make a bed");
            return;
        }
        let bed = new_bed().unwrap();
        let namespaces = two_nodes(&bed).unwrap();
        for lost_percent in [0.0, 20.0] {
            lose(&bed, lost_percent).unwrap();
            let window = Window { in_flight: 4, settle_ms: 10, window_ms: 50, ended_min: 100 };
            let [tally] = exchange(Transport::Ip, namespaces, [window]).unwrap();
            let found = Exchanges::new(&tally).unwrap();
            assert!(found.ended >= 100 && found.packets > 3.9, "{} packets", found.packets);
            assert!(lost_percent == 0.0 || found.packets > 4.1, "{} packets", found.packets);
        }
    }

    #[test]
    fn quantiles_are_of_all_values() {
        let times_ns: Vec<u64> = (0..1_000).rev().map(|it| it * 1_000).collect();
        let found = quantiles(&times_ns);
        assert_eq!(
            (found.count, found.p50_us, found.p90_us, found.p99_us),
            (1_000, 500.0, 900.0, 990.0)
        );
        assert_eq!(found.mean_us, 499.5);
    }
}
