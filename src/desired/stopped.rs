//! What the Node is to have when the agent is stopped for good: nothing that stands for bad, for nobody looks any more whether it
//! lasts, and consumers act on what lasts.

use jiff::Timestamp;

use super::{Condition, PublishedType};
use crate::health::{MAX_MESSAGE_BYTES, Reason, Status, bounded};

/// The set that takes the place of this one: what stands for bad is `Unknown` from that moment on, all else is as it is.
pub fn withdrawn(conditions: &[Condition], at: Timestamp) -> Vec<Condition> {
    let of = |condition: &Condition| {
        if !is_bad(condition) {
            return condition.clone();
        }
        let message = format!(
            "nodevigil was stopped at {at:.0} by a stop job of systemd, and nobody looks whether this lasts: {}: {}",
            condition.reason, condition.message
        );
        Condition {
            r#type: condition.r#type,
            status: Status::Unknown,
            reason: Reason::NodevigilStopped.as_str().to_owned(),
            message: bounded(&message, MAX_MESSAGE_BYTES),
            last_transition_time: at,
        }
    };
    conditions.iter().map(of).collect()
}

/// The types that stand for bad.
pub fn bad(conditions: &[Condition]) -> Vec<PublishedType> {
    let bad = conditions.iter().filter(|condition| is_bad(condition));
    bad.map(|condition| condition.r#type).collect()
}

fn is_bad(condition: &Condition) -> bool {
    condition.status == condition.r#type.spec().bad
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::TYPES;

    #[test]
    fn every_type_that_is_bad_becomes_unknown_and_nothing_else_changes() {
        let then = Timestamp::UNIX_EPOCH;
        let at: Timestamp = "2026-11-23T06:00:00.7Z".parse().unwrap();
        let condition = |published, status| Condition {
            r#type: published,
            status,
            reason: "KubeletCrashed".to_owned(),
            message: "m".repeat(MAX_MESSAGE_BYTES),
            last_transition_time: then,
        };
        for spec in TYPES {
            for status in [Status::True, Status::False, Status::Unknown] {
                let before = [condition(spec.published, status)];
                let after = withdrawn(&before, at);
                if status != spec.bad {
                    assert_eq!((after.as_slice(), bad(&before)), (&before[..], vec![]));
                    continue;
                }
                assert_eq!(bad(&before), [spec.published]);
                assert_eq!(bad(&after), []);
                let [after] = &after[..] else { panic!() };
                assert_eq!(
                    (after.r#type, after.status, after.reason.as_str()),
                    (spec.published, Status::Unknown, "NodevigilStopped")
                );
                assert_eq!(after.last_transition_time, at);
                let said = "nodevigil was stopped at 2026-11-23T06:00:00Z by a stop job of systemd, and nobody looks \
                            whether this lasts: KubeletCrashed: mm";
                assert!(after.message.starts_with(said), "{}", after.message);
                assert!(after.message.len() <= MAX_MESSAGE_BYTES);
            }
        }
    }
}
