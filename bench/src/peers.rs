//! The measured servers, and how each is started: one worker, logs off, tuned as its manual recommends. The
//! settings are files in `bench/peers/`, in which `@NAME@` is replaced by values that differ from run to run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::check;
use crate::content::SMALL;
use crate::interrupt;
use crate::limits::{POLL_INTERVAL, READY_TIMEOUT};
use crate::machine;
use crate::process::{Server, free_port};
use crate::version;

/// The task of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerRole {
    /// Serve files, or a cache in front of them.
    Files,
    /// Forward requests to two origins.
    Proxy,
    /// Redirect clients to an origin.
    Redirect,
    /// Forward requests to the two servers of a pool.
    Pool,
    /// The same with a cache, sticky sessions and compression enabled, and responses that must not be cached.
    PoolFull,
    /// Forward uploads to the two servers of a pool, as they are received.
    Upload,
    /// Answer from a cache in front of the two servers of a pool, whose responses vary by a request field.
    Cached,
    /// Forward requests to php-fpm, on a new connection each, as all servers do by default.
    Fcgi,
    /// The same over a Unix socket.
    FcgiUnix,
    /// Over persistent TCP connections.
    FcgiKept,
    /// Forward requests to five workers of php-fpm, which slow clients may occupy, too.
    FcgiFew,
    /// Forward requests to Tomcat by AJP.
    Ajp,
}

impl ServerRole {
    /// Whether backends do part of the work, on the client's core.
    pub(crate) fn has_backends(self) -> bool {
        !matches!(self, Self::Files | Self::Redirect)
    }

    /// Whether each server needs backends of its own: a persistent connection occupies a worker of php-fpm,
    /// so that one server would leave none to the next.
    pub(crate) fn is_exclusive(self) -> bool {
        matches!(self, Self::Fcgi | Self::FcgiUnix | Self::FcgiKept | Self::FcgiFew)
    }

    /// Whether its backends have a JIT compiler: until they are warm, the figures are meaningless.
    pub(crate) fn warms_up(self) -> bool {
        self == Self::Ajp
    }
}

/// One way to start a server.
pub(crate) struct Setup {
    role: ServerRole,
    /// Name and content of a file in the server's folder.
    config: Option<(&'static str, &'static str)>,
    /// The command line; a placeholder whose value contains spaces stays one argument.
    command: &'static str,
}

/// A server that can be measured.
pub(crate) struct MeasuredServer {
    pub(crate) name: &'static str,
    /// Where to get it, for those who lack it.
    source: &'static str,
    program: &'static str,
    version: &'static [&'static str],
    setups: &'static [Setup],
    /// Whether it answers from a cache: the second answer must then have an `Age` field.
    caches: bool,
}

macro_rules! config {
    ($name:literal) => {
        Some(($name, include_str!(concat!("../peers/", $name))))
    };
}

/// The bare loop in C, to which all others are compared.
pub(crate) const LIMIT: &str = "limit";
/// Our server.
pub(crate) const SKEP: &str = "skep";
/// Our server with the file itself, in the tables of caches: the base of their targets.
pub(crate) const SKEP_FILE: &str = "skep, file";

/// An earlier build of Skep, in place of all others: `--before`.
pub(crate) const BEFORE: MeasuredServer = MeasuredServer {
    name: "skep before",
    source: "`--before`",
    program: "@SKEP@",
    version: &["--version"],
    setups: SKEP_SETUPS,
    caches: false,
};

/// The bare loop as an origin whose responses must not be cached.
pub(crate) const PRIVATE_ORIGIN: MeasuredServer = MeasuredServer {
    name: "private origin",
    source: "Debian package gcc",
    program: "@LIMIT@",
    version: &[],
    setups: &[Setup {
        role: ServerRole::PoolFull,
        config: None,
        command: "@LIMIT@ @PORT@ @ROOT@ --private",
    }],
    caches: false,
};

