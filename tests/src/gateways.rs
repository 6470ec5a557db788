//! Real application servers of Debian packages: php-fpm and Tomcat 10, each a separate instance that ends
//! with its test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal};

use crate::site::Site;

/// The scripts that the tests of the codecs use too.
const PHP: &str = include_str!("../../crates/core/fastcgi/tests/fastcgi/peer.php");
const SERVLET: &str = include_str!("../../crates/core/ajp/tests/ajp/Peer.java");

const TOMCAT: &str = "/usr/share/tomcat10";
const MANAGER: &str = "/usr/share/tomcat10-admin/manager";
const COMPILER: &str = "/usr/share/java/eclipse-jdt-core.jar";

/// The secret of [`Tomcat`]'s connector.
pub const SECRET: &str = "not known to others";

/// Name and password of a user of [`Tomcat`]'s manager who may read its status.
pub const STATUS_USER: &str = "status:let me see";

/// Name and password of a user with full access over JMX.
pub const JMX_USER: &str = "jmx:let me in";

/// Options of a [`PhpFpm`] that differ between tests.
#[derive(Clone, Copy, Debug)]
pub struct PhpOptions {
    /// Maximum number of concurrent requests.
    pub workers: u32,
    /// File mode of its socket.
    pub mode: u32,
    /// Whether it listens on TCP instead of a Unix socket.
    pub is_tcp: bool,
}

impl Default for PhpOptions {
    fn default() -> Self {
        Self { workers: 3, mode: 0o666, is_tcp: false }
    }
}

/// A running php-fpm, with `peer.php` as its only script.
pub struct PhpFpm {
    process: Child,
    root: Site,
    folder: Site,
    /// The address in the form of a config.
    pub address: String,
}

impl PhpFpm {
    /// Starts php-fpm with these options.
    #[track_caller]
    pub fn start(options: PhpOptions) -> Self {
        let root = Site::new().with("peer.php", PHP).with("index.php", PHP);
        let folder = Site::guarded();
        let port = crate::FreePort::claim();
        let socket = folder.path("fpm.sock");
        let (address, listen) = match options.is_tcp {
            true => (port.address().to_string(), port.address().to_string()),
            false => (format!("unix:{}", socket.display()), socket.display().to_string()),
        };
        let PhpOptions { workers, mode, .. } = options;
        let conf = format!(
            "[global]\nerror_log = /dev/stderr\n[www]\nuser = nobody\ngroup = nogroup\n\
             listen = {listen}\nlisten.mode = {mode:o}\npm = static\npm.max_children = {workers}\n\
             ping.path = /ping\npm.status_path = /status\ncatch_workers_output = no\n\
             php_admin_flag[log_errors] = on\nphp_admin_flag[display_errors] = off\n"
        );
        folder.write("fpm.conf", conf);
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "php-fpm8.2", "--nodaemonize", "-n", "--fpm-config"])
            .arg(folder.path("fpm.conf"))
            // A separate process group, with its workers.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv (util-linux)");
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        let php = Self { process, root, folder, address };
        read_until(log, "ready to handle connections", "php-fpm (php8.2-fpm)");
        php
    }

    /// The folder of its scripts.
    pub fn root(&self) -> &Path {
        self.root.root()
    }

    /// The folder of its own files, separate from its scripts.
    pub fn folder(&self) -> &Path {
        self.folder.root()
    }

    /// Returns config lines of a site that forwards everything to it.
    pub fn lines(&self, of_pool: &str, of_fastcgi: &str) -> String {
        format!(
            "pool = \"php\"\n[[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n{of_pool}\n\
             [pool.fastcgi]\nroot = \"{}\"\n{of_fastcgi}\n\
             [[pool.server]]\nname = \"s1\"\naddress = \"{}\"\n",
            self.root().display(),
            self.address
        )
    }
}

