//! Skep in front of the suite's server: places, settings, and runs of the suite's client.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use skep_tests::cache::CacheCluster;
use skep_tests::{Site, Skep};

use crate::interrupt;
use crate::program::Program;
use crate::suite::{Server, Suite};

/// Most of the time that all tests take: they wait for 50 s in all.
const CLIENT_WITHIN: Duration = Duration::from_secs(300);

const NODES: usize = 3;

/// Where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Node,
    /// One of three nodes of a cluster.
    OneOfThree,
    /// A dispatcher, which sends them to three nodes in turn.
    Dispatcher,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::Node, Self::OneOfThree, Self::Dispatcher];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Node => "a node",
            Self::OneOfThree => "one node of a cluster of three",
            Self::Dispatcher => "three nodes in turn, behind a dispatcher",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::OneOfThree => "one-of-three",
            Self::Dispatcher => "dispatcher",
        }
    }

    /// The machine of the cluster that has the requests, if there is a cluster.
    fn machine(self) -> Option<&'static str> {
        match self {
            Self::Node => None,
            Self::OneOfThree => Some("node-1"),
            Self::Dispatcher => Some("dispatcher-1"),
        }
    }
}

/// What `[site.cache]` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    Made,
    Safe,
}

impl Settings {
    pub(crate) const ALL: [Self; 2] = [Self::Made, Self::Safe];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Made => "settings made for the suite",
            Self::Safe => "safe defaults",
        }
    }

    /// Lines of TOML.
    pub(crate) fn lines(self) -> &'static str {
        match self {
            Self::Made => {
                "enabled = true\nstatuses = \"any\"\nset_cookie = \"always\"\ncookies = \"ignore\"\n\
                 heuristic = true\nstale_on_disconnect_ms = \"1h\"\nobey = \"all\"\n\
                 vary_refused = []\n"
            }
            Self::Safe => "enabled = true\n",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Safe => "safe",
        }
    }

    /// Lines of a site that is a pool of the suite's server.
    fn site(self, origin: SocketAddr) -> String {
        let cache = self.lines();
        format!(
            "pool = \"suite\"\n[site.cache]\n{cache}[[pool]]\nname = \"suite\"\n[[pool.server]]\n\
             name = \"origin\"\naddress = \"{origin}\"\n"
        )
    }
}

/// What the client wrote of a run.
pub(crate) struct ResultsFile {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    pub(crate) path: PathBuf,
}

/// All tests in one place, under both settings at the same time: most of it is waiting.
pub(crate) fn run_both(suite: &Suite, origin: &Server, place: Place) -> Result<Vec<ResultsFile>> {
    thread::scope(|scope| {
        let start = |settings| scope.spawn(move || run(suite, origin.address(), place, settings));
        let threads = Settings::ALL.map(start);
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|result| result.map_err(|_| anyhow!("Skep does not start"))?).collect()
    })
}

/// One test against a node: what its client and the server printed.
pub(crate) fn run_one(
    suite: &Suite,
    origin: &Server,
    settings: Settings,
    id: &str,
) -> Result<String> {
    let node = Skep::node_of(&settings.site(origin.address()));
    let mut client = suite.client(node.address(), id);
    let seen = Program::start(&mut client, suite.folder(), "client")?.finish(CLIENT_WITHIN)?;
    Ok(format!("{}\n{seen}", origin.output()?))
}

fn run(suite: &Suite, origin: SocketAddr, place: Place, settings: Settings) -> Result<ResultsFile> {
    interrupt::check()?;
    let site = settings.site(origin);
    let test = |address| {
        let name = format!("{}-{}", place.word(), settings.word());
        let program = Program::start(&mut suite.client(address, ""), suite.folder(), &name)?;
        let results = program.finish(CLIENT_WITHIN)?;
        let path = suite.folder().join(format!("{name}.json"));
        std::fs::write(&path, results).with_context(|| path.display().to_string())?;
        Ok(ResultsFile { place, settings, path })
    };
    let Some(machine) = place.machine() else {
        let node = Skep::node_of(&site);
        return test(node.address());
    };
    let cluster = CacheCluster::start_of(1, NODES, Site::new(), &site, "");
    cluster.wait_up();
    test(cluster.outer(machine))
}
