//! docs/reference/stable-names.txt: the names that the configuration, alerts and scripts of users depend on (docs/stability.md).

use std::collections::BTreeSet;
use std::fs;

use kubelet_config::rules;

use super::conditions::added_by;
use super::metrics::{Metric, metrics};
use super::settings::settings;
use super::{is_writing, repository};
use crate::cli;
use crate::condition::profile::Profile;
use crate::condition::{ConditionType, Reason, ReasonSpec};
use crate::host::pause;
use crate::monitor::bootstrap::stage::STAGES;
use crate::publish::{DEGRADED, FIELD_MANAGER, REPORTING_CONTROLLER, taint_key};
use crate::records::last_boot::EVENT_REASON;
use crate::trouble::Trouble;

const PATH: &str = "docs/reference/stable-names.txt";

/// `make docs` adds names. A name that is removed breaks users: it has to be deleted from the file by hand.
#[test]
fn no_stable_name_is_renamed_or_removed() {
    let names = names();
    let file = repository().join(PATH);
    let written = fs::read_to_string(&file).unwrap_or_default();
    let written: BTreeSet<_> = written.lines().map(str::to_owned).collect();
    let gone: Vec<_> = written.difference(&names).collect();
    assert!(gone.is_empty(), "names in {PATH} that do not exist any more; see docs/stability.md: {gone:#?}");
    if is_writing() {
        fs::write(file, names.into_iter().fold(String::new(), |text, name| text + &name + "\n")).unwrap();
    } else {
        let new: Vec<_> = names.difference(&written).collect();
        assert!(new.is_empty(), "names that are not in {PATH}; run `make docs`: {new:#?}");
    }
}

fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::from([
        format!("annotation {}", pause::ANNOTATION),
        format!("field-manager {FIELD_MANAGER}"),
        format!("event-reason {DEGRADED}"),
        format!("event-reason {EVENT_REASON}"),
        format!("event-reporting-controller {REPORTING_CONTROLLER}"),
    ]);
    for kind in ConditionType::ALL {
        names.insert(format!("condition {}", kind.name()));
        names.insert(format!("taint {}", taint_key(*kind)));
    }
    for condition in [Profile::Eks, Profile::Npd].into_iter().flat_map(added_by) {
        names.insert(format!("condition {} of a profile", condition.name));
    }
    for reason in Reason::ALL {
        let ReasonSpec { name, condition, status, remedy, sampled, .. } = reason.spec();
        let condition = condition.map_or("any", |kind| kind.name());
        let sampled = if *sampled { ", sampled" } else { "" };
        names.insert(format!("reason {name} of {condition}: {}, remedy {remedy:?}{sampled}", status.name()));
    }
    names.extend(rules().map(|rule| format!("rule {} {}", rule.id, rule.name)));
    for Metric { sample, labels, .. } in metrics() {
        names.extend(labels.iter().map(|label| format!("metric {sample} label {label}")));
        names.insert(format!("metric {sample}"));
    }
    names.extend(settings().into_iter().map(|setting| {
        let section = setting.section.replace("reasons.KubeletHealthzUnreachable", "reasons.NAME");
        format!("setting {}.{}", section.replace("custom.chrony", "custom.NAME"), setting.key)
    }));
    names.extend(Trouble::ALL.iter().map(|(_, name, _)| format!("trouble {name}")));
    names.extend(STAGES.iter().map(|(_, name, _)| format!("bootstrap-stage {name}")));
    names.extend(of_command(&cli::command(), ""));
    names
}

/// A command, its options and exit codes, and the same of its subcommands.
fn of_command(command: &clap::Command, above: &str) -> Vec<String> {
    let name = format!("{above}{}", command.get_name());
    let mut names = vec![format!("command {name}")];
    let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
    names.extend(visible.filter_map(|argument| Some(format!("command {name} --{}", argument.get_long()?))));
    names.extend(exit_codes(command).iter().map(|code| format!("exit-code {name} {code}")));
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    names.extend(visible.flat_map(|command| of_command(command, &format!("{name} "))));
    names
}

/// The exit codes in a help text: `Exit code: 0 the node is ready, 1 ...`.
fn exit_codes(command: &clap::Command) -> Vec<u8> {
    let help = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let codes = help.split("Exit code: ").nth(1).unwrap_or_default();
    codes.split([',', ';']).filter_map(|code| code.split_whitespace().next()?.parse().ok()).collect()
}