const SKEP_SETUPS: &[Setup] = &[
    Setup { role: ServerRole::Files, config: None, command: SKEP_SERVE },
    Setup {
        role: ServerRole::Proxy,
        config: config!("skep-proxy.toml"),
        command: "@SKEP@ run --config @CONFIG@ --as d1",
    },
    Setup {
        role: ServerRole::Redirect,
        config: config!("skep-redirect.toml"),
        command: "@SKEP@ run --config @CONFIG@ --as d1",
    },
    Setup { role: ServerRole::Pool, config: config!("skep-pool.toml"), command: SKEP_NODE },
    Setup {
        role: ServerRole::PoolFull,
        config: config!("skep-pool-full.toml"),
        command: SKEP_NODE,
    },
    Setup { role: ServerRole::Upload, config: config!("skep-upload.toml"), command: SKEP_NODE },
    Setup { role: ServerRole::Cached, config: config!("skep-cached.toml"), command: SKEP_NODE },
    Setup { role: ServerRole::Fcgi, config: config!("skep-fcgi.toml"), command: SKEP_NODE },
    Setup {
        role: ServerRole::FcgiUnix,
        config: config!("skep-fcgi-unix.toml"),
        command: SKEP_NODE,
    },
    Setup {
        role: ServerRole::FcgiKept,
        config: config!("skep-fcgi-kept.toml"),
        command: SKEP_NODE,
    },
    Setup { role: ServerRole::FcgiFew, config: config!("skep-fcgi-few.toml"), command: SKEP_NODE },
    Setup { role: ServerRole::Ajp, config: config!("skep-ajp.toml"), command: SKEP_NODE },
];

/// All servers, in the order of the tables.
pub(crate) const PEERS: &[MeasuredServer] = &[
    MeasuredServer {
        name: LIMIT,
        source: "Debian package gcc",
        program: "@LIMIT@",
        version: &[],
        setups: &[
            Setup { role: ServerRole::Files, config: None, command: "@LIMIT@ @PORT@ @ROOT@" },
            Setup {
                role: ServerRole::Redirect,
                config: None,
                command: "@LIMIT@ @PORT@ @ROOT@ --redirect http://127.0.0.1:@BACKEND1@",
            },
            Setup {
                role: ServerRole::Cached,
                config: None,
                command: "@LIMIT@ @PORT@ @ROOT@ --vary",
            },
        ],
        caches: false,
    },
    MeasuredServer {
        name: SKEP,
        source: "`cargo build --release --package skep`",
        program: "@SKEP@",
        version: &["--version"],
        setups: SKEP_SETUPS,
        caches: false,
    },
    MeasuredServer {
        name: SKEP_FILE,
        source: "`cargo build --release --package skep`",
        program: "@SKEP@",
        version: &["--version"],
        setups: &[Setup { role: ServerRole::Cached, config: None, command: SKEP_SERVE }],
        caches: false,
    },
    MeasuredServer {
        name: "nginx",
        source: "Debian package nginx-light",
        program: "nginx",
        version: &["-v"],
        setups: &[
            Setup { role: ServerRole::Files, config: config!("nginx-static.conf"), command: NGINX },
            Setup { role: ServerRole::Proxy, config: config!("nginx-proxy.conf"), command: NGINX },
            Setup {
                role: ServerRole::Redirect,
                config: config!("nginx-redirect.conf"),
                command: NGINX,
            },
            Setup { role: ServerRole::Pool, config: config!("nginx-proxy.conf"), command: NGINX },
            Setup {
                role: ServerRole::PoolFull,
                config: config!("nginx-proxy.conf"),
                command: NGINX,
            },
            Setup {
                role: ServerRole::Upload,
                config: config!("nginx-upload.conf"),
                command: NGINX,
            },
            Setup {
                role: ServerRole::Cached,
                config: config!("nginx-cached.conf"),
                command: NGINX,
            },
            Setup { role: ServerRole::Fcgi, config: config!("nginx-fcgi.conf"), command: NGINX },
            Setup { role: ServerRole::FcgiFew, config: config!("nginx-fcgi.conf"), command: NGINX },
            Setup {
                role: ServerRole::FcgiUnix,
                config: config!("nginx-fcgi-unix.conf"),
                command: NGINX,
            },
            Setup {
                role: ServerRole::FcgiKept,
                config: config!("nginx-fcgi-kept.conf"),
                command: NGINX,
            },
        ],
        caches: false,
    },
    MeasuredServer {
        name: "h2o",
        source: "Debian package h2o",
        program: "h2o",
        version: &["--version"],
        setups: &[Setup {
            role: ServerRole::Files,
            config: config!("h2o-static.conf"),
            command: "h2o -m worker -c @CONFIG@",
        }],
        caches: false,
    },
    MeasuredServer {
        name: "lighttpd",
        source: "Debian package lighttpd",
        program: "lighttpd",
        version: &["-v"],
        setups: &[Setup {
            role: ServerRole::Files,
            config: config!("lighttpd-static.conf"),
            command: "lighttpd -D -f @CONFIG@",
        }],
        caches: false,
    },
    MeasuredServer {
        name: "haproxy",
        source: "Debian package haproxy",
        program: "haproxy",
        version: &["-v"],
        setups: &[
            Setup {
                role: ServerRole::Files,
                config: config!("haproxy-static.conf"),
                command: HAPROXY,
            },
            Setup {
                role: ServerRole::Proxy,
                config: config!("haproxy-proxy.conf"),
                command: HAPROXY,
            },
            Setup {
                role: ServerRole::Redirect,
                config: config!("haproxy-redirect.conf"),
                command: HAPROXY,
            },
            Setup {
                role: ServerRole::Pool,
                config: config!("haproxy-proxy.conf"),
                command: HAPROXY,
            },
            Setup {
                role: ServerRole::PoolFull,
                config: config!("haproxy-proxy.conf"),
                command: HAPROXY,
            },
            Setup {
                role: ServerRole::Upload,
                config: config!("haproxy-proxy.conf"),
                command: HAPROXY,
            },
        ],
        caches: true,
    },
    MeasuredServer {
        name: "httpd",
        source: "Debian package apache2-bin",
        program: "apache2",
        version: &["-v"],
        setups: &[Setup {
            role: ServerRole::Ajp,
            config: config!("apache-ajp.conf"),
            command: "apache2 -DFOREGROUND -f @CONFIG@",
        }],
        caches: false,
    },
    MeasuredServer {
        name: "varnish",
        source: "Debian package varnish",
        program: "varnishd",
        version: &["-V"],
        setups: &[
            Setup {
                role: ServerRole::Files,
                config: config!("varnish-static.vcl"),
                command: VARNISH,
            },
            Setup {
                role: ServerRole::Cached,
                config: config!("varnish-static.vcl"),
                command: VARNISH,
            },
        ],
        caches: true,
    },
];

