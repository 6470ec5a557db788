//! What the dispatcher publishes for the workers: immutable, swapped as a whole.
//!
//! Changes when the set of nodes, a weight, an address for clients or a setting does. Health and
//! drains are not part of it: they are a number in each [`Node`], which workers read at every pick.

use std::sync::Arc;

use crate::service::node::Node;
use crate::service::settings::ServiceSettings;

/// One state of a service, as workers see it.
#[derive(Debug)]
pub(crate) struct Published {
    /// Changes if and only if the set of nodes, their order or a weight does.
    pub(crate) nodes_version: u64,
    pub(crate) settings: Arc<ServiceSettings>,
    pub(crate) nodes: Vec<Entry>,
}

/// A node and its values that only change with a new [`Published`].
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) node: Arc<Node>,
    pub(crate) weight: u32,
    /// The redirect to this node, up to and with the authority.
    pub(crate) redirect_head: Box<[u8]>,
    /// `X-Skep-Node: NAME\r\n`, or nothing if that is disabled.
    pub(crate) node_line: Box<[u8]>,
}

impl Entry {
    /// `authority` is the clients' address of the node; it was checked.
    pub(crate) fn new(
        node: Arc<Node>,
        weight: u32,
        authority: &str,
        settings: &ServiceSettings,
    ) -> Self {
        let node_line = match settings.node_header {
            true => format!("X-Skep-Node: {}\r\n", node.name),
            false => String::new(),
        };
        let status = skep_http::encode::status_line(settings.redirect_status);
        let mut redirect_head = status.to_vec();
        redirect_head.extend_from_slice(b"Server: skep\r\nCache-Control: no-store\r\n");
        redirect_head.extend_from_slice(b"Content-Length: 0\r\n");
        redirect_head.extend_from_slice(node_line.as_bytes());
        redirect_head.extend_from_slice(b"Location: http://");
        redirect_head.extend_from_slice(authority.as_bytes());
        Self {
            node,
            weight,
            redirect_head: redirect_head.into(),
            node_line: node_line.into_bytes().into(),
        }
    }
}
