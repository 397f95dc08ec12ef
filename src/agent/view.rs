//! The state as `nodevigil status` shows it.

use super::state::State;
use crate::{
    checks::kubelet::Carrier,
    clock::Now,
    cluster::{identity::Identity, publisher::Publisher},
    desired::{self, PublishedType},
    health::{
        ConditionType, Reason, Status,
        suppress::{Quiet, Suppressor},
    },
    host::journal,
    status::{
        self, Api, ApiState, Condition, ConditionStatus, Events, Identity as IdentityStatus,
        IdentityKind, Kubelet, Peer, PeerState, PublishedAs, QuietKind, StatusFile, Taints,
    },
};

impl State {
    pub(super) fn status(&self, now: Now) -> StatusFile {
        StatusFile {
            started_at: Some(self.started.wall),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: Some(self.node_name()),
            identity: self.identity_status(),
            api: self.api_status(now),
            bus: peer(&self.bus),
            helper: peer(&self.helper),
            kubelet: self.kubelet_status(),
            quiet: self.quiet_status(),
            conditions: self.condition_status(),
            news: self.recent.iter().cloned().collect(),
            ignored_requests: self.standing.ignored(),
            turned_down: self.turned_down(),
            config_refused: self.settings.stand_in.as_ref().map(ToString::to_string),
            shadow: self.desired.choice().shadow,
            taints: self.taint_status(),
            events: self.event_status(),
            log_lines_dropped: journal::dropped(),
            locked_bytes: self.locked_bytes,
            stall_triggers: self.stall_triggers,
            metrics_socket: self.metrics_socket.clone(),
            ..StatusFile::new(now.wall)
        }
    }

    fn identity_status(&self) -> IdentityStatus {
        let identity = self.link.identity();
        IdentityStatus {
            kind: match identity {
                None => IdentityKind::Unknown,
                Some(Identity::Own(_)) => IdentityKind::Own,
                Some(Identity::Kubelet(_)) => IdentityKind::Kubelet,
                Some(Identity::None(_)) => IdentityKind::None,
            },
            detail: identity.map(Identity::describe),
        }
    }

    fn api_status(&self, now: Now) -> Api {
        let failure = self.link.gate.failure();
        let last_success = self.publisher.as_ref().and_then(Publisher::last_success);
        Api {
            state: self.api_state(),
            last_success_at: last_success.map(|now| now.wall),
            last_error: failure.map(|(error, _)| error.to_string()),
            failures: failure.map_or(0, |(_, count)| u64::from(count)),
            clock_ahead_secs: (self.link.time.wall_is_ahead_by(now)).map(|ahead| ahead.as_secs()),
        }
    }

    fn api_state(&self) -> ApiState {
        let missing = self
            .publisher
            .as_ref()
            .is_some_and(Publisher::node_is_missing);
        let last_success = self.publisher.as_ref().and_then(Publisher::last_success);
        if matches!(self.link.identity(), Some(Identity::None(_))) {
            ApiState::None
        } else if self.link.gate.failure().is_some() {
            ApiState::Retrying
        } else if missing {
            ApiState::NodeMissing
        } else if last_success.is_some() || self.is_shown_the_node() {
            ApiState::Connected
        } else {
            ApiState::Connecting
        }
    }

    /// Whether the API server does what it is asked; `None`: it was not asked yet, or is not to be.
    pub(super) fn api_is_up(&self) -> Option<bool> {
        match self.api_state() {
            ApiState::Connected | ApiState::NodeMissing => Some(true),
            ApiState::Retrying => Some(false),
            ApiState::Connecting | ApiState::None | ApiState::Unknown => None,
        }
    }

    /// Whether the Node has this condition as it stands here, under some name.
    pub(super) fn is_published(&self, kind: ConditionType) -> bool {
        let names = self.published_as(&[kind]);
        self.published_at().is_some() && names.iter().any(|name| name.refused.is_none())
    }

    /// In the shadow nothing is ever written: to see the Node is all that can be had.
    fn is_shown_the_node(&self) -> bool {
        let publisher = self.publisher.as_ref();
        self.desired.choice().shadow && publisher.is_some_and(Publisher::node_is_there)
    }

    fn kubelet_status(&self) -> Kubelet {
        Kubelet {
            pid: self
                .kubelet
                .process()
                .and_then(|process| u32::try_from(process.pid).ok()),
            unit: self
                .settings
                .kubelet
                .pid_file
                .is_none()
                .then(|| self.settings.kubelet.unit.clone()),
            state: self.kubelet.state().to_owned(),
            carried: self.kubelet.carrier().and_then(carried),
            healthz_url: self.url().map(ToString::to_string),
            since: Some(self.kubelet_since.wall),
            client_certificate_expires_at: self.counted.certificate_ends(),
            client_certificate_expires_soon: self.finds(|reason| {
                matches!(
                    reason,
                    Reason::KubeletClientCertExpiring | Reason::KubeletClientCertExpired
                )
            }),
        }
    }

    fn quiet_status(&self) -> Vec<status::Quiet> {
        let quiet = |asks: &Suppressor| status::Quiet {
            kind: match asks.quiet() {
                Quiet::StandDown => QuietKind::StandDown,
                Quiet::Hold => QuietKind::Hold,
            },
            by: asks.to_string(),
            until: match asks {
                Suppressor::Paused { until, .. } => *until,
                _ => None,
            },
        };
        self.standing.suppressors().iter().map(quiet).collect()
    }

