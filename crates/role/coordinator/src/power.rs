//! Nodes to be switched off, in the link thread: they are ordered off and on, and report their stages.
//!
//! Invariant: a node that never had to be off gets no order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use skep_peer::stream::{LinkId, Outbox};
use skep_wire::cache::{NodeFeatures, PowerStage, ToNode};
use skep_wire::message::Name;

/// The power stages of the linked nodes that can be switched off.
pub type PowerStages = BTreeMap<Name, PowerStage>;

#[derive(Default)]
pub(crate) struct NodePower {
    wanted_off: BTreeSet<Name>,
    links: HashMap<LinkId, PowerLink>,
    shown: Arc<ArcSwap<PowerStages>>,
}

/// A node that can be switched off.
struct PowerLink {
    name: Name,
    /// The last order sent; initially on.
    told_off: bool,
    stage: PowerStage,
}

impl NodePower {
    pub(crate) fn new(shown: &Arc<ArcSwap<PowerStages>>) -> Self {
        Self { shown: Arc::clone(shown), ..Self::default() }
    }

    /// Handles a node's hello.
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

    /// Handles the end of a link.
    pub(crate) fn left(&mut self, link: LinkId) {
        if self.links.remove(&link).is_some() {
            self.show();
        }
    }

    /// Switches these nodes off, and all others on.
    pub(crate) fn want_off(&mut self, nodes: BTreeSet<Name>, outbox: &mut Outbox<ToNode>) {
        self.wanted_off = nodes;
        self.tell(outbox);
    }

    /// Handles a node's report of its stage.
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
                // A link whose queue is full is closed, and the node links again.
                let _ = outbox.send(link, &ToNode::Power { is_off });
            }
        }
    }

    fn show(&self) {
        let stages = self.links.values().map(|power| (power.name.clone(), power.stage));
        self.shown.store(Arc::new(stages.collect()));
    }
}
