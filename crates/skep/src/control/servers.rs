//! Adds servers to pools, by the API.

use skep_config::limits::SERVER_CONNECTIONS_MAX;
use skep_config::{ConnectionsScope, ServerConfig};
use skep_console::{ControlError, NewServer};
use skep_node::AddServerError;

use super::refusal;
use crate::running::Running;

pub(super) fn add(running: &Running, pool: &str, new: &NewServer) -> Result<(), ControlError> {
    let Some(node) = running.parts.node.as_ref() else {
        let what = "this process has no pools: ask a node".to_owned();
        return Err(ControlError::NotFound { what, did_you_mean: None });
    };
    let server = server_config(new)?;
    node.add_server(&running.config(), pool, server).map_err(|error| {
        let what = error.to_string();
        match error {
            AddServerError::NoPool(_) => ControlError::NotFound { what, did_you_mean: None },
            AddServerError::NeedsSecret(_)
            | AddServerError::OfFile(..)
            | AddServerError::Elsewhere(..) => invalid(what, None),
            AddServerError::Refused(error) => refusal(error),
        }
    })
}

/// As a config would say it; names, addresses and weights are judged where members are.
fn server_config(new: &NewServer) -> Result<ServerConfig, ControlError> {
    let of_config = ServerConfig::default();
    let connections_max = new.connections_max.unwrap_or(of_config.connections_max);
    if !(1..=SERVER_CONNECTIONS_MAX).contains(&connections_max) {
        let expected = format!("connections_max of 1 to {SERVER_CONNECTIONS_MAX}");
        return Err(invalid(format!("expected {expected}, found {connections_max}"), None));
    }
    Ok(ServerConfig {
        name: new.name.clone(),
        address: new.address,
        weight: new.weight.unwrap_or(of_config.weight),
        connections_max,
        connections_scope: scope(new)?,
        status_address: new.status_address,
    })
}

fn scope(new: &NewServer) -> Result<ConnectionsScope, ControlError> {
    let Some(word) = &new.connections_scope else { return Ok(ConnectionsScope::Auto) };
    ConnectionsScope::from_word(word).ok_or_else(|| {
        let known = ConnectionsScope::WORDS;
        let what = format!("connections_scope is one of {}, not {word:?}", known.join(", "));
        invalid(what, skep_units::nearest(word, known.iter().copied()))
    })
}

fn invalid(what: String, did_you_mean: Option<&str>) -> ControlError {
    ControlError::Invalid { what, did_you_mean: did_you_mean.map(str::to_owned) }
}
