//! Verdicts → the conditions that our Node should have.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::health::{ConditionType, MAX_MESSAGE_BYTES, Status, Verdict, bounded};

/// One condition as it should stand on the Node; the heartbeat time is the publisher's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The condition's type.
    pub r#type: ConditionType,
    /// The condition's status.
    pub status: Status,
    /// The reason's name.
    pub reason: String,
    /// At most [`MAX_MESSAGE_BYTES`].
    pub message: String,
    /// When the status last flipped.
    pub last_transition_time: Timestamp,
}

/// The whole set to publish: never a delta, so that one apply brings the Node up to date after any outage.
pub fn conditions<'a>(
    verdicts: impl IntoIterator<Item = (ConditionType, &'a Verdict)>,
) -> Vec<Condition> {
    verdicts
        .into_iter()
        .map(|(r#type, verdict)| Condition {
            r#type,
            status: verdict.status,
            reason: verdict.reason.as_str().to_owned(),
            message: bounded(&verdict.message, MAX_MESSAGE_BYTES),
            last_transition_time: verdict.since,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Reason;

    #[test]
    fn a_message_is_bounded_on_a_character_boundary() {
        for text in ["é".repeat(700), "x".repeat(1025)] {
            let verdict = Verdict {
                status: Status::True,
                reason: Reason::KubeletIsHealthy,
                message: text,
                since: Timestamp::UNIX_EPOCH,
            };
            let conditions = conditions([(ConditionType::KubeletHealthy, &verdict)]);
            assert!(conditions[0].message.len() <= MAX_MESSAGE_BYTES);
            assert!(conditions[0].message.ends_with('…'));
        }
    }
}
