//! Files other than the kubelet's own: those that its settings name, the state of its managers, static pods, logind's drop-ins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use super::credential_provider::{self, Problem};
use super::sub_ids;
use crate::kubelet::config::document::{Node, parse};
use crate::kubelet::effective::Settings;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::systemd::{LoadState, Manager, Unit, is_directory_list, resolve_unit, system_conf};
use crate::kubelet::text::{self, numbered, word};
use crate::kubelet::tree::{Kind, Tree};
use crate::kubelet::version::Version;

#[derive(Debug, Clone, Default)]
pub(crate) struct Beside {
    /// The state files of the CPU and the memory manager, by the setting of the policy.
    pub(crate) states: BTreeMap<&'static str, Located<serde_json::Value>>,
    /// State files that are not JSON.
    pub(crate) broken_states: Vec<Location>,
    /// Settings that name a file or a directory which is not there or is empty, and which of the two.
    pub(crate) missing: Vec<(&'static str, &'static str)>,
    /// The files of `staticPodPath` that hold a pod, each with the pod's namespace and name.
    pub(crate) static_pods: Vec<Located<String>>,
    /// The files of kubeadm's own directory of static pods, where `staticPodPath` is not that one and has no pod.
    pub(crate) idle_pods: Vec<Located<String>>,
    /// What is wrong with the configuration of image credential providers.
    pub(crate) credential_providers: Vec<Problem>,
    /// What the unit names and is not there, each with its setting.
    pub(crate) absent: Vec<Located<(&'static str, String)>>,
    /// A service that the unit requires and that may write a file for it.
    pub(crate) writer: Option<String>,
    /// logind's `InhibitDelayMaxSec=` in the order in which its files are merged, in seconds.
    pub(crate) inhibit_delays: Vec<Located<u64>>,
    /// What is wrong with the subordinate ids of the user `kubelet`.
    pub(crate) sub_ids: Option<Located<String>>,
}

/// The settings that name what must be there when the kubelet starts.
const NAMED: [&str; 5] = [
    "--image-credential-provider-bin-dir",
    "--image-credential-provider-config",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
];

/// Where kubeadm writes the control plane's pods.
const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The program and the directory without which systemd cannot start the unit. A copy of a host may lack whole directories.
fn absent(tree: &dyn Tree, unit: &Unit, required: &[Required]) -> Vec<Located<(&'static str, String)>> {
    const PROGRAMS: [&str; 4] = ["kubelet", "k3s", "rke2", "k0s"];
    let setting = |key: &str| unit.settings.get(&("Service".to_owned(), key.to_owned()));
    // The paths then count from another directory.
    if ["RootDirectory", "RootImage"].into_iter().any(|key| setting(key).is_some()) {
        return absent_units(tree, required);
    }
    // systemd makes the directories of these settings.
    let is_made = unit.settings.keys().any(|(section, key)| section == "Service" && is_directory_list(key));
    let program = unit.exec.as_ref().map(|exec| (&exec.program, &exec.at));
    let program = program.filter(|(path, _)| path.rsplit('/').next().is_some_and(|name| PROGRAMS.contains(&name)));
    let directory = setting("WorkingDirectory").filter(|_| !is_made).map(|directory| (&directory.value, &directory.at));
    let named = [("ExecStart", program), ("WorkingDirectory", directory)].into_iter();
    let is_missing = |path: &str| {
        let path = Path::new(path);
        let is_seen = path.parent().is_some_and(|above| tree.list(above).is_ok_and(|names| !names.is_empty()));
        path.is_absolute() && is_seen && tree.stat(path).is_err_and(|error| error.is_not_found())
    };
    let missing = named.filter_map(|(key, named)| Some((key, named?))).filter(|(_, (path, _))| is_missing(path));
    let missing = missing.map(|(key, (path, at))| Located { value: (key, path.clone()), at: at.clone() });
    missing.chain(absent_units(tree, required)).collect()
}

const MAX_UNITS: usize = 16;

/// A service that the unit requires, with the setting that names it.
type Required = (Located<(&'static str, String)>, Unit);

fn required(tree: &dyn Tree, unit: &Unit) -> Vec<Required> {
    let mut found = Vec::new();
    for key in ["Requires", "BindsTo"] {
        let Some(required) = unit.settings.get(&("Unit".to_owned(), key.to_owned())) else { continue };
        let names = required.value.split_whitespace().filter(|name| name.ends_with(".service"));
        for name in names.collect::<BTreeSet<_>>().into_iter().take(MAX_UNITS) {
            let named = Located { value: (key, name.to_owned()), at: required.at.clone() };
            found.push((named, resolve_unit(tree, name, &Manager::default())));
        }
    }
    found
}

/// Those of them that do not exist. A tree without systemd's own units does not hold all of them.
fn absent_units(tree: &dyn Tree, required: &[Required]) -> Vec<Located<(&'static str, String)>> {
    let is_whole = tree.exists(Path::new("/usr/lib/systemd/system/multi-user.target"));
    let is_absent = |(named, unit): &&Required| {
        // A generator makes units of scripts in this directory.
        let script = Path::new("/etc/init.d").join(named.value.1.trim_end_matches(".service"));
        is_whole && unit.load == LoadState::NotFound && !tree.exists(&script)
    };
    required.iter().filter(is_absent).map(|(named, _)| named.clone()).collect()
}

/// The one that may write a file for the unit: it, or a command before it, has run when it counts as started.
fn writer(required: &[Required]) -> Option<String> {
    const RUNTIMES: [&str; 3] = ["containerd", "cri", "docker"];
    let may_write = |(named, unit): &&Required| {
        let setting = |key: &str| unit.settings.get(&("Service".to_owned(), key.to_owned()));
        let says_so = |kind: &str| matches!(kind, "oneshot" | "notify" | "notify-reload");
        let is_before = setting("Type").is_some_and(|kind| says_so(&kind.value)) || setting("ExecStartPre").is_some();
        let is_runtime = RUNTIMES.iter().any(|name| named.value.1.starts_with(name));
        !is_runtime && (is_before || unit.load == LoadState::NotFound)
    };
    required.iter().find(may_write).map(|(named, _)| named.value.1.clone())
}

const MAX_FILES: usize = 100;

pub(super) fn read(tree: &dyn Tree, unit: &Unit, settings: &Settings, version: Option<&Version>) -> Beside {
    let missing = |setting: &'static str| {
        let path = Path::new(settings.text(setting)?);
        // A copy of a host may lack whole directories of programs.
        let above = if setting.ends_with("-dir") { path } else { path.parent().unwrap_or(path) };
        let is_seen =
            !setting.starts_with("--") || tree.exists(above) || above.parent().is_some_and(|top| top == Path::new("/"));
        match tree.stat(path) {
            // What the file of credential providers lacks is told as of any other.
            Ok(meta) => {
                let is_empty = meta.kind == Kind::File && meta.size_bytes == 0 && !setting.starts_with("--");
                is_empty.then_some((setting, "is empty"))
            }
            Err(error) => (is_seen && error.is_not_found()).then_some((setting, "does not exist")),
        }
    };
    let required = required(tree, unit);
    let pods = settings.text("staticPodPath").map(|path| static_pods(tree, Path::new(path))).unwrap_or_default();
    Beside {
        states: states(tree, settings),
        broken_states: broken_states(tree, settings),
        missing: NAMED.into_iter().filter_map(missing).collect(),
        idle_pods: if pods.is_empty() { static_pods(tree, Path::new(MANIFESTS)) } else { Vec::new() },
        static_pods: pods,
        credential_providers: credential_provider::problems(tree, settings, version),
        absent: absent(tree, unit, &required),
        writer: writer(&required),
        inhibit_delays: inhibit_delays(tree),
        sub_ids: sub_ids::problem(tree, settings),
    }
}

/// The setting of a manager's policy, and the manager's file below `--root-dir`.
const FILES: [(&str, &str); 2] =
    [("cpuManagerPolicy", "cpu_manager_state"), ("memoryManagerPolicy", "memory_manager_state")];

/// State files below `--root-dir`. A kubelet starts without them, and not with one that it cannot decode.
const STATES: [&str; 5] =
    ["actuated_pods_state", "allocated_pods_state", "cpu_manager_state", "dra_manager_state", "memory_manager_state"];

fn root(settings: &Settings) -> &Path {
    Path::new(settings.text("--root-dir").unwrap_or("/var/lib/kubelet"))
}

/// State files that were cut off, or that somebody edited.
fn broken_states(tree: &dyn Tree, settings: &Settings) -> Vec<Location> {
    let is_broken = |path: &std::path::PathBuf| {
        let text = path.to_str().and_then(|path| text::small(tree, path));
        text.is_some_and(|text| serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text).is_err())
    };
    STATES.iter().map(|name| root(settings).join(name)).filter(is_broken).map(|path| Location::file(&path)).collect()
}

fn states(tree: &dyn Tree, settings: &Settings) -> BTreeMap<&'static str, Located<serde_json::Value>> {
    let read = |(setting, name): (&'static str, &str)| {
        let path = root(settings).join(name);
        let value = serde_json::from_str(&text::small(tree, path.to_str()?)?).ok()?;
        Some((setting, Located { value, at: Location::file(&path) }))
    };
    FILES.into_iter().filter_map(read).collect()
}

