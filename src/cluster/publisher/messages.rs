//! A message that changes alone has less of a hurry than a status or a reason: nobody acts by it, and a number in it may change all the time.

use std::time::Duration;

use jiff::Timestamp;

use super::Publisher;
use crate::{
    clock::Now,
    desired::{Condition, PublishedType},
    health::Status,
};

/// A change of messages alone, with the statuses and reasons as they are, is written once in that time, …
pub(super) const MESSAGE_EVERY: Duration = Duration::from_mins(1);

/// … but so many at once, if there was none for long: what ended a kubelet becomes known in several steps.
const MESSAGES_AT_ONCE: u32 = 4;

impl Publisher {
    /// The transition time that the Node shows of a condition of ours, if it shows that status.
    pub fn shown_since(&self, condition: &Condition) -> Option<Timestamp> {
        let is_it = |c: &&Condition| (c.r#type, c.status) == (condition.r#type, condition.status);
        let shown = self.published.as_ref()?.conditions.iter().find(is_it)?;
        Some(shown.last_transition_time)
    }

    /// Whether the Node has from us what it should have, as far as is known.
    pub(super) fn wish_is_published(&self) -> bool {
        let (Some(wish), Some(published)) = (&self.wish, &self.published) else {
            return false;
        };
        let wished = wish.conditions.iter();
        wished
            .filter(|c| !self.owners.refuses(c.r#type))
            .eq(&published.wished)
            && wish.standing_down == published.standing_down
            && self.uid() == Some(&published.uid)
    }

    /// Whether the wish differs from what is published, and in messages alone.
    pub(super) fn differs_in_messages_alone(&self) -> bool {
        let (Some(wish), Some(published)) = (&self.wish, &self.published) else {
            return false;
        };
        let wished = wish.conditions.iter();
        wished
            .filter(|c| !self.owners.refuses(c.r#type))
            .map(but_message)
            .eq(published.wished.iter().map(but_message))
            && wish.standing_down == published.standing_down
            && self.uid() == Some(&published.uid)
            && !self.wish_is_published()
    }

    /// When a message alone may be written next (uptime).
    pub(super) fn message_is_due_at(&self) -> Duration {
        let ahead = MESSAGE_EVERY * (MESSAGES_AT_ONCE - 1);
        self.messages_until.saturating_sub(ahead)
    }

    /// A message alone is written.
    pub(super) fn takes_a_turn(&mut self, now: Now) {
        self.messages_until = self.messages_until.max(now.uptime) + MESSAGE_EVERY;
    }
}

fn but_message(condition: &Condition) -> (PublishedType, Status, &str, Timestamp) {
    let Condition {
        r#type,
        status,
        reason,
        last_transition_time,
        message: _,
    } = condition;
    (*r#type, *status, reason, *last_transition_time)
}
