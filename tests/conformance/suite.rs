//! The suite: fetched at one commit into cargo's target folder, never into the work tree.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use skep_tests::FreePort;

use crate::program::Program;
use crate::score::{self, Published, Score};

/// The commit of the recorded score.
pub(crate) const COMMIT: &str = "b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba";

const URL: &str = "https://github.com/http-tests/cache-tests.git";

/// Timeout of a fetch.
const FETCH_WITHIN: Duration = Duration::from_secs(300);

/// Timeout of a program that only computes.
const COMPUTE_WITHIN: Duration = Duration::from_secs(60);

/// Our files that are placed beside the suite.
const FILES: [(&str, &str); 4] = [
    ("package.json", include_str!("package.json")),
    ("package-lock.json", include_str!("package-lock.json")),
    ("loopback.mjs", include_str!("loopback.mjs")),
    ("score.mjs", include_str!("score.mjs")),
];

/// A copy of the suite that is ready to run.
pub(crate) struct Suite {
    folder: PathBuf,
    /// Day of the commit, such as 2026-07-20.
    pub(crate) date: String,
}

/// The suite's server, on the loopback.
pub(crate) struct Server {
    program: Program,
    port: FreePort,
}

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns its standard output so far.
    pub(crate) fn output(&self) -> Result<String> {
        self.program.output()
    }
}

impl Suite {
    /// Fetches into `folder` whatever is missing there.
    ///
    /// # Errors
    /// If the suite cannot be fetched; the error names what failed.
    pub(crate) fn prepare(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut suite = Self { folder: folder.to_owned(), date: String::new() };
        suite.check_out()?;
        suite.install_modules()?;
        let date = suite.git(&["show", "--no-patch", "--format=%cs", COMMIT])?;
        date.trim().clone_into(&mut suite.date);
        Ok(suite)
    }

    /// The folder of the suite's files and of the files of runs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts its server.
    pub(crate) fn start_server(&self) -> Result<Server> {
        let port = FreePort::claim();
        let loopback = format!("--import={}", self.folder.join("loopback.mjs").display());
        let mut command = self.node(&[&loopback, "test-engine/server/server.mjs"]);
        command.env("npm_config_protocol", "http");
        command.env("npm_config_port", port.address().port().to_string());
        command.env("npm_config_pidfile", self.folder.join("server.pid"));
        let mut program = Program::start(&mut command, &self.folder, "server")?;
        program.wait_says("Listening on", COMPUTE_WITHIN)?;
        Ok(Server { program, port })
    }

    /// Returns the command of the suite's client, for tests at `base`: all tests, or the one with this ID.
    pub(crate) fn client(&self, base: SocketAddr, id: &str) -> Command {
        let mut command = self.node(&["--no-warnings", "test-engine/cli.mjs"]);
        command.env("npm_config_base", format!("http://{base}"));
        // Without npm, the client takes an unset ID for a given one.
        command.env("npm_config_id", id).env("npm_package_config_id", "");
        command
    }

    /// Returns the published results of other caches, and the score of each results file.
    pub(crate) fn score(&self, results: &[&Path]) -> Result<(Vec<Published>, Vec<Score>)> {
        let mut command = self.node(&["--no-warnings"]);
        command.arg(self.folder.join("score.mjs")).args(results);
        let text = Program::start(&mut command, &self.folder, "score")?.finish(COMPUTE_WITHIN)?;
        score::parse(&text)
    }

    /// Returns today's date in UTC, such as 2026-07-20.
    pub(crate) fn today(&self) -> Result<String> {
        let mut command = Command::new("date");
        let program = Program::start(command.args(["-u", "+%F"]), &self.folder, "date")?;
        Ok(program.finish(COMPUTE_WITHIN)?.trim().to_owned())
    }

    fn node(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("node");
        command.current_dir(self.work_tree()).args(arguments);
        command
    }

    fn work_tree(&self) -> PathBuf {
        self.folder.join("cache-tests")
    }

    fn check_out(&self) -> Result<()> {
        let tree = self.work_tree();
        fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
        if self.git(&["rev-parse", "--verify", "--quiet", &format!("{COMMIT}^{{commit}}")]).is_err()
        {
            let url = std::env::var("CACHE_TESTS").unwrap_or_else(|_| URL.to_owned());
            eprintln!("skep-conformance: fetching the suite from {url}");
            self.git(&["init", "--quiet"])?;
            let fetched = self.git(&["fetch", "--quiet", "--depth=1", &url, COMMIT]);
            fetched.context("set CACHE_TESTS to a repository that has the commit")?;
        }
        self.git(&["checkout", "--quiet", "--force", COMMIT])?;
        Ok(())
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("git");
        // Otherwise git would use an enclosing repository if this folder has none.
        command.env("GIT_DIR", self.work_tree().join(".git"));
        command.current_dir(self.work_tree()).args(arguments);
        Program::start(&mut command, &self.folder, "git")?.finish(FETCH_WITHIN)
    }

    /// Installs the client's dependency: one module, for the tests of interim responses.
    fn install_modules(&self) -> Result<()> {
        let path = |name: &str| self.folder.join(name);
        let is_same = |(name, text): &(&str, &str)| {
            fs::read_to_string(path(name)).is_ok_and(|found| found == *text)
        };
        let is_installed = FILES.iter().all(is_same) && path("node_modules/undici").exists();
        if is_installed {
            return Ok(());
        }
        let mut command = Command::new("npm");
        command.current_dir(&self.folder);
        command.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        for (name, text) in FILES {
            fs::write(path(name), text).with_context(|| name.to_owned())?;
        }
        Program::start(&mut command, &self.folder, "npm")?.finish(FETCH_WITHIN)?;
        Ok(())
    }
}
