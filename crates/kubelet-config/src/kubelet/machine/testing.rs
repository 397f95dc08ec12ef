//! Settings for tests, each as if it were a default.

use std::collections::BTreeMap;

use crate::kubelet::effective::{Effective, From, Settings};

pub(super) fn settings<T: Clone + Into<serde_json::Value>>(pairs: &[(&str, T)]) -> Settings {
    let setting = |value: &T| Effective {
        value: value.clone().into(),
        from: From::Default { legacy: false },
        keys: BTreeMap::new(),
    };
    Settings(pairs.iter().map(|(name, value)| ((*name).to_owned(), setting(value))).collect())
}
