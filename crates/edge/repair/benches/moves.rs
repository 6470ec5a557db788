//! What the system calls of a handoff cost, in microseconds.
//!
//! `cargo bench -p skep-repair --bench moves`, as root
//!
//! Connections of one client with a request in their receive queues move from one network namespace to
//! another; each step is timed for each of them. The goal is a median of 60 us for a whole move, including
//! messages between machines and to netguard, which these steps do not include.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement")]

#[path = "../tests/repair/common/mod.rs"]
mod common;

use std::io::Write;
use std::time::Instant;

use common::{BOTH, Bed, Connection, Ip, LIMITS, Place, create, poll_until, set_repair};
use skep_repair::{close_silently, restore, snapshot};

const CONNECTIONS: usize = 200;
const ROUNDS: usize = 5;

/// Bytes of a request's head: a typical one, and the longest that moves.
const REQUESTS_BYTES: [usize; 2] = [600, 16 * 1024];

/// Microseconds of each connection, for each step of a move.
#[derive(Default)]
struct Times([Vec<f64>; 6]);

const STEPS: [&str; 6] = ["freeze", "snapshot", "create", "restore", "close", "start"];
const FREEZE: usize = 0;
const SNAPSHOT: usize = 1;
const CREATE: usize = 2;
const RESTORE: usize = 3;
const CLOSE: usize = 4;
const START: usize = 5;

fn main() {
    let Some(bed) = Bed::new() else { return };
    println!("| request | step | median, us | 90 % | 99 % |\n|---|---|---|---|---|");
    for (ip, bytes) in BOTH.into_iter().flat_map(|ip| REQUESTS_BYTES.map(|bytes| (ip, bytes))) {
        let mut times = Times::default();
        (0..ROUNDS).for_each(|_| move_all(&bed, ip, bytes, &mut times));
        times.print(&format!("{bytes} bytes, {ip:?}"));
    }
}

/// Moves all connections together, so that packets are steered only twice.
fn move_all(bed: &Bed, ip: Ip, request_bytes: usize, times: &mut Times) {
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| bed.connection(ip)).collect();
    let request = vec![b'x'; request_bytes];
    connections.iter_mut().for_each(|it| it.client.write_all(&request).unwrap());
    let is_here = |it: &Connection| common::unread_bytes(&it.server) as usize == request_bytes;
    poll_until("all requests came", || connections.iter().all(is_here));
    bed.steer(Place::Nowhere);
    let freeze = |times: &mut Times, it: &Connection| {
        times.time(FREEZE, || set_repair(&it.server, true));
        times.time(SNAPSHOT, || snapshot(&it.server, LIMITS).unwrap())
    };
    let states: Vec<_> = connections.iter().map(|it| freeze(times, it)).collect();
    let sockets = bed.receiver.run(|| {
        let take = |(it, state): (&Connection, _)| {
            let socket = times.time(CREATE, || create(it.id));
            times.time(RESTORE, || restore(&socket, &it.id, state).unwrap());
            socket
        };
        connections.iter().zip(&states).map(take).collect::<Vec<_>>()
    });
    bed.steer(Place::Receiver);
    for (connection, socket) in connections.into_iter().zip(sockets) {
        let Connection { server, client, .. } = connection;
        times.time(CLOSE, || close_silently(server.into()).unwrap());
        times.time(START, || set_repair(&socket, false));
        drop((client, socket));
    }
}

impl Times {
    fn time<T>(&mut self, step: usize, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.0[step].push(began.elapsed().as_secs_f64() * 1e6);
        done
    }

    fn print(&self, request: &str) {
        for (step, times) in STEPS.iter().zip(&self.0) {
            print(request, step, times.clone());
        }
        print(request, "**freeze + snapshot**", self.sum(&[FREEZE, SNAPSHOT]));
        print(request, "**create + restore + start**", self.sum(&[CREATE, RESTORE, START]));
        print(request, "**all**", self.sum(&[FREEZE, SNAPSHOT, CREATE, RESTORE, CLOSE, START]));
    }

    /// The times of each connection, summed over some of the steps.
    fn sum(&self, steps: &[usize]) -> Vec<f64> {
        let of_one = |at| steps.iter().map(|&step| self.0[step][at]).sum();
        (0..self.0[FREEZE].len()).map(of_one).collect()
    }
}

fn print(request: &str, step: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("| {request} | {step} | {:.1} | {:.1} | {:.1} |", at(50), at(90), at(99));
}
