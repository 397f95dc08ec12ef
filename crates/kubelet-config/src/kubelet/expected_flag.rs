//! The flags that the operator's intent asks for.

use super::flag_text::{FlagText, flags_in};
use super::snapshot::{Intent, Snapshot};

/// A flag that should reach the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpectedFlag {
    pub(crate) flag: &'static str,
    /// Its value; of `node-labels` one `key=value`.
    pub(crate) value: String,
}

impl ExpectedFlag {
    /// Everything that an intent asks for.
    pub(crate) fn all(intent: &Intent) -> Vec<Self> {
        let cloud_provider = intent.cloud_provider.iter().filter(|provider| !matches!(provider.as_str(), "" | "none"));
        let mut all: Vec<Self> = cloud_provider.map(|provider| Self::new("cloud-provider", provider)).collect();
        all.extend(intent.node_ip.iter().map(|ip| Self::new("node-ip", ip)));
        all.extend(intent.node_labels.iter().map(|(key, value)| Self::new("node-labels", &format!("{key}={value}"))));
        all.extend(intent.provider_id.iter().map(|id| Self::new("provider-id", id)));
        all
    }

    pub(crate) fn new(flag: &'static str, value: &str) -> Self {
        Self { flag, value: value.to_owned() }
    }

    pub(crate) fn written(&self) -> String {
        format!("--{}={}", self.flag, self.value)
    }

    /// Whether it reaches the kubelet, as far as its words are known.
    pub(crate) fn reaches(&self, snapshot: &Snapshot) -> bool {
        let settings = &snapshot.settings;
        match (self.flag, self.value.split_once('=')) {
            ("node-labels", Some((key, value))) => settings.map("--node-labels").get(key) == Some(&value),
            ("provider-id", _) => settings.text("providerID") == Some(&self.value),
            (name, _) => settings.text(&format!("--{name}")).is_some_and(|value| self.is_value(value)),
        }
    }

    /// Whether a value of the flag is, or holds, the expected one.
    pub(crate) fn is_value(&self, value: &str) -> bool {
        let many = matches!(self.flag, "node-labels" | "node-ip");
        value == self.value || (many && value.split(',').any(|entry| entry == self.value))
    }

    /// Whether a flag in a text is the expected one.
    pub(crate) fn matches(&self, flag: &FlagText<'_>) -> bool {
        flag.name == self.flag && flag.value.or(flag.next).is_some_and(|value| self.is_value(value))
    }

    pub(crate) fn is_in(&self, text: &str) -> bool {
        flags_in(text).iter().any(|flag| self.matches(flag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::resolve::{Inputs, resolve};
    use crate::rules::tests::support::kubeadm;

    #[test]
    fn a_label_or_an_address_reaches_the_kubelet_as_one_of_several() {
        let reaches = |env: &str, expected: &ExpectedFlag| {
            let tree = kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"{env}\"\n"));
            expected.reaches(&resolve(&tree, Inputs::default()))
        };
        let label = ExpectedFlag::new("node-labels", "pool=blue");
        assert!(reaches("--node-labels=a=b,pool=blue --node-labels=c=d", &label));
        assert!(!reaches("--node-labels=pool=blue --node-labels=pool=red", &label));
        assert!(reaches("--node-labels=pool=red --node_labels pool=blue", &label));
        let ip = ExpectedFlag::new("node-ip", "10.0.0.9");
        assert!(reaches("--node-ip=10.0.0.9,fd00::9", &ip));
        assert!(!reaches("--node-ip=10.0.0.90", &ip));
    }
}
