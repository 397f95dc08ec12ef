//! The verb `bootstrap`: how far the host is on its way to being of use, as far as root's files and sockets tell, and the
//! record that is kept of the way. `nodevigil bootstrap`, which is root itself, calls the same functions.

mod cloud_init;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

#[doc(hidden)] // public for the fuzz target
pub use cloud_init::{join_words_in, progress_of};
use serde::{Deserialize, Serialize};

use super::{
    certificate, config,
    configured::Wanted,
    mask,
    protocol::{Code, ConfigRequest, Heard, Refusal, RuntimeAnswer, RuntimeRequest, Verb},
    runtime,
    storage::{Disk, OWN_FOLDER},
};
use crate::{
    bootstrap::{
        By, CredentialSeen, HostSeen, MAX_FINDINGS, MAX_NAMES, MAX_TEXT_BYTES, Record, RuleSeen,
        RuntimeSeen, ServingSeen,
    },
    config::KubeletSettings,
    health::bounded,
    host::{files::Root, tree::HostTree},
    kubelet::{
        layers,
        machine::{ClientCredential, Kubeconfig, Needed},
        snapshot::Snapshot,
        systemd::LoadState,
    },
    rules::{Report, Severity},
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "bootstrap",
    sentence: "Tells how far the host is from boot to a node that is of use, and keeps the record of that way.",
    deadline: Duration::from_secs(5),
};

/// How long the runtime may take: one that is slower does not answer.
const RUNTIME_TIMEOUT_MILLIS: u32 = 2000;
/// Where drivers register with a kubelet that has its usual folder.
const PLUGINS: &str = "/var/lib/kubelet/plugins_registry";

/// What is asked of a host that is on its way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootstrapRequest {
    /// What the rules are asked with.
    pub config: ConfigRequest,
    /// To be kept, instead of looking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Record>,
}

/// How long a record waits for the disk.
const WAIT: Duration = Duration::from_secs(3);

/// Looks, or keeps what is to be kept: whatever the disk does, by the lane that may hang on it.
pub fn answer(
    disk: &Arc<Disk>,
    root: &Root,
    wanted: &Wanted,
    request: &BootstrapRequest,
) -> Result<HostSeen, Refusal> {
    let Some(record) = &request.keep else {
        return look(root, wanted, &request.config);
    };
    let (root, record) = (root.clone(), record.clone());
    let kept = disk.lane.run("the record of the bootstrap", WAIT, move || {
        keep(&root, &record)
    });
    let refused =
        |why: String| Refusal::new(Code::Unreadable, format!("record of the bootstrap: {why}"));
    match kept {
        Ok(Ok(())) => Ok(HostSeen::default()),
        Ok(Err(why)) => Err(refused(why)),
        Err(stuck) => Err(refused(stuck.to_string())),
    }
}

/// Writes the record down.
///
/// # Errors
/// The sentence, if it cannot be written.
pub fn keep(root: &Root, record: &Record) -> Result<(), String> {
    let boot_id = root.read_text("/proc/sys/kernel/random/boot_id", 64);
    let record = Record {
        boot_id: boot_id.map(|id| id.trim().to_owned()).unwrap_or_default(),
        ..record.clone()
    };
    let text = serde_json::to_vec_pretty(&record).expect("texts and numbers are always JSON");
    root.create_dir_all(OWN_FOLDER)
        .and_then(|()| root.write_durably(path(record.by), &text))
        .map_err(|error| error.to_string())
}

/// Where a record lies: the command's and the daemon's do not overwrite each other.
pub fn path(by: By) -> PathBuf {
    Path::new(OWN_FOLDER).join(match by {
        By::Command => "bootstrap.json",
        By::Daemon => "bootstrap-daemon.json",
    })
}

