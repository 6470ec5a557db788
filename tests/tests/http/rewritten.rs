//! Files that are rewritten in place while they are requested: a reply with a validator has the content of
//! that version, and a partially written file is never cached.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use skep_tests::content::{self, assert_same};
use skep_tests::rewrite::{rewrite, version_if_named};
use skep_tests::{End, PATIENCE, RawClient, Response, Site, Skep, poll_until};

/// Returns the reply to a GET, if it is complete.
fn try_get(skep: &Skep, target: &str) -> Option<Response> {
    let mut client = RawClient::try_connect(skep.address()).ok()?;
    client.ask(target);
    client.try_response().ok().filter(|reply| reply.status == 200)
}

#[test]
fn what_has_a_tag_is_one_version_while_files_are_rewritten_in_place() {
    const VERSIONS: u32 = 24;
    // Copied to the heap, in a memory file, and in several chunks.
    let files = [("small", 3_000), ("middle", 100_000), ("large", 900_000)];
    let site = files.iter().fold(Site::new(), |site, (name, len)| site.with_large(name, *len));
    let skep = Skep::node(site.root(), "cache_control = \"max-age=600\"");
    let end = End::default();
    thread::scope(|scope| {
        let _ends = end.with_this();
        for (name, _) in files {
            let (skep, end) = (&skep, &end);
            scope.spawn(move || {
                while !end.has_come() {
                    let reply = try_get(skep, &format!("/{name}"));
                    reply.as_ref().map(version_if_named);
                }
            });
        }
        for version in 2..=VERSIONS {
            for (name, len) in files {
                rewrite(&site.path(name), &content::version(version, len));
            }
            // Occasionally the file may settle.
            for (name, len) in files.iter().filter(|_| version % 6 == 0) {
                poll_until(PATIENCE, "the new version is there to stay", || {
                    let reply = try_get(&skep, &format!("/{name}"));
                    let seen = reply.as_ref().and_then(version_if_named);
                    seen == Some(version) && reply.is_some_and(|reply| reply.body.len() == *len)
                });
            }
        }
    });
    for (name, len) in files {
        for _ in 0..3 {
            let reply = try_get(&skep, &format!("/{name}")).unwrap();
            assert_same(&reply.body, &content::version(VERSIONS, len));
            reply.assert_header("cache-control", "max-age=600");
        }
        assert_eq!(try_get(&skep, &format!("/{name}")).unwrap().cache_status(), "skep; hit");
    }
}

#[test]
fn a_file_caught_empty_between_cutting_and_writing_is_waited_for() {
    /// Well below the time for which an empty file is waited for.
    const SOON: Duration = Duration::from_millis(50);
    const TURNS: usize = 5;
    let site = Site::new();
    let skep = Skep::serve(site.root(), &[]);
    let bytes = content::version(1, 5_000);
    let (mut turns, mut tries) = (0, 0);
    while turns < TURNS {
        tries += 1;
        assert!(tries < 20 * TURNS, "this machine never writes a file within {SOON:?}");
        let name = format!("f{tries}");
        let mut client = skep.connect();
        let begun = Instant::now();
        let mut file = File::create(site.path(&name)).unwrap();
        client.ask(&format!("/{name}"));
        // Long enough that the server finds the file empty.
        let caught = client.stream().set_read_timeout(Some(Duration::from_millis(10)));
        caught.and_then(|()| client.stream().peek(&mut [0])).err();
        file.write_all(&bytes).unwrap();
        let was_soon = begun.elapsed() < SOON;
        client.set_timeout(PATIENCE);
        let reply = client.response();
        if was_soon {
            turns += 1;
            assert_same(&reply.body, &bytes);
        }
        poll_until(PATIENCE, "it is there to stay", || {
            let reply = skep.connect().get(&format!("/{name}"));
            reply.body == bytes && reply.cache_status() == "skep; hit"
        });
    }
}

#[test]
fn a_file_that_stays_empty_is_served_so() {
    let site = Site::new().with("empty", "");
    let skep = Skep::serve(site.root(), &[]);
    poll_until(PATIENCE, "it is kept", || {
        let reply = skep.connect().get("/empty");
        assert_eq!((reply.status, reply.body.len()), (200, 0));
        reply.cache_status() == "skep; hit" && reply.header("etag").is_some()
    });
}

#[test]
fn what_never_settles_is_served_as_it_is_and_is_in_no_cache() {
    let site = Site::new().with("log", "").with("empty", "");
    let skep = Skep::node(site.root(), "cache_control = \"max-age=600\"");
    let end = End::default();
    thread::scope(|scope| {
        let (site, end, _ends) = (&site, &end, end.with_this());
        scope.spawn(move || {
            let mut file = File::options().append(true).open(site.path("log")).unwrap();
            let empty = File::options().write(true).open(site.path("empty")).unwrap();
            while !end.has_come() {
                file.write_all(b"v").unwrap();
                empty.set_modified(SystemTime::now()).unwrap();
                // Much more often than a file takes to settle.
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut seen = [0; 2];
        poll_until(PATIENCE, "replies of both without a version", || {
            for (seen, (method, name)) in seen.iter_mut().zip([("GET", "/empty"), ("HEAD", "/log")])
            {
                let reply = skep.connect().request(method, name, &[]);
                reply.assert_status(200);
                if reply.header("etag").is_none() {
                    assert_eq!(version_if_named(&reply), None);
                    *seen += 1;
                }
            }
            seen.iter().all(|seen| *seen > 2)
        });
    });
}

/// A folder on a file system whose clock has ticks as long as the kernel's, on any kernel, and a server of
/// it. Unmounted with the server.
fn with_ticks(site: &Site) -> Option<(Skep, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        skep_tests::skip("it takes root to mount a file system");
        return None;
    }
    let place = site.path("ticks");
    std::fs::create_dir(&place).unwrap();
    let script = "mount -t ramfs ticks \"$1\" && exec \"$0\" serve \"$1\" --listen 127.0.0.1:0";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.arg(Skep::binary()).arg(&place);
    let skep = Skep::serve_command(&mut command);
    let pid = skep.pid().as_raw_nonzero();
    let inside = PathBuf::from(format!("/proc/{pid}/root{}", place.display()));
    Some((skep, inside))
}

#[test]
fn a_file_rewritten_within_a_tick_of_its_file_system_is_not_mistaken_for_the_old_one() {
    const FILES: usize = 40;
    const LEN: usize = 2_000;
    let site = Site::new();
    let Some((skep, folder)) = with_ticks(&site) else { return };
    let [old, new] = [1, 2].map(|number| content::version(number, LEN));
    let stamp = |path: &Path| {
        let stat = std::fs::metadata(path).unwrap();
        (stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec(), stat.len())
    };
    let mut client = skep.connect();
    let mut alike = 0;
    for number in 0..FILES {
        let path = folder.join(format!("f{number}"));
        std::fs::write(&path, &old).unwrap();
        let before = stamp(&path);
        client.ask(&format!("/f{number}"));
        // After a delay that differs from file to file, whatever was received by then.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(60 * number as u64) {
            std::hint::spin_loop();
        }
        rewrite(&path, &new);
        alike += usize::from(stamp(&path) == before);
        let reply = client.response();
        assert!(reply.body == old || reply.body == new, "{}", reply.head_text());
    }
    assert!(alike > 0, "no two writes fell into one tick");
    for number in 0..FILES {
        poll_until(PATIENCE, &format!("the new bytes of f{number} ({alike} alike)"), || {
            client.get(&format!("/f{number}")).body == new
        });
    }
}
