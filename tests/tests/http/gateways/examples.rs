//! Each site of `examples/` starts with one command, and answers.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use skep_tests::{FreePort, PATIENCE, RawClient, Response, Skep, poll_until};

/// A running `start.sh`, with all its children.
struct Example {
    process: Child,
    address: SocketAddr,
    _ports: [FreePort; 3],
}

impl Example {
    fn start(name: &str) -> Self {
        let ports = [(); 3].map(|()| FreePort::claim());
        let [address, of_server, of_second] = ports.each_ref().map(FreePort::address);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        let process = Command::new(script.join("start.sh"))
            // An operator's path instead of the tests': it contains Debian's essential packages.
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("SKEP", Skep::binary())
            .env("ADDRESS", address.to_string())
            .env("AJP_PORT", of_server.port().to_string())
            .env("AJP_PORT_TWO", of_second.port().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a script");
        let mut example = Self { process, address, _ports: ports };
        poll_until(PATIENCE, name, || {
            let ended = example.process.try_wait().expect("a child");
            assert!(ended.is_none(), "{name}/start.sh: {ended:?}");
            example.get("/").is_some_and(|reply| reply.status == 200)
        });
        example
    }

    fn get(&self, path: &str) -> Option<Response> {
        let mut client = RawClient::try_connect(self.address).ok()?;
        client.ask(path).try_response().ok()
    }
}

impl Drop for Example {
    /// As Ctrl-C does.
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Asserts that a page marked as storable is stored, except for clients with a session.
fn assert_stored(example: &Example, page: &str, session: &str) {
    let first = example.get(page).unwrap();
    let told = first.cache_status();
    assert!(told.starts_with("skep; fwd=uri-miss; ttl=") && told.ends_with("; stored"), "{told}");
    let second = example.get(page).unwrap();
    assert_eq!((second.status, second.text()), (200, first.text()));
    assert!(second.cache_status().starts_with("skep; hit; ttl="), "{}", second.head_text());
    assert_eq!(second.header("surrogate-key"), None);
    let own = RawClient::connect(example.address).request("GET", page, &[("Cookie", session)]);
    assert_eq!(own.cache_status(), "skep; fwd=bypass; detail=bypass-cookie");
}

fn post(example: &Example) -> String {
    let mut client = RawClient::connect(example.address);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    client.send(format!("{head}Content-Length: 10\r\n\r\nword=gr%3C")).response().text()
}

/// Returns the text of `<dd>` after the term `word` in the page.
fn said(page: &str, word: &str) -> String {
    let from = page.find(&format!("<dt>{word}</dt><dd>")).unwrap_or_else(|| panic!("{page}"));
    let rest = &page[from..];
    rest[rest.find("<dd>").unwrap() + 4..rest.find("</dd>").unwrap()].to_owned()
}

/// Visitors who return their cookies reach the server that has their session.
fn visit(example: &Example) {
    let mut servers = BTreeSet::new();
    // One of the two may not be up yet.
    poll_until(PATIENCE, "visitors are divided", || {
        let first = example.get("/").unwrap();
        let lines =
            first.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let pairs: Vec<_> = lines.filter_map(|(_, value)| value.split(';').next()).collect();
        let cookies = pairs.join("; ");
        let server = said(&first.text(), "Server");
        for visits in 2..5 {
            let mut client = RawClient::connect(example.address);
            let page = client.request("GET", "/", &[("Cookie", &cookies)]).text();
            assert_eq!(said(&page, "Server"), server);
            assert_eq!(said(&page, "Visits in this session"), visits.to_string());
        }
        servers.insert(server);
        servers.len() == 2
    });
}

/// Asserts that a storable page is computed once.
fn see_stored(example: &Example, path: &str) {
    let [first, second] = [(); 2].map(|()| example.get(path).unwrap());
    assert_eq!(first.text(), second.text());
    let status = second.header("cache-status").unwrap_or_default();
    assert!(status.contains("; hit"), "{status}");
}

#[test]
fn the_php_example_starts_by_one_command() {
    let example = Example::start("php");
    let page = example.get("/").unwrap().text();
    assert!(page.contains("behind Skep") && page.contains("<dd>127.0.0.1</dd>"), "{page}");
    assert!(post(&example).contains("You sent: gr&lt;"), "{}", post(&example));
    visit(&example);
    see_stored(&example, "/clock.php");
    example.get("/style.css").unwrap().assert_header("content-type", "text/css; charset=utf-8");
    example.get("/app/index.php").unwrap().assert_status(404);
    assert_stored(&example, "/news.php", "PHPSESSID=1");
}

#[test]
fn the_servlet_example_starts_by_one_command() {
    let example = Example::start("servlet");
    let page = example.get("/").unwrap().text();
    assert!(page.contains("behind Skep") && page.contains("<dd>127.0.0.1</dd>"), "{page}");
    assert!(post(&example).contains("You sent: gr&lt;"), "{}", post(&example));
    visit(&example);
    see_stored(&example, "/clock.jsp");
    example.get("/style.css").unwrap().assert_status(200);
    example.get("/WEB-INF/web.xml").unwrap().assert_status(404);
    assert_stored(&example, "/news.jsp", "JSESSIONID=1");
}
