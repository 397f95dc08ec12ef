use crate::kubelet::location::Location;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::{Lifecycle, Snapshot, UnreadFile};
use crate::kubelet::systemd::{Assignment, Source};
use crate::kubelet::tree::MemoryTree;
use crate::rules::lint;
use crate::rules::tests::support::{UNIT, carets, external, findings_with, fixed_files, found, kubeadm, lost};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

/// A snapshot with a file that nothing reads.
fn with_unread(name: &str, value: &str) -> Snapshot {
    let at = Location::file("/etc/sysconfig/kubelet");
    let line = at.at(3, 1, 18);
    let mut snapshot = resolve(&kubeadm(), external());
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
    let findings = lint(&with_unread(name, value)).findings;
    let own = findings.into_iter().filter(|finding| finding.rule == "SD003");
    own.map(|one| format!("{:?} {} {}", one.severity, one.at, one.lost_flags.join(" "))).collect()
}

#[test]
fn a_file_that_nothing_reads_is_an_error_if_it_holds_an_expected_flag() {
    assert_eq!(
        unread("KUBELET_EXTRA_ARGS", "--cloud-provider=external"),
        ["Error /etc/sysconfig/kubelet:3 --cloud-provider=external"]
    );
    assert!(unread("KUBELET_EXTRA_ARGS", "--max-pods=220")[0].starts_with("Warning"));
    assert!(unread("KUBELET_CGROUP", "systemd")[0].starts_with("Warning"));
    let report = lint(&with_unread("X", "--cloud-provider=external"));
    let lost = report.findings.iter().find(|finding| finding.rule == "CL001").unwrap();
    assert_eq!(lost.caused_by.as_ref().unwrap().0, "SD003");
}

#[test]
fn flags_of_a_file_that_nothing_reads_move_to_the_one_that_is_read() {
    let text = "# ours\nKUBELET_EXTRA_ARGS=--cloud-provider=external\nPATH=/bin\n";
    let tree = kubeadm().file("/etc/sysconfig/kubelet", text);
    assert_eq!(
        fixed_files(&tree, &external(), "SD003"),
        [
            format!("{ENV}\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n"),
            "/etc/sysconfig/kubelet\n# ours\nPATH=/bin\n".to_owned(),
        ]
    );
    assert_eq!(fixed_files(&tree, &Inputs::default(), "SD003"), [""; 0], "the file may be left over");
    // kubeadm overwrites this file: the unit has to read it.
    let flags = "/var/lib/kubelet/kubeadm-flags.env";
    let unit = "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n";
    let tree = MemoryTree::new().file(UNIT, unit).file(flags, "KUBELET_KUBEADM_ARGS=--node-ip=10.0.0.7\n");
    assert_eq!(lost(&tree, Inputs::default(), "SD003"), [format!("warning {flags}:1 --node-ip=10.0.0.7")]);
    assert_eq!(fixed_files(&tree, &Inputs::default(), "SD003"), [""; 0]);
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
    assert_eq!(
        lost(&tree(lines), external(), "SD004"),
        [
            "error /etc/default/kubelet:1 --cloud-provider=external",
            "warning /etc/default/kubelet:2",
            "warning /etc/default/kubelet:3 --v=2",
            "warning /etc/default/kubelet:4 --register-node",
        ]
    );
    let lines = "export KUBELET_EXTRA_ARGS=\"--cloud-provider=external\"\n--v=2 --register-node\nA=1\n";
    assert_eq!(
        fixed_files(&tree(lines), &external(), "SD004"),
        [format!("{ENV}\nKUBELET_EXTRA_ARGS=\"--cloud-provider=external --v=2 --register-node\"\nA=1\n")]
    );
    assert!(found(&tree("A = 1\nKUBELET_EXTRA_ARGS='--v=2'\n"), external(), "SD004").is_empty());
}

