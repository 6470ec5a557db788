//! Tomcat as packaged by Debian: the application's folder, and one instance on each node.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use skep_testbed::Machine;

use super::limits::{AJP_PORT, HEAP_MIB, NODE_THREADS};
use crate::experiments::Failure;
use crate::experiments::stage::Process;

/// Installed by Debian's packages tomcat10-common and libeclipse-jdt-core-java.
const HOME: &str = "/usr/share/tomcat10";
const COMPILER: &str = "/usr/share/java/eclipse-jdt-core.jar";

const SERVLET: &str = include_str!("../../../peers/Portal.java");
const SERVER: &str = include_str!("../../../peers/tomcat-portal.xml");
const APPLICATION: &str = include_str!("../../../peers/web-portal.xml");

/// The secret shared by connectors and Skep: anyone who reaches an AJP port could otherwise forge the
/// client's identity.
pub(super) const SECRET: &str = "portal of the test bed";

/// Compiles the application, and writes it into a folder.
pub(super) fn write_application(folder: &Path) -> Result<(), Failure> {
    if !Path::new(HOME).exists() || !Path::new(COMPILER).exists() {
        return Err(format!("no Tomcat 10 in {HOME}: apt install tomcat10-user").into());
    }
    let classes = folder.join("WEB-INF/classes");
    fs::create_dir_all(&classes)?;
    fs::write(folder.join("WEB-INF/web.xml"), APPLICATION)?;
    let source = folder.join("WEB-INF/Portal.java");
    fs::write(&source, SERVLET)?;
    let compiled = Command::new("java")
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", COMPILER])
        .args(["org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn", "-proc:none"])
        .args(["-cp", &format!("{HOME}/lib/servlet-api.jar"), "-d"])
        .args([&classes, &source])
        .output()
        .map_err(|error| format!("cannot run java (default-jre-headless): {error}"))?;
    match compiled.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into()),
    }
}

/// Starts an instance on a machine that serves only `application`; its output is in `output.log` of its
/// folder.
pub(super) fn start(
    machine: &Machine,
    folder: &Path,
    application: &Path,
) -> Result<Process, Failure> {
    for part in ["conf", "temp", "webapps"] {
        fs::create_dir_all(folder.join(part))?;
    }
    fs::write(folder.join("conf/server.xml"), server(machine.name(), machine.ipv4(), application))?;
    let mut command = machine.command("java");
    command
        .args([format!("-Xmx{HEAP_MIB}m"), format!("-Xms{HEAP_MIB}m")])
        // A node has at most a share of one core.
        .args(["-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1"])
        .arg(format!("-Dcatalina.home={HOME}"))
        .arg(format!("-Dcatalina.base={}", folder.display()))
        .arg(format!("-Djava.io.tmpdir={}", folder.join("temp").display()))
        .args(["-cp", &format!("{HOME}/bin/bootstrap.jar:{HOME}/bin/tomcat-juli.jar")])
        .args(["org.apache.catalina.startup.Bootstrap", "start"]);
    Process::start(command, fs::File::create(log(folder))?)
}

/// Whether an instance has logged that it serves.
pub(super) fn serves(folder: &Path) -> bool {
    fs::read_to_string(log(folder)).is_ok_and(|said| said.contains("Server startup in"))
}

/// Versions of the software on the nodes, as reported by Tomcat itself.
pub(super) fn versions() -> Vec<(String, String)> {
    let catalina = format!("{HOME}/lib/catalina.jar");
    let arguments = ["-cp", &catalina, "org.apache.catalina.util.ServerInfo"];
    let said = Command::new("java").args(arguments).output();
    let said = said.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let version = |(name, begin): (&str, &str)| {
        let version = said.lines().find_map(|line| line.strip_prefix(begin)).unwrap_or("not here");
        (name.to_owned(), version.trim().to_owned())
    };
    [("Tomcat", "Server number:"), ("OpenJDK", "JVM Version:")].map(version).into()
}

fn log(folder: &Path) -> PathBuf {
    folder.join("output.log")
}

fn server(name: &str, address: Ipv4Addr, application: &Path) -> String {
    SERVER
        .replace("@NAME@", name)
        .replace("@ADDRESS@", &address.to_string())
        .replace("@PORT@", &AJP_PORT.to_string())
        .replace("@SECRET@", SECRET)
        .replace("@THREADS@", &NODE_THREADS.to_string())
        .replace("@APPLICATION@", &application.display().to_string())
}
