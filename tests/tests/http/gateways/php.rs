//! A node in front of php-fpm.

use std::os::unix::fs::PermissionsExt as _;

use skep_tests::gateways::{PhpFpm, PhpOptions};
use skep_tests::{FreePort, PATIENCE, RawClient, Site, Skep, poll_until, skip};

use super::{
    assert_is_cached, assert_sends_named_files, body_of, cached, crc32, in_chunks, pool_list,
    until_logged,
};

fn php() -> PhpFpm {
    PhpFpm::start(PhpOptions::default())
}

#[test]
fn a_script_is_told_what_it_needs_and_nothing_that_clients_forge() {
    let php = php();
    let lines = php.lines("", "params = { APP_ENV = \"prod\" }");
    let skep = Skep::node_of(&format!("hosts = [\"shop.example\"]\n{lines}"));
    let mut client = skep.connect();
    let head = "GET /peer.php/info/%C3%A9?do=told&b=%20 HTTP/1.1\r\nHost: shop.example:8080\r\n\
                Cookie: a=1\r\nAuthorization: Basic YTpi\r\nProxy: http://evil/\r\n\
                X_Forwarded_For: 6.6.6.6\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
                Redirect-Status: 500\r\nConnection: X-Drop\r\nX-Drop: 1\r\n\r\n";
    let reply = client.send(head).response();
    let told = reply.assert_status(200).text();
    for line in [
        "REQUEST_METHOD=GET",
        "REQUEST_URI=/peer.php/info/%C3%A9?do=told&b=%20",
        "QUERY_STRING=do=told&b=%20",
        "SCRIPT_NAME=/peer.php",
        "PATH_INFO=/info/\u{e9}",
        "SERVER_NAME=shop.example",
        "SERVER_PORT=8080",
        "SERVER_ADDR=127.0.0.1",
        "SERVER_PROTOCOL=HTTP/1.1",
        "REMOTE_ADDR=127.0.0.1",
        "REQUEST_SCHEME=http",
        "REDIRECT_STATUS=200",
        "HTTP_HOST=shop.example:8080",
        "HTTP_COOKIE=a=1",
        "HTTP_AUTHORIZATION=Basic YTpi",
        "HTTP_X_FORWARDED_FOR=127.0.0.1",
        "HTTP_X_FORWARDED_PROTO=http",
        "HTTP_VIA=1.1 skep",
        "APP_ENV=prod",
    ] {
        assert!(told.lines().any(|it| it == line), "{line} is missing in\n{told}");
    }
    for never in ["HTTP_PROXY", "HTTPS", "6.6.6.6", "HTTP_REDIRECT", "HTTP_X_DROP"] {
        assert!(!told.contains(never), "{never} in\n{told}");
    }
    reply.assert_header("cache-status", "skep; fwd=bypass");
}

#[test]
fn an_operator_may_test_it() {
    let php = php();
    let skep = Skep::node_of(&php.lines("", ""));
    let asked = |arguments: &[&str]| skep.command(&[&["pool", "test", "php"], arguments].concat());
    let shown = asked(&["s1", "--path", "/peer.php?do=told", "--host", "shop.example"]).stdout;
    assert!(shown.contains("status 200") && shown.contains("SCRIPT_NAME=/peer.php"), "{shown}");
    assert!(!shown.to_lowercase().contains("transfer-encoding"), "php-fpm did not say so: {shown}");
    assert!(asked(&["s1", "--path", "/none.php"]).stdout.contains("status 404"));
    // The paths of checks are no scripts. Without a path they request something else.
    let checks = asked(&["s1", "--health"]);
    assert_eq!((checks.code, checks.stdout.lines().last()), (Some(0), Some("check: good")));
    let (ping, pong) = ("health.path = \"/ping\"", "health.path = \"/pong\"");
    let skep = Skep::node_of(&php.lines(ping, ""));
    let asked = |arguments: &[&str]| skep.command(&[&["pool", "test", "php"], arguments].concat());
    let checks = asked(&["s1", "--health"]).stdout;
    assert!(checks.contains(": GET /ping\n") && checks.contains("status 200, 4 bytes"), "{checks}");
    assert!(checks.ends_with("\n\npong\ncheck: good\n"), "{checks}");
    let unsent = asked(&["s1", "--path", "/ping"]);
    let why = "nothing was sent: expected a path with a script, which ends in .php, or that ends with a \
               slash, for index.php, found /ping (checks do otherwise: --health)";
    assert!(unsent.code == Some(1) && unsent.stderr.contains(why), "{}", unsent.stderr);
    assert!(!unsent.stdout.contains("connected"), "{}", unsent.stdout);
    for path in ["--path", "--host"] {
        assert_eq!(asked(&["s1", "--health", path, "/x"]).code, Some(2));
    }
    let skep = Skep::node_of(&php.lines(pong, ""));
    let failed = skep.command(&["pool", "test", "php", "s1", "--health"]);
    assert!(
        failed.code == Some(1) && failed.stderr.contains("the check fails: "),
        "{}",
        failed.stderr
    );
    assert!(failed.stdout.contains("status 404"), "{}", failed.stdout);
}

