//! Files other than the kubelet's own: those that its settings name, the state of its managers, static pods, logind's drop-ins.

use std::collections::BTreeMap;
use std::path::Path;

use crate::kubelet::config::document::{Node, parse};
use crate::kubelet::effective::Settings;
use crate::kubelet::location::{Located, Location};
use crate::kubelet::text::{self, numbered, word};
use crate::kubelet::tree::{Kind, Tree};

/// What lies in these files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beside {
    /// The policy that the CPU and the memory manager have in their state files, by the setting of the policy.
    pub(crate) state_policies: BTreeMap<&'static str, Located<String>>,
    /// Settings that name a file or a directory which is not there.
    pub(crate) missing: Vec<&'static str>,
    /// The files of `staticPodPath` that hold a pod, each with the pod's namespace and name.
    pub(crate) static_pods: Vec<Located<String>>,
    /// logind's `InhibitDelayMaxSec=` in the order in which its files are merged, in seconds.
    pub(crate) inhibit_delays: Vec<Located<u64>>,
}

/// The settings that name what must be there when the kubelet starts.
const NAMED: [&str; 5] = [
    "--image-credential-provider-bin-dir",
    "--image-credential-provider-config",
    "authentication.x509.clientCAFile",
    "tlsCertFile",
    "tlsPrivateKeyFile",
];

/// How many files of a directory are read.
const MAX_FILES: usize = 100;

pub(super) fn read(tree: &dyn Tree, settings: &Settings) -> Beside {
    let is_missing = |setting: &&str| {
        let Some(path) = settings.text(setting).map(Path::new) else { return false };
        // A copy of a host may lack whole directories of programs.
        let above = if setting.ends_with("-dir") { path } else { path.parent().unwrap_or(path) };
        let is_seen =
            !setting.starts_with("--") || tree.exists(above) || above.parent().is_some_and(|top| top == Path::new("/"));
        is_seen && tree.stat(path).is_err_and(|error| error.is_not_found())
    };
    Beside {
        state_policies: policies(tree, settings),
        missing: NAMED.into_iter().filter(is_missing).collect(),
        static_pods: settings.text("staticPodPath").map(|path| static_pods(tree, Path::new(path))).unwrap_or_default(),
        inhibit_delays: inhibit_delays(tree),
    }
}

/// The setting of a manager's policy, and the manager's file below `--root-dir`.
const FILES: [(&str, &str); 2] =
    [("cpuManagerPolicy", "cpu_manager_state"), ("memoryManagerPolicy", "memory_manager_state")];

/// The policy under which each file was written, by the setting of the policy.
fn policies(tree: &dyn Tree, settings: &Settings) -> BTreeMap<&'static str, Located<String>> {
    let root = Path::new(settings.text("--root-dir").unwrap_or("/var/lib/kubelet"));
    let read = |(setting, name): (&'static str, &str)| {
        let path = root.join(name);
        let state: serde_json::Value = serde_json::from_str(&text::small(tree, path.to_str()?)?).ok()?;
        let value = state["policyName"].as_str()?.to_owned();
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
    const DIRECTORIES: [&str; 4] = ["/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd"];
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        let directory = Path::new(directory).join("logind.conf.d");
        for name in tree.list(&directory).unwrap_or_default().into_iter().take(MAX_FILES) {
            let is_dropin = name.to_string_lossy().ends_with(".conf");
            if is_dropin {
                files.insert(name.clone(), directory.join(name));
            }
        }
    }
    let main = Path::new("/etc/systemd/logind.conf").to_owned();
    std::iter::once(main).chain(files.into_values()).flat_map(|path| delays_of(tree, &path)).collect()
}

fn delays_of(tree: &dyn Tree, path: &Path) -> Vec<Located<u64>> {
    let Some(text) = path.to_str().and_then(|path| text::small(tree, path)) else { return Vec::new() };
    let lines = numbered(&text).filter_map(|(number, line)| {
        let written = line.trim().strip_prefix("InhibitDelayMaxSec=")?.trim();
        Some(Located { value: seconds(written)?, at: word(&Location::file(path), number, line, written).at })
    });
    lines.collect()
}

/// A time span of systemd.time(7), in its usual units.
fn seconds(text: &str) -> Option<u64> {
    let mut sum = 0_u64;
    for part in text.split_whitespace() {
        let (number, unit) = part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
        let unit = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
    }
    Some(sum)
}
