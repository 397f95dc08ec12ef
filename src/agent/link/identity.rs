//! Looking for an identity, using what is found, looking again before its end.

use std::time::Duration;

use jiff::Timestamp;
use tracing::{info, warn};

use super::{Link, SEEK, Seek, Watch};
use crate::{
    agent::{event::Effect, state::State},
    clock::Now,
    cluster::{
        identity::{Identity, IdentityError, Terms},
        publisher::Publisher,
    },
    host::{helper::HelperError, journal::Kind},
};

/// A program is asked for the next credential so long before the end of this one.
const BEFORE_THE_END: Duration = Duration::from_mins(2);

/// A certificate of a year is to be renewed when so much of it is left; a shorter one in its last tenth.
const EXPIRES_SOON_SECS: i64 = 7 * 24 * 3600;

impl Link {
    /// Whether to look for an identity now; it is under way from then on.
    pub(in crate::agent) fn is_due(&mut self, now: Now) -> bool {
        let due = matches!(self.seek, Seek::At(at) if now.uptime >= at);
        if due {
            self.seek = Seek::Looking;
        }
        due
    }

    /// A kubelet came: its credential may be there now.
    pub(in crate::agent) fn hasten(&mut self, now: Now) {
        if let Seek::At(at) = &mut self.seek
            && !self.connected
        {
            *at = (*at).min(now.uptime + SEEK.0);
            self.wait = SEEK.0;
        }
    }

    /// When the credential is to be looked at again; one whose end is near is said, once.
    pub(in crate::agent) fn look_again(&mut self, terms: Terms, now: Now) {
        self.unread = None;
        let until =
            |at: Timestamp| Duration::try_from(at.duration_since(now.wall)).unwrap_or_default();
        self.seek = match terms {
            Terms::Files(after, validity) => {
                if let Some(validity) = validity {
                    let left = validity.until - now.wall.as_second();
                    let near = EXPIRES_SOON_SECS.min((validity.until - validity.from) / 10);
                    if left < near
                        && self.said_until.replace(validity.until) != Some(validity.until)
                    {
                        let end = Timestamp::from_second(validity.until).unwrap_or_default();
                        warn!(%end, "our client certificate ends at {end}; renew it, or nothing is published then");
                    }
                }
                Seek::At(now.uptime + after)
            }
            Terms::Program(Some(end)) => {
                let ahead = until(end).saturating_sub(BEFORE_THE_END);
                Seek::At(now.uptime + ahead.max(SEEK.1))
            }
            // Only a 401 says that it is over.
            Terms::Program(None) => Seek::Idle,
        };
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
    pub(in crate::agent) fn apply_identity(
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
                (self.link.seek, self.link.wait) = (Seek::Idle, SEEK.0);
                self.connect(now, effects);
            }
            Err(e) => {
                self.learn_of_helper(&e);
                let why = e.to_string();
                // Of a helper that is away it is said elsewhere.
                let away = matches!(&e, IdentityError::Helper(error) if !matches!(error, HelperError::Refused { .. }));
                if !self.link.connected {
                    self.link.say(Identity::None(why));
                } else if self.link.unread.is_none() && !away {
                    warn!(error = %why, "the credential could not be looked at again; going on with the one that we have");
                    self.link.unread = Some(why);
                }
                self.link.seek = Seek::At(now.uptime + self.link.wait);
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
        self.publisher.get_or_insert_with(|| Publisher::new(&node));
        self.link.connected = true;
        self.link.gate.credential_renewed(now);
        self.link.watch = Watch::Wanted;
        effects.push(Effect::Connect(node));
        self.wish(now);
    }

    /// The kubelet's own word about its Node's name may come after the first guess.
    pub(in crate::agent) fn follow_node_name(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let node = self.node_name();
        if self
            .publisher
            .as_ref()
            .is_some_and(|p| p.node_name() != node)
        {
            info!(%node, "the kubelet registers under another name than the host's");
            self.publisher = Some(Publisher::new(&node));
            self.tell_about(&node);
            self.link.gate.spread_by(&node);
            self.wish(now);
            self.link.forget_node();
            if self.link.is_connected() {
                effects.push(Effect::Connect(node));
            }
        }
    }
}