    fn turned_down(&self) -> std::collections::BTreeMap<String, String> {
        let chosen = self.settings.reasons.iter();
        let words = chosen.map(|(reason, told_as)| (reason.as_str(), told_as.as_str()));
        words
            .map(|(reason, word)| (reason.to_owned(), word.to_owned()))
            .collect()
    }

    fn condition_status(&self) -> Vec<Condition> {
        let told = self.desired.told();
        let native = told.iter().filter(|c| c.r#type.spec().is_native());
        native
            .map(|condition| {
                let published_as = self.published_as(condition.r#type.spec().fed_by);
                let is_out = published_as.iter().any(|one| one.refused.is_none());
                Condition {
                    kind: condition.r#type.as_str().to_owned(),
                    status: word(condition.status),
                    reason: condition.reason.clone(),
                    severity: severity(&condition.reason).to_owned(),
                    message: condition.message.clone(),
                    last_transition_time: Some(self.transition_time(condition)),
                    published_at: self.published_at().filter(|_| is_out),
                    published_as,
                }
            })
            .collect()
    }

    /// When its status flipped, as the Node shows it where it does: an outage may have hidden the flip for a while.
    fn transition_time(&self, condition: &desired::Condition) -> jiff::Timestamp {
        let publisher = self.publisher.as_ref();
        let shown = publisher.and_then(|publisher| publisher.shown_since(condition));
        shown.unwrap_or(condition.last_transition_time)
    }

    /// The same of every condition under its own name.
    pub(super) fn transition_times(&self) -> Vec<(ConditionType, jiff::Timestamp)> {
        let told = self.desired.told().iter();
        let native = told.filter(|c| c.r#type.spec().is_native());
        native
            .flat_map(|c| {
                let at = self.transition_time(c);
                c.r#type.spec().fed_by.iter().map(move |kind| (*kind, at))
            })
            .collect()
    }

    fn published_at(&self) -> Option<jiff::Timestamp> {
        let publisher = self.publisher.as_ref()?;
        let at = publisher.is_current().then(|| publisher.last_success())?;
        at.map(|now| now.wall)
    }

    /// The types under which a condition is published, or would be in the light.
    fn published_as(&self, of: &[ConditionType]) -> Vec<PublishedAs> {
        let feeds = |t: PublishedType| t.spec().fed_by.iter().any(|kind| of.contains(kind));
        let published = self.desired.told().iter();
        published
            .filter(|c| feeds(c.r#type) && self.desired.choice().publishes(c.r#type))
            .map(|c| PublishedAs {
                kind: c.r#type.as_str().to_owned(),
                dialect: c.r#type.spec().dialect.as_str().to_owned(),
                status: word(c.status),
                last_transition_time: Some(self.transition_time(c)),
                refused: self.refusal(c.r#type),
            })
            .collect()
    }

    fn refusal(&self, r#type: PublishedType) -> Option<String> {
        let mut refused = self.publisher.as_ref()?.refused().iter();
        let refusal = refused.find(|refusal| refusal.r#type == r#type)?;
        let manager = &refusal.manager;
        Some(if refusal.contested {
            format!("left to the field manager {manager}, which overwrote it again and again")
        } else {
            format!("left to the field manager {manager}, which had it first")
        })
    }

    fn taint_status(&self) -> Taints {
        let conditions = self.tainter.rules().conditions.iter();
        Taints {
            conditions: conditions.map(|kind| kind.as_str().to_owned()).collect(),
            on_node: self.tainter.shown().collect(),
            to_add: self.tainter.to_add(),
            problem: self.tainter.problem(),
        }
    }

    fn event_status(&self) -> Events {
        Events {
            sent: self.events.sent(),
            dropped: self.events.dropped(),
            waiting: u64::try_from(self.events.waiting()).unwrap_or(u64::MAX),
            problem: self.events.error().map(ToString::to_string),
        }
    }
}

/// Of another version's reason nothing is known.
fn severity(reason: &str) -> &'static str {
    Reason::parse(reason).map_or("", |reason| reason.severity().as_str())
}

fn word(status: Status) -> ConditionStatus {
    match status {
        Status::True => ConditionStatus::True,
        Status::False => ConditionStatus::False,
        Status::Unknown => ConditionStatus::Unknown,
    }
}

fn peer(peer: &super::peer::Peer) -> Peer {
    let (state, detail) = match peer.known() {
        None => (PeerState::Unknown, None),
        Some(Ok(())) => (PeerState::Ok, None),
        Some(Err(why)) => (PeerState::Unavailable, Some(why.to_owned())),
    };
    Peer { state, detail }
}

/// How the kubelet is run, where its unit does not tell everything of it.
fn carried(carrier: &Carrier) -> Option<String> {
    match carrier {
        Carrier::Unit => None,
        Carrier::Child(parent) => Some(format!(
            "a child of {parent} (its unit tells nothing of the kubelet)"
        )),
        Carrier::InProcess(program) => Some(format!(
            "inside {program} (only that process and healthz are watched)"
        )),
    }
}
