//! Edits as text, and the property: a remedy that is followed makes nothing worse.

use proptest::prelude::*;

use super::*;
use crate::kubelet::location::Location;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::tree::MemoryTree;
use crate::rules::lint;
use crate::rules::tests::hosts::{host, names, resolved};
use crate::rules::tests::support::{answered, external, kubeadm};
use crate::step::Step;

const ENV: &str = "/etc/default/kubelet";
const DROP_IN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

fn plan_of(tree: &MemoryTree, inputs: &Inputs) -> Plan {
    plan(tree, &|tree| lint(&resolve(tree, inputs.clone())), &|_| true)
}

#[test]
fn a_line_or_a_part_of_it_changes_and_the_rest_stays() {
    let file = Location::file(ENV);
    let with = |step: Step| edited("one\ntwö three\nfour", &step);
    let word = file.at(2, 5, 5);
    let write = |at: Location, new: &str| with(Step::write(Some(at.clone()), &at, "", new));
    assert_eq!(write(word.clone(), "3").unwrap(), "one\ntwö 3\nfour");
    assert_eq!(write(file.at(2, 5, 0), "a ").unwrap(), "one\ntwö a three\nfour");
    assert_eq!(write(file.at(2, 1, 0), "1.5\n").unwrap(), "one\n1.5\ntwö three\nfour");
    assert_eq!(with(Step::lines(&word, "2")).unwrap(), "one\n2\nfour");
    assert_eq!(with(Step::delete_line(&word)).unwrap(), "one\nfour");
    let append = Step::Append { to: file.clone(), lines: "five".to_owned() };
    assert_eq!(with(append.clone()).unwrap(), "one\ntwö three\nfour\nfive\n");
    assert_eq!(write(file.at(2, 5, 99), "x"), None);
    assert_eq!(with(Step::delete_line(&file.at_line(9))), None);
    let delete = |text: &str, line| edited(text, &Step::delete_line(&file.at_line(line)));
    assert_eq!(delete("A=1 \\\nB=2\n", 1), None);
    assert_eq!(delete("A=1 \\\nB=2\n", 2), None);
    assert_eq!(delete("A=1 \\\n\nB=2\n", 2).unwrap(), "A=1 \\\nB=2\n");
    assert_eq!(with(Step::delete_line(&file)), None);
    assert_eq!(edited("A=1\r\n", &append).unwrap(), "A=1\r\nfive\r\n", "a file keeps its line ends");
    assert_eq!(edited("A=1\r\nB=2\r\n", &Step::lines(&file.at_line(1), "A=2")).unwrap(), "A=2\r\nB=2\r\n");
}

