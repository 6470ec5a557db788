//! Ten thousand clients that have sent one request and are now idle: the memory that each costs, and what all
//! of them cost the active clients.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skep_testclient::RawClient;
use socket2::{Domain, Socket, Type};

use crate::check;
use crate::content::SMALL;
use crate::groups::Bench;
use crate::interrupt;
use crate::limits::{IDLE_CONNECTIONS, IDLE_PER_ADDRESS, IDLE_PORT_MIN};
use crate::peers::{MeasuredServer, ServerRole};
use crate::results::{Idle, IdleRow, Results};
use crate::wrk::Load;

const LOAD: Load = Load::Path(SMALL.0);

/// Measures every server of files. Returns the number of rows that are not sound.
pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<usize> {
    let chosen = bench.chosen(ServerRole::Files);
    let mut rows: Vec<IdleRow> =
        chosen.iter().map(|(peer, version)| new_row(peer, version)).collect();
    for round in 1..=bench.rounds {
        println!("skep-bench: Idle, round {round} of {}", bench.rounds);
        for ((peer, version), row) in chosen.iter().zip(&mut rows) {
            if version.is_err() {
                continue;
            }
            if let Err(error) = measure(bench, peer, row) {
                interrupt::check()?;
                eprintln!("skep-bench: idle: {}: {error:#}", peer.name);
                row.trouble = Some(format!("{error:#}"));
            }
        }
    }
    let unsound = rows.iter().filter(|row| !row.is_sound()).count();
    results.idle = Some(Idle {
        when: results.machine.when(),
        rounds: bench.rounds,
        seconds: bench.seconds,
        connections: IDLE_CONNECTIONS,
        rows,
    });
    Ok(unsound)
}

fn measure(bench: &Bench, peer: &MeasuredServer, row: &mut IdleRow) -> Result<()> {
    let paths = [SMALL.0.to_owned()];
    let mut server = bench.start(peer, ServerRole::Files, &paths, [0; 2])?;
    let alone = bench.measure(&mut server, LOAD)?;
    let before = server.resident_bytes();
    let idle = open(server.port, IDLE_CONNECTIONS)?;
    let grown = server.resident_bytes().saturating_sub(before);
    let beside = bench.measure(&mut server, LOAD).context("beside the idle connections")?;
    let lost = idle.iter().filter(|stream| !is_open(stream)).count() as u64;
    let each = grown as f64 / f64::from(IDLE_CONNECTIONS);
    println!(
        "  {:<9} {each:>6.0} B each, {:.0} -> {:.0} requests/s, {:.2} -> {:.2} us, {lost} lost",
        peer.name, alone.requests_per_s, beside.requests_per_s, alone.cpu_us, beside.cpu_us
    );
    row.resident_bytes.push(each);
    row.alone.push(alone);
    row.beside.push(beside);
    row.lost += lost;
    Ok(())
}

/// Opens connections, each from one of several loopback addresses, and sends one request on each: what a
/// server keeps for a connection is visible only after a request.
fn open(server_port: u16, count: u32) -> Result<Vec<TcpStream>> {
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server_port));
    let mut streams = Vec::new();
    for number in 0..count {
        interrupt::check()?;
        let (nth, port) = (number / IDLE_PER_ADDRESS, number % IDLE_PER_ADDRESS);
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(nth)? + 1);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // Ports are chosen here and released at once by a reset: ports chosen by the kernel would be
        // unavailable to other clients for a minute.
        socket.set_reuse_address(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        let port = IDLE_PORT_MIN + u16::try_from(port)?;
        socket.bind(&SocketAddrV4::new(from, port).into())?;
        socket.connect(&server.into()).with_context(|| format!("connection {number}"))?;
        let mut client = RawClient::over(socket.into())?;
        let answer = check::get_on(&mut client, SMALL.0)
            .with_context(|| format!("on connection {number}"))?;
        ensure!(answer.status == 200, "status {} on connection {number}", answer.status);
        let stream = client.into_stream();
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    Ok(streams)
}

fn is_open(stream: &TcpStream) -> bool {
    let mut byte = [0];
    matches!(stream.peek(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn new_row(peer: &MeasuredServer, version: &Result<String>) -> IdleRow {
    let (version, trouble) = match version {
        Ok(version) => (version.clone(), None),
        Err(error) => (String::new(), Some(format!("{error:#}"))),
    };
    IdleRow {
        server: peer.name.to_owned(),
        version,
        trouble,
        resident_bytes: Vec::new(),
        lost: 0,
        alone: Vec::new(),
        beside: Vec::new(),
    }
}
