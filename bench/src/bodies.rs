//! How large bodies should be sent: `bench/limit/bodies.c` sends one body in every way that Linux offers, to
//! wrk and to a client that never sleeps.

use anyhow::{Context, Result};

use crate::groups::Bench;
use crate::interrupt;
use crate::limits::SERVER_CORE;
use crate::process::{Server, free_port};
use crate::results::{Bodies, BodyWay, Results};
use crate::wrk::Load;

/// The clients: the program, its number of connections, and a heading.
pub(crate) const CLIENTS: [(Client, u32, &str); 4] = [
    (Client::Wrk, 64, "wrk, 64"),
    (Client::Wrk, 8, "wrk, 8"),
    (Client::Drain, 64, "drain, 64"),
    (Client::Drain, 8, "drain, 8"),
];

/// A program that reads replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// Copies the bytes, and sleeps when there is nothing to read.
    Wrk,
    /// `bench/limit/drain.c`: does neither.
    Drain,
}

/// WebBench's largest file.
const LARGE: u64 = 541_761;

/// Name, size of the body, arguments of `bodies`, and the number of `CLIENTS` that are used.
type Way = (&'static str, u64, &'static [&'static str], usize);

const WAYS: &[Way] = &[
    ("write, 4 KiB pages", LARGE, &["write"], 4),
    ("write, huge pages", LARGE, &["write-thp"], 4),
    ("write, MSG_ZEROCOPY (loopback copies all the same)", LARGE, &["write-msgzc"], 4),
    ("sendfile, file in the page cache", LARGE, &["sendfile"], 4),
    ("sendfile, memfd of 4 KiB pages", LARGE, &["sendfile-memfd"], 4),
    ("sendfile, memfd of huge pages (MADV_COLLAPSE)", LARGE, &["sendfile-collapse"], 4),
    ("sendfile, memfd of huge pages, split into folios of 64 KiB", LARGE, &["sendfile-split"], 4),
    ("a pipe for each, vmsplice and splice, huge pages", LARGE, &["splice-thp"], 4),
    ("the same with SPLICE_F_GIFT", LARGE, &["splice-gift"], 4),
    ("one pipe for all, vmsplice and splice, huge pages", LARGE, &["splice-shared"], 4),
    ("one pipe for all, vmsplice and splice, 4 KiB pages", LARGE, &["splice-shared-4k"], 4),
    ("one pipe for all, 64 KiB at a time", LARGE, &["splice-shared", "--chunk", "65536"], 2),
    ("one pipe for all, 256 KiB at a time", LARGE, &["splice-shared", "--chunk", "262144"], 2),
    ("write, SO_SNDBUF 128 KiB", LARGE, &["write", "--sndbuf", "131072"], 2),
    ("write, SO_SNDBUF 1 MiB", LARGE, &["write", "--sndbuf", "1048576"], 2),
    ("write, SO_SNDBUF 4 MiB", LARGE, &["write", "--sndbuf", "4194304"], 2),
    ("write, 64 KiB at a time", LARGE, &["write", "--chunk", "65536"], 2),
    ("write, 256 KiB at a time", LARGE, &["write", "--chunk", "262144"], 2),
    ("huge memfd, SO_SNDBUF 128 KiB", LARGE, &["sendfile-collapse", "--sndbuf", "131072"], 2),
    ("huge memfd, SO_SNDBUF 1 MiB", LARGE, &["sendfile-collapse", "--sndbuf", "1048576"], 2),
    ("huge memfd, SO_SNDBUF 4 MiB", LARGE, &["sendfile-collapse", "--sndbuf", "4194304"], 2),
    ("huge memfd, 64 KiB at a time", LARGE, &["sendfile-collapse", "--chunk", "65536"], 2),
    ("huge memfd, 256 KiB at a time", LARGE, &["sendfile-collapse", "--chunk", "262144"], 2),
    (
        "huge memfd, 256 KiB, then the next connection",
        LARGE,
        &["sendfile-collapse", "--chunk", "262144", "--turn", "262144"],
        2,
    ),
    ("11,426 bytes: write", 11_426, &["write"], 1),
    ("11,426 bytes: sendfile, huge memfd", 11_426, &["sendfile-collapse"], 1),
    ("11,426 bytes: one pipe for all, huge pages", 11_426, &["splice-shared"], 1),
    ("11,426 bytes: one pipe for all, 4 KiB pages", 11_426, &["splice-shared-4k"], 1),
    ("22,132 bytes: write", 22_132, &["write"], 1),
    ("22,132 bytes: sendfile, huge memfd", 22_132, &["sendfile-collapse"], 1),
    ("22,132 bytes: one pipe for all, huge pages", 22_132, &["splice-shared"], 1),
    ("22,132 bytes: one pipe for all, 4 KiB pages", 22_132, &["splice-shared-4k"], 1),
    ("41,518 bytes: write", 41_518, &["write"], 1),
    ("41,518 bytes: sendfile, huge memfd", 41_518, &["sendfile-collapse"], 1),
    ("41,518 bytes: one pipe for all, huge pages", 41_518, &["splice-shared"], 1),
    ("41,518 bytes: one pipe for all, 4 KiB pages", 41_518, &["splice-shared-4k"], 1),
    ("87,360 bytes: write", 87_360, &["write"], 1),
    ("87,360 bytes: sendfile, huge memfd", 87_360, &["sendfile-collapse"], 1),
    ("87,360 bytes: one pipe for all, huge pages", 87_360, &["splice-shared"], 1),
    ("87,360 bytes: one pipe for all, 4 KiB pages", 87_360, &["splice-shared-4k"], 1),
];

/// Measures every way, round by round.
pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<()> {
    let mut ways: Vec<BodyWay> = WAYS.iter().map(new_way).collect();
    for round in 1..=bench.rounds {
        println!("skep-bench: Bodies, round {round} of {}", bench.rounds);
        for (&(name, bytes, args, clients), way) in WAYS.iter().zip(&mut ways) {
            for ((client, connections, _), samples) in
                CLIENTS.iter().zip(&mut way.cpu_us).take(clients)
            {
                let cpu_us = measure(bench, args, bytes, *client, *connections);
                interrupt::check()?;
                let cpu_us = cpu_us.with_context(|| name.to_owned())?;
                println!("  {name}, {client:?} {connections}: {cpu_us:.1} us");
                samples.push(cpu_us);
            }
        }
    }
    results.bodies = Some(Bodies {
        when: results.machine.when(),
        rounds: bench.rounds,
        seconds: bench.seconds,
        ways,
    });
    Ok(())
}

fn new_way(&(name, body_bytes, _, _): &Way) -> BodyWay {
    BodyWay { name: name.to_owned(), body_bytes, cpu_us: vec![Vec::new(); CLIENTS.len()] }
}

fn measure(
    bench: &Bench,
    args: &[&str],
    body_bytes: u64,
    client: Client,
    connections: u32,
) -> Result<f64> {
    let file = bench.programs.join("body.bin");
    std::fs::write(&file, vec![b'x'; usize::try_from(body_bytes)?])?;
    let port = free_port()?;
    let (mode, options) = args.split_first().context("a way has a mode")?;
    let mut argv = vec![bench.programs.join("bodies").display().to_string()];
    argv.extend([(*mode).to_owned(), port.to_string(), file.display().to_string()]);
    argv.extend(options.iter().map(|&option| option.to_owned()));
    let mut server = Server::start(&argv, &bench.programs, SERVER_CORE, port)?;
    crate::peers::wait_for_answer(&mut server)?;
    let read = |seconds| match client {
        Client::Wrk => Ok(bench.wrk.run(port, Load::Path("/"), connections, seconds)?.requests),
        Client::Drain => bench.drain.run(port, "/", connections, seconds),
    };
    read(crate::limits::WARM_UP_SECONDS)?;
    let before = server.cpu_ns();
    let replies = read(bench.seconds)?;
    Ok((server.cpu_ns() - before) as f64 / 1e3 / replies as f64)
}
