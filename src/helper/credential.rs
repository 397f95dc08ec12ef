//! The verb `credential`: what the kubelet speaks to the API server with, wherever this distribution keeps it.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    OWN_KUBECONFIG,
    configured::Wanted,
    plugin,
    process::{self, Kubelet},
    protocol::{Code, Credential, Plugin, Refusal, Verb},
};
use crate::{
    host::{
        files::Root,
        trusted::{self, NotTrusted},
    },
    kubeconfig::{self, Access, Exec, Fault, FaultKind, MAX_KUBECONFIG_BYTES},
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "credential",
    sentence: "Hands out the kubelet's kubeconfig with certificate, key and token put in.",
    // An exec plugin takes its time.
    deadline: Duration::from_secs(12),
};

/// Where a distribution keeps the kubelet's kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Who keeps it there.
    pub distribution: &'static str,
    /// The file.
    pub path: &'static str,
}

/// The well-known places, in the order in which they are tried.
pub const PLACES: &[Place] = &[
    Place {
        distribution: "kubeadm, kubespray, Flatcar, Canonical Kubernetes",
        path: "/etc/kubernetes/kubelet.conf",
    },
    Place {
        distribution: "EKS, AKS, GKE, kOps, OpenShift, by hand",
        path: "/var/lib/kubelet/kubeconfig",
    },
    Place {
        distribution: "Gardener",
        path: "/var/lib/kubelet/kubeconfig-real",
    },
    Place {
        distribution: "Bottlerocket",
        path: "/etc/kubernetes/kubelet/kubeconfig",
    },
    Place {
        distribution: "k3s",
        path: "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    },
    Place {
        distribution: "RKE2",
        path: "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    },
    Place {
        distribution: "k0s",
        path: "/var/lib/k0s/kubelet.conf",
    },
    Place {
        distribution: "MicroK8s",
        path: "/var/snap/microk8s/current/credentials/kubelet.config",
    },
];

/// Answers with what is in the kubeconfig that the running kubelet was started with, else (none runs, or one without
/// `--kubeconfig`) in the first of [`PLACES`] that holds one; or in the agent's `own`. Without the content, if it is the
/// `known` one.
pub fn answer(
    root: &Root,
    wanted: &Wanted,
    own: bool,
    known: Option<&str>,
) -> Result<Credential, Refusal> {
    let (source, text) = if own {
        let path = PathBuf::from(OWN_KUBECONFIG);
        let text = read(root, &path).map_err(|error| missing_or(&error))?;
        (path, text)
    } else {
        lent(root, wanted)?
    };
    let mut access =
        kubeconfig::read_roots(root, &source, &text).map_err(|fault| refusal(&fault))?;
    let plugin = match access.exec.take() {
        None if own => {
            let message = format!(
                "kubeconfig {}: the agent can read it itself",
                source.display()
            );
            return Err(Refusal::new(Code::BadRequest, message));
        }
        None => None,
        Some(exec) => Some(Plugin {
            expires_at: from_plugin(root, &source, &mut access, &exec)?,
        }),
    };
    let mark = mark(&access);
    Ok(Credential {
        access: (known != Some(&mark)).then_some(access),
        source,
        mark,
        plugin,
    })
}

/// Has the plugin run that the kubeconfig names.
fn from_plugin(
    root: &Root,
    source: &Path,
    access: &mut Access,
    exec: &Exec,
) -> Result<Option<Timestamp>, Refusal> {
    plugin::fill(root, source, access, exec).map_err(|why| {
        let message = format!("kubeconfig {}: {why}", source.display());
        Refusal::new(Code::ExecPlugin, message)
    })
}

/// Whose exec plugin this node has: the agent's own kubeconfig's, if that names one, else the kubelet's.
pub(super) fn exec_source(
    root: &Root,
    wanted: &Wanted,
) -> Result<(PathBuf, Access, Exec), Refusal> {
    let own = Path::new(OWN_KUBECONFIG);
    let ours = read(root, own)
        .ok()
        .and_then(|text| kubeconfig::read_roots(root, own, &text).ok())
        .filter(|access| access.exec.is_some());
    let (source, mut access) = if let Some(access) = ours {
        (own.to_owned(), access)
    } else {
        let (source, text) = lent(root, wanted)?;
        let access =
            kubeconfig::read_roots(root, &source, &text).map_err(|fault| refusal(&fault))?;
        (source, access)
    };
    if let Some(exec) = access.exec.take() {
        return Ok((source, access, exec));
    }
    let message = format!("kubeconfig {}: it names no exec plugin", source.display());
    Err(Refusal::new(Code::ExecPlugin, message))
}

/// Not secret, and no way back to what is: both sides compare it, nobody shows it.
fn mark(access: &Access) -> String {
    let mut hasher = DefaultHasher::new();
    access.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// What an operator can do about a credential that the kubelet has and we cannot use.
const OWN: &str = "give the agent its own kubeconfig in /etc/nodevigil/kubeconfig";

fn refusal(fault: &Fault) -> Refusal {
    let (code, what_to_do) = match fault.kind {
        FaultKind::Unreadable => return Refusal::new(Code::Unreadable, &fault.message),
        FaultKind::Bad => return Refusal::new(Code::BadFile, &fault.message),
        FaultKind::NoCredential => (Code::NoCredential, "wait until the kubelet has joined, or "),
        FaultKind::Program => (Code::ExecPlugin, ""),
    };
    Refusal::new(code, format!("{}; {what_to_do}{OWN}", fault.message))
}

/// The kubelet's kubeconfig for the agent, unless the operator does not lend it.
fn lent(root: &Root, wanted: &Wanted) -> Result<(PathBuf, String), Refusal> {
    if !wanted.lends_identity {
        let message = format!(
            "the kubelet's credential is not handed out: [kubernetes] kubelet_identity = false; {OWN}"
        );
        return Err(Refusal::new(Code::NoCredential, message));
    }
    kubelets(root, process::find(root, &wanted.kubelet)?.as_ref())
}

/// The kubeconfig that the running kubelet was started with, else the one in the well-known places, and what it says.
pub(super) fn kubelets(
    root: &Root,
    kubelet: Option<&Kubelet>,
) -> Result<(PathBuf, String), Refusal> {
    let Some(kubelet) = kubelet else {
        return search(root);
    };
    let Some(named) = kubelet.flags().and_then(|flags| flags.kubeconfig) else {
        return search(root);
    };
    let path = kubelet.resolve(root, &named)?;
    let text = read(root, &path).map_err(|error| missing_or(&error))?;
    Ok((path, text))
}

/// The first of the places with a kubeconfig in it. A file that is there and cannot be read ends the search: the next
/// place would be a leftover.
fn search(root: &Root) -> Result<(PathBuf, String), Refusal> {
    for place in PLACES {
        let path = Path::new(place.path);
        match read(root, path) {
            Ok(text) if kubeconfig::is_kubeconfig(&text) => return Ok((path.to_owned(), text)),
            Ok(_) => {}
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(missing_or(&error)),
        }
    }
    let places: Vec<_> = PLACES.iter().map(|place| place.path).collect();
    let message = format!(
        "the kubelet's kubeconfig: none in {}; wait until the node has joined, or give the agent its own in \
         /etc/nodevigil/kubeconfig",
        places.join(", ")
    );
    Err(Refusal::new(Code::NoCredential, message))
}

/// A kubeconfig says which files are read and which program is run, so it must be root's alone.
fn read(root: &Root, path: &Path) -> Result<String, NotTrusted> {
    trusted::read_text(root, path, MAX_KUBECONFIG_BYTES)
}

/// A kubeconfig that is not there is what a node has before it has joined, and no fault of a file.
fn missing_or(error: &NotTrusted) -> Refusal {
    if error.is_missing() {
        let message = format!(
            "read {error}; the kubelet writes it when it joins: wait, or look at its bootstrap kubeconfig"
        );
        return Refusal::new(Code::NoCredential, message);
    }
    let message = format!("{error}; root must be able to read the kubelet's kubeconfig");
    Refusal::new(Code::Unreadable, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::helper::testing::{Process, host, kubeconfig_with_token, write};

    fn ask(root: &Root, own: bool, known: Option<&str>) -> Result<Credential, Refusal> {
        answer(root, &Wanted::default(), own, known)
    }

    #[test]
    fn every_place_is_found_and_named() {
        let paths: BTreeSet<_> = PLACES.iter().map(|place| place.path).collect();
        assert_eq!(paths.len(), PLACES.len());
        for place in PLACES {
            let (_folder, root) = host();
            write(&root, place.path, &kubeconfig_with_token("t"));
            let credential = ask(&root, false, None).unwrap();
            assert_eq!(
                credential.source,
                Path::new(place.path),
                "{}",
                place.distribution
            );
        }
    }

    #[test]
    fn the_running_kubelets_flag_beats_the_places() {
        let (_folder, root) = host();
        write(&root, PLACES[0].path, &kubeconfig_with_token("leftover"));
        write(&root, "/srv/k", &kubeconfig_with_token("mine"));
        Process::kubelet(9, &["kubelet", "--kubeconfig", "/srv/k"]).write(&root);
        let credential = ask(&root, false, None).unwrap();
        assert_eq!(credential.source, Path::new("/srv/k"));
        assert_eq!(credential.access.unwrap().token.as_deref(), Some("mine"));
        // One without the flag falls back to the places.
        Process::kubelet(9, &["kubelet"]).write(&root);
        assert_eq!(
            ask(&root, false, None).unwrap().source,
            Path::new(PLACES[0].path)
        );
    }

    #[test]
    fn a_namesake_is_passed_over() {
        let (_folder, root) = host();
        write(
            &root,
            "/etc/kubernetes/kubelet.conf",
            "kind: KubeletConfiguration\n",
        );
        write(
            &root,
            "/var/lib/kubelet/kubeconfig",
            &kubeconfig_with_token("t"),
        );
        let credential = ask(&root, false, None).unwrap();
        assert_eq!(credential.source, Path::new("/var/lib/kubelet/kubeconfig"));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_to_do() {
        for (user, code) in [
            ("auth-provider: {name: gcp}", Code::ExecPlugin),
            ("client-key-data: s3cret", Code::NoCredential),
        ] {
            let (_folder, root) = host();
            let text = kubeconfig_with_token("t").replace("token: t", user);
            write(&root, PLACES[0].path, &text);
            let refused = ask(&root, false, None).unwrap_err();
            assert_eq!(refused.code, code, "{refused}");
            assert!(refused.message.contains(OWN) && refused.message.contains(PLACES[0].path));
            assert!(!refused.message.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn the_one_that_is_known_is_not_handed_out_again() {
        let (_folder, root) = host();
        write(&root, PLACES[0].path, &kubeconfig_with_token("old"));
        let first = ask(&root, false, None).unwrap();
        let known = Some(first.mark.as_str());
        let again = ask(&root, false, known).unwrap();
        assert_eq!((again.access, &again.mark), (None, &first.mark));
        write(&root, PLACES[0].path, &kubeconfig_with_token("new"));
        let other = ask(&root, false, known).unwrap();
        assert_eq!(other.access.unwrap().token.as_deref(), Some("new"));
    }

    #[test]
    fn a_plugin_that_may_not_be_run_is_refused_with_the_reason() {
        for (exec, word) in [
            ("command: aws", "speaks ``"),
            (
                "apiVersion: client.authentication.k8s.io/v1, command: aws, args: [s3cret]",
                "`aws` is not there",
            ),
        ] {
            let (_folder, root) = host();
            let user = format!("exec: {{{exec}}}");
            let text = kubeconfig_with_token("t").replace("token: t", &user);
            write(&root, PLACES[0].path, &text);
            let refused = ask(&root, false, None).unwrap_err();
            assert_eq!(refused.code, Code::ExecPlugin);
            assert!(refused.message.contains(word), "{refused}");
            assert!(!refused.message.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn what_the_operator_does_not_lend_is_not_handed_out() {
        let (_folder, root) = host();
        write(&root, PLACES[0].path, &kubeconfig_with_token("s3cret"));
        let wanted = Wanted {
            lends_identity: false,
            ..Wanted::default()
        };
        let refused = answer(&root, &wanted, false, None).unwrap_err();
        assert_eq!(refused.code, Code::NoCredential);
        assert!(refused.message.contains("kubelet_identity"), "{refused}");
        assert!(exec_source(&root, &wanted).is_err());
    }

    #[test]
    fn what_others_can_write_is_not_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_folder, root) = host();
        write(&root, "/etc/canary", "s3cret");
        let user = "tokenFile: /etc/canary";
        let text = kubeconfig_with_token("t").replace("token: t", user);
        write(&root, "/opt/e/kc", &text);
        Process::kubelet(9, &["kubelet", "--kubeconfig=/opt/e/kc"]).write(&root);
        let given = ask(&root, false, None).unwrap().access.unwrap();
        assert_eq!(
            given.token.as_deref(),
            Some("s3cret"),
            "all of it is root's"
        );
        for (at, mode) in [
            ("/opt/e", 0o777),
            ("/opt/e/kc", 0o664),
            ("/etc/canary", 0o666),
        ] {
            let set = |mode| {
                let mode = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(root.join(at), mode).unwrap();
            };
            set(mode);
            let refused = ask(&root, false, None).unwrap_err();
            assert_eq!(refused.code, Code::Unreadable, "{refused}");
            assert!(refused.message.contains(at), "{refused}");
            assert!(!refused.message.contains("s3cret"), "{refused}");
            set(0o755);
        }
    }

    #[test]
    fn of_the_agents_own_only_the_plugins_credential_is_handed_out() {
        let (_folder, root) = host();
        write(&root, OWN_KUBECONFIG, &kubeconfig_with_token("t"));
        let refused = ask(&root, true, None).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest);
    }

    #[test]
    fn before_the_node_has_joined_there_is_no_credential() {
        let (_folder, root) = host();
        let refused = ask(&root, false, None).unwrap_err();
        assert_eq!(refused.code, Code::NoCredential);
        Process::kubelet(9, &["kubelet", "--kubeconfig=/etc/kubernetes/kubelet.conf"]).write(&root);
        let refused = ask(&root, false, None).unwrap_err();
        assert_eq!(refused.code, Code::NoCredential);
        assert!(refused.message.contains("/etc/kubernetes/kubelet.conf"));
    }
}
