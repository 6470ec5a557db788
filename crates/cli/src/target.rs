//! The process that a command queries: given by the arguments, or found among the running ones.

use std::path::{Path, PathBuf};

use anyhow::Context;
use skep_config::Config;
use skep_console::{ApiClient, ApiClientError, ProcessStatus, Role, Token};

use crate::arguments::Target;
use crate::config_file::load;
use crate::up;

/// Environment variable with the control socket to use.
const VARIABLE: &str = "SKEP_SOCKET";

/// Maximum number of processes of one cluster that are queried for a dispatcher; a folder with more sockets
/// is not a state folder.
const SOCKETS_MAX: usize = 256;

/// A process that answers.
pub(crate) struct Found {
    pub(crate) client: ApiClient,
    pub(crate) status: ProcessStatus,
}

impl Target {
    /// Returns the first process that answers, preferably a dispatcher; else an error that states where it
    /// was searched.
    pub(crate) fn find(&self) -> anyhow::Result<Found> {
        self.find_role(Role::Dispatcher)
    }

    /// The same, preferably a node.
    pub(crate) fn find_node(&self) -> anyhow::Result<Found> {
        self.find_role(Role::Node)
    }

    fn find_role(&self, wanted: Role) -> anyhow::Result<Found> {
        let mut search = Search { wanted, second_best: None, tried: Vec::new() };
        let found = self.look(&mut search)?.or_else(|| search.second_best.take());
        found.ok_or_else(|| search.failure())
    }

    fn look(&self, search: &mut Search) -> anyhow::Result<Option<Found>> {
        if let Some(socket) = &self.socket {
            return search.ask(ApiClient::socket(socket));
        }
        if let Some(url) = &self.api {
            return search.ask(ApiClient::tcp(url, self.token()?)?);
        }
        if let Some(file) = &self.config {
            return self.look_by_config(&load(file)?, search);
        }
        if let Some(socket) = std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) {
            return search.ask(ApiClient::socket(Path::new(&socket)));
        }
        for folder in up::running_clusters() {
            let state = up::state_of(&folder);
            let dispatcher = state.join(format!("{}.sock", up::DISPATCHER));
            let found = match search.wanted {
                Role::Dispatcher => search.ask(ApiClient::socket(&dispatcher))?,
                Role::Node => search.ask_all_in(&state)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        search.ask_all_in(&Config::default().state_dir)
    }

    fn look_by_config(
        &self,
        config: &Config,
        search: &mut Search,
    ) -> anyhow::Result<Option<Found>> {
        let dispatchers = config.dispatchers.iter().map(|dispatcher| &dispatcher.name);
        let nodes = config.nodes.iter().map(|node| &node.name);
        let mut sockets: Vec<PathBuf> =
            dispatchers.chain(nodes).map(|name| config.socket_of(name)).collect();
        // A config with neither is run by one process, named after its cluster.
        sockets.push(config.socket_of(&config.cluster));
        sockets.dedup();
        for socket in sockets.iter().filter(|socket| socket.exists()) {
            if let Some(found) = search.ask(ApiClient::socket(socket))? {
                return Ok(Some(found));
            }
        }
        let (Some(address), None) = (config.admin.listen, &search.second_best) else {
            return Ok(None);
        };
        let own = config.admin.token_file.as_deref().map(Token::read).transpose();
        let token = if self.token_file.is_some() { self.token()? } else { own? };
        search.ask(ApiClient::tcp(&format!("http://{address}"), token)?)
    }

    fn token(&self) -> anyhow::Result<Option<Token>> {
        Ok(self.token_file.as_deref().map(Token::read).transpose()?)
    }
}

/// The state of a search.
struct Search {
    wanted: Role,
    /// A process that answers and has another role.
    second_best: Option<Found>,
    /// The processes that did not answer, and why.
    tried: Vec<String>,
}

impl Search {
    /// Queries one process; an error ends the search.
    fn ask(&mut self, client: ApiClient) -> anyhow::Result<Option<Found>> {
        match client.status() {
            Ok(status) => {
                let is_wanted = status.roles.contains(&self.wanted);
                let found = Found { client, status };
                if is_wanted {
                    return Ok(Some(found));
                }
                self.second_best.get_or_insert(found);
                Ok(None)
            }
            Err(error @ ApiClientError::NoAnswer { .. }) => {
                self.tried.push(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("asked {client}")),
        }
    }

    fn ask_all_in(&mut self, folder: &Path) -> anyhow::Result<Option<Found>> {
        let mut sockets: Vec<PathBuf> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
            .take(SOCKETS_MAX)
            .collect();
        sockets.sort();
        if sockets.is_empty() {
            self.tried.push(format!("no socket in {}", folder.display()));
        }
        for socket in sockets {
            if let Some(found) = self.ask(ApiClient::socket(&socket))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn failure(self) -> anyhow::Error {
        let tried = self.tried.join("\n  ");
        anyhow::anyhow!(
            "no cluster answers. Tried:\n  {tried}\n`skep up DIR` starts one; --socket, --api and \
             --config name one"
        )
    }
}
