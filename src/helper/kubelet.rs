//! The verb `kubelet`: where a running kubelet answers and where its files lie, from its command line and the
//! configuration behind it. Neither is read in the agent's loop, because both may block.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    process,
    protocol::{Code, KubeletFacts, Refusal, Verb},
};
use crate::{
    host::files::{FileError, Root},
    kubelet::{
        endpoint::runtime_socket,
        healthz::{ConfigText, healthz},
    },
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "kubelet",
    sentence: "Tells where a running kubelet answers /healthz and where its configuration lies.",
    deadline: Duration::from_secs(1),
};

/// A `KubeletConfiguration` has a few KiB.
const MAX_CONFIG_BYTES: usize = 1024 * 1024;

/// More drop-ins than this are refused, because the last one might be the one that counts.
const MAX_DROP_INS: usize = 64;

/// Answers for the kubelet with this process id.
pub fn answer(root: &Root, pid: i32) -> Result<KubeletFacts, Refusal> {
    let flags = process::kubelet_flags(root, pid)?.ok_or_else(|| {
        let message = format!(
            "process {pid} holds a kubelet inside, and its arguments are its own; set [kubelet] healthz_url unless it answers at the default"
        );
        Refusal::new(Code::Unreadable, message)
    })?;
    let path = |path: &Option<String>| {
        path.as_deref()
            .map(|path| process::resolve(root, pid, path))
            .transpose()
    };
    let config = path(&flags.config)?;
    let mut files: Vec<PathBuf> = config.iter().cloned().collect();
    if let Some(folder) = path(&flags.config_dir)? {
        files.extend(drop_ins(root, &folder)?);
    }
    let texts = files
        .iter()
        .map(|file| root.read_text(file, MAX_CONFIG_BYTES))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(&error))?;
    let configs: Vec<_> = files
        .iter()
        .zip(&texts)
        .map(|(path, text)| ConfigText { path, text })
        .collect();
    let healthz = healthz(&flags, &configs)
        .map_err(|error| Refusal::new(Code::BadFile, error.to_string()))?;
    Ok(KubeletFacts {
        runtime_socket: runtime_socket(&flags, &configs),
        healthz,
        kubeconfig: path(&flags.kubeconfig)?,
        config,
        root_dir: path(&flags.root_dir)?,
        hostname_override: flags.hostname_override,
    })
}

/// The `*.conf` files of `--config-dir`, in the order in which the kubelet merges them. (It looks into subfolders
/// too; nobody is known to use that.)
fn drop_ins(root: &Root, folder: &Path) -> Result<Vec<PathBuf>, Refusal> {
    let mut names = root.list(folder).map_err(|error| unreadable(&error))?;
    names.retain(|name| name.strip_suffix(".conf").is_some());
    if names.len() > MAX_DROP_INS {
        let (count, folder) = (names.len(), folder.display());
        let message = format!("list {folder}: {count} drop-ins, wanted at most {MAX_DROP_INS}");
        return Err(Refusal::new(Code::TooLarge, message));
    }
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

fn unreadable(error: &FileError) -> Refusal {
    let message = format!("{error}; the kubelet's arguments name it, so look there or at the file");
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
            answer(&root, 812).unwrap(),
            KubeletFacts {
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
        assert_eq!(answer(&root, 7).unwrap().healthz, url("[::1]:3"));
    }

    #[test]
    fn what_cannot_be_read_is_named_and_never_quoted() {
        let (_folder, root) = host();
        Process::kubelet(7, &["kubelet", "--config", CONFIG]).write(&root);
        let refused = answer(&root, 7).unwrap_err();
        assert_eq!(refused.code, Code::Unreadable);
        assert!(refused.message.contains(CONFIG), "{refused}");

        write(&root, CONFIG, "root:$6$s3cret:19000:0:99999:7:::\n\tx: [");
        let refused = answer(&root, 7).unwrap_err();
        assert_eq!(refused.code, Code::BadFile);
        assert!(refused.message.contains(CONFIG), "{refused}");
        assert!(!refused.message.contains("s3cret"), "{refused}");

        write(&root, CONFIG, &"#".repeat(MAX_CONFIG_BYTES + 1));
        assert_eq!(answer(&root, 7).unwrap_err().code, Code::Unreadable);
    }

    #[test]
    fn without_a_file_the_defaults_are_told() {
        let (_folder, root) = host();
        Process::kubelet(7, &["kubelet"]).write(&root);
        let facts = answer(&root, 7).unwrap();
        assert_eq!(facts.healthz, url("127.0.0.1:10248"));
        assert_eq!((facts.config, facts.kubeconfig), (None, None));
    }
}
