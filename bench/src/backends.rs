//! What proxies pass requests on to: the loop in C, php-fpm or Tomcat, each on the client's core, since they
//! are not what is measured. All of them answer with the files of the benchmark.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::limits::{CLIENT_CORE, CONNECTIONS, FEW_WORKERS, POLL_INTERVAL, READY_TIMEOUT};
use crate::peers::{LIMIT, MeasuredServer, Places, ServerRole, fill, last_words};
use crate::process::{Server, free_port};

/// Where Debian's package tomcat10-common has it.
const TOMCAT: &str = "/usr/share/tomcat10";

const PHP_SCRIPT: &str = include_str!("../peers/backend.php");
const PHP_CONFIG: &str = include_str!("../peers/backend-php-fpm.conf");
const TOMCAT_CONFIG: &str = include_str!("../peers/backend-tomcat.xml");

/// Running backends, and the ports of two of them; of one, twice, where there is only one.
pub(crate) struct Backends {
    _servers: Vec<Server>,
    pub(crate) ports: [u16; 2],
}

impl Backends {
    /// Those that servers in this role need, with their files in `dir`.
    pub(crate) fn start(role: ServerRole, dir: &Path, places: &Places) -> Result<Self> {
        match role {
            ServerRole::Fcgi | ServerRole::FcgiKept => {
                Self::one(php_fpm(CONNECTIONS, dir, places)?)
            }
            ServerRole::FcgiFew => Self::one(php_fpm(FEW_WORKERS, dir, places)?),
            ServerRole::Ajp => Self::one(tomcat(dir, places)?),
            ServerRole::Cached => Self::loops(role, dir, places),
            _ => Self::loops(ServerRole::Files, dir, places),
        }
    }

    fn loops(role: ServerRole, dir: &Path, places: &Places) -> Result<Self> {
        let limit = MeasuredServer::named(LIMIT).context("the loop in C is one of the peers")?;
        let start = |name: &str| limit.start(role, &dir.join(name), CLIENT_CORE, [0; 2], places);
        let servers = vec![start("origin-1")?, start("origin-2")?];
        let ports = [servers[0].port, servers[1].port];
        Ok(Self { _servers: servers, ports })
    }

    fn one(server: Server) -> Result<Self> {
        let ports = [server.port; 2];
        Ok(Self { _servers: vec![server], ports })
    }
}

/// php-fpm of so many workers, with a script that answers with the file of the path.
fn php_fpm(workers: u32, dir: &Path, places: &Places) -> Result<Server> {
    let dir = dir.join("php-fpm");
    fs::create_dir_all(&dir)?;
    let port = free_port()?;
    let names = [("@PORT@", port.to_string()), ("@WORKERS@", workers.to_string())];
    fs::write(places.root.join("front.php"), PHP_SCRIPT)?;
    let config = dir.join("fpm.conf");
    fs::write(&config, fill(PHP_CONFIG, &names, places))?;
    let argv = ["php-fpm8.2", "--nodaemonize", "-n", "--allow-to-run-as-root", "--fpm-config"];
    let argv = argv.map(str::to_owned).into_iter().chain([config.display().to_string()]);
    start(&argv.collect::<Vec<_>>(), &dir, port).context("php-fpm (Debian: php8.2-fpm)")
}

/// Tomcat, whose own servlet for files answers, behind its connector for AJP.
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
    start(&argv, &dir, port).context("Tomcat 10 (Debian: tomcat10-user, default-jre-headless)")
}

/// Starts it, and waits until it takes connections.
fn start(argv: &[String], dir: &Path, port: u16) -> Result<Server> {
    let mut server = Server::start(argv, dir, CLIENT_CORE, port)?;
    let deadline = Instant::now() + READY_TIMEOUT;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
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
