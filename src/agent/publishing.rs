//! What the state makes of the API's word, and what it wants the Node to show.

use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    clock::Now,
    cluster::{
        api::{ApiError, NodeView, NodeWill},
        gate::RequestKind,
        publisher::NodeChange,
        watch::NodeEvent,
    },
    desired,
    host::journal::Kind,
};

impl State {
    pub(super) fn apply_node(&mut self, event: NodeEvent, now: Now, effects: &mut Vec<Effect>) {
        match &event {
            NodeEvent::Seen(view) => {
                self.link.saw(Some(&view.version));
                self.learn_of_node(&view.facts, now);
            }
            NodeEvent::Missing => self.link.saw(None),
        }
        let node = self.node_name();
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let change = publisher.node(event, now);
        if change != NodeChange::Same {
            self.status_at = now.uptime;
        }
        match change {
            NodeChange::Same => {}
            NodeChange::Overwritten => {
                warn!(%node, "somebody, or an old request of ours, overwrote our condition; putting it right");
            }
            NodeChange::Missing => {
                info!(message_id = Kind::NodeMissing.id(), %node, "the Node does not exist; waiting for it");
                self.standing.learn_will(&NodeWill::default());
            }
            NodeChange::First(view) => {
                info!(message_id = Kind::NodeFound.id(), %node, uid = %view.uid, "found the Node");
                for (kind, stored) in view.conditions {
                    self.health.get_mut(kind).adopt(stored);
                }
                self.tell(effects);
            }
            NodeChange::New(view) => {
                info!(message_id = Kind::NodeFound.id(), %node, uid = %view.uid, "a new Node has our name");
                self.health.node_is_new();
                self.standing.node_is_new(now);
                self.tell(effects);
            }
        }
    }

    pub(super) fn apply_applied(
        &mut self,
        attempt: u64,
        result: &Result<NodeView, ApiError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        if !publisher.done(attempt, result, now) {
            return;
        }
        if result.is_ok() {
            self.health.published();
        }
        self.status_at = now.uptime;
        let result = result.as_ref().map(|_| ());
        self.answered(RequestKind::Apply, result, now, effects);
    }

    pub(super) fn tell(&mut self, effects: &mut Vec<Effect>) {
        let conditions = desired::conditions(self.health.verdicts());
        self.wish();
        if conditions.is_empty() {
            return;
        }
        let words: Vec<String> = conditions
            .iter()
            .map(|c| format!("{}={} ({})", c.r#type.as_str(), c.status.as_str(), c.reason))
            .collect();
        effects.push(Effect::NotifyStatus(words.join(", ")));
        effects.push(Effect::SaveLedger(self.node_name(), conditions));
    }

    /// Nothing at all while there is no verdict: what an earlier Node of our name had is not this one's.
    pub(super) fn wish(&mut self) {
        let conditions = desired::conditions(self.health.verdicts());
        if let Some(publisher) = &mut self.publisher {
            publisher.want(conditions);
        }
    }
}