/// Everything that the host's files and sockets tell.
///
/// # Errors
/// When there is no host to look at.
pub fn look(root: &Root, wanted: &Wanted, request: &ConfigRequest) -> Result<HostSeen, Refusal> {
    let tree = HostTree::new(&root.join("/"))
        .map_err(|error| Refusal::new(Code::Unreadable, format!("the host's files: {error}")))?;
    let mut wanted = wanted.clone();
    wanted.kubelet.unit = unit(&tree, &wanted.kubelet.unit);
    let (snapshot, report) = config::look(&tree, root, &wanted, request);
    // What is not resolved from files (k0s) has its runtime at one of the well-known places.
    let is_known = snapshot.unit.load != LoadState::NotFound;
    let socket = snapshot.machine.socket_path.as_deref();
    let machine = &snapshot.machine;
    let (cloud_init, join_words) = cloud_init::look(root);
    let seen = HostSeen {
        cloud_init,
        join_words,
        runtime: runtime(root, socket.filter(|_| is_known)),
        credential: credential(root, &wanted.kubelet, &snapshot),
        cni_folder: machine
            .cni_dir
            .as_ref()
            .map(|path| path.display().to_string()),
        cni: machine.cni_configs.clone().map(few),
        plugins: few(root.list(PLUGINS).unwrap_or_default()),
        serving: serving(&snapshot),
        external: external(&snapshot),
        wants_external: request.intent.cloud_provider.as_deref() == Some("external"),
        node_name: node_name(&snapshot),
        findings: findings(&report),
        awaits_join: config::has_no_credentials(machine),
    };
    // The command, which asks no helper, shows it as it is.
    mask::seen(&seen).ok_or_else(|| {
        let message = "the host's files: what was seen of them cannot be written as JSON";
        Refusal::new(Code::Unreadable, message)
    })
}

/// The unit that runs the kubelet: the likeliest one, where the usual one is not there.
fn unit(tree: &HostTree, asked: &str) -> String {
    let candidates = layers::candidates(tree);
    let is_usual = asked == "kubelet.service" || asked.is_empty();
    if is_usual && !candidates.iter().any(|name| name == asked) {
        return candidates
            .into_iter()
            .next()
            .unwrap_or_else(|| asked.to_owned());
    }
    asked.to_owned()
}

fn few(mut names: Vec<String>) -> Vec<String> {
    names.truncate(MAX_NAMES);
    names
}

fn runtime(root: &Root, socket: Option<&str>) -> RuntimeSeen {
    let request = RuntimeRequest {
        timeout_millis: RUNTIME_TIMEOUT_MILLIS,
    };
    match runtime::answer_at(root, socket, &request) {
        Ok(answer) => heard(answer),
        Err(refusal) => RuntimeSeen::Unknown {
            why: refusal.message,
        },
    }
}

fn heard(answer: RuntimeAnswer) -> RuntimeSeen {
    let socket = answer.socket.display().to_string();
    let silent = |why: String, hangs| RuntimeSeen::Silent {
        socket: socket.clone(),
        why: bounded(&why, MAX_TEXT_BYTES),
        hangs,
    };
    match answer.heard {
        Heard::Status(status) => RuntimeSeen::Answers {
            what: format!("{} {}", status.name, status.version),
            not_ready: status.not_ready,
            network_not_ready: status.network_not_ready,
        },
        Heard::Error { code, message } => silent(format!("it answers {code}: {message}"), false),
        Heard::NoSocket => silent("there is no socket".to_owned(), false),
        Heard::Refused => silent("nobody listens at it".to_owned(), false),
        Heard::Doubted(why) | Heard::Denied(why) => RuntimeSeen::Unknown { why },
        Heard::TimedOut { .. } => silent("no answer in time".to_owned(), true),
        Heard::Broken(why) => silent(format!("what it says is no CRI: {why}"), false),
    }
}

