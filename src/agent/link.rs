//! The way to the API: looking for an identity, having one, losing it.

use std::time::Duration;

use tracing::{info, warn};

use super::{event::Effect, state::State};
use crate::{
    clock::Now,
    cluster::{
        api::ApiError,
        identity::{Identity, IdentityError},
        publisher::Publisher,
    },
    host::{helper::HelperError, journal::Kind},
};

/// Wait between two looks for an identity: doubled from the first to the last.
const SEEK: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));

/// Where we stand.
#[derive(Debug)]
pub(super) struct Link {
    stage: Stage,
    /// What was said last, so that it is said once.
    said: Option<Identity>,
    wait: Duration,
    /// The watch's last failure that no answer has followed.
    watch_error: Option<ApiError>,
    /// Whether anything that `status` shows has changed.
    changed: bool,
    /// Whether the credential was already read anew for this 401.
    credential_was_read: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The next look is at that uptime.
    Seeking(Duration),
    /// A look is under way.
    Looking,
    Connected,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            stage: Stage::Seeking(Duration::ZERO),
            said: None,
            wait: SEEK.0,
            watch_error: None,
            changed: false,
            credential_was_read: false,
        }
    }
}

impl Link {
    pub(super) fn is_connected(&self) -> bool {
        self.stage == Stage::Connected
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        self.said.as_ref()
    }

    pub(super) fn watch_error(&self) -> Option<&ApiError> {
        self.watch_error.as_ref()
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.stage {
            Stage::Seeking(at) => Some(at),
            Stage::Looking | Stage::Connected => None,
        }
    }

    /// Whether to look for an identity now; it is under way from then on.
    pub(super) fn is_due(&mut self, now: Now) -> bool {
        let due = matches!(self.stage, Stage::Seeking(at) if now.uptime >= at);
        if due {
            self.stage = Stage::Looking;
        }
        due
    }

    /// A kubelet came: its credential may be there now.
    pub(super) fn hasten(&mut self, now: Now) {
        if let Stage::Seeking(at) = &mut self.stage {
            *at = (*at).min(now.uptime + SEEK.0);
            self.wait = SEEK.0;
        }
    }

    pub(super) fn seek_now(&mut self) {
        self.stage = Stage::Seeking(Duration::ZERO);
    }

    /// `true` if the credential is worth reading anew.
    pub(super) fn watch_failed(&mut self, error: &ApiError) -> bool {
        if self.watch_error.is_none() {
            self.changed = true;
            warn!(message_id = Kind::PublishFailed.id(), %error, "cannot watch the Node; trying again until it works");
        }
        self.watch_error = Some(error.clone());
        let worth_it = *error == ApiError::Unauthorized && !self.credential_was_read;
        self.credential_was_read |= worth_it;
        worth_it
    }

    pub(super) fn watch_answers(&mut self) {
        if self.watch_error.take().is_some() {
            self.changed = true;
            info!(
                message_id = Kind::PublishRecovered.id(),
                "the watch of the Node works again"
            );
        }
        self.credential_was_read = false;
    }

    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn say(&mut self, identity: Identity) {
        if self.said.as_ref() == Some(&identity) {
            return;
        }
        self.changed = true;
        info!(
            message_id = Kind::Identity.id(),
            identity = identity.kind(),
            "identity: {}",
            identity.describe()
        );
        self.said = Some(identity);
    }
}

impl State {
    pub(super) fn apply_identity(
        &mut self,
        result: Result<Identity, IdentityError>,
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        match result {
            Ok(identity) => {
                if matches!(identity, Identity::Kubelet(_)) {
                    self.helper.answers();
                }
                self.link.say(identity);
                (self.link.stage, self.link.wait) = (Stage::Connected, SEEK.0);
                self.connect(now, effects);
            }
            Err(e) => {
                self.learn_of_helper(&e);
                self.link.say(Identity::None(e.to_string()));
                self.link.stage = Stage::Seeking(now.uptime + self.link.wait);
                self.link.wait = (self.link.wait * 2).min(SEEK.1);
            }
        }
    }

    fn learn_of_helper(&mut self, error: &IdentityError) {
        match error {
            IdentityError::Helper(HelperError::Refused { .. }) => self.helper.answers(),
            IdentityError::Helper(away) => self.helper.is_away(&away.to_string()),
            _ => {}
        }
    }

    fn connect(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let node = self.node_name();
        let publisher = self.publisher.get_or_insert_with(|| Publisher::new(&node));
        publisher.forget_in_flight();
        publisher.credential_renewed(now);
        self.tainter.forget_in_flight();
        self.tainter.credential_renewed(now);
        self.events.forget_in_flight();
        self.events.credential_renewed(now);
        effects.push(Effect::WatchNode(node));
        self.wish();
    }

    /// The kubelet's own word about its Node's name may come after the first guess.
    pub(super) fn follow_node_name(&mut self, effects: &mut Vec<Effect>) {
        let node = self.node_name();
        if self
            .publisher
            .as_ref()
            .is_some_and(|p| p.node_name() != node)
        {
            info!(%node, "the kubelet registers under another name than the host's");
            self.publisher = Some(Publisher::new(&node));
            self.tell_about(&node);
            self.wish();
            if self.link.is_connected() {
                effects.push(Effect::WatchNode(node));
            }
        }
    }
}
