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

/// Timeout of a run of all tests, which wait for 50 s in total.
const CLIENT_WITHIN: Duration = Duration::from_secs(300);

const NODES: usize = 3;

/// The process that receives the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Node,
    /// One of three nodes of a cluster.
    OneOfThree,
    /// A dispatcher, which forwards requests to three nodes in turn.
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

    /// The machine of the cluster that receives the requests, if there is a cluster.
    fn machine(self) -> Option<&'static str> {
        match self {
            Self::Node => None,
            Self::OneOfThree => Some("node-1"),
            Self::Dispatcher => Some("dispatcher-1"),
        }
    }
}

/// A configuration of `[site.cache]`.
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

    /// Returns its lines of TOML.
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

    /// Returns the lines of a site whose pool is the suite's server.
    fn site(self, origin: SocketAddr) -> String {
        let cache = self.lines();
        format!(
            "pool = \"suite\"\n[site.cache]\n{cache}[[pool]]\nname = \"suite\"\n[[pool.server]]\n\
             name = \"origin\"\naddress = \"{origin}\"\n"
        )
    }
}

/// The results that the client wrote in a run.
pub(crate) struct ResultsFile {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    pub(crate) path: PathBuf,
}

/// Runs all tests in one place, under both settings concurrently, as they mostly wait.
pub(crate) fn run_both(suite: &Suite, origin: &Server, place: Place) -> Result<Vec<ResultsFile>> {
    thread::scope(|scope| {
        let start = |settings| scope.spawn(move || run(suite, origin.address(), place, settings));
        let threads = Settings::ALL.map(start);
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|result| result.map_err(|_| anyhow!("Skep does not start"))?).collect()
    })
}

/// Runs one test against a node, and returns the output of the client and the server.
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
