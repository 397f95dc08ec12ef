use crate::kubelet::location::Location;
use crate::kubelet::machine::TrustedFile;
use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::{Lifecycle, Loaded};
use crate::rules::tests::support::{DROP_IN, UNIT, carets, findings_with, found, kubeadm};
use crate::rules::{Report, lint};

const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-own.conf";

#[test]
fn a_second_command_without_a_reset_is_fatal() {
    let tree = kubeadm().file(OWN, "[Service]\nExecStart=/usr/bin/kubelet --v=2\n");
    let found = found(&tree, Inputs::default(), "SD008");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("fatal") && found[0].contains("'bad-setting'"), "{found:?}");
}

#[test]
fn no_command_after_a_reset_and_an_unreadable_fragment_are_fatal() {
    let reset = kubeadm().file(OWN, "[Service]\nExecStart=\n");
    assert!(found(&reset, Inputs::default(), "SD008")[0].starts_with("fatal"));
    let broken = kubeadm().file(UNIT, "[Service\nExecStart=/usr/bin/kubelet\n");
    assert!(found(&broken, Inputs::default(), "SD008")[0].starts_with("fatal"));
    assert!(found(&kubeadm(), Inputs::default(), "SD008").is_empty());
}

#[test]
fn a_bad_command_in_a_drop_in_leaves_the_old_one() {
    let tree = kubeadm().file(
        OWN,
        "[Service]\nExecStart=/usr/bin/kubelet --node-name=%\u{e9}%5\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=3\"\n",
    );
    let found = found(&tree, Inputs::default(), "SD008");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("error"), "{found:?}");
}

#[test]
fn a_unit_that_is_missing_or_masked_is_fatal() {
    let missing = kubeadm().without(UNIT);
    assert!(found(&missing, Inputs::default(), "SD019")[0].starts_with("fatal /etc/systemd/system/kubelet.service: "));
    let masked = kubeadm().link("/etc/systemd/system/kubelet.service", "/dev/null");
    let found_masked = found(&masked, Inputs::default(), "SD019");
    assert!(found_masked[0].starts_with("fatal /etc/systemd/system/kubelet.service: "), "{found_masked:?}");
    assert!(found_masked[0].contains("masked"), "{found_masked:?}");
    let packaged = kubeadm().link(UNIT, "/dev/null");
    let packaged = findings_with(&packaged, Inputs::default()).remove(0);
    assert_eq!((packaged.rule, packaged.fix.unwrap().contains("unmask")), ("SD019", false));
    assert!(found(&kubeadm(), Inputs::default(), "SD019").is_empty());
    for tree in [missing, masked] {
        let others = lint(&resolve(&tree, crate::rules::tests::support::external())).findings;
        assert!(others.iter().all(|finding| finding.rule != "CL001"), "nothing is started at all");
    }
}

#[test]
fn a_disabled_unit_does_not_come_back() {
    let inputs = |state: &str, lifecycle| Inputs {
        loaded: Some(Loaded { unit_file_state: state.to_owned(), ..Loaded::default() }),
        lifecycle,
        ..Inputs::default()
    };
    assert!(found(&kubeadm(), inputs("disabled", Lifecycle::Running), "SD019")[0].starts_with("warning"));
    assert!(found(&kubeadm(), inputs("disabled", Lifecycle::BeforeFirstStart), "SD019").is_empty());
    assert!(found(&kubeadm(), inputs("enabled", Lifecycle::Running), "SD019").is_empty());
}

fn judged(files: &[(&str, bool, u32, u32)]) -> Report {
    let mut snapshot = resolve(&kubeadm(), Inputs::default());
    snapshot.machine.trusted_files = files
        .iter()
        .map(|(path, secret, mode, uid)| TrustedFile {
            at: Location::file(path),
            secret: *secret,
            mode: *mode,
            uid: *uid,
            gid: 0,
        })
        .collect();
    let mut report = lint(&snapshot);
    report.findings.retain(|finding| finding.rule == "SD026");
    report
}

fn severities(files: &[(&str, bool, u32, u32)]) -> Vec<String> {
    let findings = judged(files).findings;
    findings.iter().map(|one| format!("{:?} {}", one.severity, one.at)).collect()
}

#[test]
fn files_of_roots_that_others_write_or_read_are_found() {
    assert_eq!(severities(&[(DROP_IN, false, 0o664, 0)]), [format!("Error {DROP_IN}")]);
    assert_eq!(severities(&[("/k", true, 0o644, 0)]), ["Warning /k"]);
    assert_eq!(severities(&[("/k", true, 0o640, 0)]), ["Warning /k"]);
    assert_eq!(severities(&[("/k", true, 0o600, 0), ("/u", false, 0o644, 0), ("/x", false, 0o755, 0)]), [""; 0]);
    assert_eq!(severities(&[("/k", true, 0o600, 1000), ("/u", false, 0o644, 0)]), ["Warning /k"]);
}

