//! The client against nginx: an independent implementation of the RFCs.

use std::io::{Write, stderr};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use skep_httpcache::{CachePolicy, RequestMeta, StoredStatuses, store};
use tempfile::TempDir;

use super::rig::{get, hash, noise, part, patient, read, whole, with_origins};
use crate::{Ask, Condition, Revalidated};

/// An nginx that serves a folder.
struct Nginx {
    child: Child,
    folder: TempDir,
    url: String,
}

impl Nginx {
    /// `None`, with a message, if it is not installed.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        std::fs::write(
            folder.path().join("nginx.conf"),
            config(folder.path(), &address.to_string()),
        )
        .unwrap();
        // It inherits the listening socket, as in its own upgrades: no wait until it listens is
        // needed.
        let child = Command::new("nginx")
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(folder.path().join("nginx.conf"))
            .args(["-e", "stderr"])
            .env("NGINX", "0;")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self { child, folder, url: format!("http://{address}") }),
            Err(error) => {
                let _ = writeln!(stderr(), "SKIPPED: no nginx to talk to: {error}");
                None
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join("root").join(name), bytes).unwrap();
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // SIGTERM, which it passes to its worker: SIGKILL would leave the worker behind.
        let kill = format!("kill {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

fn config(folder: &Path, address: &str) -> String {
    let folder = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .concat();
    format!(
        "daemon off; user root; worker_processes 1; pid {folder}/pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{\naccess_log off;\n{temporary}\
         server {{ listen {address}; root {folder}/root; add_header Cache-Control max-age=60;\n\
         location /gone {{ return 410 gone; }} }} }}\n"
    )
}

#[test]
fn nginx_is_understood() {
    let Some(nginx) = Nginx::start() else { return };
    let object = noise(10 * 1024 * 1024);
    let expected = hash(&object);
    nginx.write("big", &object);
    nginx.write("empty", b"");
    let urls = vec![nginx.url.clone()];
    let nginx = with_origins(&urls, patient(), async move |origins| {
        let (status, all) = get(&origins, &whole("/big")).await.unwrap();
        assert_eq!((status, hash(&all)), (200, expected));

        let segment = |at: u64| Ask { range: Some(at..at + 4 * 1024 * 1024), ..whole("/big") };
        let mut first = origins.open(&segment(0)).await.unwrap();
        let mut joined = read(&mut first.body).await.unwrap();
        let policy = CachePolicy { statuses: StoredStatuses::Only(&[206]), ..CachePolicy::safe() };
        let fresh = store(&RequestMeta::PLAIN_GET, &first.head.meta, &policy);
        assert!(fresh.unwrap().is_fresh(0));
        while joined.len() < object.len() {
            let pin = Condition::Pinned(first.head.validators());
            let ask = Ask { condition: pin, ..segment(joined.len() as u64) };
            let mut next = origins.open(&ask).await.unwrap();
            assert_eq!(next.head.meta.status, 206);
            assert_eq!(next.head.version(), first.head.version());
            joined.extend(read(&mut next.body).await.unwrap());
        }
        assert_eq!(hash(&joined), expected);

        let unless = Condition::Unless(first.head.validators());
        let same = origins.open(&Ask { condition: unless, ..segment(0) }).await.unwrap();
        assert!(matches!(first.head.revalidated(&same.head, &policy), Revalidated::Kept(_)));

        // Of another length, since its tags consist of time and length.
        nginx.write("big", b"changed");
        let pin = Condition::Pinned(first.head.validators());
        let ask = Ask { condition: pin, ..segment(4 * 1024 * 1024) };
        let mut changed = origins.open(&ask).await.unwrap();
        assert_eq!(changed.head.meta.status, 200);
        assert_ne!(changed.head.version(), first.head.version());
        assert_eq!(read(&mut changed.body).await.unwrap(), b"changed");

        let empty = origins.open(&Ask { path_and_query: b"/empty", ..part(0..9) }).await.unwrap();
        assert_eq!((empty.head.meta.status, empty.head.total_bytes), (200, Some(0)));
        assert_eq!(get(&origins, &whole("/gone")).await.unwrap(), (410, b"gone".to_vec()));
        assert_eq!(get(&origins, &whole("/none")).await.unwrap().0, 404);
        nginx
    });
    drop(nginx);
}
