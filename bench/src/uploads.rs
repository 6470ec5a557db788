//! Large uploads through a proxy that streams them: its CPU time per mebibyte, and the growth of its memory.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use skep_testclient::RawClient;

use crate::content::SMALL;
use crate::groups::Bench;
use crate::interrupt;
use crate::limits::{ANSWER_TIMEOUT, UPLOAD_BYTES};
use crate::peers::{MeasuredServer, ServerRole};
use crate::results::{Results, UploadRow, UploadSample, Uploads};

/// Bytes per write of the client, and per read of the servers behind the proxy.
const PIECE_BYTES: usize = 256 * 1024;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Measures every proxy. Returns the number of rows that are not sound.
pub(crate) fn run(bench: &Bench, results: &mut Results) -> Result<usize> {
    let chosen = bench.chosen(ServerRole::Upload);
    let new_row = |(peer, version): &(&MeasuredServer, Result<String>)| UploadRow {
        server: peer.name.to_owned(),
        version: version.as_ref().ok().cloned().unwrap_or_default(),
        trouble: version.as_ref().err().map(|error| format!("{error:#}")),
        samples: Vec::new(),
    };
    let mut rows: Vec<UploadRow> = chosen.iter().map(new_row).collect();
    for round in 1..=bench.rounds {
        println!("skep-bench: Uploads, round {round} of {}", bench.rounds);
        for ((peer, version), row) in chosen.iter().zip(&mut rows) {
            if version.is_err() {
                continue;
            }
            match measure(bench, peer) {
                Ok(sample) => {
                    println!(
                        "  {:<9} {:>6.1} us per MiB, {:.0} MiB/s, {:.1} MiB more memory",
                        peer.name, sample.cpu_us_per_mib, sample.mib_per_s, sample.grown_mib
                    );
                    row.samples.push(sample);
                }
                Err(error) => {
                    interrupt::check()?;
                    eprintln!("skep-bench: uploads: {}: {error:#}", peer.name);
                    row.trouble = Some(format!("{error:#}"));
                }
            }
        }
    }
    let unsound = rows.iter().filter(|row| row.trouble.is_some()).count();
    let when = results.machine.when();
    results.uploads = Some(Uploads { when, rounds: bench.rounds, bytes: UPLOAD_BYTES, rows });
    Ok(unsound)
}

fn measure(bench: &Bench, peer: &MeasuredServer) -> Result<UploadSample> {
    let ports = [sink()?, sink()?];
    let mut server = bench.start_unchecked(peer, ServerRole::Upload, ports)?;
    // One upload as a warm-up, for the memory that the proxy allocates anyway.
    upload(server.port, UPLOAD_BYTES / 64)?;
    server.reset_peak()?;
    let (resident, cpu_ns, begun) = (server.resident_bytes(), server.cpu_ns(), Instant::now());
    upload(server.port, UPLOAD_BYTES)?;
    let (seconds, used_ns) = (begun.elapsed().as_secs_f64(), server.cpu_ns() - cpu_ns);
    server.check_alive()?;
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    Ok(UploadSample {
        cpu_us_per_mib: used_ns as f64 / 1e3 / mib(UPLOAD_BYTES),
        mib_per_s: mib(UPLOAD_BYTES) / seconds,
        grown_mib: mib(server.peak_bytes().saturating_sub(resident)),
    })
}

/// Performs one upload, up to its response.
fn upload(port: u16, bytes: u64) -> Result<()> {
    let mut client =
        RawClient::try_connect_within((Ipv4Addr::LOCALHOST, port).into(), ANSWER_TIMEOUT)?;
    client.set_timeout(ANSWER_TIMEOUT);
    let path = SMALL.0;
    client
        .try_send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"))?;
    let piece = vec![b'x'; PIECE_BYTES];
    let mut left = bytes;
    while left > 0 {
        interrupt::check()?;
        let next = left.min(PIECE_BYTES as u64);
        client.try_send(&piece[..next as usize]).context("the upload")?;
        left -= next;
    }
    let answer = client.try_response()?;
    ensure!(answer.status == 200, "status {}", answer.status);
    Ok(())
}

/// Starts a server in this process that reads requests with their bodies, and answers 200; returns its port.
/// It ends with the process.
fn sink() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // It is no error if a proxy closes the connection.
            thread::spawn(move || drop(discard(stream)));
        }
    });
    Ok(port)
}

fn discard(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut piece, mut head) = (vec![0; PIECE_BYTES], Vec::new());
    loop {
        let n = stream.read(&mut piece)?;
        if n == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..n]);
        while let Some(end) = head.windows(4).position(|it| it == b"\r\n\r\n") {
            let mut left = length_of(&head[..end]);
            let behind = (head.len() - end - 4).min(usize::try_from(left).unwrap_or(usize::MAX));
            head.drain(..end + 4 + behind);
            left -= behind as u64;
            while left > 0 {
                let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let n = stream.read(&mut piece[..most])?;
                if n == 0 {
                    return Ok(());
                }
                left -= n as u64;
            }
            stream.write_all(REPLY)?;
        }
    }
}

/// The length of the body according to a head.
fn length_of(head: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line =
        text.lines().find_map(|line| line.strip_prefix("content-length:").map(str::to_owned));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}
