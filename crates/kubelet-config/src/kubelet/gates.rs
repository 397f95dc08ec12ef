//! Every feature gate of the kubelets 1.25 to 1.37: `gates.txt`, and some of their defaults: `gates_on.txt`.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use super::effective::Settings;
use super::table::{minor, rows};
use super::version::{Minor, Version};

const TEXT: &str = include_str!("gates.txt");

/// The releases whose feature gates are in the table.
pub(crate) const RELEASES: RangeInclusive<Minor> = Minor(25)..=Minor(37);

/// A feature gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub name: &'static str,
    /// The first release that knows it, where that is later than 1.25.
    pub(crate) since: Option<Minor>,
    /// The first release that exits with `unrecognized feature gate`.
    pub(crate) removed: Option<Minor>,
    /// The first release that takes no other value than this one.
    pub locked: Option<(Minor, bool)>,
}

/// The feature gates, sorted by name.
pub static GATES: LazyLock<Vec<Gate>> = LazyLock::new(|| rows(TEXT).filter_map(gate).collect());

fn gate([name, since, removed, locked]: [&'static str; 4]) -> Option<Gate> {
    let locked = match locked.split_once('=') {
        Some((release, value)) => Some((minor(release)?, value.parse().ok()?)),
        None => None,
    };
    Some(Gate { name, since: minor(since), removed: minor(removed), locked })
}

impl Gate {
    /// Whether a release knows the gate.
    pub fn known_in(&self, minor: Minor) -> bool {
        self.since.is_none_or(|since| since <= minor) && self.removed.is_none_or(|removed| minor < removed)
    }
}

/// The gate of that name.
pub fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|index| &GATES[index])
}

const ON_BY_DEFAULT: &str = include_str!("gates_on.txt");

/// Whether a gate of the table is on; `None` where that is not known.
pub(crate) fn is_on(name: &str, settings: &Settings, version: Option<&Version>) -> Option<bool> {
    let locked = find(name).and_then(|gate| gate.locked).zip(version);
    if let Some(((_, value), _)) = locked.filter(|((since, _), version)| *since <= version.minor) {
        return Some(value);
    }
    let set = settings.get("featureGates").map(|gates| &gates.value);
    if let Some(value) = set.and_then(|gates| gates.get(name)?.as_bool()) {
        return Some(value);
    }
    if set.is_some_and(|gates| ["AllAlpha", "AllBeta"].iter().any(|all| gates.get(all).is_some())) {
        return None;
    }
    let [_, since] = rows(ON_BY_DEFAULT).find(|[gate, _]| *gate == name)?;
    let is_old = |release: Minor| minor(since).is_none_or(|since| release < since);
    match version {
        Some(version) => Some(!is_old(version.minor)),
        // The oldest release of the table decides where it is not known.
        None => (!is_old(*RELEASES.start())).then_some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_gate_has_its_value_whatever_is_set() {
        let of = |release: &str| release.parse::<Version>().ok();
        for set in ["false", "true"] {
            let gates = serde_json::json!({"NodeSwap": set == "true", "AllBeta": true});
            let from = crate::kubelet::effective::From::Default { legacy: false };
            let setting = crate::kubelet::effective::Effective::new(gates, from);
            let settings = Settings([("featureGates".to_owned(), setting)].into());
            assert_eq!(is_on("NodeSwap", &settings, of("1.34.1").as_ref()), Some(true));
            assert_eq!(is_on("NodeSwap", &settings, of("1.33.4").as_ref()), Some(set == "true"));
        }
    }

    #[test]
    fn every_line_of_the_table_is_a_gate() {
        assert_eq!(GATES.len(), rows::<4>(TEXT).count());
        assert!(GATES.is_sorted_by_key(|gate| gate.name));
        for gate in GATES.iter() {
            let first = gate.since.unwrap_or(*RELEASES.start());
            assert!(RELEASES.contains(&first) && gate.removed.is_none_or(|removed| first < removed), "{}", gate.name);
            assert!(gate.locked.is_none_or(|(since, _)| first <= since && gate.known_in(since)), "{}", gate.name);
        }
        let locked = GATES.iter().filter(|gate| gate.locked.is_some()).count();
        assert!(locked > 100, "{locked}");
    }
}
