//! What the state makes of the API's word, and what it wants the Node to show.

use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    checks::{Reading, bootstrap::NodeReading},
    clock::Now,
    cluster::{
        api::{ApiError, NodeView, NodeWill, Ready},
        gate::RequestKind,
        owners::OwnerNews,
        publisher::{NodeChange, Publisher},
        watch::NodeEvent,
    },
    desired::{self, PublishedType, Wish},
    health::{Stored, Written},
    host::journal::Kind,
    ledger::Ledger,
};

impl State {
    /// What an earlier life of ours kept.
    pub(super) fn adopt(&mut self, ledger: Ledger, now: Now) {
        if self.settings.node.name.is_none() {
            self.hostname_override.clone_from(&ledger.node);
        }
        // A record of another Node's, as after a change of the configured name, is not ours.
        if ledger.node.as_deref() != Some(&self.node_name()) {
            return;
        }
        self.past_of = ledger.uid;
        let stored = ledger.conditions.into_iter().map(|condition| {
            let stored = Stored {
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                since: condition.last_transition_time,
            };
            (condition.r#type, stored)
        });
        self.health.remember(&ledger.remembered, now);
        self.standing.have_warned(ledger.warned);
        // The ledger is this boot's: it was emptied with it.
        self.take_back(&stored.collect::<Vec<_>>(), |_| Written::InThisBoot);
    }

    pub(super) fn apply_node(&mut self, event: NodeEvent, now: Now, effects: &mut Vec<Effect>) {
        match &event {
            NodeEvent::Seen(view) => {
                self.link.saw(Some(&view.version));
                self.ready = view.ready;
                self.standing.recall(view.standing_down.as_deref());
                self.learn_of_node(&view.facts, now);
                self.see_node(Some(view));
                let seen = node_reading(&self.node_name(), view);
                // Its age is by the cluster's time.
                self.offer(&Reading::Node(Some(Box::new(seen))), self.link.time.of(now));
            }
            NodeEvent::Missing => {
                self.link.node_is_missing(now);
                self.ready = Ready::default();
                self.see_node(None);
                self.offer(&Reading::Node(None), now);
            }
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
                self.standing.learn_will(&NodeWill::default(), now);
            }
            NodeChange::First(view) => {
                info!(message_id = Kind::NodeFound.id(), %node, uid = %view.uid, "found the Node");
                if self.past_of.take().is_some_and(|uid| uid != view.uid) {
                    // It was made anew while we were away: what the ledger tells is the past of another.
                    self.health.node_is_new();
                    self.desired.node_is_new();
                }
                // What another agent says under a name of ours is not our past.
                let ours = |r#type| {
                    let owner = view.owners.iter().find(|owner| owner.r#type == r#type);
                    owner.is_none_or(|owner| owner.ours || owner.foreign.is_none())
                };
                let stored = view.conditions.into_iter().filter(|(t, _)| ours(*t));
                let then = self.link.time.of(now);
                self.take_back(&stored.collect::<Vec<_>>(), |stored| written(stored, then));
                self.tell(now, effects);
            }
            NodeChange::New(view) => {
                info!(message_id = Kind::NodeFound.id(), %node, uid = %view.uid, "a new Node has our name");
                self.health.node_is_new();
                self.desired.node_is_new();
                self.standing.node_is_new(now);
                self.tell(now, effects);
            }
        }
        self.say_owners(now);
    }

    /// What an earlier life published, from the API or the ledger.
    pub(super) fn take_back(
        &mut self,
        stored: &[(PublishedType, Stored)],
        written: impl Fn(&Stored) -> Written,
    ) {
        let has = |kind| (stored.iter()).any(|(t, _)| *t == PublishedType::native(kind));
        for (r#type, stored) in stored {
            self.desired.adopt(*r#type, stored);
            let Some((kind, native)) = desired::in_native(*r#type, stored) else {
                continue;
            };
            // Its own name knows best; another dialect's is the memory where that one is not published.
            if r#type.spec().is_native() || !has(kind) {
                let written = written(&native);
                self.health.get_mut(kind).adopt(native, written);
            }
        }
    }

