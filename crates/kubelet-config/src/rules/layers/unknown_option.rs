//! SD029: keys of a configuration file of k3s or RKE2 that are none of its options.

use super::{rename, with_argument, with_lost};
use crate::kubelet::flags::{FlagSpec, table};
use crate::kubelet::layers::UnknownOption;
use crate::kubelet::version::Minor;
use crate::rules::{Finding, Launcher, Location, Remedy, Report, Severity, Snapshot, Step, shortened};

/// The releases whose options are in `options.txt`.
const RELEASES: std::ops::RangeInclusive<Minor> = Minor(24)..=Minor(36);

pub(in crate::rules) fn unknown_option(snapshot: &Snapshot, report: &mut Report) {
    for unknown in &snapshot.command.unknown_options {
        let is_k0s = snapshot.command.launcher == Launcher::K0s;
        report.add(if is_k0s { of_k0s(unknown) } else { finding(snapshot, unknown) });
    }
}

fn of_k0s(unknown: &UnknownOption) -> Finding {
    let (key, at) = (&unknown.key, &unknown.at);
    let message = format!(
        "k0s has no option --{key} and exits with `unknown flag: --{key}`. It is a flag of the kubelet, which k0s takes in \
         --kubelet-extra-args"
    );
    let fix = format!("write all flags of the kubelet into one `\"--kubelet-extra-args=--first=1 --{key}=…\"`");
    Finding::new("SD029", Severity::Fatal, at.clone(), message).say_at(at, fix)
}

fn finding(snapshot: &Snapshot, unknown: &UnknownOption) -> Finding {
    let program = snapshot.command.launcher.rancher_name().unwrap_or_default();
    let key = shortened(&unknown.key);
    let is_flag = unknown.meant.is_none() && flag(snapshot, &unknown.key).is_some();
    let prefix = match unknown.meant {
        Some("kubelet-arg") => Some("--".to_owned()),
        Some("node-label") => Some("--node-labels=".to_owned()),
        Some("node-taint") => Some("--register-with-taints=".to_owned()),
        _ => is_flag.then(|| format!("--{key}=")),
    };
    let lost: Vec<(String, &Location)> = prefix.map_or_else(Vec::new, |prefix| {
        let items = unknown.items.iter();
        items.map(|(item, at)| (format!("{prefix}{}", item.trim_start_matches('-')), at)).collect()
    });
    // A later release may have the option.
    let version = snapshot.version.as_ref();
    let is_listed = version.is_some_and(|version| RELEASES.contains(&version.minor));
    let may_know = !is_listed && (version.is_some() || unknown.is_fatal);
    let who = if may_know { &format!("a {program} that does not know it") } else { program };
    let result = if unknown.is_fatal {
        format!("{who} exits with `flag provided but not defined: -{key}`")
    } else {
        format!("{who} skips the key, and the kubelet gets nothing of it")
    };
    let severity = match (unknown.is_fatal, lost.is_empty()) {
        _ if may_know => Severity::Warning,
        (true, _) => Severity::Fatal,
        (false, true) => Severity::Warning,
        (false, false) => Severity::Error,
    };
    let hint = match unknown.meant {
        Some(meant) => format!(". Did you mean {meant}?"),
        None if is_flag => ". It is a flag of the kubelet, which belongs into the list kubelet-arg".to_owned(),
        None => String::new(),
    };
    let agent = if unknown.is_fatal { " agent" } else { "" };
    let of = if may_know { format!(" of {} to {}", RELEASES.start(), RELEASES.end()) } else { String::new() };
    let message = format!("{key} is not an option of {program}{agent}{of}: {result}{hint}");
    let finding = Finding::new("SD029", severity, unknown.at.clone(), message);
    let finding = match (unknown.meant, unknown.items.as_slice()) {
        (Some(meant), _) => renamed(finding, snapshot, unknown, meant),
        (None, [(value, _)]) if is_flag => finding.remedy(moved(snapshot, unknown, value)),
        _ => finding.say_at(&unknown.at, format!("delete {key}")),
    };
    with_lost(finding.by_hand_if(may_know), &lost)
}

/// The key gets the name that was meant; items that the kubelet would refuse are named, too.
fn renamed(mut finding: Finding, snapshot: &Snapshot, unknown: &UnknownOption, meant: &str) -> Finding {
    // A key with a plus appends to the list that is there already.
    let meant = if unknown.is_given { format!("{meant}+") } else { meant.to_owned() };
    let mut steps = vec![rename(&unknown.at, &unknown.key, &meant)];
    let items = unknown.items.iter().filter(|_| meant.starts_with("kubelet-arg"));
    for (item, at) in items {
        let (name, value) = item.trim_start_matches('-').split_once('=').unwrap_or((item, "true"));
        if flag(snapshot, name).is_some_and(|spec| spec.value.takes(value)) {
            continue;
        }
        let Some(spec) = table::FLAGS.iter().find(|spec| spec.field == Some(name)) else {
            finding = finding.and(&format!("The kubelet does not take --{} either", shortened(item)));
            steps.push(Step::say_at(at, format!("correct or delete {}", shortened(item))));
            return finding.remedy(steps);
        };
        let right = format!("{}={value}", spec.name);
        finding = finding.and(&format!(
            "{name} is a field of the kubelet's configuration and not a flag: with it the kubelet exits. The flag is --{}",
            spec.name
        ));
        let what = format!("write {right} instead of {}", shortened(item));
        let exact = (at.width > 0).then(|| at.clone());
        steps.push(Step::replace(exact, at, what, serde_json::Value::from(right).to_string()));
    }
    // From the end, as an edit moves what comes after it on its line.
    steps.reverse();
    finding.remedy(steps)
}

/// A flag of the kubelet that is as a key becomes an item of `kubelet-arg`.
fn moved(snapshot: &Snapshot, unknown: &UnknownOption, value: &str) -> Remedy {
    let new = with_argument(snapshot, &format!("{}={value}", unknown.key));
    let key = &unknown.at;
    // A key at the start of a line, with its value after it, has the line for itself, which JSON's would not.
    let has_line = usize::try_from(key.width) == Ok(unknown.key.len()) && key.column == 1;
    let on_one_line = has_line && unknown.items.iter().all(|(_, at)| at.line == key.line && at.width > 0);
    // An edit above the key would move the line that goes.
    let in_place = new.at().is_some_and(|at| at.file != key.file || at.line == 0 || at.line > key.line);
    let is_sure = on_one_line && in_place && !unknown.has_comment;
    Remedy { steps: vec![new, Step::delete_line(key)], by_hand: !is_sure }
}

/// The flag of that name, if this kubelet has it.
fn flag(snapshot: &Snapshot, name: &str) -> Option<&'static FlagSpec> {
    let minor = snapshot.version.as_ref().map(|version| version.minor);
    table::find(name).filter(|spec| minor.is_none_or(|minor| spec.known_in(minor)))
}
