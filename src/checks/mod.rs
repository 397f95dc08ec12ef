//! Health checks: one file a check; this one holds the registry.
//!
//! A check reads through `host` and judges in a pure `assess`, which knows no clock and no file.

pub mod config;
pub mod kubelet;

use crate::health::ConditionType;

/// What the registry knows of a check.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Its name: the configuration's section, the documentation's anchor.
    pub id: &'static str,
    /// The condition that it feeds.
    pub condition: ConditionType,
    /// What it watches, in one sentence.
    pub doc: &'static str,
}

/// Every check.
pub const ALL: &[Spec] = &[config::SPEC, kubelet::SPEC];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_whole() {
        assert!(ALL.is_sorted_by(|a, b| a.id < b.id), "sorted, each once");
        for condition in ConditionType::ALL {
            assert!(
                ALL.iter().any(|spec| spec.condition == *condition),
                "{condition:?} is fed by a check"
            );
        }
        assert!(ALL.iter().all(|spec| spec.doc.ends_with('.')));
    }
}
