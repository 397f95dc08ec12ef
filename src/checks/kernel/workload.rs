//! Which workload a pod is of, by its name alone: no API is asked for its owner.

/// The letters of the suffixes that Kubernetes makes up (k8s.io/apimachinery, util/rand).
const MADE_UP: &str = "bcdfghjklmnpqrstvwxz2456789";

/// `namespace/name` without what tells the pods of one workload apart: the five letters of a pod, the hash of its
/// `ReplicaSet`, the number in a `StatefulSet` or of a `CronJob`'s run. A pod whose own name ends so by chance is merged with
/// those that are called like it, and no more is lost than that.
pub(super) fn workload(pod: &str) -> &str {
    let made_up = |part: &str| part.chars().all(|c| MADE_UP.contains(c));
    let number = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if let Some(rest) = without(pod, |part| part.len() == 5 && made_up(part)) {
        let owner = |part: &str| match part.len() {
            8.. if number(part) => true,
            6..=10 => made_up(part),
            _ => false,
        };
        return without(rest, owner).unwrap_or(rest);
    }
    without(pod, number).unwrap_or(pod)
}

/// `name` without its last part, if that `is` such a one and something is left of it.
fn without(name: &str, is: impl Fn(&str) -> bool) -> Option<&str> {
    let (rest, part) = name.rsplit_once('-')?;
    (!part.is_empty() && !rest.ends_with('/') && !rest.is_empty() && is(part)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::workload;

    #[test]
    fn pods_of_one_workload_have_one_name() {
        for (pod, of) in [
            ("shop/web-7d4b9c6f5-x2k9p", "shop/web"),
            ("shop/web-front-6c9d8b7f44-zzz24", "shop/web-front"),
            ("kube-system/cilium-2bxkz", "kube-system/cilium"),
            ("shop/db-0", "shop/db"),
            ("shop/report-29384756-q8w4z", "shop/report"),
            ("kube-system/etcd-master", "kube-system/etcd-master"),
            ("shop/web", "shop/web"),
            ("shop/-x2k9p", "shop/-x2k9p"),
            ("shop/x2k9p", "shop/x2k9p"),
            ("shop/web-", "shop/web-"),
            ("", ""),
        ] {
            assert_eq!(workload(pod), of, "{pod}");
        }
    }
}
