//! The messages of moves alone: OFFER, READY, GO, DONE. No socket is frozen, created or restored.
//!
//! The donor begins the next exchange as soon as one has ended. On a lossy transport it retransmits at the
//! intervals of the real donor; it never withdraws an offer, but counts the offers that the real donor would
//! withdraw.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use skep_handoff::limits::{RETRY_MS, RETRY_MS_MAX};
use skep_wire::handoff::fragments::{Assembly, cut};
use skep_wire::handoff::lccp::{Lccp, LccpCommand};
use skep_wire::handoff::tcp::{TcpOptions, TcpState, TcpWindow, WindowScales};
use skep_wire::handoff::{HandoffId, HandoffInfo, SocketId};

use super::super::limits::WINDOW_MS_MAX;
use super::meter::{Meter, Usage};
use crate::experiments::{Failure, interrupted};

/// Bytes of the request that an offer carries: that of a browser with some cookies.
pub(super) const REQUEST_BYTES: usize = 400;

/// How long a donor waits for READY by default, in milliseconds (`handoff.ready_timeout_ms`).
pub(super) const READY_TIMEOUT_MS: u64 = 50;

/// Maximum wait for exchanges in progress, in milliseconds: TCP retransmits a lost SYN after 1, 3 and 7 s.
const END_MS_MAX: u64 = 20_000;

/// The donor's end of a transport, with slots for concurrent exchanges.
pub(super) trait DonorEnd: Send {
    /// Whether the transport does not retransmit lost messages.
    fn is_lossy(&self) -> bool;

    /// Exchanges hellos: the first message after a start is not delivered.
    fn greet(&mut self) -> Result<(), Failure>;

    /// Starts an exchange in a slot.
    fn begin(&mut self, place: usize) -> Result<(), Failure>;

    /// Sends a message of an exchange, at the latest during the next wait.
    fn send(&mut self, place: usize, message: &Lccp) -> Result<(), Failure>;

    /// Ends the exchange in a slot.
    fn end(&mut self, place: usize);

    /// Waits for messages, and adds them to `heard`.
    fn wait(&mut self, timeout: Duration, heard: &mut Vec<Lccp>) -> Result<(), Failure>;
}

/// The parameters of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Window {
    /// Number of concurrent exchanges.
    pub(super) in_flight: usize,
    pub(super) settle_ms: u64,
    pub(super) window_ms: u64,
    /// The window lasts until this many exchanges have ended.
    pub(super) ended_min: u64,
}

/// The results of a window.
#[derive(Default)]
pub(super) struct Tally {
    /// Times from OFFER to DONE of all exchanges that began in the window, in nanoseconds.
    pub(super) times_ns: Vec<u64>,
    /// Exchanges that ended in the window.
    pub(super) ended: u64,
    /// The number of those in `times_ns` whose READY was received later than [`READY_TIMEOUT_MS`] after the
    /// start.
    pub(super) late: u64,
    pub(super) seconds: f64,
    /// The resources that both ends used in the window.
    pub(super) usage: Usage,
}

/// The donor of all exchanges.
pub(super) struct LccpDonor {
    end: Box<dyn DonorEnd>,
    meter: Meter,
    info: HandoffInfo,
    socket: SocketId,
    next_number: u64,
    /// By number.
    exchanges: BTreeMap<u64, Exchange>,
    heard: Vec<Lccp>,
    /// Whether a new exchange begins when one has ended.
    is_open: bool,
    counts_from: Instant,
    tally: Tally,
}

struct Exchange {
    place: usize,
    began: Instant,
    is_late: bool,
    stage: Stage,
    /// When the message is retransmitted.
    next: Instant,
    interval_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for READY.
    Offered,
    /// Waits for DONE.
    Committed,
}

impl LccpDonor {
    pub(super) fn new(end: Box<dyn DonorEnd>, meter: Meter) -> Self {
        let (client, server) = (Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(203, 0, 113, 1));
        Self {
            end,
            meter,
            info: info(),
            socket: SocketId { client: (client, 40_000).into(), server: (server, 80).into() },
            next_number: 1,
            exchanges: BTreeMap::new(),
            heard: Vec::new(),
            is_open: false,
            counts_from: Instant::now(),
            tally: Tally::default(),
        }
    }

    pub(super) fn greet(&mut self) -> Result<(), Failure> {
        self.end.greet()
    }

