//! The registry of maintenance signs: by which marks on a Node other projects say that they work on it, and what each
//! of them suppresses. `docs/operate.md` prints it.

use std::fmt::Write as _;

use jiff::Timestamp;

/// One way to say on a Node that somebody works on it.
#[derive(Debug, PartialEq, Eq)]
pub struct MaintenanceSign {
    /// A short name, which stands in our annotation.
    pub id: &'static str,
    /// What stands on the Node.
    pub mark: Mark,
    /// Who writes it, and where that is written down.
    pub source: &'static str,
    /// What it does.
    pub effect: Effect,
    /// How its age is known.
    pub age: Age,
}

/// What stands on the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A condition of that type, with the status `True`.
    Condition(&'static str),
    /// An annotation with that key and one of these values; with none named: with any but the empty one.
    Annotation(&'static str, &'static [&'static str]),
    /// A taint with that key, whatever its value and effect.
    Taint(&'static str),
}

impl Mark {
    /// The condition's type, or the key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Condition(name) | Self::Annotation(name, _) | Self::Taint(name) => name,
        }
    }
}

/// What a sign does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing becomes `False`; what is stays.
    Suppresses,
    /// Nothing: it stands in the table so that nobody has to ask.
    Nothing,
}

/// How the age of a sign is known. One that has no time of its own, or none that can be read, is as old as the agent's
/// first sight of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// The condition's `lastTransitionTime`.
    LastTransitionTime,
    /// The taint's `timeAdded`.
    TimeAdded,
    /// The annotation's value is the time.
    Value,
    /// The agent's first sight of it.
    FirstSeen,
}

/// A lifecycle condition of Kubernetes' own.
const fn condition(id: &'static str, r#type: &'static str, effect: Effect) -> MaintenanceSign {
    MaintenanceSign {
        id,
        mark: Mark::Condition(r#type),
        source: "Kubernetes, KEP-5683",
        effect,
        age: Age::LastTransitionTime,
    }
}

/// Every sign that is known.
pub const MAINTENANCE_SIGNS: &[MaintenanceSign] = &[
    condition("drain", "DrainInProgress", Effect::Suppresses),
    condition("drained", "Drained", Effect::Suppresses),
    // Weeks may lie between plan and work.
    condition("planned", "MaintenancePlanned", Effect::Nothing),
    condition("maintenance", "MaintenanceInProgress", Effect::Suppresses),
    condition(
        "shutdown",
        "GracefulNodeShutdownInProgress",
        Effect::Suppresses,
    ),
    MaintenanceSign {
        id: "kured",
        mark: Mark::Annotation("weave.works/kured-reboot-in-progress", &[]),
        source: "kured with --annotate-nodes, cmd/kured/main.go",
        effect: Effect::Suppresses,
        age: Age::Value,
    },
    MaintenanceSign {
        id: "flatcar",
        // It stays, as "false", once there was a reboot.
        mark: Mark::Annotation(
            "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress",
            &["true"],
        ),
        source: "Flatcar Linux Update Operator, pkg/constants/constants.go",
        effect: Effect::Suppresses,
        age: Age::FirstSeen,
    },
    MaintenanceSign {
        id: "openshift",
        // Not Degraded or Unreconcilable: nobody works on such a Node, somebody should.
        mark: Mark::Annotation(
            "machineconfiguration.openshift.io/state",
            &["Working", "Rebooting"],
        ),
        source: "OpenShift machine-config-operator, pkg/daemon/constants/constants.go",
        effect: Effect::Suppresses,
        age: Age::FirstSeen,
    },
    MaintenanceSign {
        id: "out-of-service",
        mark: Mark::Taint("node.kubernetes.io/out-of-service"),
        source: "Kubernetes, KEP-2268",
        effect: Effect::Suppresses,
        age: Age::TimeAdded,
    },
    MaintenanceSign {
        id: "karpenter-reboot",
        mark: Mark::Taint("karpenter.sh/rebooting"),
        source: "Karpenter's proposed reboot action, karpenter#3259 (in no release yet)",
        effect: Effect::Suppresses,
        age: Age::TimeAdded,
    },
];

/// A sign that stands on our Node and suppresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingSign {
    /// Its row.
    pub row: &'static MaintenanceSign,
    /// Which of the values in its row it has, if some are named there.
    pub value: Option<&'static str>,
    /// Since when it stands there by its own time, if it has one.
    pub since: Option<Timestamp>,
}

impl StandingSign {
    fn new(row: &'static MaintenanceSign, since: Option<Timestamp>) -> Option<Self> {
        let suppresses = row.effect == Effect::Suppresses;
        suppresses.then_some(Self {
            row,
            value: None,
            since,
        })
    }

