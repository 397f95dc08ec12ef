//! The verb `pods`: which pods there are, by the names of their folders of logs. No API is asked, and the folders are root's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protocol::{Code, Refusal, Verb};
use crate::host::files::Root;

/// The verb.
pub const VERB: Verb = Verb {
    name: "pods",
    sentence: "Tells uid, namespace and name of the pods, by their folders of logs.",
    deadline: Duration::from_secs(1),
};

/// So many pods are told at most, which is more than a node has.
pub const MAX_PODS: usize = 512;

/// Where the kubelet keeps a folder `NAMESPACE_NAME_UID` for each pod, unless `podLogsDir` says otherwise.
const LOGS: &str = "/var/log/pods";
/// A uid is a UUID or the 32 digits of a static pod.
const UID_BYTES: [usize; 2] = [36, 32];
/// Bounds a name: a DNS label and a DNS subdomain.
const MAX_NAME_BYTES: usize = 253;

/// A pod's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    /// Its uid; for a static pod the hash of its manifest.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

/// Answers with all that have a folder.
pub fn answer(root: &Root) -> Result<Vec<PodName>, Refusal> {
    let folders = root.list(LOGS).map_err(|error| {
        let message = format!("{error}; the kubelet makes it, unless podLogsDir names another");
        Refusal::new(Code::Unreadable, message)
    })?;
    let named = folders.iter().filter_map(|folder| named(folder));
    Ok(named.take(MAX_PODS).collect())
}

fn named(folder: &str) -> Option<PodName> {
    // None of the three parts can hold a `_`.
    let mut parts = folder.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_name = |name: &str| {
        let known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(known)
    };
    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    let is_uid = UID_BYTES.contains(&uid.len()) && uid.bytes().all(is_digit);
    let is_whole = parts.next().is_none() && is_uid && is_name(namespace) && is_name(name);
    is_whole.then(|| PodName {
        uid: uid.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::protocol::MAX_ANSWER_BYTES;

    const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";

    fn host(folders: &[String]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        root.create_dir_all(LOGS).unwrap();
        for folder in folders {
            root.create_dir_all(format!("{LOGS}/{folder}")).unwrap();
        }
        (dir, root)
    }

    fn names(root: &Root) -> Vec<[String; 3]> {
        let pods = answer(root).unwrap().into_iter();
        pods.map(|pod| [pod.namespace, pod.name, pod.uid]).collect()
    }

    #[test]
    fn pods_are_known_by_their_folders() {
        let fixed = "2b8f2bd1f4b9b66c61d5fd4b2a4d2ea5";
        let folders = [
            format!("kube-system_coredns-5d78c9869d-x2x9k_{UID}"),
            format!("default_web.0_{fixed}"),
            "stray".to_owned(),
        ];
        let (_dir, root) = host(&folders);
        let wanted = [
            ["default", "web.0", fixed].map(str::to_owned),
            ["kube-system", "coredns-5d78c9869d-x2x9k", UID].map(str::to_owned),
        ];
        assert_eq!(names(&root), wanted);
    }

    #[test]
    fn a_folder_that_somebody_else_made_is_no_pods() {
        let strange = [
            format!("default_..%..%etc_{UID}"),
            format!("A_b_{UID}"),
            format!("__{UID}"),
            format!("_{UID}"),
            format!("a_b_c_{UID}"),
            "a_b_x".to_owned(),
            format!("a_b_{}", "g".repeat(36)),
            "a_b_".to_owned() + &"0".repeat(37),
        ];
        let (_dir, root) = host(&strange);
        assert_eq!(names(&root), [[""; 3]; 0].map(|pod| pod.map(str::to_owned)));
        let empty = tempfile::tempdir().unwrap();
        let refusal = answer(&Root::new(empty.path())).unwrap_err();
        assert_eq!(refusal.code, Code::Unreadable);
    }

    #[test]
    fn however_many_there_are_the_answer_has_a_bound() {
        // A folder's name has at most 255 bytes.
        let longest = |i: usize| format!("{}_{i:0155}_{UID}", "n".repeat(62));
        let folders: Vec<String> = (0..MAX_PODS + 9).map(longest).collect();
        let (_dir, root) = host(&folders);
        let pods = answer(&root).unwrap();
        assert_eq!(pods.len(), MAX_PODS);
        let bytes = serde_json::to_vec(&pods).unwrap().len();
        assert!(bytes + 1024 < MAX_ANSWER_BYTES, "{bytes}");
    }
}
