//! The state as `nodevigil status` shows it.

use super::state::State;
use crate::{
    checks::kubelet::Endpoint,
    clock::Now,
    cluster::{identity::Identity, publisher::Publisher},
    health::{
        Status,
        suppress::{Quiet, Suppressor},
    },
    host::journal,
    status::{
        self, Api, ApiState, Condition, ConditionStatus, Identity as IdentityStatus, IdentityKind,
        Kubelet, Peer, PeerState, QuietKind, StatusFile,
    },
};

impl State {
    pub(super) fn status(&self, now: Now) -> StatusFile {
        StatusFile {
            started_at: Some(self.started.wall),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            node: Some(self.node_name()),
            identity: self.identity_status(),
            api: self.api_status(),
            bus: peer(&self.bus),
            helper: peer(&self.helper),
            kubelet: self.kubelet_status(),
            quiet: self.quiet_status(),
            conditions: self.condition_status(),
            log_lines_dropped: journal::dropped(),
            locked_bytes: self.locked_bytes,
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

    fn api_status(&self) -> Api {
        let failure = self.link.gate.failure();
        let error = failure.map(|(error, _)| error);
        let missing = self
            .publisher
            .as_ref()
            .is_some_and(Publisher::node_is_missing);
        let last_success = self.publisher.as_ref().and_then(Publisher::last_success);
        let state = if matches!(self.link.identity(), Some(Identity::None(_))) {
            ApiState::None
        } else if error.is_some() {
            ApiState::Retrying
        } else if missing {
            ApiState::NodeMissing
        } else if last_success.is_some() {
            ApiState::Connected
        } else {
            ApiState::Connecting
        };
        Api {
            state,
            last_success_at: last_success.map(|now| now.wall),
            last_error: error.map(ToString::to_string),
            failures: failure.map_or(0, |(_, count)| u64::from(count)),
        }
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
            healthz_url: match self.kubelet.endpoint() {
                Some(Endpoint::Known(url) | Endpoint::Assumed(url)) => Some(url.clone()),
                Some(Endpoint::Disabled) | None => None,
            },
            since: Some(self.kubelet_since.wall),
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

    fn condition_status(&self) -> Vec<Condition> {
        let published_at = self
            .publisher
            .as_ref()
            .filter(|publisher| publisher.is_current())
            .and_then(Publisher::last_success);
        self.health
            .verdicts()
            .map(|(kind, verdict)| Condition {
                kind: kind.as_str().to_owned(),
                status: match verdict.status {
                    Status::True => ConditionStatus::True,
                    Status::False => ConditionStatus::False,
                    Status::Unknown => ConditionStatus::Unknown,
                },
                reason: verdict.reason.as_str().to_owned(),
                message: verdict.message.clone(),
                last_transition_time: Some(verdict.since),
                published_at: published_at.map(|now| now.wall),
            })
            .collect()
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
