//! docs/reference/stable-names.txt: the names by which others' configuration, alerts and scripts know nodevigil (docs/stability.md).

use std::{collections::BTreeSet, fs};

use kubelet_config::rules;

use super::{conditions::added_by, is_writing, metrics::metrics, repository, settings::settings};
use crate::{
    cli,
    condition::{ConditionType, Reason, profile::Profile},
    host::trouble::Trouble,
    publish::taint_key,
};

const PATH: &str = "docs/reference/stable-names.txt";

/// `make docs` adds names. One that is gone is a change that users must hear of: whoever removes it edits the file by hand.
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
    let conditions = ConditionType::ALL.iter().map(|kind| format!("condition {}", kind.name()));
    let of_profiles = [Profile::Eks, Profile::Npd].into_iter().flat_map(added_by);
    let of_profiles = of_profiles.map(|condition| format!("condition {} of a profile", condition.name));
    let taints = ConditionType::ALL.iter().map(|kind| format!("taint {}", taint_key(*kind)));
    let reasons = Reason::ALL.iter().map(|reason| {
        let condition = reason.spec().condition.map_or("any", |kind| kind.name());
        format!("reason {} of {condition}", reason.spec().name)
    });
    let rules = rules().map(|rule| format!("rule {} {}", rule.id, rule.name));
    let metrics = metrics().into_iter().map(|metric| format!("metric {}", metric.sample));
    let settings = settings().into_iter().map(|setting| {
        let section = if setting.section.starts_with("reasons.") { "reasons.NAME" } else { &setting.section };
        format!("setting {section}.{}", setting.key)
    });
    let troubles = Trouble::ALL.iter().map(|(_, name)| format!("trouble {name}"));
    let names = conditions
        .chain(of_profiles)
        .chain(taints)
        .chain(reasons)
        .chain(rules)
        .chain(metrics)
        .chain(settings)
        .chain(troubles);
    names.chain(exit_codes(&cli::command(), "")).collect()
}

/// The exit codes that the help texts have: `Exit code: 0 the node is ready, 1 ...`.
fn exit_codes(command: &clap::Command, above: &str) -> Vec<String> {
    let name = format!("{above}{}", command.get_name());
    let help = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let codes = help.split("Exit code: ").nth(1).unwrap_or_default();
    let codes = codes.split([',', ';']).filter_map(|code| code.split_whitespace().next()?.parse::<u8>().ok());
    let codes: Vec<_> = codes.map(|code| format!("exit-code {name} {code}")).collect();
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    codes.into_iter().chain(visible.flat_map(|command| exit_codes(command, &format!("{name} ")))).collect()
}