#[test]
fn a_required_file_that_is_missing_keeps_the_unit_from_starting() {
    let tree = kubeadm().file(OWN, "[Service]\nEnvironmentFile=/etc/eks/environment\n");
    assert_eq!(carets(&tree, Inputs::default(), "SD012").len(), 1);
    assert!(
        found(&tree, Inputs::default(), "SD012")[0]
            .starts_with(&format!("fatal {OWN}:2: systemd cannot start kubelet.service"))
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
    let directory = kubeadm().directory("/etc/x");
    assert!(broken("/etc/x", directory)[0].starts_with("fatal"));
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
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--v=2\" '--max-pods=50'\n"), ["error /etc/default/kubelet:1:28+14"]);
    // A shell reads this alike.
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--node-ip=\"10.0.0.7\n"), [""; 0]);
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--node-labels=\"a=b\" --v=2\"\n").len(), 1);
    // So is a Python programmer's quote, as in the Debian package's file.
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"\"\"\n  --v=2\n  --max-pods=50\n\"\"\"\n"), [""; 0]);
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"\" --v=2\n").len(), 1);
    // Values of several lines are fine as long as the quote is closed.
    assert_eq!(lines("KUBELET_EXTRA_ARGS=\"--v=2\n--max-pods=50\"\n"), [""; 0]);
}

#[test]
fn one_pair_of_quotes_remedies_text_behind_a_quote_and_one_that_is_not_closed() {
    for (text, after) in [
        ("X=\"--v=2\" --max-pods=50\n", "X=\"--v=2 --max-pods=50\"\n"),
        ("X=\"--v=2\" '--max-pods=50'\n", "X=\"--v=2 --max-pods=50\"\n"),
        ("X=\"--v=2\" # noisy\n", "# noisy\nX=--v=2\n"),
        ("X=\"--v=2\" \"--max-pods=50\" '--a=b' # note\n", "# note\nX=\"--v=2 --max-pods=50 --a=b\"\n"),
        ("X=\"--v=2\nB=1\n", "X=--v=2\nB=1\n"),
        ("X='--v=2 --max-pods=50", "X=\"--v=2 --max-pods=50\"\n"),
    ] {
        let name = |text: &str| text.replace("X=", "KUBELET_EXTRA_ARGS=");
        let tree = kubeadm().file(ENV, name(text));
        assert_eq!(fixed_files(&tree, &Inputs::default(), "SD014"), [format!("{ENV}\n{}", name(after))], "{text}");
    }
}

#[test]
fn what_follows_from_text_behind_a_quote_is_to_be_remedied_there() {
    let tree = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\"--node-ip=10.0.0.7\" --resolv-conf=/x\n");
    let findings = findings_with(&tree, Inputs::default());
    let address = findings.iter().find(|finding| finding.rule == "CL006").unwrap();
    assert_eq!(address.caused_by.as_ref().unwrap().0, "SD014");
    assert_eq!(address.remedy.edits().count(), 0);
}

#[test]
fn two_paths_on_one_line_are_none() {
    let own = "/etc/systemd/system/kubelet.service.d/20-own.conf";
    let line = "[Service]\nEnvironmentFile=\nEnvironmentFile=-/etc/default/kubelet -/etc/sysconfig/kubelet\n";
    let tree = kubeadm().file(own, line).file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    let found_in = found(&tree, external(), "SD013");
    assert!(
        found_in[0].starts_with(&format!("error {own}: ")) && found_in[0].contains("Lost: --cloud-provider"),
        "{found_in:?}"
    );
    let fixed = crate::rules::tests::support::fixed(&tree, &external(), "SD013");
    let right = "EnvironmentFile=-/etc/default/kubelet\nEnvironmentFile=-/etc/sysconfig/kubelet\n";
    assert!(fixed[0].ends_with(right), "{fixed:?}");
}