#[test]
fn a_flag_that_a_file_overrides_is_moved_into_the_file() {
    let tree = kubeadm().file(DROP_IN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n");
    let plan = plan_of(&tree, &external());
    let [file] = &plan.files[..] else { panic!("{plan:?}") };
    assert_eq!(file.path, Path::new(ENV));
    assert_eq!(file.before.as_deref(), Some("KUBELET_EXTRA_ARGS=\n"));
    assert_eq!(file.after, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    assert_eq!(plan.fixed[0].rule, "SD001");
    assert!(plan.left.findings.iter().all(|finding| finding.severity < Severity::Error), "{:?}", plan.left);
}

#[test]
fn a_file_of_a_package_is_left_alone() {
    let tree = kubeadm().file("/usr/lib/x", "a\n").link("/etc/x", "/usr/lib/x");
    let append = |path| Step::Append { to: Location::file(path), lines: "b".to_owned() }.into();
    for path in ["/usr/lib/x", "/etc/x", "/run/x"] {
        assert!(apply(&Overlay::new(&tree), &append(path)).is_none(), "{path}");
    }
    let overlay = apply(&Overlay::new(&tree), &append("/etc/new.d/x")).unwrap();
    assert_eq!(overlay.read(Path::new("/etc/new.d/x")).unwrap(), b"b\n");
    assert_eq!(overlay.list(Path::new("/etc/new.d")).unwrap(), ["x"]);
    assert_eq!(overlay.changed()[0].before, None);
}

/// What is wrong with the edits of a tree's findings: each has to be said as it is done, and afterwards its finding is
/// gone and nothing worse is there.
fn wrong_edits(tree: &MemoryTree, judge: &dyn Fn(&dyn Tree) -> Report) -> Vec<String> {
    let report = judge(tree);
    let mut wrong = Vec::new();
    for finding in &report.findings {
        let edits: Vec<&Step> = finding.remedy.edits().collect();
        let fix = finding.fix.as_deref().unwrap_or_default();
        let is_said = |edit: &&Step| fix.contains(&edit.at().unwrap().to_string());
        if !edits.iter().all(is_said) {
            wrong.push(format!("{} at {}: `{fix}` says not all of {edits:?}", finding.rule, finding.at));
        }
        if edits.is_empty() || edits.iter().any(|edit| is_vendors(tree, Path::new(&*edit.at().unwrap().file))) {
            continue;
        }
        let after = apply(&Overlay::new(tree), &finding.remedy).map(|trial| judge(&trial));
        if !after.as_ref().is_some_and(|after| is_better(&report, after, finding)) {
            let left = after.iter().flat_map(|after| &after.findings);
            let left: Vec<_> = left.map(|one| format!("{} {}: {}", one.rule, one.at, one.message)).collect();
            wrong.push(format!("{} at {}: {fix}: {edits:?}, then {left:#?}", finding.rule, finding.at));
        }
    }
    wrong
}

#[test]
fn every_edit_of_every_host_helps() {
    for name in names() {
        let (tree, inputs, expected) = host(&name);
        let wrong = wrong_edits(&tree, &|tree| lint(&resolved(tree, inputs.clone(), &expected)));
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

#[test]
fn every_edit_of_a_configuration_that_a_real_kubelet_has_judged_helps() {
    let inputs = Inputs { version: "1.36.3".parse().ok(), ..Inputs::default() };
    let wrong: Vec<_> = include_str!("../rules/config/answers.txt")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(answers, _)| answers.chars().all(|answer| answer == 'x'))
        .step_by(3) // each takes a dozen checks
        .map(|(_, change)| answered(change))
        .flat_map(|tree| wrong_edits(&tree, &|tree| lint(&resolve(tree, inputs.clone()))))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Small faults: the rule that finds one, its file, and what is there.
const FAULTS: [(&str, &str, &str); 23] = [
    ("SD001", DROP_IN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"),
    ("SD024", EARLY, "[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--v=4\"\n"),
    ("SD002", ENV, "KUBELET_EXTRA_ARG=--max-pods=50\n"),
    ("SD003", OTHER_ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
    ("SD004", ENV, "export KUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
    ("SD004", ENV, "--cloud-provider=external --v=2\n"),
    ("SD005", DROP_IN, "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external\n"),
    ("SD005", DROP_IN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2\n"),
    ("SD005", DROP_IN, "[Service]\nEnvironment=/etc/kubernetes/own.env\n"),
    ("SD006", DROP_IN, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet ${KUBELET_KUBECONFIG_ARGS}\n"),
    ("SD007", DROP_IN, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS\n"),
    ("SD011", DROP_IN, "Environment=KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"),
    ("SD011", DROP_IN, "[service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"),
    ("SD011", DROP_IN, "[Service]\nenvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"),
    ("SD011", DROP_IN, "[Unit]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n"),
    ("SD014", ENV, "KUBELET_EXTRA_ARGS=\"--v=2\" --cloud-provider=external\n"),
    ("SD014", ENV, "KUBELET_EXTRA_ARGS='--cloud-provider=external\nA=1\n"),
    ("SD015", DROP_IN, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS \\\n\n  --v=2\n"),
    ("SD016", ENV, "KUBELET_EXTRA_ARGS=\"$KUBELET_EXTRA_ARGS --cloud-provider=external\"\n"),
    ("SD016", ENV, "KUBELET_EXTRA_ARGS=–cloud-provider=external\n"),
    ("SD018", DROP_IN, "[Service]\nEnvironment=\"HTTPS_PROXY=http://a:p%40@10.0.0.1:3128\"\n"),
    ("SD025", ENV, "\u{feff}KUBELET_EXTRA_ARGS=--cloud-provider=external\r\n"),
    ("SD025", ENV, "KUBELET_EXTRA_ARGS=--node-labels=a=“b”\n"),
];

const EARLY: &str = "/etc/systemd/system/kubelet.service.d/05-early.conf";
const OTHER_ENV: &str = "/etc/sysconfig/kubelet";

/// A file with one slip on a line.
fn with_slip(text: &str, line: usize, slip: usize) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let Some(index) = line.checked_rem(lines.len()) else { return String::new() };
    let own = lines[index].clone();
    let letters = own.match_indices(char::is_alphabetic).map(|(at, _)| at).collect::<Vec<_>>();
    let letter = letters.get(slip.checked_rem(letters.len()).unwrap_or_default()).copied().unwrap_or_default();
    match slip % 6 {
        0 => lines[index].clear(),
        1 => lines.insert(index, own),
        2 if !letters.is_empty() => drop(lines[index].remove(letter)),
        3 if !letters.is_empty() => lines[index].replace_range(letter..=letter, &own[letter..=letter].to_uppercase()),
        4 => lines[index] = own.replacen(['=', ':'], " ", 1),
        _ => return text.replace('\n', "\r\n"),
    }
    lines.concat()
}

#[test]
fn every_edit_helps_after_a_single_slip() {
    let tree = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\"--cloud-provider=external --max-pods=60\"\n");
    let inputs = Inputs { version: "1.36.3".parse().ok(), ..external() };
    let own = |path: &&PathBuf| path.starts_with("/etc") || path.starts_with("/var/lib/kubelet");
    let files: Vec<PathBuf> = tree.files().filter(own).cloned().collect();
    let mut wrong = Vec::new();
    for path in files {
        let text = String::from_utf8(tree.read(&path).unwrap()).unwrap();
        for (line, slip) in (0..text.lines().count()).flat_map(|line| (0..12).map(move |slip| (line, slip))) {
            let tree = tree.clone().file(&path, with_slip(&text, line, slip));
            wrong.extend(wrong_edits(&tree, &|tree| lint(&resolve(tree, inputs.clone()))));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Without new commands, which hide the other faults: a variable that no command uses does no harm.
    #[test]
    fn a_few_small_faults_are_all_remedied(chosen in proptest::collection::vec(0..FAULTS.len(), 1..4)) {
        let mut tree = kubeadm();
        let mut files = BTreeSet::new();
        let chosen = chosen.iter().map(|index| FAULTS[*index]).filter(|(_, _, text)| !text.contains("ExecStart="));
        for (_, path, text) in chosen.filter(|(_, path, _)| files.insert(*path)) {
            tree = tree.file(path, text);
        }
        let plan = plan_of(&tree, &external());
        let left: Vec<_> = plan.left.findings.iter().filter(|one| one.severity >= Severity::Error).collect();
        prop_assert!(left.is_empty(), "{left:#?} in {:#?}", plan.files);
    }
}

#[test]
fn each_small_fault_is_found_and_remedied() {
    for (rule, path, text) in FAULTS {
        let tree = kubeadm().file(path, text);
        let has_rule = |report: &Report| report.findings.iter().any(|finding| finding.rule == rule);
        assert!(has_rule(&lint(&resolve(&tree, external()))), "{rule}: {text}");
        let plan = plan_of(&tree, &external());
        let left: Vec<_> = plan.left.findings.iter().filter(|one| one.severity >= Severity::Error).collect();
        assert!(left.is_empty(), "{rule}: {text}: {left:#?} in {:#?}", plan.files);
    }
}

#[test]
fn an_edit_neither_starts_the_kubelet_without_flags_nor_builds_on_a_value_that_systemd_reads_otherwise() {
    let first = "KUBELET_EXTRA_ARGS=\"--node-labels=a=b\"\n";
    let second = "KUBELET_EXTRA_ARGS=\"$KUBELET_EXTRA_ARGS --v=4\"\n";
    let plan = plan_of(&kubeadm().file(ENV, format!("{first}{second}")), &external());
    let after = format!("{first}KUBELET_EXTRA_ARGS=\"--v=4 --node-labels=a=b --cloud-provider=external\"\n");
    assert_eq!(plan.files[0].after, after);
    let quotes = "KUBELET_EXTRA_ARGS=\"--node-labels=a=b\" \"--v=4\" # note\n";
    let drop_in = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n";
    let plan = plan_of(&kubeadm().file(ENV, quotes).file(DROP_IN, drop_in), &external());
    let after = "# note\nKUBELET_EXTRA_ARGS=\"--node-labels=a=b --v=4 --cloud-provider=external\"\n";
    assert_eq!(plan.files.iter().map(|file| &*file.after).collect::<Vec<_>>(), [after]);
}