    /// One line for each type that is somebody else's, and for each that no longer is.
    fn say_owners(&mut self, now: Now) {
        let news = self.publisher.as_mut().map(Publisher::owner_news);
        for news in news.unwrap_or_default() {
            self.status_at = now.uptime;
            match news {
                OwnerNews::Refused(refusal) => {
                    let (name, manager) = (refusal.r#type.as_str(), &refusal.manager);
                    let dialect = refusal.r#type.spec().dialect.as_str();
                    let how = if refusal.contested {
                        "overwrites it again and again"
                    } else {
                        "had it first"
                    };
                    warn!(
                        message_id = Kind::TypeRefused.id(),
                        condition = name,
                        manager,
                        "condition {name} is left to the field manager {manager}, which {how}: two writers of one condition \
                         reset each other's clock; stop that agent and remove its condition, or take {dialect} out of \
                         [kubernetes] dialects"
                    );
                }
                OwnerNews::Taken(r#type) => {
                    info!(
                        message_id = Kind::TypeTaken.id(),
                        condition = r#type.as_str(),
                        "condition {} has no other owner any more: publishing it",
                        r#type.as_str()
                    );
                }
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
        let is_outdated = publisher.is_outdated(attempt, result);
        if !publisher.done(attempt, result, now) {
            return;
        }
        if let Ok(view) = result {
            self.health.published();
            self.desired.published();
            self.see_node(Some(view));
            self.say_owners(now);
            self.rehearse_once(effects);
        }
        self.status_at = now.uptime;
        if is_outdated {
            self.link.read_anew();
        }
        let result = if is_outdated {
            Ok(())
        } else {
            result.as_ref().map(|_| ())
        };
        self.answered(RequestKind::Apply, result, now, effects);
    }

    /// What is found has changed, or what is known of the Node's past.
    pub(super) fn tell(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let now = self.link.time.of(now);
        let transitions = self.desired.update(self.health.verdicts(), now);
        self.wish(now);
        self.tell_besides(transitions, now);
        let told = self.desired.told();
        if told.is_empty() {
            return;
        }
        let native = told.iter().filter(|c| c.r#type.spec().is_native());
        let words: Vec<String> = native
            .map(|c| format!("{}={} ({})", c.r#type.as_str(), c.status.as_str(), c.reason))
            .collect();
        effects.push(Effect::NotifyStatus(words.join(", ")));
        self.keep(effects);
    }

    /// Nothing at all while there is no verdict: what an earlier Node of our name had is not this one's.
    pub(super) fn wish(&mut self, now: Now) {
        let conditions = match &self.leaving {
            Some(leaving) => leaving.published.clone(),
            None => self.desired.conditions(),
        };
        let wish = conditions.map(|conditions| Wish {
            conditions,
            standing_down: self.standing_annotation(),
        });
        if let Some(publisher) = &mut self.publisher {
            publisher.want(wish, now);
        }
    }
}

/// In which boot the Node's condition was written, by its transition time: a status that flipped before the host came up was
/// not told of this boot. One that this boot's ledger has told too was taken back from there. A wrong clock can make either of
/// the other: then a problem that is over lasts a healthy spell, or one that is there is found by the next look.
fn written(stored: &Stored, now: Now) -> Written {
    let up = i64::try_from(now.uptime.as_secs()).unwrap_or(i64::MAX);
    let booted = now.wall.as_second().saturating_sub(up);
    if stored.since.as_second() < booted {
        Written::InAnEarlierBoot
    } else {
        Written::InThisBoot
    }
}

/// What the check of a young Node reads of it.
fn node_reading(name: &str, view: &NodeView) -> NodeReading {
    let own = PublishedType::NodeBootstrapped;
    let mut shown = view.conditions.iter();
    NodeReading {
        words: view.words(name),
        shown: shown
            .find(|(kind, _)| *kind == own)
            .map(|(_, stored)| stored.status),
    }
}