const SKEP_SERVE: &str = "@SKEP@ serve @ROOT@ --listen 127.0.0.1:@PORT@ --threads 1 \
                          --access-log off --cache-size 512MiB";
const SKEP_NODE: &str = "@SKEP@ run --config @CONFIG@ --as n1";
const NGINX: &str = "nginx -c @CONFIG@ -p @DIR@ -e @DIR@/error.log";
/// The mask excludes the records of each request from its log in memory, which cannot be disabled as a whole.
const VARNISH: &str = "varnishd -F -j none -n @DIR@/varnish -a 127.0.0.1:@PORT@ -f @CONFIG@ \
                       -s malloc,512m -p thread_pools=1 -p thread_pool_max=1000 \
                       -p timeout_idle=3600 -p listen_depth=4096 \
                       -p vsl_mask=-Begin,-End,-Link,-Timestamp,-ReqStart,-ReqMethod,\
                       -ReqURL,-ReqProtocol,-ReqHeader,-ReqUnset,-ReqAcct,-RespProtocol,\
                       -RespStatus,-RespReason,-RespHeader,-RespUnset,-VCL_call,-VCL_return,\
                       -VCL_use,-Hit,-SessOpen,-SessClose,-Storage,-Filters";
const HAPROXY: &str = "haproxy -db -f @CONFIG@";

/// The values of the `@NAMES@` in this run.
pub(crate) struct Places {
    pub(crate) root: PathBuf,
    pub(crate) limit: PathBuf,
    pub(crate) skep: PathBuf,
}