    /// Runs exchanges for a window.
    pub(super) fn run(&mut self, window: &Window) -> Result<Tally, Failure> {
        self.is_open = true;
        (0..window.in_flight).try_for_each(|place| self.begin(place))?;
        self.turn_until(Instant::now() + Duration::from_millis(window.settle_ms))?;
        let before = self.meter.read()?;
        self.tally = Tally::default();
        self.counts_from = Instant::now();
        self.turn_until(self.counts_from + Duration::from_millis(window.window_ms))?;
        self.await_ended(window.ended_min)?;
        let seconds = self.counts_from.elapsed().as_secs_f64();
        let usage = self.meter.read()?.since(&before);
        let ended = self.tally.ended;
        self.finish()?;
        Ok(Tally { ended, seconds, usage, ..std::mem::take(&mut self.tally) })
    }

    fn await_ended(&mut self, ended_min: u64) -> Result<(), Failure> {
        let end = Instant::now() + Duration::from_millis(WINDOW_MS_MAX);
        while self.tally.ended < ended_min {
            if Instant::now() >= end {
                let ended = self.tally.ended;
                return Err(format!("{ended} exchanges after {WINDOW_MS_MAX} ms").into());
            }
            self.turn(end)?;
        }
        Ok(())
    }

    /// Waits for exchanges in progress, so that slow ones count as well.
    fn finish(&mut self) -> Result<(), Failure> {
        self.is_open = false;
        let end = Instant::now() + Duration::from_millis(END_MS_MAX);
        while !self.exchanges.is_empty() {
            if Instant::now() >= end {
                let count = self.exchanges.len();
                return Err(format!("{count} exchanges have not ended in {END_MS_MAX} ms").into());
            }
            self.turn(end)?;
        }
        Ok(())
    }

    fn turn_until(&mut self, end: Instant) -> Result<(), Failure> {
        while Instant::now() < end {
            self.turn(end)?;
        }
        Ok(())
    }

    /// Retransmits what is due, then waits for messages.
    fn turn(&mut self, end: Instant) -> Result<(), Failure> {
        interrupted()?;
        let mut until = end;
        if self.end.is_lossy() {
            self.repeat(Instant::now())?;
            until = self.exchanges.values().map(|it| it.next).fold(end, Instant::min);
        }
        let mut heard = std::mem::take(&mut self.heard);
        self.end.wait(until.saturating_duration_since(Instant::now()), &mut heard)?;
        for message in heard.drain(..) {
            self.hear(&message)?;
        }
        self.heard = heard;
        Ok(())
    }

    fn begin(&mut self, place: usize) -> Result<(), Failure> {
        let (number, began) = (self.next_number, Instant::now());
        self.next_number += 1;
        self.end.begin(place)?;
        self.exchanges.insert(number, Exchange::new(place, began));
        self.say(number, place, Stage::Offered)
    }

    fn hear(&mut self, message: &Lccp) -> Result<(), Failure> {
        let number = message.id.number;
        // A duplicate answer.
        let Some(exchange) = self.exchanges.get_mut(&number) else { return Ok(()) };
        let (place, now) = (exchange.place, Instant::now());
        match (&message.command, exchange.stage) {
            (LccpCommand::Ready(_), Stage::Offered) => {
                exchange.commit(now);
                self.say(number, place, Stage::Committed)
            }
            (LccpCommand::Done(_), Stage::Committed) => self.ended(number, now),
            _ => Ok(()),
        }
    }

    fn ended(&mut self, number: u64, now: Instant) -> Result<(), Failure> {
        let Some(exchange) = self.exchanges.remove(&number) else { return Ok(()) };
        self.tally.ended += 1;
        if exchange.began >= self.counts_from {
            self.tally.times_ns.push((now - exchange.began).as_nanos() as u64);
            self.tally.late += u64::from(exchange.is_late);
        }
        self.end.end(exchange.place);
        if self.is_open { self.begin(exchange.place) } else { Ok(()) }
    }

    fn repeat(&mut self, now: Instant) -> Result<(), Failure> {
        let mut due = Vec::new();
        for (&number, exchange) in &mut self.exchanges {
            if now >= exchange.next {
                exchange.put_off(now);
                due.push((number, exchange.place, exchange.stage));
            }
        }
        due.into_iter().try_for_each(|(number, place, stage)| self.say(number, place, stage))
    }

