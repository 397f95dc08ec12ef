//! What a bundle is made of: each file of it, where it comes from, and how it is made fit to be shown.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    host::{files::Root, tree::HostTree},
    kubelet::tree::Tree as _,
};

pub(super) const JOURNALCTL: &str = "/usr/bin/journalctl";
/// Lines of each unit's journal that are asked for.
const JOURNAL_LINES: &str = "--lines=1500";
/// The longest part, before and after it is made presentable.
pub(super) const MAX_PART_BYTES: usize = 1 << 20;
/// What `check` says, some ten kilobytes.
pub(super) const MAX_FINDINGS_BYTES: usize = 512 << 10;
/// The longest document, of which a node's have some kilobytes.
pub(super) const MAX_PARSED_BYTES: usize = 128 << 10;
/// Of the host's facts those in which somebody's words stand.
const HOST_WITH_WORDS: [&str; 4] = [
    "host/kernel-command-line",
    "host/mounts",
    "host/failed-units",
    "host/units",
];
/// So many files of one folder.
const MAX_FILES: usize = 32;

/// How a part is made fit to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As text.
    Text,
    /// By its keys; refused if it is no JSON.
    Json,
    /// As [`Form::Json`]; what `check` says.
    Findings,
    /// By its keys; becomes JSON.
    Toml,
    /// The kubelet's own configuration.
    KubeletConfiguration,
    /// A systemd unit or drop-in.
    Unit,
    /// The file of an `EnvironmentFile=`.
    Environment,
}

/// How a part is had.
#[derive(Debug, Clone)]
pub(super) enum From {
    /// A file.
    File(PathBuf),
    /// The end of a file.
    Log(PathBuf),
    /// This program with these arguments.
    Ourselves(Vec<String>),
    /// A program of the host's.
    Program(&'static str, Vec<String>),
    /// The lines of the kernel's log that say something of its health.
    Kernel,
    /// journalctl with these arguments, over the journal of a tree.
    Journal(Vec<String>),
}

/// One file of the bundle.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) from: From,
    pub(super) form: Form,
}

impl Part {
    /// Whether nobody but the kernel and the distribution has written it: no secret can be in it.
    pub(super) fn is_plain(&self) -> bool {
        self.name.starts_with("host/") && !HOST_WITH_WORDS.contains(&self.name.as_str())
    }

    /// The longest that is made presentable. What is taken apart takes many times as much memory meanwhile.
    pub(super) fn max_bytes(&self) -> usize {
        match self.form {
            Form::Text | Form::KubeletConfiguration => MAX_PART_BYTES,
            Form::Findings => MAX_FINDINGS_BYTES,
            Form::Json | Form::Toml | Form::Unit | Form::Environment => MAX_PARSED_BYTES,
        }
    }
}

/// Why there is nothing of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lacking {
    /// There is nothing to be had.
    Absent,
    /// It could not be had.
    Failed(String),
}

fn part(name: impl Into<String>, form: Form, from: From) -> Part {
    Part {
        name: name.into(),
        from,
        form,
    }
}

fn file(name: &str, path: &str) -> Part {
    part(name, Form::Text, From::File(path.into()))
}

/// What `check` says: the rest of the parts is found by it.
pub(super) fn check(root: &Path, config: &[PathBuf]) -> Part {
    let mut words = vec!["check".to_owned(), "--format=json".to_owned()];
    words.push(format!("--root={}", root.display()));
    words.extend(
        config
            .iter()
            .map(|path| format!("--config={}", path.display())),
    );
    part("check.json", Form::Findings, From::Ourselves(words))
}

/// Every other part.
pub(super) fn all(root: &Root, is_live: bool, config: &[PathBuf], check: &Value) -> Vec<Part> {
    let json = |name: &str, path: &str| part(name, Form::Json, From::File(path.into()));
    let mut parts = vec![
        json("status.json", "/run/nodevigil/status.json"),
        json("ledger.json", "/run/nodevigil/ledger.json"),
        json("pause.json", "/run/nodevigil/pause.json"),
    ];
    for folder in ["/var/lib/nodevigil-helper", "/var/lib/nodevigil"] {
        for (name, path) in files_in(root, folder, ".json") {
            parts.push(json(&format!("kept/{name}"), &path));
        }
    }
    if is_live {
        let mut words = vec!["doctor".to_owned(), "--json".to_owned()];
        words.extend(
            config
                .iter()
                .map(|path| format!("--config={}", path.display())),
        );
        parts.push(part("doctor.json", Form::Json, From::Ourselves(words)));
        parts.push(part("kernel.log", Form::Text, From::Kernel));
    }
    parts.extend(configuration(root, config));
    parts.extend(kubelets(check));
    parts.extend(runtimes(root));
    let units = units(check);
    parts.extend(units.iter().map(|unit| journal(is_live, unit)));
    let rke2 = "/var/lib/rancher/rke2/agent/logs/kubelet.log";
    parts.push(part(
        "journal/rke2-kubelet.log",
        Form::Text,
        From::Log(rke2.into()),
    ));
    parts.extend(host());
    if is_live {
        parts.extend(systemd(&units));
    }
    parts
}

