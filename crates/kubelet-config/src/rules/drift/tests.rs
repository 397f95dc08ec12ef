use crate::kubelet::resolve::{Inputs, resolve};
use crate::kubelet::snapshot::{Intent, Loaded, Process};
use crate::kubelet::systemd::Source;
use crate::kubelet::tree::MemoryTree;
use crate::rules::tests::support::{DROP_IN, external, findings_with, found, kubeadm};

const ENV: &str = "/etc/default/kubelet";
const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";

/// What systemd would have in memory if it had loaded this tree.
fn loaded(tree: &MemoryTree) -> Loaded {
    let unit = resolve(tree, Inputs::default()).unit;
    let text = |path: &std::path::PathBuf| path.to_str().unwrap().to_owned();
    let all = unit.variables.values().flat_map(|one| one.overridden.iter().chain([&one.effective]));
    Loaded {
        load_state: "loaded".to_owned(),
        fragment: text(unit.fragment.as_ref().unwrap()),
        dropins: unit.dropins.iter().map(text).collect(),
        exec_start: vec![unit.exec.unwrap().words.into_iter().map(|word| word.text).collect()],
        environment: all
            .filter(|one| one.source == Source::Environment)
            .map(|one| format!("{}={}", one.name, one.value))
            .collect(),
        environment_files: unit.env_files.iter().map(|file| (text(&file.path), file.optional)).collect(),
        ..Loaded::default()
    }
}

fn with_loaded(loaded: Loaded) -> Inputs {
    Inputs { loaded: Some(loaded), ..external() }
}

/// What is found on `disk` by a systemd that has loaded `memory`.
fn stale(memory: &MemoryTree, disk: &MemoryTree) -> Vec<String> {
    found(disk, with_loaded(loaded(memory)), "SD020")
}

#[test]
fn what_is_loaded_as_it_is_on_disk_is_silent() {
    let tree = kubeadm()
        .file(OWN, "[Service]\nEnvironment=\"A=x y\" B=1\nEnvironmentFile=-/etc/x/*.env\n")
        .file("/etc/x/a.env", "C=1\n");
    assert_eq!(stale(&tree, &tree), [""; 0]);
    let mut globbed = loaded(&tree);
    globbed.environment_files.retain(|(path, _)| !path.starts_with("/etc/x"));
    globbed.environment_files.push(("/etc/x/*.env".to_owned(), true));
    assert_eq!(found(&tree, with_loaded(globbed), "SD020"), [""; 0]);
    // An environment file is read at every start.
    let edited = tree.clone().file(ENV, "KUBELET_EXTRA_ARGS=--cloud-provider=external\n");
    assert_eq!(stale(&tree, &edited), [""; 0]);
    // /lib and /usr/lib are one directory.
    let mut lib = loaded(&tree);
    lib.fragment = lib.fragment.replace("/usr/lib", "/lib");
    for path in &mut lib.dropins {
        *path = path.replace("/usr/lib", "/lib");
    }
    assert_eq!(found(&tree, with_loaded(lib), "SD020"), [""; 0]);
}

#[test]
fn a_new_drop_in_with_the_wanted_flag_is_an_error_though_systemd_sees_no_need_to_reload() {
    let drop_in = "[Service]\nEnvironment=\"KUBELET_KUBEADM_ARGS=--cloud-provider=external\"\n";
    let bare = kubeadm().without("/var/lib/kubelet/kubeadm-flags.env");
    insta::assert_snapshot!(stale(&bare, &bare.clone().file(OWN, drop_in)).join("\n"), @r"error /etc/systemd/system/kubelet.service.d/20-cloud.conf:2: systemd has not loaded /etc/systemd/system/kubelet.service.d/20-cloud.conf as it is now: the drop-in is new, KUBELET_KUBEADM_ARGS is not set in memory. A restart keeps the old settings. Lost: --cloud-provider=external");
}

#[test]
fn every_difference_is_named_in_its_file() {
    let change = |text: &str| stale(&kubeadm(), &kubeadm().file(OWN, text.to_owned()));
    for (text, line, words) in [
        (
            "[Service]\nEnvironment=\"KUBELET_CONFIG_ARGS=--config=/c\"\n",
            2,
            "KUBELET_CONFIG_ARGS is '--config=/var/lib/kubelet/config.yaml' in memory",
        ),
        ("[Service]\nEnvironmentFile=-/etc/new\n", 2, "its `EnvironmentFile=` for /etc/new is not in memory"),
        (
            "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2\n",
            3,
            "`ExecStart=` is '/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS",
        ),
        ("# nothing\n", 0, "the drop-in is new"),
    ] {
        let found = change(text);
        let place = if line == 0 { OWN.to_owned() } else { format!("{OWN}:{line}") };
        let of_file = found.iter().find(|one| one.starts_with(&format!("warning {place}: ")));
        assert!(of_file.is_some_and(|one| one.contains(words)), "{text}: {found:#?}");
    }
    // A drop-in that is gone.
    let old = kubeadm().file(OWN, "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2\"\n");
    let found = stale(&old, &kubeadm());
    assert!(
        found.iter().any(|one| one.starts_with(&format!("warning {OWN}: ")) && one.contains("no longer read")),
        "{found:#?}"
    );
}

