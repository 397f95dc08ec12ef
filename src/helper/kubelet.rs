//! The verb `kubelet`: which process the kubelet is, where it answers and where its files lie, from its command line and the
//! configuration behind it. Neither is read in the agent's loop, because both may block.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    process::{self, Kubelet},
    protocol::{Code, KubeletFacts, Refusal, Verb},
};
use crate::{
    config::KubeletSettings,
    host::{files::Root, tree::HostTree},
    kubelet::{
        endpoint::runtime_socket,
        healthz::{ConfigText, healthz},
        tree::{Tree, Unreadable},
    },
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "kubelet",
    sentence: "Tells which process the kubelet is, where it answers /healthz and where its configuration lies.",
    deadline: Duration::from_secs(1),
};

/// A `KubeletConfiguration` has a few KiB.
const MAX_CONFIG_BYTES: usize = 1024 * 1024;

/// More drop-ins than this are refused, because the last one might be the one that counts.
const MAX_DROP_INS: usize = 64;

/// Answers for the kubelet that runs.
pub fn answer(root: &Root, settings: &KubeletSettings) -> Result<KubeletFacts, Refusal> {
    facts(root, &process::find_one(root, settings)?)
}

/// What the arguments and files of that kubelet say.
pub(super) fn facts(root: &Root, kubelet: &Kubelet) -> Result<KubeletFacts, Refusal> {
    let pid = kubelet.pid();
    let flags = kubelet.flags().ok_or_else(|| {
        let message = format!(
            "process {pid} holds a kubelet inside, and its arguments are its own; set [kubelet] healthz_url unless it answers at the default"
        );
        Refusal::new(Code::Unreadable, message)
    })?;
    let path = |path: &Option<String>| {
        let path = path.as_deref();
        path.map(|path| kubelet.resolve(root, path)).transpose()
    };
    let config = path(&flags.config)?;
    let texts = configuration(root, config.as_deref(), path(&flags.config_dir)?.as_deref())?;
    let configs: Vec<_> = texts
        .iter()
        .map(|(path, text)| ConfigText { path, text })
        .collect();
    let healthz = healthz(&flags, &configs)
        .map_err(|error| Refusal::new(Code::BadFile, error.to_string()))?;
    Ok(KubeletFacts {
        pid,
        runtime_socket: runtime_socket(&flags, &configs),
        healthz,
        kubeconfig: path(&flags.kubeconfig)?,
        config,
        root_dir: path(&flags.root_dir)?,
        hostname_override: flags.hostname_override,
    })
}

/// The files that its configuration is in (`--config`, and those of `--config-dir`), with what they say. No link of another
/// process's is followed, and nothing but a regular file is opened.
fn configuration(
    root: &Root,
    config: Option<&Path>,
    config_dir: Option<&Path>,
) -> Result<Vec<(PathBuf, String)>, Refusal> {
    let tree =
        HostTree::new(&root.join("/")).map_err(|error| unreadable(Path::new("/"), &error))?;
    let mut files: Vec<PathBuf> = config.map(Path::to_owned).into_iter().collect();
    if let Some(folder) = config_dir {
        files.extend(drop_ins(&tree, folder)?);
    }
    let read = |file: PathBuf| match tree.read_bounded(&file, MAX_CONFIG_BYTES) {
        Ok(bytes) => Ok((file, String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) => Err(unreadable(&file, &error)),
    };
    files.into_iter().map(read).collect()
}

/// The `*.conf` files of `--config-dir`, in the order in which the kubelet merges them. (It looks into subfolders
/// too; nobody is known to use that.)
fn drop_ins(tree: &HostTree, folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let listed = tree
        .list(folder)
        .map_err(|error| unreadable(folder, &error))?;
    let mut names: Vec<String> = (listed.into_iter())
        .filter_map(|name| name.into_string().ok())
        .collect();
    names.retain(|name| name.strip_suffix(".conf").is_some());
    if names.len() > MAX_DROP_INS {
        let (count, folder) = (names.len(), folder.display());
        let message = format!("list {folder}: {count} drop-ins, wanted at most {MAX_DROP_INS}");
        return Err(Refusal::new(Code::TooLarge, message));
    }
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

fn unreadable(path: &Path, error: &Unreadable) -> Refusal {
    let message = format!(
        "read {}: it {error}; the kubelet's arguments name it, so look there or at the file",
        path.display()
    );
    Refusal::new(Code::Unreadable, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        helper::testing::{Process, host, write},
        kubelet::healthz::Healthz,
    };

    const CONFIG: &str = "/var/lib/kubelet/config.yaml";

    fn ask(root: &Root) -> Result<KubeletFacts, Refusal> {
        answer(root, &KubeletSettings::default())
    }

    fn url(text: &str) -> Healthz {
        Healthz::Url(format!("http://{text}/healthz"))
    }

    #[test]
    fn a_kubeadm_kubelet_is_read() {
        let (_folder, root) = host();
        write(
            &root,
            CONFIG,
            "kind: KubeletConfiguration\nhealthzPort: 10300\n",
        );
        Process::kubelet(
            812,
            &[
                "/usr/bin/kubelet",
                "--kubeconfig=/etc/kubernetes/kubelet.conf",
                "--config=/var/lib/kubelet/config.yaml",
                "--hostname-override=N1",
            ],
        )
        .write(&root);
        assert_eq!(
            ask(&root).unwrap(),
            KubeletFacts {
                pid: 812,
                healthz: url("127.0.0.1:10300"),
                hostname_override: Some("N1".into()),
                kubeconfig: Some("/etc/kubernetes/kubelet.conf".into()),
                config: Some(CONFIG.into()),
                runtime_socket: Some("/run/containerd/containerd.sock".into()),
                root_dir: None,
            }
        );
    }

    #[test]
    fn drop_ins_are_merged_by_name_over_the_file() {
        let (_folder, root) = host();
        write(&root, CONFIG, "healthzPort: 1\nhealthzBindAddress: '::'\n");
        write(&root, "/etc/k/20.conf", "healthzPort: 3\n");
        write(&root, "/etc/k/10.conf", "healthzPort: 2\n");
        write(&root, "/etc/k/30.conf.bak", "healthzPort: 4\n");
        let argv = ["kubelet", "--config", CONFIG, "--config-dir=/etc/k"];
        Process::kubelet(7, &argv).write(&root);
        assert_eq!(ask(&root).unwrap().healthz, url("[::1]:3"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_never_quoted() {
        let (_folder, root) = host();
        Process::kubelet(7, &["kubelet", "--config", CONFIG]).write(&root);
        let refused = ask(&root).unwrap_err();
        assert_eq!(refused.code, Code::Unreadable);
        assert!(refused.message.contains(CONFIG), "{refused}");

        write(&root, CONFIG, "root:$6$s3cret:19000:0:99999:7:::\n\tx: [");
        let refused = ask(&root).unwrap_err();
        assert_eq!(refused.code, Code::BadFile);
        assert!(refused.message.contains(CONFIG), "{refused}");
        assert!(!refused.message.contains("s3cret"), "{refused}");

        write(&root, CONFIG, &"#".repeat(MAX_CONFIG_BYTES + 1));
        assert_eq!(ask(&root).unwrap_err().code, Code::Unreadable);
    }

    #[test]
    fn without_a_file_the_defaults_are_told() {
        let (_folder, root) = host();
        Process::kubelet(7, &["kubelet"]).write(&root);
        let facts = ask(&root).unwrap();
        assert_eq!(facts.healthz, url("127.0.0.1:10248"));
        assert_eq!((facts.config, facts.kubeconfig), (None, None));
    }
}
