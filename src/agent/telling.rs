//! What is told besides the conditions: the Node's taints and Events about it. Neither holds up a condition.

use std::time::Duration;

use tracing::warn;

use super::{
    event::{Besides, Effect},
    state::State,
};
use crate::{
    clock::Now,
    cluster::{
        api::NodeView,
        events::{EventBook, Notice},
        gate::RequestKind,
        identity::Identity,
        taints::Tainter,
    },
    desired::{
        Transition,
        taints::{self, Suppression},
    },
    health::{MAX_MESSAGE_BYTES, Status, bounded, news::Pace, suppress::Suppressor},
    host::journal::Kind,
};

/// Why the kubelet's identity is not even tried with.
const NOT_AS_KUBELET: &str = "the kubelet's identity may not change taints (NodeRestriction forbids it); give the agent an \
                              identity of its own, /etc/nodevigil/kubeconfig";

impl State {
    /// Taints and events are about the Node of that name from now on.
    pub(super) fn tell_about(&mut self, node: &str) {
        self.tainter = Tainter::new(self.settings.taints.clone(), node);
        self.events = EventBook::new(node, self.settings.events.per_hour);
    }

    /// Takes in what the Node is, and which taints it has; `None`: there is none.
    pub(super) fn see_node(&mut self, view: Option<&NodeView>) {
        self.tainter
            .seen(view.map(|view| (view.uid.as_str(), &view.taints)));
        self.events.node(view.map(|view| view.uid.as_str()));
    }

    /// What the verdicts ask for besides conditions.
    pub(super) fn tell_besides(&mut self, transitions: Vec<Transition>, now: Now) {
        let quiet = self.standing_down();
        let suppression = if self.standing.suppressors().iter().any(Suppressor::lifts) {
            Suppression::Lifted
        } else if quiet.is_some() {
            Suppression::NoNew
        } else {
            Suppression::None
        };
        let wished = taints::wished(self.tainter.rules(), self.health.verdicts(), suppression);
        // Whoever leaves takes them along: nobody else would.
        let wished = if self.leaving.is_some() {
            Vec::new()
        } else {
            wished
        };
        self.tainter.want(wished, now);
        if self.desired.choice().shadow {
            return;
        }
        for transition in transitions {
            self.events.record(notice(&transition), now);
        }
        if quiet.is_some() != self.stands_down {
            self.stands_down = quiet.is_some();
            self.events.record(stand(quiet), now);
        }
    }

    /// What is found and, by the operator's choice, only a warning: an Event and a count.
    pub(super) fn tell_warnings(&mut self, now: Now) {
        for (kind, finding) in self.health.take_warnings() {
            self.counted.came_to(kind, finding.reason);
            let choice = self.desired.choice();
            if choice.shadow || !choice.tells(kind) {
                continue;
            }
            let transition = Transition {
                kind,
                status: kind.shown(Status::True),
                warning: true,
                reason: finding.reason.as_str(),
                message: bounded(&finding.message, MAX_MESSAGE_BYTES),
            };
            self.events.record(notice(&transition), now);
        }
    }

    /// The taints' and the events' turn, after the conditions'.
    pub(super) fn send_besides(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.may_send_besides() {
            return;
        }
        let now = self.link.time.of(now);
        let as_kubelet = matches!(self.link.identity(), Some(Identity::Kubelet(_)));
        if self.tainter.refuse(as_kubelet.then_some(NOT_AS_KUBELET)) {
            self.status_at = now.uptime;
            warn!(
                message_id = Kind::TaintsRefused.id(),
                "no taints: {NOT_AS_KUBELET}"
            );
        }
        let gate = &mut self.link.gate;
        if gate.is_open(RequestKind::Taints, now)
            && let Some(task) = self.tainter.next(now)
        {
            gate.sent(RequestKind::Taints, now);
            effects.push(Effect::Taint(Box::new(task)));
        }
        if gate.is_open(RequestKind::Events, now)
            && let Some(task) = self.events.next(now)
        {
            gate.sent(RequestKind::Events, now);
            effects.push(Effect::TellEvent(Box::new(task)));
        }
    }

    /// When the taints or the events want their turn (uptime).
    pub(super) fn next_besides(&self, now: Now) -> Option<Duration> {
        let gate = &self.link.gate;
        let taints = self.tainter.next_deadline(now);
        let events = self.events.next_deadline();
        let next = [
            taints.map(|at| at.max(gate.opens_at(RequestKind::Taints))),
            events.map(|at| at.max(gate.opens_at(RequestKind::Events))),
        ];
        let next = next.into_iter().flatten().min();
        next.filter(|_| self.may_send_besides())
    }

    /// Not while an apply is under way: nothing stands between a fact and the Node's condition.
    fn may_send_besides(&self) -> bool {
        let publisher = self.publisher.as_ref();
        self.link.is_connected()
            && !self.desired.choice().shadow
            && publisher.is_some_and(|publisher| !publisher.is_busy())
    }

    pub(super) fn apply_besides(&mut self, told: Besides, now: Now, effects: &mut Vec<Effect>) {
        let (kind, answer) = match told {
            Besides::Tainted(attempt, result) => {
                let answer = self.tainter.done(attempt, result, now);
                (RequestKind::Taints, answer)
            }
            Besides::Told(task, result) => {
                (RequestKind::Events, self.events.done(&task, result, now))
            }
        };
        if let Some(answer) = answer {
            self.status_at = now.uptime;
            self.answered(kind, answer.as_ref().copied(), now, effects);
        }
    }
}

fn notice(transition: &Transition) -> Notice {
    let (kind, status) = (transition.kind.as_str(), transition.status.as_str());
    Notice {
        warning: transition.warning,
        reason: transition.reason.to_owned(),
        action: "SetCondition",
        note: format!("{kind} is {status}: {}", transition.message),
        about: String::new(),
        pace: Pace::Urgent,
    }
}

fn stand(quiet: Option<String>) -> Notice {
    let (reason, note) = match quiet {
        Some(why) => ("StandingDown", format!("no new problem is told: {why}")),
        None => (
            "StandingDownEnded",
            "problems are told again, at once".to_owned(),
        ),
    };
    Notice {
        warning: false,
        reason: reason.to_owned(),
        action: "StandDown",
        note,
        about: String::new(),
        pace: Pace::Ordinary,
    }
}
