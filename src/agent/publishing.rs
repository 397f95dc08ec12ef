//! What the state makes of the API's word, and what it wants the Node to show.

use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    clock::Now,
    cluster::{
        api::{ApiError, NodeView, NodeWill},
        publisher::{NodeChange, Remedy},
        watch::NodeEvent,
    },
    desired,
    host::journal::Kind,
};

impl State {
    pub(super) fn apply_node(&mut self, event: NodeEvent, now: Now, effects: &mut Vec<Effect>) {
        if let NodeEvent::Failed(error) = &event
            && self.link.watch_failed(error)
        {
            self.reconnect(effects);
        }
        if !matches!(event, NodeEvent::Failed(_)) {
            self.link.watch_answers();
        }
        if let NodeEvent::Seen(view) = &event {
            self.learn_of_node(&view.facts, now);
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
        result: Result<NodeView, ApiError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        let failed_before = publisher.failure().is_some();
        if result.is_ok() {
            self.health.published();
        }
        let remedy = publisher.done(attempt, result, now);
        match publisher.failure() {
            Some((error, _)) if !failed_before => {
                warn!(message_id = Kind::PublishFailed.id(), %error, "cannot publish; trying again until it works");
            }
            None if failed_before => {
                info!(
                    message_id = Kind::PublishRecovered.id(),
                    "publishing works again"
                );
            }
            _ => {}
        }
        self.status_at = now.uptime;
        if remedy != Remedy::Wait {
            self.reconnect(effects);
        }
    }

    fn reconnect(&mut self, effects: &mut Vec<Effect>) {
        self.link.seek_now();
        effects.push(Effect::Disconnect);
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
