//! Values of a form of their own: resource lists, eviction thresholds, sets of CPUs, taints, labels, names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{edits, limits};
use crate::kubelet::effective::Effective;
use crate::kubelet::endpoint;
use crate::kubelet::flags::{ValueKind, duration_nanos, parse_bool};
use crate::kubelet::label;
use crate::kubelet::quantity::{self, Quantity};
use crate::kubelet::table::rows;
use crate::kubelet::text::nearest;
use crate::rules::lost::as_written;
use crate::rules::{Finding, From, Location, Severity, Snapshot, at, flags_in, settings, shortened};

/// The words of maps and lists.
const WORDS: &str = include_str!("words.txt");

/// Why the kubelet does not take a value; `None` if it does. Of a map it gets key and value, of a list each item.
type Checker = fn(&Snapshot, &str, &Value) -> Option<String>;

/// The checker of each setting; `--flag` has no field.
const CHECKERS: &[(&str, Checker)] = &[
    ("--node-labels", node_label),
    ("--root-dir", |snapshot, _, value| {
        if_not(text(value).starts_with('/') || as_written(snapshot, text(value)).is_some(), "it takes an absolute path")
    }),
    ("address", |_, _, value| {
        let is_taken = text(value).is_empty() || ValueKind::Ip.takes(text(value));
        if_not(is_taken, "it takes an IP address")
    }),
    ("allowedUnsafeSysctls", |_, _, value| if_not(is_sysctl(text(value)), "it is no sysctl of a namespace of pods")),
    ("containerLogMaxSize", |_, _, value| not_a_quantity(text(value))),
    ("containerRuntimeEndpoint", socket),
    ("cpuManagerPolicyOptions", cpu_option),
    ("evictionHard", threshold),
    ("evictionMinimumReclaim", reclaim),
    ("evictionSoft", threshold),
    ("evictionSoftGracePeriod", |_, _, value| {
        if_not(duration_nanos(text(value)).is_some_and(|period| period >= 0), "it takes a period such as 1m30s")
    }),
    ("fileCheckFrequency", |snapshot, _, value| {
        let is_read = snapshot.settings.text("staticPodPath").is_some();
        if_not(!is_read || duration_nanos(text(value)) > Some(0), "it takes a period longer than 0")
    }),
    ("imageServiceEndpoint", socket),
    ("kubeReserved", reservation),
    ("logging.vmodule", vmodule),
    ("memoryThrottlingFactor", |_, _, value| {
        if_not(value.as_f64().is_none_or(|factor| factor > 0.0 && factor <= 1.0), "it takes more than 0 and at most 1")
    }),
    // A relative path of the main file is absolute by now; one of a drop-in stays as it is.
    ("podLogsDir", |_, _, value| {
        if_not(text(value).starts_with('/') && is_clean(text(value)) && text(value).is_ascii(), CLEAN)
    }),
    ("preloadedImagesVerificationAllowlist", image_pattern),
    ("qosReserved", |_, _, value| {
        let percent = text(value).strip_suffix('%').and_then(|number| number.parse().ok());
        if_not(percent.is_some_and(|percent: i64| (0..=100).contains(&percent)), "it takes a percentage such as 50%")
    }),
    ("registerWithTaints", taint),
    ("reservedMemory", reserved_memory),
    ("reservedSystemCPUs", |_, _, value| {
        if_not(cpus(text(value)).is_some(), "it takes CPUs and ranges, such as 0-3,8")
    }),
    ("showHiddenMetricsForVersion", hidden_metrics),
    ("systemReserved", reservation),
    ("tlsCurvePreferences", |_, _, value| {
        let is_known = value.as_i64().is_some_and(|id| matches!(id, 23..=25 | 29 | 4587..=4589));
        if_not(is_known, "its TLS library has no curve of this number")
    }),
    ("topologyManagerPolicyOptions", topology_option),
    ("tracing.endpoint", |_, _, value| {
        if_not(is_target(text(value)), "it takes HOST:PORT, or dns, unix or unix-abstract with //")
    }),
    ("userNamespaces.idsPerPod", |_, _, value| {
        let is_taken = value.as_i64().is_some_and(|ids| ids >= 65536 && ids % 65536 == 0 && u32::try_from(ids).is_ok());
        if_not(is_taken, "it takes a multiple of 65536 up to 4294901760")
    }),
];

