//! Every flag of the kubelets 1.24 to 1.37: `flags.txt`, which is compared with real kubelets (`make flags`).

use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::value;

use super::{FlagSpec, Repeat, ValueKind};
use crate::kubelet::table::{given, minor, rows};

const TEXT: &str = include_str!("flags.txt");

/// The flags, sorted by name. `--seccomp-default` and its field are joined by "or": neither takes the other back.
pub static FLAGS: LazyLock<Vec<FlagSpec>> = LazyLock::new(|| rows(TEXT).filter_map(flag).collect());

fn flag([name, value, field, since, removed, instead]: [&'static str; 6]) -> Option<FlagSpec> {
    let value = ValueKind::deserialize(value::StrDeserializer::<value::Error>::new(value)).ok()?;
    Some(FlagSpec {
        name,
        value,
        repeat: match value {
            ValueKind::Map | ValueKind::OnePair | ValueKind::Labels | ValueKind::Thresholds | ValueKind::Gates => {
                Repeat::Merge
            }
            ValueKind::Strings | ValueKind::Headers | ValueKind::ReservedMemory | ValueKind::VModule => Repeat::Append,
            _ => Repeat::LastWins,
        },
        field: given(field),
        deprecated: removed != "-",
        since: minor(since),
        removed: minor(removed),
        instead: Some(instead).filter(|text| !text.is_empty()),
    })
}

/// The flag of that name (with `-`).
pub fn find(name: &str) -> Option<&'static FlagSpec> {
    FLAGS.binary_search_by(|spec| spec.name.cmp(name)).ok().map(|index| &FLAGS[index])
}

/// The flag of that letter.
pub fn find_short(letter: char) -> Option<&'static FlagSpec> {
    match letter {
        'v' => find("v"),
        'h' => find("help"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::version::Minor;

    #[test]
    fn every_line_of_the_table_is_a_flag() {
        assert_eq!(FLAGS.len(), rows::<6>(TEXT).count());
        assert!(FLAGS.windows(2).all(|pair| pair[0].name < pair[1].name));
        for spec in FLAGS.iter() {
            assert!(!spec.name.contains('_'), "{}", spec.name);
            assert_eq!(spec.removed.is_some(), spec.instead.is_some(), "{}", spec.name);
            assert!(spec.since.is_none_or(|since| spec.removed.is_none_or(|removed| since < removed)), "{}", spec.name);
            let field = spec.field.map(|path| crate::kubelet::config::fields::find(path).is_some());
            assert_ne!(field, Some(false), "{}", spec.name);
        }
    }

    #[test]
    fn releases_know_what_they_know() {
        let known = |name: &str, minor| find(name).unwrap().known_in(Minor(minor));
        assert!(known("pod-infra-container-image", 34) && !known("pod-infra-container-image", 35));
        assert!(!known("config-dir", 27) && known("config-dir", 28));
        assert!(known("containerd", 36) && !known("containerd", 37));
        assert!(known("node-ip", 24) && known("node-ip", 37));
        assert!(find("cloud_provider").is_none());
    }
}