    /// The condition of that type, which is `True`, if it is a sign.
    pub fn condition(r#type: &str, since: Option<Timestamp>) -> Option<Self> {
        let row = (MAINTENANCE_SIGNS.iter())
            .find(|row| matches!(row.mark, Mark::Condition(name) if name == r#type))?;
        Self::new(row, since)
    }

    /// The taint with that key, if it is a sign.
    pub fn taint(key: &str, added: Option<Timestamp>) -> Option<Self> {
        let row = (MAINTENANCE_SIGNS.iter())
            .find(|row| matches!(row.mark, Mark::Taint(name) if name == key))?;
        Self::new(row, added)
    }

    /// That annotation, if it is a sign with that value.
    pub fn annotation(key: &str, value: &str) -> Option<Self> {
        let row = (MAINTENANCE_SIGNS.iter()).find(|row| row.annotation() == Some(key))?;
        let Mark::Annotation(_, values) = row.mark else {
            return None;
        };
        let known = values.iter().find(|known| **known == value).copied();
        let counts = if values.is_empty() {
            !value.is_empty()
        } else {
            known.is_some()
        };
        let since = (row.age == Age::Value)
            .then(|| value.parse().ok())
            .flatten();
        let sign = Self::new(row, since).filter(|_| counts)?;
        Some(Self {
            value: known,
            ..sign
        })
    }

    /// How a message names it.
    pub fn name(&self) -> String {
        match (self.row.mark, self.value) {
            (Mark::Condition(name), _) => format!("{name}=True"),
            (Mark::Annotation(key, _), Some(value)) => format!("annotation {key}={value}"),
            (Mark::Annotation(key, _), None) => format!("annotation {key}"),
            (Mark::Taint(key), _) => format!("taint {key}"),
        }
    }
}

impl MaintenanceSign {
    /// The key of the annotation, if it is one.
    pub(super) fn annotation(&self) -> Option<&'static str> {
        match self.mark {
            Mark::Annotation(key, _) => Some(key),
            Mark::Condition(_) | Mark::Taint(_) => None,
        }
    }
}

/// The registry as the table of `docs/operate.md`.
pub fn maintenance_table() -> String {
    let mut text =
        "| on the Node | written by | what it does | how old it is |\n|---|---|---|---|\n"
            .to_owned();
    for row in MAINTENANCE_SIGNS {
        let mark = match row.mark {
            Mark::Condition(name) => format!("condition `{name}=True`"),
            Mark::Annotation(key, []) => format!("annotation `{key}`"),
            Mark::Annotation(key, values) => {
                let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
                format!("annotation `{key}`: {}", values.join(", "))
            }
            Mark::Taint(key) => format!("taint `{key}`"),
        };
        let effect = match row.effect {
            Effect::Suppresses => "nothing becomes `False`",
            Effect::Nothing => "nothing",
        };
        let age = match row.age {
            Age::LastTransitionTime => "`lastTransitionTime`",
            Age::TimeAdded => "`timeAdded`, else first seen by the agent",
            Age::Value => "its value, a time; else first seen by the agent",
            Age::FirstSeen => "first seen by the agent",
        };
        let source = row.source;
        writeln!(text, "| {mark} | {source} | {effect} | {age} |")
            .expect("a String takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The sign that this row's mark makes, with that value where it is an annotation.
    fn read(row: &MaintenanceSign, value: &str, since: Option<Timestamp>) -> Option<StandingSign> {
        match row.mark {
            Mark::Condition(name) => StandingSign::condition(name, since),
            Mark::Annotation(key, _) => StandingSign::annotation(key, value),
            Mark::Taint(key) => StandingSign::taint(key, since),
        }
    }

    #[test]
    fn each_row_is_found_by_its_mark_and_does_what_it_says() {
        let since = "2026-11-21T09:00:00Z".parse().ok();
        for row in MAINTENANCE_SIGNS {
            let values = match row.mark {
                Mark::Annotation(_, []) => &["2026-11-21T09:00:00Z"][..],
                Mark::Annotation(_, values) => values,
                _ => &[""],
            };
            for value in values {
                let sign = read(row, value, since);
                let Effect::Suppresses = row.effect else {
                    assert_eq!(sign, None, "{}", row.id);
                    continue;
                };
                let sign = sign.unwrap_or_else(|| panic!("{} with {value:?}", row.id));
                assert_eq!(sign.row, row);
                let has_time = row.age != Age::FirstSeen;
                assert_eq!(sign.since, since.filter(|_| has_time), "{}", row.id);
                assert!(sign.name().contains(row.mark.name()), "{}", sign.name());
                assert_eq!(
                    sign.value.is_some(),
                    sign.name().contains('=') && row.annotation().is_some()
                );
            }
        }
    }

    #[test]
    fn another_value_of_an_annotation_is_no_sign() {
        let annotation = StandingSign::annotation;
        let state = "machineconfiguration.openshift.io/state";
        for over in ["Done", "Degraded", "Unreconcilable", "", "working"] {
            assert_eq!(annotation(state, over), None, "{over}");
        }
        let flatcar = "flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress";
        assert_eq!(annotation(flatcar, "false"), None);
        let kured = "weave.works/kured-reboot-in-progress";
        assert_eq!(annotation(kured, ""), None);
        // A time that cannot be read: it counts from its first sight on.
        assert_eq!(annotation(kured, "yes").unwrap().since, None);
        assert_eq!(annotation("example.com/a", "true"), None);
        assert_eq!(
            StandingSign::taint("node.kubernetes.io/unschedulable", None),
            None
        );
        assert_eq!(StandingSign::condition("Ready", None), None);
    }

    #[test]
    fn the_ids_are_short_words_of_their_own() {
        let ids: BTreeSet<_> = MAINTENANCE_SIGNS.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), MAINTENANCE_SIGNS.len());
        let plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(ids.iter().all(|id| id.len() <= 16 && id.chars().all(plain)));
        assert!(!ids.contains("pause"), "that is the annotation of ours");
        // KEP-5683's own five, all of them.
        let conditions = MAINTENANCE_SIGNS
            .iter()
            .filter(|row| matches!(row.mark, Mark::Condition(_)));
        assert_eq!(conditions.count(), 5);
    }
}