fn if_not(is_taken: bool, why: &str) -> Option<String> {
    (!is_taken).then(|| why.to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Which aspect of a setting is judged.
#[derive(Clone, Copy)]
enum Part<'a> {
    All(&'a Value),
    Item(usize, &'a Value),
    Pair(&'a str, &'a Value),
}

/// Everything that the kubelet does not take.
pub(super) fn wrong_values(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for [path, what, words] in rows(WORDS) {
        for part in parts(snapshot, path) {
            let (Part::All(value) | Part::Item(_, value) | Part::Pair(_, value)) = part;
            let word = if let Part::Pair(key, _) = part { key } else { text(value) };
            if !is_word(snapshot, path, words, word) {
                let what = what.replace('-', " ");
                let meant = nearest(word, words.split('|'));
                let is_short = meant.is_none() && words.matches('|').count() < 8;
                let known = if is_short { format!(", only {}", words.replace('|', ", ")) } else { String::new() };
                let why = format!("it does not know the {what} {}{known}", shortened(word));
                findings.push(refusal(snapshot, path, part, &why, meant));
            }
        }
    }
    for (path, check) in CHECKERS {
        for part in parts(snapshot, path) {
            let why = match part {
                // CF001's.
                Part::Pair(_, value) if !value.is_string() => None,
                Part::All(value) | Part::Item(_, value) => check(snapshot, "", value),
                Part::Pair(key, value) => check(snapshot, key, value),
            };
            findings.extend(why.map(|why| refusal(snapshot, path, part, &why, None)));
        }
    }
    findings
}

/// Whether it is a word that the setting takes.
pub(super) fn knows(path: &str, word: &str) -> bool {
    rows(WORDS).any(|[of, _, words]| of == path && words.split('|').any(|known| known == word))
}

/// Whether a word is known; to an older release some are not, and some options are not looked at.
fn is_word(snapshot: &Snapshot, path: &str, words: &str, word: &str) -> bool {
    let minor = snapshot.version.as_ref().map_or(u16::MAX, |version| version.minor.0);
    match path {
        "topologyManagerPolicyOptions" if snapshot.settings.text("topologyManagerPolicy") == Some("none") => true,
        "cpuManagerPolicyOptions" if snapshot.settings.text("cpuManagerPolicy") != Some("static") => true,
        _ if word.starts_with("containerfs.") && minor < 31 => false,
        _ => words.split('|').any(|known| known == word),
    }
}

/// The parts of a setting that the user's files or flags give.
fn parts<'a>(snapshot: &'a Snapshot, path: &str) -> Vec<Part<'a>> {
    let set = snapshot.settings.get(path).filter(|_| !settings::is_default(snapshot, path));
    match set.filter(|_| !limits::is_built_in(snapshot, path)) {
        None => Vec::new(),
        Some(Effective { value: Value::Object(map), keys, .. }) => {
            let is_set = |key: &str| matches!(keys.get(key), Some(From::Flag(_) | From::File(_)));
            map.iter().filter(|(key, _)| is_set(key)).map(|(key, value)| Part::Pair(key, value)).collect()
        }
        Some(Effective { value: Value::Array(items), .. }) => {
            items.iter().enumerate().map(|(index, item)| Part::Item(index, item)).collect()
        }
        Some(Effective { value, .. }) => vec![Part::All(value)],
    }
}

fn refusal(snapshot: &Snapshot, path: &str, part: Part<'_>, why: &str, meant: Option<&'static str>) -> Finding {
    let shown = |value: &Value| shortened(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let what = match part {
        Part::All(value) => format!("is '{}'", shown(value)),
        Part::Item(_, item) => format!("has '{}'", shown(item)),
        Part::Pair(key, value) => format!("has {} with the value '{}'", shortened(key), shown(value)),
    };
    let rule = if path.starts_with("--") { "FL004" } else { "CF007" };
    let (key, value) = places(snapshot, path, part);
    let at = if meant.is_some() { key } else { value };
    let name = settings::name(snapshot, path, path);
    let message = format!("{name} {what}, and the kubelet exits: {why}");
    let finding = Finding::new(rule, Severity::Fatal, at.clone(), message);
    match (meant, part) {
        (Some(meant), Part::Pair(key, _)) => finding.with(edits::renaming(snapshot, &at, &shortened(key), meant)),
        (Some(meant), _) => finding.say_at(&at, format!("write {meant}")),
        (None, _) => finding.say_at(&at, "correct or delete it"),
    }
}

/// Where the key and the value are.
fn places(snapshot: &Snapshot, path: &str, part: Part<'_>) -> (Location, Location) {
    let whole = settings::place(snapshot, path);
    let found = if let Some(From::Flag(_)) = settings::from(snapshot, path) {
        let needle = match part {
            Part::All(value) | Part::Item(_, value) => text(value),
            Part::Pair(key, _) => key,
        };
        let flag = settings::flag_of(path).unwrap_or_else(|| path.trim_start_matches('-'));
        let found = snapshot.flags.all(flag).rev().find_map(|used| Some((used, used.value.find(needle)?)));
        let found = found.filter(|_| !needle.is_empty());
        found.map(|(used, start)| at::value_part(snapshot, used, start, needle.len())).map(|at| (at.clone(), at))
    } else {
        let entry = snapshot.config.entry(path);
        entry.and_then(|entry| match part {
            Part::Pair(key, _) => entry.node.entry(key).map(|pair| (pair.at.clone(), pair.node.at.clone())),
            Part::Item(index, _) => entry.node.items().get(index).map(|item| (item.at.clone(), item.at.clone())),
            Part::All(_) => None,
        })
    };
    found.unwrap_or((whole.clone(), whole))
}

/// `parseResourceList` of cmd/kubelet/app/server.go.
fn reservation(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    not_a_quantity(text(value)).or_else(|| {
        let amount = quantity::parse(text(value)).map_or(0.0, Quantity::amount);
        if_not(amount >= 0.0, "it is negative")
    })
}

fn not_a_quantity(text: &str) -> Option<String> {
    let is_with_b = text.ends_with(['B', 'b']);
    let hint = if is_with_b { ". The suffixes are Ki, Mi, Gi, or k, M, G, without B" } else { "" };
    quantity::parse(text).is_none().then(|| format!("that is not a quantity, such as 500m or 512Mi{hint}"))
}

/// `parseThresholdStatement` of pkg/kubelet/eviction/helpers.go.
fn threshold(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    if text(value).ends_with('%') {
        return if_not(
            percentage(text(value)).is_some_and(|percent| percent.is_nan() || (0.0..=100.0).contains(&percent)),
            "it takes 0% to 100%",
        );
    }
    let is_positive = || quantity::parse(text(value)) > Some(Quantity::whole(0));
    not_a_quantity(text(value)).or_else(|| if_not(is_positive(), "a threshold must be more than 0"))
}

/// `parseMinimumReclaims`.
fn reclaim(snapshot: &Snapshot, key: &str, value: &Value) -> Option<String> {
    if text(value).ends_with('%') {
        return if_not(
            percentage(text(value)).is_some_and(|percent| percent.is_nan() || percent > 0.0),
            "it takes more than 0%",
        );
    }
    reservation(snapshot, key, value)
}

/// A percentage; all signs at the end are passed over, and NaN compares as in Go.
fn percentage(text: &str) -> Option<f32> {
    text.trim_end_matches('%').parse().ok()
}

const KEY: &str = "a key has at most 63 letters, digits, '-', '_' and '.', perhaps after a DNS name and '/', and begins and ends \
                   with a letter or a digit";
const VALUE: &str =
    "a value has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or a digit";

/// `ValidateKubeletFlags`; keys of Kubernetes' own domains are CL009's.
fn node_label(_: &Snapshot, key: &str, value: &Value) -> Option<String> {
    let quoted = flags_in(text(value)).into_iter().next().map(|flag| {
        format!(
            "a quote inside the quotes of the file makes {} a part of the label. Delete the inner quotes",
            flag.text
        )
    });
    quoted.or_else(|| if_not(label::is_key(key), KEY)).or_else(|| if_not(label::is_value(text(value)), VALUE))
}

/// `CheckTaintValidation`.
fn taint(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    const EFFECTS: [&str; 4] = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
    let part = |key: &str| value.get(key).map(text).unwrap_or_default();
    // Of a text in a file CF001 tells; a null is a taint without a key.
    if !value.is_object() && !value.is_null() {
        return None;
    }
    if_not(label::is_key(part("key")), KEY)
        .or_else(|| if_not(label::is_value(part("value")), VALUE))
        .or_else(|| {
            if_not(EFFECTS.contains(&part("effect")), "the effects are NoSchedule, PreferNoSchedule, NoExecute")
        })
        .or_else(|| if_not(value.get("timeAdded").is_none_or(Value::is_null), "timeAdded may not be set"))
}

/// `cpuset.Parse` of k8s.io/utils.
pub(in crate::rules) fn cpus(text: &str) -> Option<BTreeSet<u32>> {
    /// More than any machine has.
    const MAX_CPUS: u32 = 1 << 16;
    let mut set = BTreeSet::new();
    for range in text.split(',').filter(|_| !text.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > MAX_CPUS {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

/// `policy_options.go` of the CPU manager.
fn cpu_option(snapshot: &Snapshot, key: &str, value: &Value) -> Option<String> {
    const GATE: &str = "CPUManagerPolicyAlphaOptions";
    if snapshot.settings.text("cpuManagerPolicy") != Some("static") {
        return Some(
            "only the policy static of the CPU manager takes options, and cpuManagerPolicy is none".to_owned(),
        );
    }
    let minor = snapshot.version.as_ref().map_or(u16::MAX, |version| version.minor.0);
    let is_alpha = match key {
        "align-by-socket" | "distribute-cpus-across-cores" => true,
        "strict-cpu-reservation" => minor < 33,
        "prefer-align-cpus-by-uncorecache" => minor < 34,
        _ => false,
    };
    if_not(!is_alpha || limits::is_on(snapshot, GATE) != Some(false), "the option needs CPUManagerPolicyAlphaOptions")
        .or_else(|| if_not(parse_bool(text(value)).is_some(), "it takes true or false"))
}

/// `policy_options.go` of the topology manager.
fn topology_option(snapshot: &Snapshot, key: &str, value: &Value) -> Option<String> {
    if limits::is_on(snapshot, "TopologyManagerPolicyOptions") == Some(false) {
        return Some("options need the feature gate TopologyManagerPolicyOptions".to_owned());
    }
    // With the policy none they are not looked at.
    if snapshot.settings.text("topologyManagerPolicy") == Some("none") {
        return None;
    }
    match key {
        "prefer-closest-numa-nodes" => if_not(parse_bool(text(value)).is_some(), "it takes true or false"),
        "max-allowable-numa-nodes" => {
            if_not(text(value).parse::<i64>().is_ok_and(|nodes| nodes >= 8), "it takes a whole number from 8")
        }
        _ => None,
    }
}

fn reserved_memory(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    value.get("limits")?.as_object()?.iter().find_map(|(kind, amount)| {
        let is_zero = quantity::parse(amount.as_str()?) == Some(Quantity::whole(0));
        if_not(kind == "memory" || kind.starts_with("hugepages-"), "it takes memory and hugepages-SIZE")
            .or_else(|| if_not(!is_zero, "an amount is 0"))
    })
}

/// Whether a sysctl or a pattern of them belongs to a namespace (`NewAllowlist` of pkg/kubelet/sysctl).
fn is_sysctl(pattern: &str) -> bool {
    const IPC: [&str; 10] =
        ["shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "sem", "msg", "msgmax", "msgmnb", "msgmni"];
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let name = pattern.replace('/', ".");
    let bare = name.strip_suffix('*').unwrap_or(&name);
    let is_namespaced = ["net.", "fs.mqueue."].iter().any(|start| bare.starts_with(start))
        || bare.strip_prefix("kernel.").is_some_and(|name| IPC.contains(&name));
    bare.chars().all(is_letter) && !bare.contains("..") && !name.ends_with('.') && is_namespaced
}

fn socket(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    if_not(
        text(value).is_empty() || endpoint::socket_path(text(value)).is_some(),
        "on Linux it takes an absolute path after unix://",
    )
}

fn vmodule(snapshot: &Snapshot, _: &str, value: &Value) -> Option<String> {
    let pattern = value.get("filePattern").map(text).unwrap_or_default();
    let is_text = snapshot.settings.text("logging.format").is_none_or(|format| format == "text");
    let is_low = value.get("verbosity").and_then(Value::as_i64).unwrap_or_default() <= i64::from(i32::MAX);
    if_not(is_text, "it needs logging.format text").or_else(|| {
        if_not(!pattern.is_empty() && !pattern.contains(['=', ',']) && is_low, "that is no pattern and level")
    })
}

/// A target of gRPC, as `validateEndpoint` of component-base takes it.
fn is_target(endpoint: &str) -> bool {
    if let Some((scheme, _)) = endpoint.split_once("//") {
        return ["dns:", "unix:", "unix-abstract:"].contains(&scheme);
    }
    let host = endpoint.split('/').next().unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(char::is_whitespace)
}

const CLEAN: &str = "it takes an absolute path without '.', '..', doubled or final slashes";

/// Whether Go's `filepath.Clean` leaves a path as it is.
fn is_clean(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or(path);
    path == "/" || !parts.split('/').any(|part| matches!(part, "" | "." | ".."))
}

fn image_pattern(_: &Snapshot, _: &str, value: &Value) -> Option<String> {
    let pattern = text(value);
    let bare = pattern.strip_suffix("/*").unwrap_or(pattern);
    let has_tag = bare == pattern && bare.rsplit('/').next().is_some_and(|name| name.contains([':', '@']));
    let is_taken = !bare.is_empty() && !bare.contains('*') && pattern.trim() == pattern && !has_tag;
    if_not(is_taken, "it takes an image without tag and digest, or a registry and a path with /* at the end")
}

fn hidden_metrics(snapshot: &Snapshot, _: &str, value: &Value) -> Option<String> {
    let before = snapshot.version.as_ref()?.minor.0.checked_sub(1)?;
    let is_taken = text(value).is_empty() || text(value) == format!("1.{before}");
    if_not(is_taken, &format!("it takes only the release before its own, 1.{before}"))
}
