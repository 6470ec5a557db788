//! The interface to a running process that the API needs; implemented by the composition root.

use crate::model::{
    ClusterRequests, ClusterSeries, Explained, NewArm, NewExplain, NewNode, NewServerTest,
    NodePools, PolicyComparison, PoolStatus, ProcessStatus, Purged, Reloaded, RequestStatus,
    ServerCommand, ServerOrdered, ServerTest, TrafficSeries,
};

/// A running process, from its operator's view.
///
/// Called on the console's thread, which may block; implementations must not make workers wait. If `service`
/// is `None`, a call applies to all services that have the node.
pub trait Control: Send + Sync {
    /// The current state of the process.
    fn status(&self) -> ProcessStatus;

    /// Stops new requests to a node.
    ///
    /// # Errors
    /// The service or node is unknown.
    fn drain_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError>;

    /// Allows requests to a drained node again.
    ///
    /// # Errors
    /// The service or node is unknown, or the node is being removed.
    fn resume_node(&self, service: Option<&str>, name: &str) -> Result<(), ControlError>;

    /// Adds a node.
    ///
    /// # Errors
    /// A value is taken, malformed or out of bounds; or no service is named although there are several.
    fn add_node(&self, node: &NewNode) -> Result<(), ControlError>;

    /// Removes a node; its requests get `timeout_ms` to complete.
    ///
    /// # Errors
    /// The service or node is unknown.
    fn remove_node(
        &self,
        service: Option<&str>,
        name: &str,
        timeout_ms: u64,
    ) -> Result<(), ControlError>;

    /// Changes a node's weight under weighted policies.
    ///
    /// # Errors
    /// The service or node is unknown, or the weight is out of bounds.
    fn set_weight(
        &self,
        service: Option<&str>,
        name: &str,
        weight: u32,
    ) -> Result<(), ControlError>;

    /// Changes the policy by which a service selects nodes.
    ///
    /// # Errors
    /// The service or policy is unknown.
    fn set_policy(&self, service: &str, policy: &str) -> Result<(), ControlError>;

    /// Compares policies of a service by an A/B test, in place of its current one.
    ///
    /// # Errors
    /// A service, policy or node is unknown, or the arms do not form a test.
    fn start_comparison(&self, service: &str, arms: &[NewArm]) -> Result<(), ControlError>;

    /// Ends the A/B test of a service, and returns its counts.
    ///
    /// # Errors
    /// The service is unknown, or has no test.
    fn stop_comparison(&self, service: &str) -> Result<PolicyComparison, ControlError>;

    /// The A/B test of a service.
    ///
    /// # Errors
    /// The service is unknown, or has no test.
    fn comparison(&self, service: &str) -> Result<PolicyComparison, ControlError>;

    /// The pools of all nodes of the cluster that this process can ask. Called on a separate thread.
    fn pools_of_nodes(&self) -> Vec<NodePools>;

    /// The requests of its workers in progress at pool servers and at nodes, oldest first. Called on a
    /// separate thread.
    fn requests(&self) -> Vec<RequestStatus>;

    /// Its requests over time, in steps of `step_s`.
    ///
    /// # Errors
    /// There are no such steps.
    fn series(&self, step_s: u64) -> Result<TrafficSeries, ControlError>;

    /// The pools of all nodes that can be asked, with their counts added up. Called on a separate thread.
    fn pools(&self) -> Vec<PoolStatus>;

    /// The requests of all nodes that can be asked. Called on a separate thread.
    fn requests_of_nodes(&self) -> ClusterRequests;

    /// The requests over time of all nodes that can be asked. Called on a separate thread.
    ///
    /// # Errors
    /// There are no such steps.
    fn series_of_nodes(&self, step_s: u64) -> Result<ClusterSeries, ControlError>;

    /// Changes a server of a pool on all nodes. Called on a separate thread.
    ///
    /// # Errors
    /// The pool or server is unknown; a value is taken, malformed or out of bounds; or no node could carry
    /// out the order.
    fn order_server(
        &self,
        pool: &str,
        name: &str,
        command: &ServerCommand,
    ) -> Result<ServerOrdered, ControlError>;

    /// Tests a server of a pool by a request. Called on a separate thread.
    ///
    /// # Errors
    /// The pool or server is unknown, or the target or host is invalid.
    fn test_server(
        &self,
        pool: &str,
        name: &str,
        test: &NewServerTest,
    ) -> Result<ServerTest, ControlError>;

    /// Purges `what`, as typed by the operator, on all nodes; a soft purge makes it stale. Waits until the
    /// nodes have applied it, at most `timeout_ms`. Called on a separate thread.
    ///
    /// # Errors
    /// `what` names nothing that can be purged, or nodes are not linked.
    fn purge(
        &self,
        what: &[String],
        is_soft: bool,
        timeout_ms: u64,
    ) -> Result<Purged, ControlError>;

    /// Explains whether and why all nodes, or that of this process, cache the response to a request. Called
    /// on a separate thread.
    ///
    /// # Errors
    /// The request is invalid, or nodes are not linked.
    fn explain(&self, asked: &NewExplain) -> Result<Explained, ControlError>;

    /// Reads the config file again.
    ///
    /// # Errors
    /// The file contains an error, in which case none of it is applied; or the process has no file.
    fn reload(&self) -> Result<Reloaded, ControlError>;

    /// The config in force, with all settings.
    fn config_toml(&self) -> String;

    /// All metrics in Prometheus' text format.
    fn metrics_text(&self) -> String;
}

/// The process cannot execute the command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The named item does not exist.
    #[error("{what}")]
    NotFound {
        /// A sentence for the operator.
        what: String,
        /// The nearest existing name, if one is near.
        did_you_mean: Option<String>,
    },
    /// It conflicts with the current state.
    #[error("{what}")]
    Conflict {
        /// A sentence for the operator.
        what: String,
    },
    /// The command is not valid.
    #[error("{what}")]
    Invalid {
        /// A sentence for the operator.
        what: String,
        /// The nearest valid word, if one is near.
        did_you_mean: Option<String>,
    },
    /// The command is possible, but not now or not on this process.
    #[error("{what}")]
    Unavailable {
        /// A sentence for the operator.
        what: String,
    },
}