#[test]
fn a_hint_of_systemds_own_is_passed_on() {
    let mut memory = loaded(&kubeadm());
    memory.need_daemon_reload = true;
    let found = found(&kubeadm(), with_loaded(memory), "SD020");
    assert!(found[0].starts_with("warning /usr/lib/systemd/system/kubelet.service: systemd reports"), "{found:?}");
}

#[test]
fn without_a_systemd_nothing_is_compared() {
    let report = crate::rules::lint(&resolve(&kubeadm(), external()));
    for rule in ["SD020", "SD021"] {
        assert!(report.not_checked.iter().any(|one| one.rule == rule), "{rule}");
    }
}

/// Inputs with a kubelet that runs with `tree`'s arguments.
fn running(tree: &MemoryTree) -> Inputs {
    let words = resolve(tree, Inputs::default()).command.args;
    Inputs {
        process: Some(Process {
            pid: 812,
            argv: words.into_iter().map(|word| word.text).collect(),
            age_secs: Some(300),
        }),
        ..external()
    }
}

#[test]
fn a_kubelet_from_before_the_edit_lacks_the_flag() {
    let edited = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=\"--v=2 --cloud-provider=external\"\n");
    let inputs = Inputs { loaded: Some(loaded(&kubeadm())), ..running(&kubeadm()) };
    insta::assert_snapshot!(found(&edited, inputs.clone(), "SD021").join("\n"), @r"error /etc/default/kubelet:1: compared with the files as they are now, the running kubelet (pid 812, started 5 min ago) lacks --v=2 --cloud-provider=external");
    let findings = findings_with(&edited, inputs);
    let finding = findings.iter().find(|finding| finding.rule == "SD021").unwrap();
    assert_eq!((finding.at.line, finding.at.column), (1, 21));
    assert_eq!(finding.caused_by, None);
    assert!(finding.fix.as_deref().unwrap().contains("no daemon-reload is needed"));
}

#[test]
fn drift_that_a_stale_unit_explains_is_linked_to_it() {
    let edited = kubeadm().file(OWN, "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2\n");
    let inputs = Inputs { loaded: Some(loaded(&kubeadm())), ..running(&kubeadm()) };
    let findings = findings_with(&edited, inputs);
    let finding = findings.iter().find(|finding| finding.rule == "SD021").unwrap();
    assert_eq!(finding.severity, crate::rules::Severity::Warning);
    assert_eq!(finding.caused_by.as_ref().unwrap().0, "SD020");
    assert!(finding.message.contains("also has"), "{}", finding.message);
}

#[test]
fn the_same_arguments_are_silent_and_another_order_matters_for_a_flag_given_twice() {
    assert!(found(&kubeadm(), running(&kubeadm()), "SD021").is_empty());
    let one = |value: &str| kubeadm().file(ENV, format!("KUBELET_EXTRA_ARGS=\"{value}\"\n"));
    assert!(found(&one("--v=2 --max-pods=5"), running(&one("--max-pods=5 --v=2")), "SD021").is_empty());
    let twice = found(&one("--v=2 --v=4"), running(&one("--v=4 --v=2")), "SD021");
    assert!(twice[0].starts_with(&format!("warning {DROP_IN}:7")), "{twice:?}");
}

#[test]
fn a_flag_that_the_next_start_will_not_know_is_an_error() {
    let edited = kubeadm().file(ENV, "KUBELET_EXTRA_ARGS=--container-runtime=remote\n");
    let inputs = |version: &str| Inputs {
        version: Some(version.parse().unwrap()),
        intent: Intent::default(),
        ..running(&kubeadm())
    };
    assert!(found(&edited, inputs("1.30.0"), "SD021")[0].starts_with("error"));
    assert!(found(&edited, inputs("1.26.0"), "SD021")[0].starts_with("warning"));
}

#[test]
fn a_running_kubelet_with_another_configuration_waits_for_a_restart() {
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 50\nsyncFrequency: 2m\n\
                systemReserved: {memory: 1Gi}\nauthentication: {anonymous: {enabled: false}}\n";
    let tree = kubeadm().file("/var/lib/kubelet/config.yaml", text);
    let found = |running: serde_json::Value| {
        let mut snapshot = resolve(&tree, Inputs { version: "1.36.3".parse().ok(), ..Inputs::default() });
        snapshot.observed.config = Some(running);
        let findings = crate::rules::lint(&snapshot).findings.into_iter().filter(|finding| finding.rule == "CF010");
        findings.map(|finding| format!("{}: {}", finding.at, finding.message)).collect::<Vec<_>>()
    };
    let same = serde_json::json!({
        "maxPods": 50, "syncFrequency": "2m0s", "systemReserved": {"memory": "1024Mi"}, "authentication": {"anonymous": {}},
        "cgroupDriver": "cgroupfs", "tlsCertFile": "/var/lib/kubelet/pki/kubelet.crt", "aFieldOfAnotherRelease": 1,
    });
    assert_eq!(found(same.clone()), [""; 0]);
    let mut other = same.clone();
    other["maxPods"] = 110.into();
    let expected = "/var/lib/kubelet/config.yaml:3: the running kubelet does not have the configuration of its files: \
                    maxPods is 110 and not 50";
    assert_eq!(found(other), [expected]);
    let mut removed = same;
    removed["evictionHard"] = serde_json::json!({"memory.available": "1Gi"});
    assert!(found(removed)[0].starts_with("/var/lib/kubelet/config.yaml: "), "a line that is gone from the file");
}