/// Every file without a leading dot counts, whatever its suffix (`extractFromDir` of pkg/kubelet/config/file.go).
fn static_pods(tree: &dyn Tree, directory: &Path) -> Vec<Located<String>> {
    let names = tree.list(directory).unwrap_or_default().into_iter();
    let names = names.filter(|name| !name.to_string_lossy().starts_with('.')).take(MAX_FILES);
    let pod = |path: std::path::PathBuf| {
        tree.stat(&path).ok().filter(|meta| meta.kind == Kind::File)?;
        let at = Location::file(&path);
        let document = parse(&at, &text::small(tree, path.to_str()?)?).ok()?;
        let said = |node: &Node, key: &str| node.get(key).and_then(Node::text);
        (said(&document, "kind").as_deref() == Some("Pod")).then_some(())?;
        let metadata = document.get("metadata")?;
        let namespace = said(metadata, "namespace").unwrap_or_else(|| "default".to_owned());
        Some(Located { value: format!("{namespace}/{}", said(metadata, "name")?), at: at.at_line(1) })
    };
    names.filter_map(|name| pod(directory.join(name))).collect()
}

/// logind.conf(5): the main file, then the drop-ins by name; of one name the best directory's.
fn inhibit_delays(tree: &dyn Tree) -> Vec<Located<u64>> {
    system_conf::files(tree, "logind.conf").iter().flat_map(|path| delays_of(tree, path)).collect()
}