fn credential(root: &Root, settings: &KubeletSettings, snapshot: &Snapshot) -> CredentialSeen {
    let machine = &snapshot.machine;
    match &machine.kubeconfig {
        // A kubelet that rotates its certificate writes the kubeconfig first, and bootstraps then.
        Needed::Present(kubeconfig)
            if kubeconfig.certificate.is_none() && !kubeconfig.missing_files.is_empty() =>
        {
            match &machine.bootstrap_kubeconfig {
                Needed::Present(bootstrap) => CredentialSeen::Bootstrap {
                    file: bootstrap.at.file.to_string(),
                },
                _ => of_kubeconfig(kubeconfig),
            }
        }
        Needed::Present(kubeconfig) => of_kubeconfig(kubeconfig),
        Needed::Missing { .. } => match &machine.bootstrap_kubeconfig {
            Needed::Present(bootstrap) => CredentialSeen::Bootstrap {
                file: bootstrap.at.file.to_string(),
            },
            Needed::Bad { at, reason } => CredentialSeen::Bad {
                why: format!("{at}: {reason}"),
            },
            _ => CredentialSeen::Missing,
        },
        Needed::Bad { at, reason } => CredentialSeen::Bad {
            why: format!("{at}: {reason}"),
        },
        // A kubelet inside another program; its files lie where its distribution keeps them.
        Needed::NotAsked => match certificate::answer(root, settings) {
            Ok(found) => CredentialSeen::Certificate {
                file: found.file,
                not_before_secs: found.not_before_secs,
                not_after_secs: found.not_after_secs,
            },
            Err(refusal) if refusal.code == Code::NoCredential => CredentialSeen::Missing,
            Err(refusal) => CredentialSeen::Unknown {
                why: refusal.message,
            },
        },
    }
}

fn of_kubeconfig(kubeconfig: &Kubeconfig) -> CredentialSeen {
    let at = &kubeconfig.at.file;
    if let Some(certificate) = &kubeconfig.certificate {
        return CredentialSeen::Certificate {
            file: certificate.at.file.to_string(),
            not_before_secs: certificate.not_before_secs,
            not_after_secs: certificate.not_after_secs,
        };
    }
    if let Some(problem) = &kubeconfig.certificate_problem {
        return CredentialSeen::Bad {
            why: format!("{at}: {problem}"),
        };
    }
    match kubeconfig.credential {
        ClientCredential::Token => CredentialSeen::Other {
            what: format!("{at} has a token"),
        },
        ClientCredential::Exec => CredentialSeen::Other {
            what: format!("{at} names a program that gives one"),
        },
        _ => CredentialSeen::Bad {
            why: format!("{at} has no credential that could be read"),
        },
    }
}

fn serving(snapshot: &Snapshot) -> ServingSeen {
    let asked = snapshot.settings.get("serverTLSBootstrap");
    if asked.and_then(|asked| asked.value.as_bool()) != Some(true) {
        return ServingSeen::NotWanted;
    }
    match snapshot.machine.serving_certificate {
        Needed::Present(_) => ServingSeen::Present,
        _ => ServingSeen::Waits,
    }
}

/// Of the running kubelet, else of the one that would start now.
fn external(snapshot: &Snapshot) -> Option<bool> {
    if let Some(process) = &snapshot.process {
        let argv = &process.argv;
        let together = argv.iter().any(|word| word == "--cloud-provider=external");
        let apart = ["--cloud-provider", "external"];
        return Some(together || argv.windows(2).any(|pair| pair == apart));
    }
    if snapshot.launch.words.is_empty() {
        return None;
    }
    let used = snapshot.flags.last("cloud-provider");
    Some(used.is_some_and(|used| used.value == "external"))
}

/// The name that the kubelet registers, where its arguments say it.
fn node_name(snapshot: &Snapshot) -> Option<String> {
    let name = snapshot.flags.value("hostname-override")?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty())
}

fn findings(report: &Report) -> Vec<RuleSeen> {
    // The worst first already.
    let found = report.findings.iter();
    found
        .filter(|found| found.severity >= Severity::Warning)
        .take(MAX_FINDINGS)
        .map(|found| RuleSeen {
            rule: found.rule.to_owned(),
            is_fatal: found.severity == Severity::Fatal,
            at: found.at.file_line(),
            message: bounded(&found.message, MAX_TEXT_BYTES),
            fix: bounded(found.fix.as_deref().unwrap_or_default(), MAX_TEXT_BYTES),
        })
        .collect()
}

#[cfg(test)]
mod tests;
