//! The interface that the API needs from a running process; the composition root implements it.

use crate::model::{
    ClusterRequests, ClusterSeries, Explained, NewArm, NewExplain, NewNode, NewServerTest,
    NodePools, PolicyComparison, PoolStatus, ProcessStatus, Purged, Reloaded, RequestStatus,
    ServerCommand, ServerOrdered, ServerTest, TrafficSeries,
};

/// A running process, as its operator sees it.
///
/// Called on the console's thread, which may wait; implementations must not
/// make workers wait. Where `service` is `None`, all services are meant that
/// have the node.
pub trait Control: Send + Sync {
    /// The process at this moment.
    fn status(&self) -> ProcessStatus;

    /// No new requests for a node.
    ///
    /// # Errors
    /// An unknown service or node.
    fn drain_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError>;

    /// Requests for a drained node again.
    ///
    /// # Errors
    /// An unknown service or node, or one that is being removed.
    fn resume_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError>;

    /// Adds a node.
    ///
    /// # Errors
    /// What is taken, malformed or out of bounds; no service named where there
    /// are several.
    fn add_node(&self, node: &NewNode) -> Result<(), ControlError>;

    /// Removes a node; its requests get `timeout_ms` to end.
    ///
    /// # Errors
    /// An unknown service or node.
    fn remove_node(
        &self,
        service: Option<&str>,
        name: &str,
        timeout_ms: u64,
    ) -> Result<(), ControlError>;

    /// Changes a node's share under weighted policies.
    ///
    /// # Errors
    /// An unknown service or node, a weight out of bounds.
    fn set_weight(
        &self,
        service: Option<&str>,
        name: &str,
        weight: u32,
    ) -> Result<(), ControlError>;

    /// Changes how a service's nodes are chosen.
    ///
    /// # Errors
    /// An unknown service or policy.
    fn set_policy(&self, service: &str, policy: &str) -> Result<(), ControlError>;

    /// Compares policies of a service by an A/B test, in place of the one that goes on.
    ///
    /// # Errors
    /// An unknown service, policy or node; arms that are no test.
    fn start_comparison(&self, service: &str, arms: &[NewArm]) -> Result<(), ControlError>;

    /// Ends the A/B test of a service, and says what it has counted.
    ///
    /// # Errors
    /// An unknown service, or one without a test.
    fn stop_comparison(&self, service: &str) -> Result<PolicyComparison, ControlError>;

    /// The A/B test of a service.
    ///
    /// # Errors
    /// An unknown service, or one without a test.
    fn comparison(&self, service: &str) -> Result<PolicyComparison, ControlError>;

    /// The pools of all nodes of the cluster, as far as this process can ask them: on a thread of its own.
    fn pools_of_nodes(&self) -> Vec<NodePools>;

    /// The requests that its workers have at servers of pools and at nodes, the oldest first: on a thread of
    /// its own.
    fn requests(&self) -> Vec<RequestStatus>;

    /// Its requests over time, in steps of so many seconds.
    ///
    /// # Errors
    /// Other steps than there are.
    fn series(&self, step_s: u64) -> Result<TrafficSeries, ControlError>;

    /// The pools of all nodes that can be asked, with the counts of all added up: on a thread of its own.
    fn pools(&self) -> Vec<PoolStatus>;

    /// The requests of all nodes that can be asked: on a thread of its own.
    fn requests_of_nodes(&self) -> ClusterRequests;

    /// The requests of all nodes that can be asked over time: on a thread of its own.
    ///
    /// # Errors
    /// Other steps than there are.
    fn series_of_nodes(&self, step_s: u64) -> Result<ClusterSeries, ControlError>;

    /// Changes a server of a pool at all nodes: on a thread of its own.
    ///
    /// # Errors
    /// An unknown pool or server; what is taken, malformed or out of bounds; what no node could do.
    fn order_server(
        &self,
        pool: &str,
        name: &str,
        command: &ServerCommand,
    ) -> Result<ServerOrdered, ControlError>;

    /// Tests a server of a pool by a request: on a thread of its own.
    ///
    /// # Errors
    /// An unknown pool or server; a target or host that is none.
    fn test_server(
        &self,
        pool: &str,
        name: &str,
        test: &NewServerTest,
    ) -> Result<ServerTest, ControlError>;

    /// Purges `what`, as it was typed, at all nodes; softly: it is stale, not gone. Waits until they have applied
    /// it, at most `timeout_ms`: on a thread of its own.
    ///
    /// # Errors
    /// What names nothing that could be purged; nodes that are not linked.
    fn purge(
        &self,
        what: &[String],
        is_soft: bool,
        timeout_ms: u64,
    ) -> Result<Purged, ControlError>;

    /// Why all nodes, or that of this process, keep what a request asks for, or do not: on a thread of
    /// its own.
    ///
    /// # Errors
    /// What is no request; nodes that are not linked.
    fn explain(&self, asked: &NewExplain) -> Result<Explained, ControlError>;

    /// Reads the config file again.
    ///
    /// # Errors
    /// A file with an error, which is refused whole; a process without a file.
    fn reload(&self) -> Result<Reloaded, ControlError>;

    /// The config in force, every setting.
    fn config_toml(&self) -> String;

    /// All metrics in the text form of Prometheus.
    fn metrics_text(&self) -> String;
}

/// The process can't execute the command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It doesn't have the named item.
    #[error("{what}")]
    NotFound {
        /// A sentence for people.
        what: String,
        /// The nearest name that it has, if one is near.
        did_you_mean: Option<String>,
    },
    /// It conflicts with the current state.
    #[error("{what}")]
    Conflict {
        /// A sentence for people.
        what: String,
    },
    /// The command is not valid.
    #[error("{what}")]
    Invalid {
        /// A sentence for people.
        what: String,
        /// The nearest valid word, if one is near.
        did_you_mean: Option<String>,
    },
    /// It is possible, but not now or not here.
    #[error("{what}")]
    Unavailable {
        /// A sentence for people.
        what: String,
    },
}
