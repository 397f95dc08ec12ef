//! Labels of a Node: what Kubernetes takes for a key and a value, and which keys a kubelet may give its own Node.

/// Whether Kubernetes takes a label's key (`validation.IsQualifiedName`).
pub(crate) fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(|prefix| check_domain(prefix).is_ok()) && !name.is_empty() && is_value(name)
}

/// Whether Kubernetes takes a label's value (`validation.IsValidLabelValue`).
pub(crate) fn is_value(value: &str) -> bool {
    value.is_empty() || value.len() <= 63 && is_within(value, |letter| letter.is_ascii_alphanumeric(), "-_.")
}

/// Whether a text is a DNS name in lower case (`validation.IsDNS1123Subdomain`), as a Node's name must be.
///
/// # Errors
/// What it must be.
pub(crate) fn check_domain(text: &str) -> Result<(), &'static str> {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if text.len() <= 253 && text.split('.').all(|part| is_within(part, is_letter, "-")) {
        return Ok(());
    }
    Err("has at most 253 characters, all of them lower case letters, digits, '-' and '.', and begins and ends with a \
         letter or a digit")
}

/// Whether a text has only such letters and, but not at its ends, some of the `others`.
fn is_within(text: &str, is_letter: impl Fn(char) -> bool, others: &str) -> bool {
    text.starts_with(&is_letter)
        && text.ends_with(&is_letter)
        && text.chars().all(|letter| is_letter(letter) || others.contains(letter))
}

/// Keys of the `kubernetes.io` and `k8s.io` domains that a kubelet may set; read from
/// `k8s.io/kubelet/pkg/apis/well_known_labels.go` of 1.36.3; 1.37.2 has the same.
const ALLOWED_KEYS: &str = "beta.kubernetes.io/arch beta.kubernetes.io/instance-type beta.kubernetes.io/os \
    failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone kubernetes.io/arch \
    kubernetes.io/hostname kubernetes.io/os node.kubernetes.io/instance-type topology.kubernetes.io/region \
    topology.kubernetes.io/zone";

/// Domains of which, and of whose subdomains, a kubelet may set any key; same source.
const ALLOWED_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Whether a kubelet refuses to start with that key in `--node-labels` (`ValidateKubeletFlags`).
pub(crate) fn is_forbidden(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    let within = |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    (within("kubernetes.io") || within("k8s.io"))
        && ALLOWED_KEYS.split(' ').all(|allowed| allowed != key)
        && !ALLOWED_DOMAINS.iter().any(|domain| within(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_judged_as_kubernetes_does() {
        for key in ["a", "example.com/pool", "a_b.c-D", "node.kubernetes.io/x"] {
            assert!(is_key(key), "{key}");
        }
        let long = "a".repeat(64);
        for key in ["", "-a", "a b", "/a", "a/", "a/b/c", "Example.com/a", "ä", &long] {
            assert!(!is_key(key), "{key}");
        }
        for value in ["", "a", "A_1.b-c", &"v".repeat(63)] {
            assert!(is_value(value), "{value}");
        }
        for value in ["-", "a b", "a/b", "${X}", &long] {
            assert!(!is_value(value), "{value}");
        }
    }

    #[test]
    fn a_kubelet_may_set_few_keys_of_kubernetes_own_domains() {
        for key in [
            "node-role.kubernetes.io/worker",
            "kubernetes.io/role",
            "k8s.io/x",
            "sub.k8s.io/x",
            "node-restriction.kubernetes.io/x",
            "kops.k8s.io/instancegroup",
        ] {
            assert!(is_forbidden(key), "{key}");
        }
        for key in [
            "role",
            "kubernetes.azure.com/agentpool",
            "cloud.google.com/gke-nodepool",
            "mykubernetes.io/x",
            "eks.amazonaws.com/nodegroup",
            "node.kubernetes.io/pool",
            "sub.node.kubernetes.io/pool",
            "kubelet.kubernetes.io/x",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        ] {
            assert!(!is_forbidden(key), "{key}");
        }
    }
}
