//! The verb `config`: what the rules say of the kubelet's configuration, now and each time that one of its files
//! changes. The folders are root's, so that only the helper can watch them.

use std::{collections::BTreeMap, io, os::unix::net::UnixStream, path::PathBuf, time::Duration};

use tracing::debug;

use super::{
    configured::{Configured, Wanted},
    line, process,
    protocol::{self, ConfigAnswer, ConfigFinding, ConfigRequest, Verb},
    watch::{Change, Watch},
};
use crate::{
    clock::Clock,
    door,
    host::{files::Root, tree::HostTree},
    kubelet::{
        machine::{Machine, Needed, kernel},
        resolve::{Inputs, Overrides, snapshot},
        snapshot::{Loaded, Process, Snapshot},
        systemd::{LoadState, Manager},
        tree::{Asked, Recording, Tree},
    },
    rules::{self, Report, Severity},
};

/// The verb.
pub const VERB: Verb = Verb {
    name: "config",
    sentence: "Tells what the rules find in the kubelet's configuration, and again when it changes.",
    deadline: Duration::from_secs(5),
};

/// Errors that an answer holds at most: a condition's message has room for the first and the names of the others.
pub const MAX_CONFIG_ERRORS: usize = 8;

/// A change is looked at when nothing more has come for so long: a package's upgrade writes many files.
const QUIET: Duration = Duration::from_millis(200);

/// Files that the kubelet's configuration is read from may appear while they are read: so often it is begun anew.
const MAX_ROUNDS: usize = 3;

/// Answers, and again at each change of a file that was read, until the peer closes.
pub fn follow(root: &Root, configured: &Configured, stream: &UnixStream, request: &ConfigRequest) {
    if let Err(error) = try_follow(root, configured, stream, request) {
        debug!(%error, "the configuration is no longer followed");
    }
}

fn try_follow(
    root: &Root,
    configured: &Configured,
    stream: &UnixStream,
    request: &ConfigRequest,
) -> io::Result<()> {
    let mut told: Option<ConfigAnswer> = None;
    let mut watch = Watch::new(root)?;
    loop {
        let answer = judge(root, &configured.wanted(), request, &mut watch)?;
        if told.as_ref() != Some(&answer) {
            line::write(stream, &protocol::encode_answer(Ok(&answer)))?;
            told = Some(answer);
        }
        // Nothing else runs as much of the program as the rules do, and hours may go by until they run again.
        if let Err(error) = door::give_back_code() {
            debug!(%error, "the pages of the code are kept");
        }
        if watch.wait(stream, QUIET)? == Change::PeerClosed {
            return Ok(());
        }
    }
}

/// Judges, with every file watched that was read for it.
fn judge(
    root: &Root,
    wanted: &Wanted,
    request: &ConfigRequest,
    watch: &mut Watch,
) -> io::Result<ConfigAnswer> {
    let tree =
        HostTree::new(&root.join("/")).map_err(|error| io::Error::other(error.to_string()))?;
    let mut answered = None;
    for _ in 0..MAX_ROUNDS {
        let (answer, asked) = check(&tree, root, wanted, request);
        answered = Some(answer);
        // What was not watched while it was read may have changed since.
        if !watch.set(&tree, &asked)? {
            break;
        }
    }
    Ok(answered.unwrap_or_default())
}

/// Judges once; the paths that were looked at.
pub fn check(
    tree: &dyn Tree,
    root: &Root,
    wanted: &Wanted,
    request: &ConfigRequest,
) -> (ConfigAnswer, BTreeMap<PathBuf, Asked>) {
    let tree = Recording::new(tree);
    let (snapshot, report) = look(&tree, root, wanted, request);
    let answer = ConfigAnswer {
        not_resolved: not_resolved(&snapshot),
        ..summary(&snapshot, &report)
    };
    (answer, tree.into_asked())
}

/// Everything that the rules judge, and what they find.
pub(super) fn look(
    tree: &dyn Tree,
    root: &Root,
    wanted: &Wanted,
    request: &ConfigRequest,
) -> (Snapshot, Report) {
    let snapshot = snapshot(tree, inputs(root, tree, wanted, request));
    let mut report = rules::run(&snapshot);
    report.findings = rules::allow::part(tree, report.findings).findings;
    (snapshot, report)
}