#[test]
fn a_comment_that_ends_in_a_backslash_takes_the_next_line() {
    let tree = kubeadm().file("/etc/default/kubelet", "# args \\\nKUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    let found_in = found(&tree, external(), "SD004");
    assert!(
        found_in[0].starts_with("error /etc/default/kubelet:2: the comment above ends in a backslash"),
        "{found_in:?}"
    );
}

#[test]
fn a_comment_after_the_path_is_a_part_of_it() {
    let unit = "[Service]\nEnvironmentFile=-/etc/default/kubelet  # extra flags\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n";
    let path = "/etc/systemd/system/kubelet.service";
    let tree = kubeadm().file(path, unit).file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    let tree = tree.without("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf");
    let said = found(&tree, external(), "SD013").join("|");
    assert!(said.starts_with(&format!("error {path}: ")) && said.contains("a comment after its path"), "{said}");
    let right = unit.replace("  # extra flags", "");
    assert_eq!(fixed_files(&tree, &external(), "SD013"), [format!("{path}\n{right}")]);
    assert!(!found(&tree, external(), "SD003").join("").contains(ENV));
}

#[test]
fn a_required_file_may_still_come_before_the_first_start() {
    let judged = |unit: &str, file: &str, lifecycle: Lifecycle, live: bool| {
        let text = format!(
            "[Unit]\n{unit}\n[Service]\nEnvironmentFile={file}\nExecStart=/usr/bin/kubelet --system-reserved=memory=${{SIZE}} --kubeconfig=/etc/kubernetes/kubelet.conf\n"
        );
        let tree = kubeadm().file("/etc/systemd/system/kubelet.service", text);
        let tree = tree
            .without("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf")
            .file("/usr/lib/systemd/system/sizes.service", "[Service]\nType=oneshot\nExecStart=/sizes\n")
            .file("/usr/lib/systemd/system/agent.service", "[Service]\nType=notify\nExecStart=/agent\n")
            .file("/usr/lib/systemd/system/crio.service", "[Service]\nType=notify\nExecStart=/usr/bin/crio\n")
            .file("/usr/lib/systemd/system/pre.service", "[Service]\nExecStartPre=/sizes\nExecStart=/pre\n")
            .file("/usr/lib/systemd/system/chronyd.service", "[Service]\nType=forking\nExecStart=/usr/sbin/chronyd\n");
        let findings = findings_with(&tree, Inputs { lifecycle, live, ..Inputs::default() }).into_iter();
        let own = findings.filter(|one| matches!(one.rule, "SD012" | "CF007"));
        own.map(|one| format!("{:?} {}", one.severity, one.rule)).collect::<Vec<_>>().join("|")
    };
    let says = |unit: &str, file: &str, lifecycle| judged(unit, file, lifecycle, lifecycle == Lifecycle::Running);
    let before = Lifecycle::BeforeFirstStart;
    for file in ["/run/metadata/afterburn", "/var/run/flannel/subnet.env", "-/run/kubelet.env"] {
        let said = if file.starts_with('-') { "" } else { "Info SD012" };
        assert_eq!(says("", file, before), said, "{file}");
    }
    assert_eq!(
        says("Requires=crio.service kubelet-auto-node-size.service", "/etc/node-sizing.env", before),
        "Info SD012"
    );
    assert_eq!(says("Requires=crio.service", "/etc/node-sizing.env", before), "Fatal SD012|Fatal CF007");
    assert_eq!(says("Requires=rpc-statd.service", "-/etc/default/none", before), "Fatal CF007");
    for service in ["sizes", "agent", "pre"] {
        let required = format!("Requires={service}.service");
        assert_eq!(says(&required, "/etc/node-sizing.env", before), "Info SD012", "{service}");
    }
    assert_eq!(says("Requires=chronyd.service", "/etc/node-sizing.env", before), "Fatal SD012|Fatal CF007");
    assert_eq!(says("", "/run/metadata/afterburn", Lifecycle::Running), "Fatal SD012|Fatal CF007");
    let disk = judged("", "/run/metadata/afterburn", Lifecycle::Running, false);
    assert_eq!(disk, "Info SD012", "the disk of a node that has run");
}
