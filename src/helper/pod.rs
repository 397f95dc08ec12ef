//! The verb `pod`: which pod has that uid, by the name of its folder of logs. No API is asked, and the folder is root's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::protocol::{Code, Refusal, Verb};
use crate::host::files::Root;

/// The verb.
pub const VERB: Verb = Verb {
    name: "pod",
    sentence: "Tells the namespace and the name of the pod with a uid, by its folder of logs.",
    deadline: Duration::from_secs(1),
};

/// Where the kubelet keeps a folder `NAMESPACE_NAME_UID` for each pod, unless `podLogsDir` says otherwise.
const LOGS: &str = "/var/log/pods";
/// A uid is a UUID or the 32 digits of a static pod.
const MAX_UID_BYTES: usize = 36;
/// Bounds a name: a DNS label and a DNS subdomain.
const MAX_NAME_BYTES: usize = 253;

/// A pod's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

/// Answers for the pod with this uid; `None`: it has no folder.
pub fn answer(root: &Root, uid: &str) -> Result<Option<PodName>, Refusal> {
    let is_digit = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    if uid.is_empty() || uid.len() > MAX_UID_BYTES || !uid.bytes().all(is_digit) {
        let message = "request: wanted the uid of a pod, 32 hexadecimal digits with or without -";
        return Err(Refusal::new(Code::BadRequest, message));
    }
    let folders = root.list(LOGS).map_err(|error| {
        let message = format!("{error}; the kubelet makes it, unless podLogsDir names another");
        Refusal::new(Code::Unreadable, message)
    })?;
    Ok(folders.iter().find_map(|folder| named(folder, uid)))
}

fn named(folder: &str, uid: &str) -> Option<PodName> {
    // None of the three parts can hold a `_`.
    let (namespace, name) = folder
        .strip_suffix(uid)?
        .strip_suffix('_')?
        .split_once('_')?;
    let is_name = |name: &str| {
        let known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(known)
    };
    (is_name(namespace) && is_name(name)).then(|| PodName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "fe3f7a38-b3f7-48aa-8997-a697ae3d0741";

    fn host(folders: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::new(dir.path());
        for folder in folders {
            root.create_dir_all(format!("{LOGS}/{folder}")).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn a_pod_is_known_by_its_folder() {
        let own = format!("kube-system_coredns-5d78c9869d-x2x9k_{UID}");
        let other = "default_web.0_2b8f2bd1f4b9b66c61d5fd4b2a4d2ea5";
        let (_dir, root) = host(&[&own, other, "stray"]);
        let found = answer(&root, UID).unwrap().unwrap();
        assert_eq!(found.namespace, "kube-system");
        assert_eq!(found.name, "coredns-5d78c9869d-x2x9k");
        let found = answer(&root, &other[14..]).unwrap().unwrap();
        assert_eq!(
            (found.namespace.as_str(), found.name.as_str()),
            ("default", "web.0")
        );
        assert_eq!(answer(&root, &UID.replace('f', "e")).unwrap(), None);
    }

    #[test]
    fn what_is_no_uid_and_what_is_no_folder_is_refused() {
        let (_dir, root) = host(&["x"]);
        for uid in ["", "..", "x", "a/b", &"0".repeat(37)] {
            assert_eq!(
                answer(&root, uid).unwrap_err().code,
                Code::BadRequest,
                "{uid}"
            );
        }
        let (_dir, root) = host(&[]);
        assert_eq!(answer(&root, UID).unwrap_err().code, Code::Unreadable);
        // A folder that somebody else made is no name.
        let strange = format!("default_../../etc_{UID}").replace('/', "%");
        let (_dir, root) = host(&[
            &strange,
            &format!("A_b_{UID}"),
            &format!("__{UID}"),
            &format!("_{UID}"),
        ]);
        assert_eq!(answer(&root, UID).unwrap(), None);
    }
}