fn inputs(root: &Root, tree: &dyn Tree, wanted: &Wanted, request: &ConfigRequest) -> Inputs {
    let text = |path: &str| {
        tree.read_text(std::path::Path::new(path))
            .map(|text| text.trim().to_owned())
            .ok()
            .filter(|text| !text.is_empty())
    };
    let hostname = text("/proc/sys/kernel/hostname");
    let defaults = Manager::default();
    let loaded = request.loaded.as_ref();
    Inputs {
        unit: Some(wanted.kubelet.unit.clone()),
        manager: Manager {
            environment: loaded.map(without_paths).unwrap_or_default(),
            unit_path: None,
            version: loaded
                .and_then(|loaded| loaded.systemd_version)
                .unwrap_or(defaults.version),
            hostname: hostname.clone().unwrap_or(defaults.hostname),
            machine_id: text("/etc/machine-id").unwrap_or(defaults.machine_id),
            boot_id: text("/proc/sys/kernel/random/boot_id")
                .map_or(defaults.boot_id, |id| id.replace('-', "")),
        },
        version: request
            .kubelet_version
            .as_deref()
            .and_then(|version| version.parse().ok()),
        hostname,
        intent: request.intent.clone(),
        now_secs: Some(Clock.now().wall.as_second()),
        loaded: request.loaded.clone(),
        process: running(root, wanted),
        cluster: request.cluster.clone(),
        addresses: request
            .network
            .as_ref()
            .and_then(|network| network.addresses.clone()),
        overrides: Overrides {
            sysctls: sysctls(request),
            other_network: true,
            ..Overrides::default()
        },
        live: true,
        ..Inputs::default()
    }
}

/// The host's `net.*`, as the agent read them.
fn sysctls(request: &ConfigRequest) -> BTreeMap<&'static str, String> {
    let Some(network) = &request.network else {
        return BTreeMap::new();
    };
    kernel::of_the_network()
        .filter_map(|name| Some((name, network.sysctls.get(name)?.clone())))
        .collect()
}

/// systemd's own environment, as the agent says it is. What could name a file is left out: the kubelet's words are made of it, and
/// the files that they name are opened.
fn without_paths(loaded: &Loaded) -> BTreeMap<String, String> {
    let all = loaded.manager_environment.iter();
    all.filter(|(_, value)| !value.contains('/'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The running kubelet's argument list; none for a program that holds a kubelet inside.
fn running(root: &Root, wanted: &Wanted) -> Option<Process> {
    let kubelet = process::find(root, &wanted.kubelet).ok().flatten()?;
    Some(Process {
        pid: u32::try_from(kubelet.pid()).ok()?,
        argv: kubelet.argv?,
        age_secs: None,
    })
}

fn not_resolved(snapshot: &Snapshot) -> Option<String> {
    match &snapshot.unit.load {
        LoadState::NotFound => Some("no such unit in systemd's search path".to_owned()),
        _ => None,
    }
}

fn summary(snapshot: &Snapshot, report: &Report) -> ConfigAnswer {
    let errors = report
        .findings
        .iter()
        .filter(|f| f.severity >= Severity::Error);
    let warnings = report
        .findings
        .iter()
        .filter(|f| f.severity == Severity::Warning);
    let differs = snapshot.process.as_ref().is_some_and(|process| {
        let words = snapshot.launch.words.iter().map(|word| word.text.as_str());
        snapshot.launch.order_significant && !words.eq(process.argv.iter().map(String::as_str))
    });
    ConfigAnswer {
        unit: snapshot.unit.name.clone(),
        not_resolved: None,
        errors: errors
            .take(MAX_CONFIG_ERRORS)
            .map(|finding| ConfigFinding {
                rule: finding.rule.to_owned(),
                at: finding.at.file_line(),
                message: finding.message.clone(),
                at_next_start: differs && !rules::is_about_the_process(finding.rule),
            })
            .collect(),
        warnings: u32::try_from(warnings.count()).unwrap_or(u32::MAX),
        no_credentials: has_no_credentials(&snapshot.machine),
    }
}

/// Before `kubeadm join` neither file is there.
pub(super) fn has_no_credentials(machine: &Machine) -> bool {
    matches!(machine.kubeconfig, Needed::Missing { .. })
        && matches!(
            machine.bootstrap_kubeconfig,
            Needed::Missing { .. } | Needed::NotAsked
        )
}
