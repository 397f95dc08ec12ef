use crate::{
    kubelet::{
        location::Location,
        resolve::{Inputs, snapshot},
        snapshot::{Snapshot, UnreadFile},
        systemd::{Assignment, Source},
        tree::MemoryTree,
    },
    rules::{
        run,
        testing::{carets, external, found, kubeadm},
    },
};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

/// A snapshot with a file that nothing reads.
fn with_unread(name: &str, value: &str) -> Snapshot {
    let at = Location::file("/etc/sysconfig/kubelet");
    let line = at.at(3, 1, 18);
    let mut snapshot = snapshot(&kubeadm(), external());
    snapshot.unread_files = vec![UnreadFile {
        assignments: vec![Assignment {
            name: name.to_owned(),
            value: value.to_owned(),
            marks: vec![(0, at.at(3, 20, 1))],
            at: line,
            source: Source::Environment,
        }],
        at,
    }];
    snapshot
}

fn unread(name: &str, value: &str) -> Vec<String> {
    let findings = run(&with_unread(name, value)).findings;
    let own = findings.into_iter().filter(|finding| finding.rule == "SD003");
    own.map(|one| format!("{:?} {}: {}", one.severity, one.at, one.message)).collect()
}

#[test]
fn a_file_that_nothing_reads_is_an_error_if_it_holds_what_is_wanted() {
    insta::assert_snapshot!(unread("KUBELET_EXTRA_ARGS", "--cloud-provider=external").join("\n"), @r"Error /etc/sysconfig/kubelet:3: this file sets KUBELET_EXTRA_ARGS but nothing reads it: kubelet.service reads /etc/default/kubelet (/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf:5). Lost: --cloud-provider=external");
    assert!(unread("KUBELET_EXTRA_ARGS", "--max-pods=220")[0].starts_with("Warning"));
    assert!(unread("KUBELET_CGROUP", "systemd")[0].starts_with("Warning"));
    let report = run(&with_unread("X", "--cloud-provider=external"));
    let lost = report.findings.iter().find(|finding| finding.rule == "CL001").unwrap();
    assert_eq!(lost.caused_by.as_ref().unwrap().0, "SD003");
}

#[test]
fn a_packaged_empty_file_that_nothing_reads_is_silent() {
    assert!(unread("KUBELET_EXTRA_ARGS", "").is_empty());
    assert!(unread("PATH", "/bin").is_empty());
}

#[test]
fn a_line_that_is_no_assignment_is_named_with_the_reason() {
    let tree = |text: &str| kubeadm().file(ENV, text.to_owned());
    let lines = "export KUBELET_EXTRA_ARGS=--cloud-provider=external\nMY-VAR=1\n--v=2\n--register-node\nA=1\njust text\n# --v=3\n";
    insta::assert_snapshot!(found(&tree(lines), external(), "SD004").join("\n"), @r"
error /etc/default/kubelet:1: systemd ignores this line of the environment file: `export` is for shells. Lost: --cloud-provider=external
warning /etc/default/kubelet:2: systemd ignores this line of the environment file: the name has a dash
warning /etc/default/kubelet:3: systemd ignores this line of the environment file: the name has a dash. Lost: --v=2
warning /etc/default/kubelet:4: systemd ignores this line of the environment file: it holds flags, but assigns them to no variable. Lost: --register-node
");
    assert!(found(&tree("A = 1\nKUBELET_EXTRA_ARGS='--v=2'\n"), external(), "SD004").is_empty());
}

#[test]
fn a_required_file_that_is_missing_keeps_the_unit_from_starting() {
    let tree = kubeadm().file(OWN, "[Service]\nEnvironmentFile=/etc/eks/environment\n");
    assert_eq!(carets(&tree, Inputs::default(), "SD012").len(), 1);
    assert!(
        found(&tree, Inputs::default(), "SD012")[0]
            .starts_with(&format!("fatal {OWN}:2: kubelet.service cannot start"))
    );
    let optional = kubeadm().without(ENV).without("/var/lib/kubelet/kubeadm-flags.env");
    assert!(found(&optional, Inputs::default(), "SD012").is_empty());
}

#[test]
fn a_file_that_systemd_skips_is_named_with_the_reason() {
    let broken = |file: &str, tree: MemoryTree| {
        found(&tree.file(OWN, format!("[Service]\nEnvironmentFile={file}\n")), Inputs::default(), "SD013")
    };
    let nul = kubeadm().file("/etc/x", b"A=1\0\n".to_vec());
    assert!(broken("-/etc/x", nul.clone())[0].starts_with("error /etc/x: "), "{:?}", broken("-/etc/x", nul));
    let folder = kubeadm().folder("/etc/x");
    assert!(broken("/etc/x", folder)[0].starts_with("fatal"));
    let relative = broken("etc/x", kubeadm());
    assert!(relative[0].starts_with(&format!("error {OWN}:2")), "{relative:?}");
    assert!(broken("-/etc/x", kubeadm().file("/etc/x", "A=1\n")).is_empty());
}

#[test]
fn a_quote_without_end_and_text_behind_one_spoil_the_value() {
    let lines = |text: &str| carets(&kubeadm().file(ENV, text.to_owned()), Inputs::default(), "SD014");
    assert!(lines("KUBELET_EXTRA_ARGS=\"--v=2\nB=1\n")[0].starts_with("error /etc/default/kubelet:1:20+"));
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--v=2\" # note\n").len(), 1);
    assert!(lines("KUBELET_EXTRA_ARGS=\"--v=2\" # note\n")[0].starts_with("error"));
    assert!(lines("NOTE=\"a\" b\n")[0].starts_with("warning"));
    // Values of several lines are fine as long as the quote is closed.
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--v=2\n--max-pods=50\"\n"), [""; 0]);
}
