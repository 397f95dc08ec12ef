//! The settings that systemd knows in a service's file (`keys.txt`), so that a mistyped one can be distinguished from one that is
//! ignored here. Which version a host runs is not always known, and a setting of a later one is no typing error.

use std::collections::HashSet;
use std::sync::LazyLock;

static KEYS: LazyLock<HashSet<(&str, &str)>> = LazyLock::new(|| {
    let mut section = "";
    let mut keys = HashSet::new();
    for line in include_str!("keys.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[') {
            Some(name) => section = name.trim_end_matches(']'),
            None => _ = keys.insert((section, line)),
        }
    }
    keys
});

pub(super) fn is_known(section: &str, key: &str) -> bool {
    KEYS.contains(&(section, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_case_sensitive_and_belong_to_a_section() {
        assert!(is_known("Service", "EnvironmentFile"));
        assert!(!is_known("Service", "Environmentfile"));
        assert!(!is_known("Unit", "Environment"));
        assert!(is_known("Install", "WantedBy"));
        assert!(!is_known("Service", "#") && !is_known("Service", ""));
        assert_eq!(KEYS.len(), 118 + 281 + 6);
    }
}