impl PhpFpm {
    /// Stops it and its workers by SIGSTOP: connections stay open, and nothing answers until
    /// [`PhpFpm::resume`].
    pub fn stop(&self) {
        self.signal_all(Signal::STOP).expect("it runs");
        let id = self.process.id();
        let workers = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let workers = workers.expect("it runs");
        workers.split_whitespace().map(|id| id.parse().expect("an id")).for_each(until_stopped);
    }

    /// Resumes them.
    pub fn resume(&self) {
        self.signal_all(Signal::CONT).expect("it runs");
    }

    fn signal_all(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::kill_process_group(Pid::from_child(&self.process), signal)
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        // A stopped process would not end.
        let _ = self.signal_all(Signal::CONT);
        // Its workers would survive a SIGKILL of the master.
        let _ = rustix::process::kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// A running Tomcat with one connector for AJP, and the servlet `Peer` for all paths.
pub struct Tomcat {
    process: Child,
    folder: Site,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Tomcat {
    /// Starts one with the minimum packet size.
    #[track_caller]
    pub fn start() -> Self {
        assert!(
            Path::new(TOMCAT).exists() && Path::new(COMPILER).exists(),
            "no Tomcat 10 in {TOMCAT}: install the Debian package tomcat10-user"
        );
        assert!(
            Path::new(MANAGER).exists(),
            "no manager in {MANAGER}: install the Debian package tomcat10-admin"
        );
        let folder = Site::guarded();
        let classes = folder.path("webapps/ROOT/WEB-INF/classes");
        for part in [&classes, &folder.path("conf"), &folder.path("temp")] {
            fs::create_dir_all(part).expect("a folder of ours");
        }
        folder.write("conf/server.xml", server_xml());
        folder.write("conf/tomcat-users.xml", users_xml());
        folder.write("webapps/ROOT/WEB-INF/web.xml", WEB_XML);
        folder.write("Peer.java", SERVLET);
        compile(&folder.path("Peer.java"), &classes);
        let base = folder.root().display();
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "java"])
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"])
            .arg(format!("-Dcatalina.home={TOMCAT}"))
            .arg(format!("-Dcatalina.base={base}"))
            .arg(format!("-Djava.io.tmpdir={base}/temp"))
            .arg("-cp")
            .arg(format!("{TOMCAT}/bin/bootstrap.jar:{TOMCAT}/bin/tomcat-juli.jar"))
            .args(["org.apache.catalina.startup.Bootstrap", "start"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("setpriv (util-linux) and java (default-jre-headless)");
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut tomcat = Self { process, folder, port: 0, log: Arc::default() };
        let (read, log) = read_until(log, "Server startup in", "Tomcat");
        // Starting ProtocolHandler ["ajp-nio-127.0.0.1-auto-1-40001"]
        let name = read.split_once("Starting ProtocolHandler [\"ajp-").expect("it says its port").1;
        let name = name.split_once("\"]").expect("a name").0;
        tomcat.port = name.rsplit('-').next().and_then(|port| port.parse().ok()).expect("a port");
        tomcat.log = log;
        tomcat
    }

    /// The address of its AJP connector.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns its log since the start.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops it by SIGSTOP: connections stay open, and nothing answers until [`Tomcat::resume`].
    pub fn stop(&self) {
        signal(&self.process, Signal::STOP);
        until_stopped(self.process.id());
    }

    /// Resumes it.
    pub fn resume(&self) {
        signal(&self.process, Signal::CONT);
    }

    /// Kills it by SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Returns config lines of a site that forwards everything to it.
    pub fn lines(&self, of_pool: &str, secret: &str) -> String {
        ajp_lines(of_pool, &secret_file(&self.folder, secret), &self.address().to_string())
    }
}

impl Drop for Tomcat {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until all threads of a process have stopped: a stop signal takes effect with a delay.
#[track_caller]
fn until_stopped(id: u32) {
    crate::poll_until(crate::PATIENCE, "all threads have stopped", || {
        let tasks = fs::read_dir(format!("/proc/{id}/task")).expect("it runs");
        // 4711 (php-fpm8.2) T ...
        let is_stopped =
            |stat: String| stat.rsplit(')').next().is_some_and(|it| it.starts_with(" T"));
        tasks
            .flatten()
            .all(|task| fs::read_to_string(task.path().join("stat")).is_ok_and(is_stopped))
    });
}

fn signal(process: &Child, signal: Signal) {
    let id = Pid::from_child(process);
    rustix::process::kill_process(id, signal).expect("it runs");
}

/// Returns config lines of a site that forwards everything to the AJP server at `address`.
pub fn ajp_lines(of_pool: &str, secret_file: &Path, address: &str) -> String {
    format!(
        "pool = \"java\"\n[[pool]]\nname = \"java\"\nprotocol = \"ajp\"\n{of_pool}\n\
         [pool.ajp]\nsecret_file = \"{}\"\n\
         [[pool.server]]\nname = \"s1\"\naddress = \"{address}\"\n",
        secret_file.display()
    )
}

/// Writes a file with a secret into `folder`, readable by the serving user.
pub fn secret_file(folder: &Site, secret: &str) -> PathBuf {
    secret_file_called(folder, "secret", secret)
}

/// Like [`secret_file`], with a given name.
pub fn secret_file_called(folder: &Site, name: &str, secret: &str) -> PathBuf {
    folder.write(name, format!("{secret}\n"));
    let path = folder.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(crate::server()), None).expect("root gives it away");
    }
    path
}

/// Reads a log until it contains `word`; returns the text so far, and a buffer that receives the rest.
fn read_until(
    mut log: impl BufRead + Send + 'static,
    word: &str,
    who: &str,
) -> (String, Arc<Mutex<String>>) {
    let mut read = String::new();
    while !read.contains(word) {
        assert!(log.read_line(&mut read).expect("text") > 0, "{who} has ended:\n{read}");
    }
    let grown = Arc::<Mutex<String>>::default();
    let growing = Arc::clone(&grown);
    // Keep reading, so that the writer never blocks.
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = log.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..n]);
            growing.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
    (read, grown)
}

