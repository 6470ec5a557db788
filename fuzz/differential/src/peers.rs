//! The three servers, each a process with its own folder and ports.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::limits::{PEER_TIMEOUT_MS, START};
use crate::run::{Run, SWITCH};

/// The compared peers. Skep is first: the others are what it is compared with.
pub(crate) const NAMES: [&str; 3] = ["skep", "nginx", "haproxy"];

/// A running server with an address for each lane.
pub(crate) struct Peer {
    child: Child,
    addresses: Vec<SocketAddr>,
    _folder: TempDir,
}

impl Peer {
    /// Starts the peer with this number in front of these origins, one for each lane.
    pub(crate) fn start(number: usize, run: &Run, origins: &[SocketAddr]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("skep-differential-").tempdir()?;
        let addresses = free_ports(origins.len())?;
        let lanes: Vec<_> = addresses.iter().copied().zip(origins.iter().copied()).collect();
        let mut command = match number {
            0 => of_skep(run, folder.path(), &lanes)?,
            1 => of_nginx(folder.path(), &lanes)?,
            _ => of_haproxy(folder.path(), &lanes)?,
        };
        let errors = fs::File::create(folder.path().join("stderr"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot run {}: {error}", NAMES[number]))
        })?;
        let mut peer = Self { child, addresses, _folder: folder };
        peer.wait_ready(number)?;
        Ok(peer)
    }

    /// The address of the peer for clients of a lane.
    pub(crate) fn address(&self, lane: usize) -> SocketAddr {
        self.addresses[lane]
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until each lane answers with its origin's response.
    fn wait_ready(&mut self, number: usize) -> io::Result<()> {
        let until = Instant::now() + START;
        for address in self.addresses.clone() {
            while !is_ready(address) {
                if !self.runs() || Instant::now() > until {
                    let path = self._folder.path().join("stderr");
                    let said = fs::read_to_string(path).unwrap_or_default();
                    let what = format!("{} does not answer at {address}: {said}", NAMES[number]);
                    return Err(io::Error::other(what));
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(address: SocketAddr) -> bool {
    use std::io::{Read, Write};
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ready\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
}

/// Finds `count` free ports, below those that the kernel allocates to clients.
fn free_ports(count: usize) -> io::Result<Vec<SocketAddr>> {
    let first = 10_000 + (std::process::id() % 4_000) as u16;
    let ports = (first..20_000).chain(10_000..first);
    let mut held = Vec::new();
    for port in ports {
        // Held until all are found, so that none is found twice.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
        }
        if held.len() == count {
            return held.iter().map(TcpListener::local_addr).collect();
        }
    }
    Err(io::Error::other("no free ports"))
}

type Lane = (SocketAddr, SocketAddr);

fn of_skep(run: &Run, folder: &Path, lanes: &[Lane]) -> io::Result<Command> {
    let (home, ms) = (folder.display(), PEER_TIMEOUT_MS);
    let mut text = format!(
        "state_dir = \"{home}\"\n[admin]\nlisten = \"off\"\n[machine]\nthreads = 1\nuser = \"root\"\n\
         [timeouts]\nhead_ms = \"{ms}ms\"\nbody_grace_ms = \"{ms}ms\"\nidle_ms = \"{ms}ms\"\n\
         [[dispatcher]]\nname = \"d\"\n"
    );
    for (number, (_, origin)) in lanes.iter().enumerate() {
        text += &format!("[[node]]\nname = \"n{number}\"\naddress = \"{origin}\"\n");
    }
    for (number, (address, _)) in lanes.iter().enumerate() {
        // Answers that are mutated on purpose must not mark a node as down.
        text += &format!(
            "[[service]]\nname = \"s{number}\"\nlisten = \"{address}\"\nnodes = [\"n{number}\"]\n\
             retries_max = 0\nresponse_timeout_ms = \"{ms}ms\"\nupstream_idle_ms = \"{}ms\"\n\
             health = {{ interval_ms = \"10s\", timeout_ms = \"1s\", fall = 100, \
             passive_failures_max = 1000 }}\n",
            ms / 2
        );
    }
    text += &format!("[[site]]\nroot = \"{home}\"\n");
    fs::write(folder.join("skep.toml"), text)?;
    let mut command = Command::new(&run.skep);
    command.env(SWITCH, run.mutant.to_string());
    command.arg("run").arg("--config").arg(folder.join("skep.toml")).args(["--as", "d"]);
    Ok(command)
}

fn of_nginx(folder: &Path, lanes: &[Lane]) -> io::Result<Command> {
    let (home, ms) = (folder.display(), PEER_TIMEOUT_MS);
    let mut text = format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {home}/pid;\n\
         error_log {home}/error.log crit;\nevents {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\nclient_body_temp_path {home}/1;\nproxy_temp_path {home}/2;\n\
         fastcgi_temp_path {home}/3;\nuwsgi_temp_path {home}/4;\nscgi_temp_path {home}/5;\n\
         client_header_timeout {ms}ms;\nclient_body_timeout {ms}ms;\nkeepalive_timeout {ms}ms;\n\
         send_timeout {ms}ms;\nproxy_read_timeout {ms}ms;\nproxy_connect_timeout {ms}ms;\n\
         lingering_timeout {ms}ms;\nlingering_time {ms}ms;\nclient_max_body_size 0;\n\
         proxy_http_version 1.1;\nproxy_set_header Host $http_host;\n\
         proxy_set_header Connection \"\";\nproxy_next_upstream off;\nproxy_buffering off;\n\
         proxy_request_buffering off;\nproxy_ignore_client_abort on;\nproxy_redirect off;\n"
    );
    for (address, origin) in lanes {
        text += &format!(
            "server {{\nlisten {address};\nlocation / {{ proxy_pass http://{origin}; }}\n}}\n"
        );
    }
    text += "}\n";
    fs::write(folder.join("nginx.conf"), text)?;
    let mut command = Command::new(program("nginx"));
    command.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf"));
    // nginx opens its compiled-in log before it reads the config.
    command.arg("-e").arg(folder.join("error.log"));
    Ok(command)
}

fn of_haproxy(folder: &Path, lanes: &[Lane]) -> io::Result<Command> {
    let ms = PEER_TIMEOUT_MS;
    let mut text = format!(
        "global\nmaxconn 4096\nnbthread 1\ndefaults\nmode http\nretries 0\n\
         timeout connect {ms}ms\ntimeout client {ms}ms\ntimeout server {ms}ms\n\
         timeout http-request {ms}ms\ntimeout http-keep-alive {ms}ms\n"
    );
    for (number, (address, origin)) in lanes.iter().enumerate() {
        text += &format!(
            "frontend f{number}\nbind {address}\ndefault_backend b{number}\n\
             backend b{number}\nserver o {origin}\n"
        );
    }
    fs::write(folder.join("haproxy.cfg"), text)?;
    let mut command = Command::new(program("haproxy"));
    command.arg("-db").arg("-f").arg(folder.join("haproxy.cfg"));
    Ok(command)
}

/// The path of a program, also for a user whose PATH lacks the folders of servers.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file()).unwrap_or_else(|| name.into())
}