fn delays_of(tree: &dyn Tree, path: &Path) -> Vec<Located<u64>> {
    let Some(text) = path.to_str().and_then(|path| text::small(tree, path)) else { return Vec::new() };
    let lines = numbered(&text).filter_map(|(number, line)| {
        let written = line.trim().strip_prefix("InhibitDelayMaxSec=")?.trim();
        Some(Located {
            value: u64::try_from(time_span(written)?.as_secs()).ok()?,
            at: word(&Location::file(path), number, line, written).at,
        })
    });
    lines.collect()
}

/// A time span of systemd.time(7), without a unit seconds; of months and years nothing is known.
pub(crate) fn time_span(text: &str) -> Option<SignedDuration> {
    // jiff takes more words, and ISO 8601, of which systemd knows nothing.
    const UNITS: &str =
        "us usec µs ms msec s sec second seconds m min minute minutes h hr hour hours d day days w week weeks";
    let mut words = text.split(|c: char| c.is_ascii_digit() || c == '.' || c.is_ascii_whitespace());
    if !words.all(|word| word.is_empty() || UNITS.split(' ').any(|unit| unit == word)) {
        return None;
    }
    let seconds = text.parse().ok().and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
    let span = || text.parse::<Span>().ok();
    seconds.or_else(|| span()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok())
}