#[test]
fn scripts_are_found_by_the_rule_of_the_pool() {
    let php = php();
    let asked = |of_fastcgi: &str, path: &str| {
        let skep = Skep::node_of(&php.lines("", of_fastcgi));
        let reply = skep.connect().get(path);
        let told = reply.text();
        let value = |name: &str| {
            let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
            told.lines().find_map(of)
        };
        (reply.status, value("SCRIPT_NAME"), value("PATH_INFO"))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(asked("", "/peer.php/a/b"), (200, some("/peer.php"), some("/a/b")));
    assert_eq!(asked("", "/"), (200, some("/index.php"), None));
    assert_eq!(asked("", "/style.css").0, 404);
    // The 404 comes from the node, not from PHP: no request was sent.
    let unsent = Skep::node_of(&php.lines("", "")).connect().get("/style.css");
    unsent.assert_header("cache-status", "skep; fwd=bypass; detail=no-script");
    let unsent = Skep::node_of(&super::cached(&php.lines("", ""))).connect().get("/style.css");
    assert!(unsent.cache_status().ends_with("; detail=no-script"), "{}", unsent.cache_status());
    assert_eq!(asked("", "/gone.php").0, 404);
    // A line break in PATH_INFO once caused a write before the buffer (CVE-2019-11043).
    assert_eq!(asked("", "/peer.php/a%0Ab").0, 400);
    let always = "script = \"always\"";
    assert_eq!(asked(always, "/blog/1?x"), (200, some("/index.php"), None));
}

/// One folder for files and scripts, with a front controller, as in most PHP applications.
#[test]
fn scripts_below_the_root_run_and_are_never_sent() {
    let php = php();
    let source = std::fs::read(php.root().join("peer.php")).unwrap();
    for (name, bytes) in [
        ("admin/index.php", &source[..]),
        ("secret.PHP", b"<?php $password;"),
        ("style.css", b"body {}"),
        ("peer.php.txt", b"text"),
    ] {
        let file = php.root().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
    let of_fastcgi = "script = \"front-controller\"";
    let lines = php.lines("", of_fastcgi);
    let site = format!("root = \"{}\"\nindex = [\"index.php\"]\n", php.root().display());
    let skep = Skep::node_of(&format!("{site}{lines}"));
    let mut client = skep.connect();
    for (path, script) in [
        ("/", "/index.php"),
        ("/index.php", "/index.php"),
        ("/2026/a-post", "/index.php"),
        ("/2026/", "/index.php"),
        ("/admin/", "/admin/index.php"),
        ("/peer.php/info", "/peer.php"),
        ("/gone", "/index.php"),
    ] {
        // Also if it was requested before.
        for _ in 0..2 {
            let reply = client.get(path);
            let expected = format!("SCRIPT_NAME={script}");
            assert!(reply.text().lines().any(|it| it == expected), "{path}: {}", reply.text());
        }
    }
    for (path, text) in [("/style.css", "body {}"), ("/peer.php.txt", "text")] {
        assert_eq!(client.get(path).text(), text);
    }
    let odd = client.get("/secret.PHP");
    assert!(!odd.text().contains("password"), "{}", odd.text());
}

#[test]
fn bodies_arrive_whole_and_of_unknown_length_up_to_a_bound() {
    let php = php();
    let skep = Skep::node_of(&php.lines("", "collect_bytes_max = \"100KiB\""));
    let mut client = skep.connect();
    for bytes in [0, 1, 65_528, 65_529, 3_000_000] {
        let body = body_of(bytes);
        let length = format!("Content-Length: {bytes}\r\n\r\n");
        let head = format!("PUT /peer.php?do=body HTTP/1.1\r\nHost: a\r\n{length}");
        let reply = client.send([head.as_bytes(), &body].concat()).response();
        assert_eq!(reply.text(), format!("{bytes} {}", crc32(&body)));
    }
    let head = "PUT /peer.php?do=body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for bytes in [0, 1, 100 * 1024] {
        let body = body_of(bytes);
        let sent = [head.as_bytes(), &in_chunks(&body, 7_000)].concat();
        let reply = client.send(sent).response();
        assert_eq!(reply.text(), format!("{bytes} {}", crc32(&body)));
    }
    let sent = [head.as_bytes(), &in_chunks(&body_of(100 * 1024 + 1), 7_000)].concat();
    client.send(sent).response().assert_status(411);
    skep.connect().get("/peer.php?do=early").assert_status(200);
}

/// With a spool of a few bytes, and with one that many bodies fill.
#[test]
fn bodies_in_chunks_go_by_the_spool_which_has_bounds() {
    let php = php();
    let folder = Site::new();
    let spool = |more: &str| {
        let folder = folder.path("spool");
        let settings = php.lines("", "");
        Skep::node_of(&format!("{settings}\n[spool]\nfolder = \"{}\"\n{more}", folder.display()))
    };
    let head = "PUT /peer.php?do=body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = body_of(1_500_000);
    let put = |skep: &Skep| {
        skep.connect().send([head.as_bytes(), &in_chunks(&body, 7_000)].concat()).response()
    };
    let ample = spool("");
    assert_eq!(put(&ample).text(), format!("{} {}", body.len(), crc32(&body)));
    put(&spool("body_bytes_max = \"1MiB\"")).assert_status(411);
    let of_all = put(&spool("files_bytes_max = \"1MiB\""));
    of_all.assert_status(503).assert_header("retry-after", "1");
}

#[test]
fn replies_arrive_whole_with_their_status() {
    let php = php();
    let skep = Skep::node_of(&php.lines("", ""));
    let mut client = skep.connect();
    let large = client.get("/peer.php?do=big&bytes=20000000");
    assert_eq!(large.body.len(), 20_000_000);
    large.assert_header("transfer-encoding", "chunked");
    let known = client.get("/peer.php?do=big&bytes=1000&length=1");
    known.assert_header("content-length", "1000");
    client.send("HEAD /peer.php?do=big&bytes=1000&length=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.try_response_to("HEAD").unwrap();
    head.assert_status(200).assert_header("content-length", "1000");
    let found = client.get("/peer.php?do=location");
    found.assert_status(302).assert_header("location", "/elsewhere");
    for code in [204, 304, 404, 418, 503] {
        let reply = client.get(&format!("/peer.php?do=status&code={code}"));
        reply.assert_status(code);
        assert_eq!(reply.header_all("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    }
    // Scripts that declare a wrong length: nothing of that is forwarded as complete.
    for lie in ["short", "long"] {
        client.get(&format!("/peer.php?do={lie}")).assert_status(502);
    }
    until_logged(&skep, "FastCGI: expected 5 more bytes of the body");
}

#[test]
fn what_a_script_complains_is_logged_with_pool_and_server() {
    let php = php();
    let skep = Skep::node_of(&php.lines("", ""));
    let mut client = skep.connect();
    assert_eq!(client.get("/peer.php?do=complain").text(), "fine");
    for line in ["first line", "second line", "after the head"] {
        until_logged(&skep, line);
    }
    assert!(skep.stderr_text().contains("pool php: server s1: stderr: PHP message: first line"));
    client.get("/peer.php?do=fatal").assert_status(500);
    until_logged(&skep, "no_such_function()");
}

/// A client whose body is not read may continue sending; the reply is sent earlier.
#[test]
fn an_answer_may_come_before_the_body_has_ended() {
    let php = php();
    let skep = Skep::node_of(&php.lines("request_buffering = false", ""));
    let mut client = skep.connect();
    client.send("PUT /peer.php?do=flush HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
    client.send(body_of(100_000));
    client.try_head().unwrap().assert_status(200);
    // PHP discards the rest, and then ends.
    let mut rest = client.send(body_of(100_000)).try_read_some().unwrap();
    while !rest.ends_with(b"0\r\n\r\n") {
        rest.extend(client.try_read_some().unwrap());
    }
    assert_eq!(rest, b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
}

#[test]
fn connections_are_kept_only_if_the_pool_says_so() {
    for (is_tcp, keep_conn) in [(true, false), (true, true), (false, true)] {
        let php = PhpFpm::start(PhpOptions { is_tcp, ..PhpOptions::default() });
        let folder = Site::new();
        let metrics = skep_tests::FreePort::claim();
        let more = format!("[metrics]\nlisten = \"{}\"\n", metrics.address());
        let lines = php.lines("idle_ms = \"60s\"", &format!("keep_conn = {keep_conn}"));
        let skep = Skep::node_of(&(lines + &more));
        let mut client = skep.connect();
        for _ in 0..5 {
            client.get("/peer.php?do=told").assert_status(200);
        }
        let page = skep_tests::RawClient::connect(metrics.address()).get("/metrics").text();
        let reused = page.lines().find_map(|it| it.strip_prefix("skep_upstream_reused_total "));
        let expected = if keep_conn { "4" } else { "0" };
        assert_eq!(reused, Some(expected), "tcp {is_tcp}, keep_conn {keep_conn}");
        drop(folder);
    }
}

#[test]
fn a_worker_that_is_killed_cuts_its_reply_and_no_other() {
    let php = php();
    let skep = Skep::node_of(&php.lines("", ""));
    let mut client = skep.connect();
    client.ask("/peer.php?do=hang");
    let head = client.try_head().unwrap();
    let pid = head.header("x-pid").expect("its id").to_owned();
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let (body, end) = client.read_to_end();
    assert!(body.len() < 1000, "a part: {}", body.len());
    drop(end);
    until_logged(&skep, "the connection ended inside the response: GET /peer.php");
    skep.connect().get("/peer.php?do=early").assert_status(200);
    assert!(pool_list(&skep).contains(" up"), "{}", pool_list(&skep));
}

/// If a client disconnects, its connection to the server is closed.
#[test]
fn a_client_that_breaks_off_its_body_does_not_end_it() {
    let php = PhpFpm::start(PhpOptions { workers: 1, ..PhpOptions::default() });
    let skep = Skep::node_of(&php.lines("", ""));
    skep.connect().get("/peer.php?do=early").assert_status(200);
    let mut client = skep.connect();
    client.send("POST /peer.php?do=body HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc");
    drop(client);
    // The only worker is free again: it no longer waits for the rest.
    skep.connect().get("/peer.php?do=early").assert_status(200);
}

/// As reported by php-fpm itself: slow clients occupy none of its five workers.
#[test]
fn slow_clients_leave_five_workers_to_others() {
    const BODY: usize = 1_200_000;
    let php = PhpFpm::start(PhpOptions { workers: 5, ..PhpOptions::default() });
    let folder = Site::new();
    let lines = php.lines("queue_timeout_ms = \"1m\"", "");
    let lines = lines.trim_end().to_owned() + "\nconnections_max = 5\n";
    let metrics = FreePort::claim();
    let spool = format!(
        "[spool]\nfolder = \"{}\"\n[metrics]\nlisten = \"{}\"\n[timeouts]\n\
         write_stall_ms = \"1h\"\nsend_min_bytes_per_s = 0\nbody_min_bytes_per_s = 0\n",
        folder.path("spool").display(),
        metrics.address()
    );
    let skep = Skep::node_of(&(lines + &spool));
    let mut other = skep.connect();
    let mut ask = || {
        other.get("/peer.php?do=early").assert_status(200);
    };
    ask();
    let body = body_of(BODY);
    let length = format!("Content-Length: {BODY}\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n".to_owned();
    let sent = [(length, body.clone()), (chunked, in_chunks(&body, 7_000))];
    let mut uploaders: Vec<_> = (0..100)
        .map(|number| {
            let (framing, sent) = &sent[number % 2];
            let mut client = skep.connect();
            client.send(format!("PUT /peer.php?do=body HTTP/1.1\r\nHost: a\r\n{framing}"));
            client.send(&sent[..sent.len() - 4]);
            client
        })
        .collect();
    let mut readers: Vec<_> = (0..100)
        .map(|_| {
            let mut client = skep.connect();
            client.ask(&format!("/peer.php?do=big&bytes={BODY}"));
            client
        })
        .collect();
    (0..100).for_each(|_| ask());
    poll_until(PATIENCE, "all workers are free", || {
        let page = RawClient::connect(metrics.address()).get("/metrics").text();
        let sample = "skep_pool_server_outstanding_requests{pool=\"php\",server=\"s1\"} 0";
        page.lines().any(|it| it == sample)
    });
    let expected = format!("{BODY} {}", crc32(&body));
    for (number, client) in uploaders.iter_mut().enumerate() {
        let sent = &sent[number % 2].1;
        let reply = client.send(&sent[sent.len() - 4..]).response();
        assert_eq!(reply.text(), expected);
    }
    for client in &mut readers {
        assert_eq!(client.response().assert_status(200).body.len(), BODY);
    }
}

#[test]
fn busy_workers_are_no_sign_of_a_server_that_is_down() {
    let php = PhpFpm::start(PhpOptions { workers: 1, ..PhpOptions::default() });
    let pool = "health.interval_ms = 50\nhealth.timeout_ms = 50\nhealth.fall = 1";
    let skep = Skep::node_of(&php.lines(pool, ""));
    skep.connect().get("/peer.php?do=early").assert_status(200);
    let mut client = skep.connect();
    client.ask("/peer.php?do=wait&name=a");
    let seen = php.root().join("seen-a");
    poll_until(PATIENCE, "the script runs", || seen.exists());
    // A request that waits for it is answered in its turn.
    let mut other = skep.connect();
    other.ask("/peer.php?do=early");
    let is_down = || pool_list(&skep).contains("down");
    assert!(!skep_tests::holds_within(std::time::Duration::from_millis(500), is_down));
    std::fs::write(php.root().join("go"), "").unwrap();
    assert_eq!(client.response().text(), "waited");
    assert_eq!(other.response().text(), "early");
}

#[test]
fn a_socket_that_may_not_be_connected_to_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("the test is not root's");
    }
    let php = PhpFpm::start(PhpOptions { mode: 0o600, ..PhpOptions::default() });
    let skep = Skep::node_of(&php.lines("health.interval_ms = 50\nhealth.timeout_ms = 50", ""));
    poll_until(PATIENCE, "it is down", || pool_list(&skep).contains("permission denied"));
    skep.connect().get("/peer.php").assert_status(503);
    until_logged(&skep, "permission denied");
    // php-fpm's own group, as on Debian: the node is configured to join it.
    let socket = php.folder().join("fpm.sock");
    std::os::unix::fs::chown(&socket, None, Some(id_of_group("www-data"))).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o660)).unwrap();
    let lines = php.lines("", "") + "[machine]\ngroups = [\"www-data\"]\n";
    let skep = Skep::node_of(&lines);
    skep.connect().get("/peer.php?do=early").assert_status(200);
}

#[test]
fn a_socket_that_is_not_there_is_named_and_the_pool_recovers() {
    let lines = "pool = \"php\"\n[[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n\
                 health.interval_ms = 50\nhealth.timeout_ms = 50\n\
                 [pool.fastcgi]\nroot = \"/srv\"\n\
                 [[pool.server]]\nname = \"s1\"\naddress = \"unix:/nowhere/fpm.sock\"\n";
    let skep = Skep::node_of(lines);
    poll_until(PATIENCE, "it is down", || pool_list(&skep).contains("no such socket"));
    skep.connect().get("/a.php").assert_status(503);
    let php = php();
    skep.reconfigure_of(&php.lines("", ""));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    poll_until(PATIENCE, "it is up", || skep.connect().get("/peer.php?do=early").status == 200);
}

#[test]
fn a_pool_without_servers_answers_503() {
    let lines = "pool = \"php\"\n[[pool]]\nname = \"php\"\nprotocol = \"fastcgi\"\n\
                 [pool.fastcgi]\nroot = \"/srv\"\n";
    let skep = Skep::node_of(lines);
    let reply = skep.connect().get("/a.php");
    reply.assert_status(503).assert_header("cache-status", "skep; fwd=bypass");
}

#[test]
fn checks_may_ask_for_the_ping_path() {
    let php = php();
    let health = "health.interval_ms = 50\nhealth.timeout_ms = 50\nhealth.path = ";
    let skep = Skep::node_of(&php.lines(&format!("{health}\"/ping\""), ""));
    poll_until(PATIENCE, "it is up", || pool_list(&skep).contains(" up"));
    let skep = Skep::node_of(&php.lines(&format!("{health}\"/pong\""), ""));
    poll_until(PATIENCE, "it is down", || pool_list(&skep).contains("status 404"));
}

#[test]
fn a_reload_changes_the_protocol() {
    let php = PhpFpm::start(PhpOptions { is_tcp: true, ..PhpOptions::default() });
    let http = format!(
        "pool = \"php\"\n[[pool]]\nname = \"php\"\n[[pool.server]]\nname = \"s1\"\n\
         address = \"{}\"\n",
        php.address
    );
    let skep = Skep::node_of(&http);
    skep.connect().get("/peer.php?do=early").assert_status(502);
    skep.reconfigure_of(&php.lines("", ""));
    assert_eq!(skep.command(&["reload"]).code, Some(0));
    poll_until(PATIENCE, "it is asked in its words", || {
        skep.connect().get("/peer.php?do=early").text() == "early"
    });
}

fn id_of_group(name: &str) -> u32 {
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let id =
        |line: &str| line.strip_prefix(name)?.strip_prefix(":x:")?.split(':').next()?.parse().ok();
    groups.lines().find_map(id).expect("Debian has it")
}

#[test]
fn pages_are_stored_as_the_script_saw_them() {
    let php = php();
    let skep = Skep::node_of(&cached(&php.lines("", "")));
    assert_is_cached(&skep, "/peer.php", "QUERY_STRING=a=1&do=told");
    let mut client = skep.connect();
    // Without a length, and truncated.
    let big = client.get("/peer.php?do=big&bytes=300000");
    assert!(big.cache_status().ends_with("; stored"), "{}", big.head_text());
    assert_eq!((big.body.len(), big.header("content-length")), (300_000, None));
    let hit = client.get("/peer.php?do=big&bytes=300000");
    assert!(hit.cache_status().starts_with("skep; hit") && hit.body == big.body);
    for _ in 0..2 {
        client.get("/peer.php?do=short").assert_status(502);
        client = skep.connect();
    }
    let of_known_length = client.get("/peer.php?do=big&bytes=300000&length=1");
    assert!(of_known_length.cache_status().ends_with("; stored"));
    let hit = client.get("/peer.php?do=big&bytes=300000&length=1");
    assert!(hit.cache_status().starts_with("skep; hit") && hit.body == big.body);
}

#[test]
fn a_script_names_a_file_for_the_node_to_send() {
    let php = php();
    assert_sends_named_files(&php.lines("", ""), "/peer.php?do=file&");
}

#[test]
fn what_is_dropped_is_counted() {
    let php = php();
    let metrics = FreePort::claim();
    let more = format!("[metrics]\nlisten = \"{}\"\n", metrics.address());
    let skep = Skep::node_of(&(php.lines("", "") + &more));
    let counted = |name: &str| -> u64 {
        let page = RawClient::connect(metrics.address()).get("/metrics").text();
        let line = format!("skep_pool_server_{name}_dropped_total{{pool=\"php\",server=\"s1\"}} ");
        page.lines().find_map(|it| it.strip_prefix(&line)).expect(&line).parse().unwrap()
    };
    let all = || ["fields", "stderr_lines", "stderr_bytes"].map(counted);
    let mut client = skep.connect();
    client.request("GET", "/peer.php?do=complain", &[("X-Own", "1")]).assert_status(200);
    assert_eq!(all(), [0, 0, 0]);
    let forged = [("X.Own", "1"), ("Redirect-Status", "500"), ("X-Own", "1")];
    client.request("GET", "/peer.php?do=early", &forged).assert_status(200);
    assert_eq!(all(), [2, 0, 0]);
    // At most 20 lines per second; two seconds may pass.
    client.get("/peer.php?do=shout&times=1&lines=80&bytes=10").assert_status(200);
    let [_, lines, bytes] = all();
    assert!((30..80).contains(&lines) && bytes == 0, "{lines} lines, {bytes} bytes");
    // At most 2 KiB of a line.
    client.get("/peer.php?do=shout&times=10&lines=1&bytes=1000").assert_status(200);
    let bytes = counted("stderr_bytes");
    assert!((7_900..8_900).contains(&bytes), "{bytes}");
}

/// Stopped, not ended: the kernel accepts its connections, but nobody answers.
#[test]
fn a_server_that_is_stopped_is_late_and_left_out_until_it_goes_on() {
    let (php, other) = (php(), php());
    let pool = "policy = \"round-robin\"\nresponse_timeout_ms = 1000\n\
                health.interval_ms = 100\nhealth.timeout_ms = 100\nhealth.fall = 30";
    let lines = php.lines(pool, "");
    let skep = Skep::node_of(&format!(
        "{lines}[[pool.server]]\nname = \"s2\"\naddress = \"{}\"\n",
        other.address
    ));
    let ups = || skep.stderr_text().matches("-> up").count();
    poll_until(PATIENCE, "both are up", || ups() == 2);
    let mut client = skep.connect();
    let mut ask = |method: &str| {
        let began = std::time::Instant::now();
        let reply = client.request(method, "/peer.php?do=early", &[]);
        assert!(reply.status != 200 || reply.text() == "early", "{}", reply.text());
        (reply.status, began.elapsed().as_millis())
    };
    php.stop();
    // A script may be running: no request is retried.
    for method in ["GET", "POST"] {
        let mut both = [ask(method), ask(method)];
        both.sort_unstable();
        assert_eq!((both[0].0, both[1].0), (200, 504), "{method}");
        assert!((900..10_000).contains(&both[1].1), "{} ms", both[1].1);
    }
    until_logged(&skep, "server s1 (");
    until_logged(&skep, "no response in time: GET /peer.php");
    until_logged(&skep, "server s1: up -> down (checks failed: timed out)");
    for _ in 0..6 {
        assert_eq!(ask("POST").0, 200);
    }
    php.resume();
    poll_until(PATIENCE, "it is up again", || ups() == 3);
    for _ in 0..6 {
        assert_eq!(ask("POST").0, 200);
    }
}