/// Our own configuration.
fn configuration(root: &Root, config: &[PathBuf]) -> Vec<Part> {
    let mut files = Vec::new();
    for folder in ["/usr/lib", "/run", "/etc"] {
        let folder = format!("{folder}/nodevigil/config.d");
        files.extend(files_in(root, &folder, ".toml").map(|(_, path)| path));
    }
    for path in config
        .iter()
        .filter_map(|path| std::path::absolute(path).ok())
    {
        let path = path.to_string_lossy().into_owned();
        let below: Vec<_> = files_in(root, &path, ".toml")
            .map(|(_, path)| path)
            .collect();
        files.extend(if below.is_empty() { vec![path] } else { below });
    }
    files
        .iter()
        .map(|path| part(below(path), Form::Toml, From::File(path.into())))
        .collect()
}

/// The files that `check` found: unit, drop-ins, environment files, the kubelet's configuration.
fn kubelets(check: &Value) -> Vec<Part> {
    let unit = &check["unit"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut files: Vec<(String, Form)> = Vec::new();
    files.extend(text(&unit["fragment"]).map(|path| (path, Form::Unit)));
    let dropins = list(&unit["dropins"]);
    files.extend(
        dropins
            .iter()
            .filter_map(text)
            .map(|path| (path, Form::Unit)),
    );
    for row in list(&unit["env_files"]) {
        files.extend(text(&row["path"]).map(|path| (path, Form::Environment)));
    }
    for flag in list(&check["kubelet"]["flags"]) {
        let path = flag
            .as_str()
            .and_then(|flag| flag.strip_prefix("--config="));
        files.extend(path.map(|path| (path.to_owned(), Form::KubeletConfiguration)));
    }
    for at in list(&check["kubelet"]["files"]) {
        // FILE:LINE
        let path = at
            .as_str()
            .and_then(|at| Some(at.rsplit_once(':')?.0.to_owned()));
        files.extend(path.map(|path| (path, Form::Text)));
    }
    // Where settings come from: `--config-dir` has files of its own.
    for row in check["effective"]
        .as_object()
        .into_iter()
        .flat_map(|rows| rows.values())
    {
        let from = row["from"].as_str().and_then(|at| at.rsplit_once(':'));
        if let Some((path, _)) = from.filter(|(path, _)| is_configuration(path)) {
            files.push((path.to_owned(), Form::KubeletConfiguration));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    files.retain(|(path, _)| path.starts_with('/') && seen.insert(path.clone()));
    files.truncate(2 * MAX_FILES);
    let part = |(path, form): (String, Form)| part(below(&path), form, From::File(path.into()));
    files.into_iter().map(part).collect()
}

fn is_configuration(path: &str) -> bool {
    [".conf", ".yaml", ".yml", ".json"]
        .iter()
        .any(|end| path.ends_with(end))
}

fn runtimes(root: &Root) -> Vec<Part> {
    let mut paths = vec![
        "/etc/containerd/config.toml".to_owned(),
        "/etc/crio/crio.conf".to_owned(),
    ];
    for folder in ["/etc/containerd/conf.d", "/etc/containerd/config.d"] {
        paths.extend(files_in(root, folder, ".toml").map(|(_, path)| path));
    }
    paths.extend(files_in(root, "/etc/crio/crio.conf.d", ".conf").map(|(_, path)| path));
    paths.push("/var/lib/rancher/k3s/agent/etc/containerd/config.toml".to_owned());
    paths.push("/var/lib/rancher/rke2/agent/etc/containerd/config.toml".to_owned());
    let part = |path: &String| part(below(path), Form::Toml, From::File(path.into()));
    paths.iter().map(part).collect()
}

/// The units whose state and journal matter: the kubelet's, the runtimes', ours.
fn units(check: &Value) -> Vec<String> {
    let mut units = vec![
        check["unit"]["name"]
            .as_str()
            .unwrap_or("kubelet.service")
            .to_owned(),
    ];
    for unit in [
        "containerd.service",
        "crio.service",
        "nodevigil.service",
        "nodevigil-helper.service",
        "nodevigil-plugin.service",
        "nodevigil-preflight.service",
    ] {
        if !units.iter().any(|known| known == unit) {
            units.push(unit.to_owned());
        }
    }
    units
}

fn journal(is_live: bool, unit: &str) -> Part {
    let mut words: Vec<String> = [
        "--no-pager",
        "--quiet",
        "--output=short-iso-precise",
        "--no-hostname",
        JOURNAL_LINES,
    ]
    .map(str::to_owned)
    .into();
    words.push(format!("--unit={unit}"));
    let name = unit.strip_suffix(".service").unwrap_or(unit);
    let from = if is_live {
        From::Program(JOURNALCTL, words)
    } else {
        From::Journal(words)
    };
    part(format!("journal/{name}.log"), Form::Text, from)
}

/// What the machine is, and how it is.
fn host() -> Vec<Part> {
    [
        ("host/os-release", "/etc/os-release"),
        ("host/kernel", "/proc/version"),
        ("host/kernel-command-line", "/proc/cmdline"),
        ("host/uptime", "/proc/uptime"),
        ("host/loadavg", "/proc/loadavg"),
        ("host/meminfo", "/proc/meminfo"),
        ("host/vmstat", "/proc/vmstat"),
        ("host/swaps", "/proc/swaps"),
        ("host/pressure-cpu", "/proc/pressure/cpu"),
        ("host/pressure-memory", "/proc/pressure/memory"),
        ("host/pressure-io", "/proc/pressure/io"),
        ("host/mounts", "/proc/self/mounts"),
        ("host/cgroups", "/proc/cgroups"),
        (
            "host/cgroup-controllers",
            "/sys/fs/cgroup/cgroup.controllers",
        ),
        ("host/boot-id", "/proc/sys/kernel/random/boot_id"),
    ]
    .map(|(name, path)| file(name, path))
    .into()
}

fn systemd(units: &[String]) -> Vec<Part> {
    const SYSTEMCTL: &str = "/usr/bin/systemctl";
    let of =
        |name: &str, words: Vec<String>| part(name, Form::Text, From::Program(SYSTEMCTL, words));
    let mut show = vec!["show".to_owned(), format!("--property={UNIT_PROPERTIES}")];
    show.extend(units.iter().cloned());
    vec![
        of(
            "host/systemd",
            vec![
                "show".to_owned(),
                "--property=Version,SystemState,NFailedUnits,Tainted".to_owned(),
            ],
        ),
        of(
            "host/failed-units",
            [
                "list-units",
                "--failed",
                "--plain",
                "--no-legend",
                "--no-pager",
            ]
            .map(str::to_owned)
            .into(),
        ),
        of("host/units", show),
    ]
}

/// Of each unit; none holds what somebody has written but its names.
const UNIT_PROPERTIES: &str = "Id,LoadState,ActiveState,SubState,Result,UnitFileState,FragmentPath,DropInPaths,NeedDaemonReload,\
     MainPID,NRestarts,ExecMainCode,ExecMainStatus,ActiveEnterTimestamp,InactiveEnterTimestamp,MemoryCurrent,MemoryMax,\
     CPUUsageNSec,TasksCurrent,TasksMax,ControlGroup";

/// The name in the bundle of a file of the host's.
fn below(path: &str) -> String {
    format!("files{path}")
}

/// Name and path of the files of a folder whose names end so.
pub(super) fn files_in(
    root: &Root,
    folder: &str,
    end: &str,
) -> impl Iterator<Item = (String, String)> {
    let mut names = names_in(root, folder, end);
    names.truncate(MAX_FILES);
    let folder = folder.to_owned();
    names.into_iter().map(move |name| {
        let path = format!("{folder}/{name}");
        (name, path)
    })
}

/// The names of a folder that end so. The folder is one of the tree's, wherever links lead.
pub(super) fn names_in(root: &Root, folder: &str, end: &str) -> Vec<String> {
    let tree = HostTree::new(&root.join("/"));
    let names = tree.and_then(|tree| tree.list(Path::new(folder)));
    let names = names.unwrap_or_default().into_iter();
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(end)).collect()
}
