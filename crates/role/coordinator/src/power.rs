//! Nodes that are to be off, in the thread of the links: they are ordered off and on, and report their stages.
//!
//! Invariant: a node that was never wanted off gets no order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{NodeFeatures, PowerStage, ToNode};
use skep_wire::message::Name;

/// How far the linked nodes are that can be off.
pub type PowerStages = BTreeMap<Name, PowerStage>;

#[derive(Default)]
pub(crate) struct NodePower {
    wanted_off: BTreeSet<Name>,
    links: HashMap<LinkId, PowerLink>,
    shown: Arc<ArcSwap<PowerStages>>,
}

/// A node that can be off.
struct PowerLink {
    name: Name,
    /// What it was told last; at first, that it is to be on.
    told_off: bool,
    stage: PowerStage,
}

impl NodePower {
    pub(crate) fn new(shown: &Arc<ArcSwap<PowerStages>>) -> Self {
        Self { shown: Arc::clone(shown), ..Self::default() }
    }

    /// A node has said hello.
    pub(crate) fn joined(
        &mut self,
        link: LinkId,
        (name, features): (Name, NodeFeatures),
        outbox: &mut Outbox<ToNode>,
    ) {
        if features.has_power() {
            let power = PowerLink { name, told_off: false, stage: PowerStage::On };
            self.links.insert(link, power);
            self.tell(outbox);
            self.show();
        }
    }

    /// A link is gone.
    pub(crate) fn left(&mut self, link: LinkId) {
        if self.links.remove(&link).is_some() {
            self.show();
        }
    }

    /// These nodes are to be off, and all others on.
    pub(crate) fn want_off(&mut self, nodes: BTreeSet<Name>, outbox: &mut Outbox<ToNode>) {
        self.wanted_off = nodes;
        self.tell(outbox);
    }

    /// A node says how far it is.
    pub(crate) fn heard(&mut self, link: LinkId, stage: PowerStage) {
        if let Some(power) = self.links.get_mut(&link) {
            power.stage = stage;
            self.show();
        }
    }

    fn tell(&mut self, outbox: &mut Outbox<ToNode>) {
        for (&link, power) in &mut self.links {
            let is_off = self.wanted_off.contains(&power.name);
            if std::mem::replace(&mut power.told_off, is_off) != is_off {
                // A link that takes no more ends, and begins anew.
                let _ = outbox.send(link, &ToNode::Power { is_off });
            }
        }
    }

    fn show(&self) {
        let stages = self.links.values().map(|power| (power.name.clone(), power.stage));
        self.shown.store(Arc::new(stages.collect()));
    }
}
