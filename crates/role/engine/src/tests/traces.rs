//! Records the states in connections' traces.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The states of all connections, by the addresses of their clients.
#[derive(Clone, Default)]
pub(super) struct States(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl States {
    /// All states of the connection of `peer`, in order.
    pub(super) fn of(&self, peer: &str) -> Vec<String> {
        self.0.lock().unwrap().get(peer).cloned().unwrap_or_default()
    }
}

impl Subscriber for States {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("skep_engine")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Some(state) = fields.state else { return };
        let mut states = self.0.lock().unwrap();
        // The port is used again.
        if state == "New" {
            states.remove(&fields.peer);
        }
        states.entry(fields.peer).or_default().push(state);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields {
    peer: String,
    state: Option<String>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "peer" => self.peer = format!("{value:?}"),
            "state" => self.state = Some(format!("{value:?}")),
            _ => {}
        }
    }
}