    /// Sends the messages of a stage.
    fn say(&mut self, number: u64, place: usize, stage: Stage) -> Result<(), Failure> {
        let id = HandoffId { incarnation: 1, number };
        let commands = match stage {
            Stage::Offered => {
                let fragments = cut(&self.info.encode()).into_iter();
                fragments.map(|it| LccpCommand::Offer(self.socket, it)).collect()
            }
            Stage::Committed => vec![LccpCommand::Go(self.socket)],
        };
        let mut messages = commands.into_iter().map(|command| Lccp { id, command });
        messages.try_for_each(|message| self.end.send(place, &message))
    }
}

impl Exchange {
    fn new(place: usize, now: Instant) -> Self {
        let next = now + Duration::from_millis(RETRY_MS);
        Self {
            place,
            began: now,
            is_late: false,
            stage: Stage::Offered,
            next,
            interval_ms: RETRY_MS,
        }
    }

    /// Handles READY.
    fn commit(&mut self, now: Instant) {
        self.is_late = now - self.began > Duration::from_millis(READY_TIMEOUT_MS);
        self.stage = Stage::Committed;
        self.interval_ms = RETRY_MS;
        self.next = now + Duration::from_millis(RETRY_MS);
    }

    fn put_off(&mut self, now: Instant) {
        self.interval_ms = (2 * self.interval_ms).min(RETRY_MS_MAX);
        self.next = now + Duration::from_millis(self.interval_ms);
    }
}

/// The answer of a receiver that has nothing else to do.
pub(super) fn answer(message: &Lccp) -> Option<Lccp> {
    let command = match &message.command {
        LccpCommand::Offer(socket, fragment) => {
            let whole = Assembly::new(fragment.count).take(fragment)?;
            HandoffInfo::decode(&whole).ok()?;
            LccpCommand::Ready(*socket)
        }
        LccpCommand::Go(socket) => LccpCommand::Done(*socket),
        _ => return None,
    };
    Some(Lccp { id: message.id, command })
}

/// The handoff information of each offer: a connection as on Linux, and its request.
fn info() -> HandoffInfo {
    let window = TcpWindow {
        send_updated_at: 4_000_000_400,
        send: 64_240,
        send_max: 64_240,
        receive: 65_160,
        receive_updated_at: 4_000_000_400,
    };
    let scales = WindowScales { send: 7, receive: 7 };
    let options = TcpOptions { sack: true, window_scales: Some(scales), timestamp: Some(77_000) };
    let tcp = TcpState {
        send_next: 1_000_000,
        receive_next: 4_000_000_400,
        mss_clamp: 1_460,
        options,
        window,
        congestion_window: 10,
        rtt_us: 200,
        received: vec![b'x'; REQUEST_BYTES],
    };
    HandoffInfo { tcp, read_ahead: Vec::new(), moves: 1, accepted_by: 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// Both ends in one: a message is answered during the next wait, and every third one is lost.
    #[derive(Default)]
    struct Loopback {
        answers: Vec<Lccp>,
        sent: usize,
    }

    impl DonorEnd for Loopback {
        fn is_lossy(&self) -> bool {
            true
        }

        fn greet(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn begin(&mut self, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        fn send(&mut self, _: usize, message: &Lccp) -> Result<(), Failure> {
            let bytes = message.encode();
            assert!(bytes.len() < 560, "an offer is one fragment: {} bytes", bytes.len());
            self.sent += 1;
            if !self.sent.is_multiple_of(3) {
                self.answers.extend(answer(&Lccp::decode(&bytes).unwrap()));
            }
            Ok(())
        }

        fn end(&mut self, _: usize) {}

        fn wait(&mut self, timeout: Duration, heard: &mut Vec<Lccp>) -> Result<(), Failure> {
            if self.answers.is_empty() {
                std::thread::sleep(timeout);
            }
            heard.append(&mut self.answers);
            Ok(())
        }
    }

    #[test]
    fn lost_messages_are_repeated_until_each_exchange_ends() {
        let mut donor = LccpDonor::new(Box::<Loopback>::default(), Meter::new("lo"));
        let tally =
            donor.run(&Window { in_flight: 3, settle_ms: 0, window_ms: 50, ended_min: 9 }).unwrap();
        assert!(tally.ended > 0 && donor.exchanges.is_empty());
        assert!(tally.times_ns.iter().any(|&ns| ns > RETRY_MS * 1_000_000), "none was repeated");
    }
}