fn compile(source: &Path, classes: &Path) {
    let compiled = Command::new("java")
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", COMPILER])
        .args(["org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn", "-proc:none"])
        .args(["-cp", &format!("{TOMCAT}/lib/servlet-api.jar"), "-d"])
        .args([classes, source])
        .output()
        .expect("java (default-jre-headless)");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

fn server_xml() -> String {
    format!(
        r#"<Server port="-1"><Service name="Catalina">
        <Connector protocol="AJP/1.3" address="127.0.0.1" port="0" secret="{SECRET}" />
        <Engine name="Catalina" defaultHost="localhost">
        <Realm className="org.apache.catalina.realm.MemoryRealm" />
        <Host name="localhost" appBase="webapps" autoDeploy="false">
        <Context path="/manager" docBase="{MANAGER}" privileged="true" />
        </Host>
        </Engine></Service></Server>"#
    )
}

fn users_xml() -> String {
    let user = |user: &str, roles: &str| {
        let (name, password) = user.split_once(':').expect("NAME:PASSWORD");
        format!(r#"<user username="{name}" password="{password}" roles="{roles}" />"#)
    };
    let users = [user(STATUS_USER, "manager-status"), user(JMX_USER, "manager-jmx")];
    format!("<tomcat-users>{}</tomcat-users>", users.concat())
}

const WEB_XML: &str = r#"<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="6.0"
  metadata-complete="true">
  <absolute-ordering />
  <servlet><servlet-name>peer</servlet-name><servlet-class>Peer</servlet-class></servlet>
  <servlet-mapping><servlet-name>peer</servlet-name><url-pattern>/</url-pattern></servlet-mapping>
</web-app>"#;