impl MeasuredServer {
    /// The peer with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PEERS.iter().find(|peer| peer.name == name)
    }

    /// Whether it supports that role.
    pub(crate) fn plays(&self, role: ServerRole) -> bool {
        self.setups.iter().any(|setup| setup.role == role)
    }

    /// The version that it reports; an error states how to get the program.
    pub(crate) fn version(&self, places: &Places) -> Result<String> {
        let program = fill(self.program, &[], places);
        if self.version.is_empty() {
            return Ok(String::new());
        }
        version::of(&program, self.version).with_context(|| format!("not here ({})", self.source))
    }

    /// Starts it on `core` with files in `dir`, and waits for its first answer.
    pub(crate) fn start(
        &self,
        role: ServerRole,
        dir: &Path,
        core: usize,
        origins: [u16; 2],
        places: &Places,
    ) -> Result<Server> {
        let setup = self.setups.iter().find(|setup| setup.role == role);
        let setup = setup.with_context(|| format!("{} is no {role:?}", self.name))?;
        fs::create_dir_all(dir)?;
        let port = free_port()?;
        let mut names = vec![
            ("@PORT@", port.to_string()),
            ("@DIR@", dir.display().to_string()),
            ("@FILES@", machine::file_limit().to_string()),
            ("@CONNECTIONS@", (machine::file_limit() / 2).to_string()),
            ("@BACKEND1@", origins[0].to_string()),
            ("@BACKEND2@", origins[1].to_string()),
        ];
        if let Some((name, text)) = setup.config {
            let file = dir.join(name);
            fs::write(&file, fill(text, &names, places))?;
            names.push(("@CONFIG@", file.display().to_string()));
        }
        let words = setup.command.split(' ');
        let argv: Vec<String> = words.map(|word| fill(word, &names, places)).collect();
        let mut server = Server::start(&argv, dir, core, port)?;
        wait_for_answer(&mut server).with_context(|| last_words(dir))?;
        server.prefer();
        Ok(server)
    }

    /// Requests each of `paths`, twice from caches, and compares the answers.
    pub(crate) fn check(
        &self,
        role: ServerRole,
        port: u16,
        paths: &[String],
        places: &Places,
    ) -> Result<()> {
        for path in paths {
            if role == ServerRole::Redirect {
                let answer = check::get(port, path)?;
                let to = answer.header("location").unwrap_or_default();
                ensure!(answer.status == 302, "GET {path}: status {}", answer.status);
                ensure!(to.ends_with(path.as_str()), "GET {path}: sent to {to}");
                continue;
            }
            check::same_file(port, &places.root, path)?;
            let caches = match role {
                ServerRole::Files => self.caches,
                ServerRole::Cached => ![LIMIT, SKEP_FILE].contains(&self.name),
                _ => false,
            };
            if caches {
                let again = check::same_file(port, &places.root, path)?;
                ensure!(again.header("age").is_some(), "GET {path}: not from the cache");
            }
        }
        Ok(())
    }
}

/// `text` with its `@NAMES@` replaced.
pub(crate) fn fill(text: &str, names: &[(&str, String)], places: &Places) -> String {
    let text = text
        .replace("@ROOT@", &places.root.display().to_string())
        .replace("@LIMIT@", &places.limit.display().to_string())
        .replace("@SKEP@", &places.skep.display().to_string());
    names.iter().fold(text, |text, (name, value)| text.replace(name, value))
}

/// Waits for the first right answer; fails if there is none in time.
pub(crate) fn wait_for_answer(server: &mut Server) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        interrupt::check()?;
        server.check_alive()?;
        match check::get(server.port, SMALL.0) {
            Ok(answer) if answer.status < 400 => return Ok(()),
            _ if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
            Ok(answer) => bail!("no good answer after {READY_TIMEOUT:?}: {}", answer.status),
            Err(error) => return Err(error.context(format!("no answer after {READY_TIMEOUT:?}"))),
        }
    }
}

/// The end of a server's output before it failed.
pub(crate) fn last_words(dir: &Path) -> String {
    let said = fs::read_to_string(dir.join("output.log")).unwrap_or_default();
    let lines: Vec<&str> = said.lines().rev().take(5).collect();
    let mut words = String::from("it said: ");
    words.extend(lines.into_iter().rev().flat_map(|line| [line, " "]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_filled() {
        let places = Places { root: "/r".into(), limit: "/l".into(), skep: "/s".into() };
        let names: Vec<_> =
            ["@PORT@", "@DIR@", "@FILES@", "@CONNECTIONS@", "@BACKEND1@", "@BACKEND2@", "@CONFIG@"]
                .map(|name| (name, String::from("1")))
                .into();
        for setup in PEERS.iter().flat_map(|peer| peer.setups) {
            for text in
                [Some(setup.command), setup.config.map(|(_, text)| text)].into_iter().flatten()
            {
                assert!(!fill(text, &names, &places).contains('@'), "{text}");
            }
        }
    }
}
