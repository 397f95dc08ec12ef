//! What stands on our Node about what is to become of it: somebody works on it, deletes it, or asks us for quiet.

use jiff::Timestamp;

use super::maintenance::StandingSign;
use crate::pause::one_line;

/// The annotation by which people ask for quiet.
pub const PAUSE_ANNOTATION: &str = "nodevigil.io/pause";

/// Taints by which a controller says that it has decided to remove this node. Not the ones of mere candidates
/// (`DeletionCandidateOfClusterAutoscaler`), nor advice (`aws-node-termination-handler/rebalance-recommendation`).
const DELETION_TAINTS: &[&str] = &[
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption", // before Karpenter v1
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/asg-lifecycle-termination",
];

/// What others want of our Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeWill {
    /// By which signs somebody works on it, in the registry's order, each once.
    pub maintenance: Vec<StandingSign>,
    /// By which sign it is being deleted.
    pub deletion: Option<&'static str>,
    /// The annotation [`PAUSE_ANNOTATION`].
    pub pause: Option<PauseAnnotation>,
}

/// The annotation [`PAUSE_ANNOTATION`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseAnnotation {
    /// What it says.
    pub asks: AskedPause,
    /// By which the same value is known again, in another life too.
    pub fingerprint: u32,
}

/// What the annotation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedPause {
    /// Until then; perhaps in the past.
    Until(Timestamp),
    /// Until it is removed, for this reason.
    UntilRemoved(String),
    /// The same, but it looks like a time and is none.
    Unclear(String),
}

impl PauseAnnotation {
    /// What the annotation with this value asks for; nothing if it is empty.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self {
            asks: AskedPause::read(text),
            fingerprint: fingerprint(text),
        })
    }
}

/// FNV-1a: the same in every version, as std's hashes are not.
fn fingerprint(text: &str) -> u32 {
    let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    text.as_bytes().iter().fold(0x811c_9dc5, add)
}

impl AskedPause {
    fn read(text: &str) -> Self {
        match text.parse() {
            Ok(until) => Self::Until(until),
            Err(_) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                Self::Unclear(one_line(text))
            }
            Err(_) => Self::UntilRemoved(one_line(text)),
        }
    }
}

/// By which sign a Node with these is being deleted.
pub(super) fn deletion<'a>(
    deleted_at: Option<Timestamp>,
    mut taints: impl Iterator<Item = &'a str>,
) -> Option<&'static str> {
    let named = |key: &str| DELETION_TAINTS.iter().find(|named| **named == key).copied();
    let mark = deleted_at.map(|_| "deletionTimestamp");
    mark.or_else(|| taints.find_map(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_is_a_time_or_a_reason() {
        let read = |text| PauseAnnotation::read(text).map(|pause| pause.asks);
        assert_eq!(read(""), None);
        assert_eq!(read("  "), None);
        let until = AskedPause::Until("2026-11-21T16:30:00Z".parse().unwrap());
        assert_eq!(read("2026-11-21T16:30:00Z"), Some(until.clone()));
        assert_eq!(read("2026-11-21T17:30:00+01:00"), Some(until));
        assert_eq!(
            read("true"),
            Some(AskedPause::UntilRemoved("true".to_owned()))
        );
        for unclear in ["30m", "2026-11-21", "2026-11-21 25:00"] {
            let said = Some(AskedPause::Unclear(unclear.to_owned()));
            assert_eq!(read(unclear), said, "{unclear}");
        }
        let Some(AskedPause::UntilRemoved(long)) = read(&"x\n".repeat(9000)) else {
            panic!()
        };
        assert!(long.len() <= 200 && !long.contains('\n'));
    }
    #[test]
    fn a_value_is_known_again_by_its_fingerprint() {
        let of = |text| PauseAnnotation::read(text).unwrap().fingerprint;
        // From FNV's paper: it stands on Nodes, and may not change with a version.
        assert_eq!((of("a"), of("foobar")), (0xe40c_292c, 0xbf9c_f968));
        assert_eq!(of(" a\n"), of("a"));
        assert_ne!(of("swap"), of("swap again"));
    }
}
