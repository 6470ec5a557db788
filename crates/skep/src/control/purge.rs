//! Purges from the management API: by the coordinator of this process, which sends them to all nodes; or at
//! the only node.

use skep_config::{Config, SiteConfig};
use skep_console::{ControlError, PurgeOutcome, Purged, PurgedNode};
use skep_coordinator::{Coordination, parse_purge};
use skep_directory::{PurgeFate, PurgeReport};
use skep_dispatcher::Openness;
use skep_wire::cache::{PurgeKind, PurgePlace, PurgeWhat};
use skep_wire::limits::PURGES_PER_MESSAGE_MAX;
use skep_wire::message::Name;

use super::no_dispatcher;
use crate::running::Running;

/// Purges `what`, and waits at most `timeout_ms` until all linked nodes, and all that serve clients, have
/// acknowledged it.
pub(super) fn purge(
    running: &Running,
    (kind, what): (PurgeKind, &[String]),
    timeout_ms: u64,
) -> Result<Purged, ControlError> {
    let config = running.config();
    let what = parse(&config, what)?;
    if let Some(coordination) = running.parts.cluster_cache.coordination() {
        return at_all(running, coordination, (kind, what), timeout_ms);
    }
    match (&running.parts.node, config.nodes.as_slice()) {
        // This node is the whole cluster.
        (Some(node), [_]) if !config.cooperates() => {
            let acknowledged = (PurgeOutcome::Acknowledged, Some(0));
            let nodes = vec![told(&running.roles.name, acknowledged)];
            Ok(Purged { stamp: node.purge(kind, what).0, complete: true, nodes })
        }
        _ if running.parts.dispatchers.is_empty() => Err(no_dispatcher()),
        _ => Err(ControlError::Unavailable { what: not_linked() }),
    }
}

fn not_linked() -> String {
    "no purge reaches the nodes of this cluster, since they are not linked with its dispatchers. \
     That takes key_file, an address of each [[dispatcher]], cache.cooperate = true, and a site \
     with origins or with content = \"shared\" or \"partition\""
        .to_owned()
}

fn parse(config: &Config, texts: &[String]) -> Result<Vec<PurgeWhat>, ControlError> {
    let invalid = |what: String| ControlError::Invalid { what, did_you_mean: None };
    if !(1..=PURGES_PER_MESSAGE_MAX).contains(&texts.len()) {
        let count = texts.len();
        return Err(invalid(format!(
            "expected 1 to {PURGES_PER_MESSAGE_MAX} things to purge, found {count}"
        )));
    }
    let parse = |text: &String| {
        let what = parse_purge(text).map_err(|error| invalid(error.to_string()))?;
        match &what {
            PurgeWhat::Url(PurgePlace { host: Some(host), .. })
            | PurgeWhat::Prefix(PurgePlace { host: Some(host), .. })
                if !config.sites.iter().any(|site| answers_for(site, host)) =>
            {
                Err(invalid(format!("{text:?}: no site of this cluster answers for {host}")))
            }
            _ => Ok(what),
        }
    };
    texts.iter().map(parse).collect()
}

/// Whether a site may answer for a host name, given in lower case.
fn answers_for(site: &SiteConfig, host: &str) -> bool {
    let is_it = |own: &String| {
        let own = own.to_ascii_lowercase();
        match own.strip_prefix('*') {
            Some(suffix) => host.ends_with(suffix),
            None => host == own,
        }
    };
    site.hosts.is_empty() || site.hosts.iter().any(is_it)
}

fn at_all(
    running: &Running,
    coordination: &Coordination,
    (kind, what): (PurgeKind, Vec<PurgeWhat>),
    limit_ms: u64,
) -> Result<Purged, ControlError> {
    let report = coordination.purge((kind, what), limit_ms, || serving(running));
    let report = report.map_err(|error| ControlError::Unavailable { what: error.to_string() })?;
    if report.nodes.is_empty() {
        let what = "no node is linked with this dispatcher, so there is none to purge".to_owned();
        return Err(ControlError::Unavailable { what });
    }
    Ok(purged(&running.config(), &report, &serving(running)))
}

/// The names of the nodes that receive clients' requests: they pass the checks of a service of this process,
/// and are not drained.
fn serving(running: &Running) -> Vec<Name> {
    let candidates =
        running.parts.dispatchers.iter().flat_map(|service| service.group().candidates());
    let open = candidates.filter(|candidate| candidate.openness == Openness::Open);
    let mut names: Vec<_> = open.filter_map(|open| Name::new(&open.name).ok()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The outcome at each node; `serving` are the nodes that serve clients now.
fn purged(config: &Config, report: &PurgeReport, serving: &[Name]) -> Purged {
    let asked = report.nodes.iter().map(|(name, fate)| {
        let outcome = match *fate {
            PurgeFate::Acknowledged { ms } => (PurgeOutcome::Acknowledged, Some(ms)),
            PurgeFate::Late => (PurgeOutcome::Late, None),
            // The node is about to be detected as dead, or was drained meanwhile.
            _ if !serving.contains(name) => (PurgeOutcome::Away, None),
            PurgeFate::Lost => (PurgeOutcome::Lost, None),
            PurgeFate::Unlinked => (PurgeOutcome::Unlinked, None),
        };
        told(name.as_str(), outcome)
    });
    let is_asked = |name: &str| report.nodes.iter().any(|(asked, _)| asked.as_str() == name);
    let away = config.nodes.iter().filter(|node| !is_asked(&node.name));
    let away = away.map(|node| told(&node.name, (PurgeOutcome::Away, None)));
    let mut nodes: Vec<_> = asked.chain(away).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let is_done =
        |node: &PurgedNode| matches!(node.outcome, PurgeOutcome::Acknowledged | PurgeOutcome::Away);
    Purged { stamp: report.stamp.0, complete: nodes.iter().all(is_done), nodes }
}

fn told(name: &str, (outcome, ms): (PurgeOutcome, Option<u64>)) -> PurgedNode {
    PurgedNode { name: name.to_owned(), outcome, ms }
}