#[test]
fn a_tree_that_some_user_unpacked_says_nothing_of_owners() {
    let files = [("/k", true, 0o600, 1000), ("/u", false, 0o644, 1000), ("/w", false, 0o666, 1000)];
    assert_eq!(severities(&files), ["Error /w"]);
    let report = judged(&files);
    assert!(report.not_checked.iter().any(|one| one.rule == "SD026"));
    assert!(carets(&kubeadm(), Inputs::default(), "SD026").is_empty());
}

#[test]
fn a_unit_without_its_program_or_its_directory_is_fatal() {
    let judged = |tree: &crate::kubelet::tree::MemoryTree| found(tree, Inputs::default(), "SD019").join("|");
    let other = kubeadm().without("/usr/bin/kubelet").file("/usr/bin/env", "");
    assert!(judged(&other).contains("ExecStart= names /usr/bin/kubelet, which does not exist"), "{}", judged(&other));
    assert_eq!(judged(&kubeadm().without("/usr/bin/kubelet")), "", "a copy without its programs");
    let in_data = |more: &str| kubeadm().file(OWN, format!("[Service]\nWorkingDirectory=/var/lib/data\n{more}"));
    assert!(judged(&in_data("")).starts_with(&format!("fatal {OWN}:2: WorkingDirectory=")));
    for made in ["StateDirectory", "RuntimeDirectory", "CacheDirectory", "LogsDirectory", "ConfigurationDirectory"] {
        assert_eq!(judged(&in_data(&format!("{made}=data\n"))), "", "systemd makes it");
    }
    let both = other.clone().file(OWN, "[Service]\nStateDirectory=data\n");
    assert!(judged(&both).contains("ExecStart= names"), "it makes no program");
    let before = Inputs { lifecycle: Lifecycle::BeforeFirstStart, ..Inputs::default() };
    assert!(found(&other, before, "SD019")[0].starts_with("info"), "it may still be installed");
    assert_eq!(judged(&in_data("").file("/var/lib/data/x", "")), "");
    assert_eq!(judged(&in_data("WorkingDirectory=-/var/lib/data\n")), "", "it may be missing");
    let requires = kubeadm().file(OWN, "[Unit]\nRequires=docker.service\n");
    assert_eq!(judged(&requires), "", "a copy without systemd's units");
    let whole = requires.file("/usr/lib/systemd/system/multi-user.target", "[Unit]\n");
    assert!(judged(&whole).contains("Requires= names docker.service, which does not exist"), "{}", judged(&whole));
    let twice = whole.clone().file(OWN, format!("[Unit]\nRequires=docker.service {}\n", "docker.service ".repeat(100)));
    assert_eq!(judged(&twice).matches("docker.service, which").count(), 1);
    assert_eq!(judged(&whole.file("/usr/lib/systemd/system/docker.service", "[Service]\nExecStart=/d\n")), "");
}

#[test]
fn a_watchdog_needs_a_kubelet_that_notifies_it() {
    let judged = |text: &str, release: &str, more: &str| {
        let tree = kubeadm()
            .file(OWN, format!("[Service]\n{text}\n"))
            .file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS={more}\n"));
        found(&tree, Inputs { version: release.parse().ok(), ..Inputs::default() }, "SD030").join("|")
    };
    let old = judged("Type=notify\nWatchdogSec=1min", "1.31.4", "");
    assert!(old.starts_with(&format!("fatal {OWN}:3: WatchdogSec= is 1min")), "{old}");
    assert!(judged("WatchdogSec=30s", "1.34.1", "--feature-gates=SystemdWatchdog=false").contains("does not notify"));
    for short in ["1", "0.5", "1000ms", "500ms"] {
        let found = judged(&format!("WatchdogSec={short}"), "1.36.3", "");
        assert!(found.contains("the kubelet exits"), "it takes more than a second: {short}");
    }
    assert!(judged("WatchdogSec=500ms", "1.31.4", "").contains("does not notify"));
    for long in ["1d", "2w", "2min 20s", "30seconds"] {
        assert!(judged(&format!("WatchdogSec={long}"), "1.31.4", "").contains("does not notify"), "{long}");
    }
    for (text, release) in [
        ("WatchdogSec=30s", "1.32.0"),
        ("WatchdogSec=1500ms", "1.34.4"),
        ("WatchdogSec=1.5s", "1.34.4"),
        ("WatchdogSec=1.5", "1.34.4"),
        ("WatchdogSec=0", "1.31.4"),
        ("WatchdogSec=infinity", "1.31.4"),
        // systemd.time(7) has no such forms.
        ("WatchdogSec=PT30S", "1.31.4"),
        ("WatchdogSec=5mins", "1.31.4"),
        ("WatchdogSec=1d, 2h", "1.31.4"),
        ("WatchdogSec=00:00:30", "1.31.4"),
        ("WatchdogSec=1e-1", "1.33.2"),
        ("WatchdogSec=30s", ""),
        ("", "1.31.4"),
    ] {
        assert_eq!(judged(text, release, ""), "", "{text} {release}");
    }
}
