//! The backends of proxies: the loop in C, php-fpm or Tomcat, each on the client's core, since they are not
//! what is measured. All of them answer with the files of the benchmark.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::limits::{CLIENT_CORE, FEW_WORKERS, MANY_WORKERS, POLL_INTERVAL, READY_TIMEOUT};
use crate::peers::{LIMIT, MeasuredServer, PRIVATE_ORIGIN, Places, ServerRole, fill, last_words};
use crate::process::{Server, free_port};

/// The path of Debian's package tomcat10-common.
const TOMCAT: &str = "/usr/share/tomcat10";

const PHP_SCRIPT: &str = include_str!("../peers/backend.php");
const PHP_CONFIG: &str = include_str!("../peers/backend-php-fpm.conf");
const TOMCAT_CONFIG: &str = include_str!("../peers/backend-tomcat.xml");

/// Running backends, and the ports of two of them; if there is only one, its port twice.
pub(crate) struct Backends {
    servers: Vec<Server>,
    pub(crate) ports: [u16; 2],
}

/// The address at which a backend accepts connections.
enum Listen {
    Port(u16),
    Socket(PathBuf),
}

impl Backends {
    /// Starts the backends that servers in this role need, with their files in `dir`.
    pub(crate) fn start(role: ServerRole, dir: &Path, places: &Places) -> Result<Self> {
        match role {
            ServerRole::Fcgi | ServerRole::FcgiKept => {
                Self::one(php_fpm(MANY_WORKERS, Listen::Port(free_port()?), dir, places)?)
            }
            ServerRole::FcgiUnix => {
                Self::one(php_fpm(MANY_WORKERS, Listen::Socket(php_socket(dir)), dir, places)?)
            }
            ServerRole::FcgiFew => {
                Self::one(php_fpm(FEW_WORKERS, Listen::Port(free_port()?), dir, places)?)
            }
            ServerRole::Ajp => Self::one(tomcat(dir, places)?),
            ServerRole::Cached | ServerRole::PoolFull => Self::loops(role, dir, places),
            _ => Self::loops(ServerRole::Files, dir, places),
        }
    }

    /// CPU time of all backends so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.servers.iter().map(Server::tree_ns).sum()
    }

    fn loops(role: ServerRole, dir: &Path, places: &Places) -> Result<Self> {
        let limit = match role {
            ServerRole::PoolFull => &PRIVATE_ORIGIN,
            _ => MeasuredServer::named(LIMIT).context("the loop in C is one of the peers")?,
        };
        let start = |name: &str| limit.start(role, &dir.join(name), CLIENT_CORE, [0; 2], places);
        let servers = vec![start("origin-1")?, start("origin-2")?];
        let ports = [servers[0].port, servers[1].port];
        Ok(Self { servers, ports })
    }

    fn one(server: Server) -> Result<Self> {
        let ports = [server.port; 2];
        Ok(Self { servers: vec![server], ports })
    }
}

/// The Unix socket of a php-fpm with its files in `dir`; configs also contain this path.
fn php_socket(dir: &Path) -> PathBuf {
    dir.join("php-fpm/fpm.sock")
}

/// Starts php-fpm with `workers` workers, and a script that answers with the file of the path.
fn php_fpm(workers: u32, listen: Listen, dir: &Path, places: &Places) -> Result<Server> {
    let dir = dir.join("php-fpm");
    fs::create_dir_all(&dir)?;
    let names = [("@LISTEN@", listen.to_string()), ("@WORKERS@", workers.to_string())];
    fs::write(places.root.join("front.php"), PHP_SCRIPT)?;
    let config = dir.join("fpm.conf");
    fs::write(&config, fill(PHP_CONFIG, &names, places))?;
    let argv = ["php-fpm8.2", "--nodaemonize", "-n", "--allow-to-run-as-root", "--fpm-config"];
    let argv = argv.map(str::to_owned).into_iter().chain([config.display().to_string()]);
    start(&argv.collect::<Vec<_>>(), &dir, &listen).context("php-fpm (Debian: php8.2-fpm)")
}

/// Starts Tomcat with an AJP connector; its own servlet for files answers.
fn tomcat(dir: &Path, places: &Places) -> Result<Server> {
    let dir = dir.join("tomcat");
    for part in ["conf", "temp", "webapps"] {
        fs::create_dir_all(dir.join(part))?;
    }
    let port = free_port()?;
    let names = [("@PORT@", port.to_string()), ("@DIR@", dir.display().to_string())];
    fs::write(dir.join("conf/server.xml"), fill(TOMCAT_CONFIG, &names, places))?;
    fs::copy(Path::new(TOMCAT).join("skel/conf/web.xml"), dir.join("conf/web.xml"))
        .context("Tomcat 10 (Debian: tomcat10-user)")?;
    let base = dir.display();
    let argv = [
        "java".to_owned(),
        "-Xmx512m".to_owned(),
        format!("-Dcatalina.home={TOMCAT}"),
        format!("-Dcatalina.base={base}"),
        format!("-Djava.io.tmpdir={base}/temp"),
        "-cp".to_owned(),
        format!("{TOMCAT}/bin/bootstrap.jar:{TOMCAT}/bin/tomcat-juli.jar"),
        "org.apache.catalina.startup.Bootstrap".to_owned(),
        "start".to_owned(),
    ];
    start(&argv, &dir, &Listen::Port(port))
        .context("Tomcat 10 (Debian: tomcat10-user, default-jre-headless)")
}

/// Starts a backend, and waits until it accepts connections.
fn start(argv: &[String], dir: &Path, listen: &Listen) -> Result<Server> {
    let mut server = Server::start(argv, dir, CLIENT_CORE, listen.port())?;
    let deadline = Instant::now() + READY_TIMEOUT;
    while listen.try_connect().is_err() {
        interrupt::check()?;
        server.check_alive().with_context(|| last_words(dir))?;
        if Instant::now() > deadline {
            bail!("it takes no connection after {READY_TIMEOUT:?}; {}", last_words(dir));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    server.prefer();
    Ok(server)
}

impl Listen {
    fn try_connect(&self) -> io::Result<()> {
        match self {
            Self::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).map(drop),
            Self::Socket(path) => UnixStream::connect(path).map(drop),
        }
    }

    /// The port; 0 if there is none.
    fn port(&self) -> u16 {
        match self {
            Self::Port(port) => *port,
            Self::Socket(_) => 0,
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Port(port) => write!(f, "127.0.0.1:{port}"),
            Self::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}
