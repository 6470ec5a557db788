//! The recorder of this process, with its inputs.

use std::sync::Arc;

use anyhow::Context;
use skep_agent::{
    CacheBytes, Recorder, RecorderParts, ServerCounters, ServerFigures, ServerGauges,
    register_recorder,
};
use skep_config::{Config, NodeConfig};
use skep_node::Node;
use skep_telemetry::{CoreGauge, Registry};

use crate::roles::Roles;

/// Starts recording, if the config names a file.
pub(crate) fn start(
    config: &Config,
    roles: &Roles,
    node: Option<&Arc<Node>>,
    registry: &Arc<Registry>,
) -> anyhow::Result<Option<Recorder>> {
    let figures = Figures { registry: Arc::clone(registry), node: node.cloned() };
    let parts = RecorderParts {
        name: roles.name.clone(),
        authority: roles.own_node(config).map(NodeConfig::client_authority),
        is_node: node.is_some(),
        figures: Box::new(figures),
    };
    let recorder = Recorder::start(&config.recorder, parts).context("cannot start a thread")?;
    if let Some(recorder) = &recorder {
        register_recorder(registry, recorder.counts());
    }
    Ok(recorder)
}

struct Figures {
    registry: Arc<Registry>,
    node: Option<Arc<Node>>,
}

impl ServerFigures for Figures {
    fn counters(&mut self) -> ServerCounters {
        let totals = self.registry.totals();
        ServerCounters {
            connections_accepted: totals.connections_accepted,
            requests: totals.requests,
            responses_5xx: totals.responses_5xx,
            redirects: totals.redirects,
            received_bytes: totals.received_bytes,
            sent_bytes: totals.sent_bytes,
            peer_sent_bytes: totals.peer_sent_bytes,
            cache_lookups: totals.cache_lookups(),
            cache_hits: totals.cache_hits(),
            peer_hits: totals.cache_peer_hit,
            peer_filled_bytes: totals.cluster_peer_bytes,
            origin_filled_bytes: totals.cluster_origin_bytes,
        }
    }

    fn gauges(&mut self) -> ServerGauges {
        let cluster = self.node.as_ref().and_then(|node| node.cluster());
        let sending_bytes = cluster.map_or(0, |cluster| cluster.sending_bytes());
        ServerGauges {
            connections: self.registry.gauge(CoreGauge::ConnectionsOpen),
            requests_in_flight: self.registry.gauge(CoreGauge::RequestsInFlight),
            bytes_outstanding: self.registry.gauge(CoreGauge::BytesOutstanding) + sending_bytes,
        }
    }

    fn cache(&mut self) -> Option<CacheBytes> {
        let stats = self.node.as_ref()?.store_stats();
        Some(CacheBytes { stored_bytes: stats.indexed_bytes, file_bytes: stats.file_bytes })
    }
}
