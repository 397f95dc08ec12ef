mod hosts;

use proptest::prelude::*;

use super::*;
use crate::kubelet::systemd::{Manager, resolve_unit};
use crate::kubelet::tree::MemoryTree;

fn unit(exec: &str) -> MemoryTree {
    MemoryTree::new().file("/etc/systemd/system/kubelet.service", format!("[Service]\nExecStart={exec}\n"))
}

fn launched(tree: &MemoryTree) -> KubeletCommand {
    resolve_command(tree, &resolve_unit(tree, "kubelet.service", &Manager::default()), Some("node-1"))
}

fn texts(command: &KubeletCommand) -> Vec<&str> {
    command.args.iter().map(|word| word.text.as_str()).collect()
}

#[test]
fn the_kubelet_begins_after_its_wrappers() {
    for exec in [
        "/usr/bin/kubelet --v=2",
        "@/usr/bin/kubelet kubelet --v=2",
        "/opt/bin/kubelet-v1.31.2 --v=2",
        "/usr/local/bin/kubenswrapper /usr/bin/kubelet --v=2",
        "/usr/bin/nice -n -5 ionice -c 2 /usr/bin/kubelet --v=2",
        "/usr/bin/systemd-inhibit --who kubelet --what=shutdown /usr/bin/kubelet --v=2",
        "/usr/bin/env KUBELET=/x/kubelet HOME=/root kubelet --v=2",
        "/sbin/ip netns exec kubelet /usr/bin/kubelet --v=2",
        "/usr/bin/hyperkube kubelet --v=2",
        "/opt/bin/run.sh /usr/bin/kubelet --v=2",
        "/bin/bash /opt/bin/run.sh /usr/bin/kubelet --v=2",
    ] {
        let command = launched(&unit(exec));
        assert_eq!(command.launcher, Launcher::Direct, "{exec}");
        let words = texts(&command);
        assert!(words[0].contains("kubelet"), "{exec}: {words:?}");
        assert_eq!(words[1..], ["--v=2"], "{exec}");
        assert_eq!(command.args[1].at().line, 2);
        assert_eq!(command.unknown, None);
    }
}

#[test]
fn a_kubelet_that_is_a_script_itself_is_a_kubelet() {
    let tree = unit("/usr/bin/kubelet --v=2").file("/usr/bin/kubelet", "#!/bin/sh\n");
    assert_eq!(texts(&launched(&tree)), ["/usr/bin/kubelet", "--v=2"]);
}

#[test]
fn a_unit_with_a_snaps_name_that_starts_the_kubelet_is_no_snap() {
    let name = "snap.k8s.kubelet.service";
    let unit = "[Service]\nExecStart=/usr/bin/kubelet --v=2\n";
    let tree = MemoryTree::new().file(format!("/etc/systemd/system/{name}"), unit);
    let command = resolve_command(&tree, &resolve_unit(&tree, name, &Manager::default()), None);
    assert_eq!(texts(&command), ["/usr/bin/kubelet", "--v=2"]);
}

#[test]
fn a_shell_or_a_script_hides_the_words_and_says_so() {
    for (exec, program, reason) in [
        ("/bin/sh -c 'exec /usr/bin/kubelet --v=2'", "/bin/sh", "is a shell"),
        ("/usr/bin/nice bash -ec 'kubelet'", "bash", "is a shell"),
        ("/opt/start-kubelet.sh --v=2", "/opt/start-kubelet.sh", "#!/bin/bash -e"),
        ("/usr/bin/foo --v=2", "/usr/bin/foo", "names a kubelet"),
    ] {
        let tree = unit(exec).file("/opt/start-kubelet.sh", "#!/bin/bash -e\nexec kubelet\n");
        let command = launched(&tree);
        assert_eq!(command.launcher, Launcher::Script, "{exec}");
        assert!(command.args.is_empty(), "{exec}");
        let unknown = command.unknown.unwrap();
        assert!(unknown.value.starts_with(program) && unknown.value.contains(reason), "{}", unknown.value);
        assert_eq!(unknown.at.line, 2, "{exec}");
    }
}

#[test]
fn a_unit_without_a_command_gives_no_words() {
    let command = launched(&MemoryTree::new());
    assert!(command.args.is_empty() && command.unknown.is_none());
    let command = launched(&unit("/usr/local/bin/k3s agent"));
    assert_eq!(command.launcher, Launcher::K3s);
    let command = launched(&unit("/usr/local/bin/k3s kubectl get nodes"));
    assert_eq!(command.launcher, Launcher::Script);
}

#[test]
fn microk8s_reads_its_arguments_file_in_its_own_environment() {
    let tree = MemoryTree::new()
        .file(
            "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
            "[Service]\nEnvironmentFile=-/etc/environment\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
        )
        .file("/etc/environment", "REGION=fsn1\n")
        .link("/var/snap/microk8s/current", "7394")
        .file(
            "/var/snap/microk8s/7394/args/kubelet",
            "--root-dir=${SNAP_COMMON}/var/lib/kubelet\n--cert-dir=$SNAP_DATA/certs\n--node-labels=\"r=$REGION\"\n",
        );
    let name = "snap.microk8s.daemon-kubelite.service";
    let launch_of = |tree: &MemoryTree| resolve_command(tree, &resolve_unit(tree, name, &Manager::default()), None);
    let command = launch_of(&tree);
    assert_eq!(command.launcher, Launcher::MicroK8s);
    assert_eq!(
        texts(&command),
        [
            "kubelet",
            "--root-dir=/var/snap/microk8s/common/var/lib/kubelet",
            "--cert-dir=/var/snap/microk8s/7394/certs",
            "--node-labels=r=fsn1",
        ]
    );
    assert_eq!(command.args[3].at().file_line(), "/var/snap/microk8s/current/args/kubelet:3");
    let elsewhere = tree
        .clone()
        .file("/var/snap/microk8s/7394/args/kubelite", "--kubelet-args-file=$SNAP_DATA/args/mine\n")
        .file("/var/snap/microk8s/7394/args/mine", "--v=2\n");
    assert_eq!(texts(&launch_of(&elsewhere)), ["kubelet", "--v=2"]);
    let missing = launch_of(&tree.without("/var/snap/microk8s/7394/args/kubelet"));
    assert!(missing.args.is_empty());
    assert!(missing.unknown.is_some());
}

#[test]
fn canonicals_snap_gives_its_arguments_file_to_bash() {
    let tree = MemoryTree::new()
        .file("/etc/systemd/system/snap.k8s.kubelet.service", "[Service]\nExecStart=/usr/bin/snap run k8s.kubelet\n")
        .file(
            "/var/snap/k8s/common/args/kubelet",
            "--eviction-hard='memory.available<100Mi'\n--containerd=\"${SNAP_COMMON}/run/containerd.sock\"  --v=2\n",
        );
    let unit = resolve_unit(&tree, "snap.k8s.kubelet.service", &Manager::default());
    let command = resolve_command(&tree, &unit, None);
    assert_eq!(command.launcher, Launcher::K8sSnap);
    assert_eq!(
        texts(&command),
        [
            "kubelet",
            "--eviction-hard=memory.available<100Mi",
            "--containerd=/var/snap/k8s/common/run/containerd.sock",
            "--v=2",
        ]
    );
    assert_eq!(command.oddities, []);
}

#[test]
fn the_likeliest_unit_is_the_one_that_starts_at_boot() {
    let packaged = MemoryTree::new().file("/usr/lib/systemd/system/kubelet.service", "[Service]\n");
    assert_eq!(candidate_units(&MemoryTree::new()), ["kubelet.service"]);
    let both = packaged
        .file("/etc/systemd/system/k3s.service", "[Service]\n")
        .file("/etc/systemd/system/kubelet-edge.service", "[Service]\n")
        .file("/etc/systemd/system/kubelet.service.d/x.conf", "");
    assert_eq!(candidate_units(&both), ["kubelet.service", "k3s.service", "kubelet-edge.service"]);
    let enabled =
        both.clone().link("/etc/systemd/system/multi-user.target.wants/k3s.service", "/etc/systemd/system/k3s.service");
    assert_eq!(candidate_units(&enabled)[0], "k3s.service");
    let masked = both.link("/etc/systemd/system/kubelet.service", "/dev/null");
    assert_eq!(candidate_units(&masked), ["k3s.service", "kubelet-edge.service", "kubelet.service"]);
}

#[test]
fn the_distributions_settings_stand_in_the_place_of_defaults_alone() {
    let mut command = KubeletCommand::new(Launcher::K3s);
    command.settings = vec![("a", Value::from(1)), ("b", Value::from(1)), ("c", Value::from(1))];
    let mut settings = Settings::default();
    for (path, from) in [("a", Origin::Default { legacy: true }), ("b", Origin::File(Location::file("/f")))] {
        settings.0.insert(
            path.to_owned(),
            Effective { value: Value::from(0), from, keys: std::collections::BTreeMap::new() },
        );
    }
    command.apply_settings(&mut settings, None);
    assert_eq!(settings.int("a"), Some(1));
    assert_eq!(settings.int("b"), Some(0));
    assert_eq!(settings.get("c").unwrap().from, Origin::Distribution);
    command.apply_settings(&mut settings, Some(&"1.31.9".parse().unwrap()));
    assert_eq!(settings.int("b"), Some(1));
}

proptest! {
    #[test]
    fn any_command_and_any_files_are_read_without_panic(
        exec in "(/usr/bin/|)(k3s|rke2|snap|kubelite|sh|env)( (agent|server|run|-c|microk8s.daemon-kubelite|--kubelet-arg|-|--|--=x|k8s.kubelet|kubelet|[-=a-z.]{1,9})){0,5}",
        config in "(kubelet-arg|node-label|node-ip|x)\\+?: ?(\\[a=1, \\{b: c\\}\\]|x|~|\n- a=1\n- ~|\\PC{0,9})\n",
        args in "([-a= $\"'{}<\n]){0,40}",
    ) {
        let tree = unit(&exec)
            .file("/etc/rancher/k3s/config.yaml", config.clone())
            .file("/etc/rancher/rke2/config.yaml.d/a.yaml", config)
            .file("/var/snap/microk8s/current/args/kubelet", args.clone())
            .file("/var/snap/k8s/common/args/kubelet", args);
        launched(&tree);
    }
}

#[test]
fn k0s_takes_the_last_of_its_extra_arguments() {
    let unit = "[Service]\nExecStart=/usr/local/bin/k0s controller --enable-worker=true --kubelet-extra-args=--v=2 --kubelet-extra-args=\"--a=1 --b=2\"\n";
    let tree = MemoryTree::new().file("/etc/systemd/system/k0scontroller.service", unit);
    let unit = resolve_unit(&tree, "k0scontroller.service", &Manager::default());
    let command = resolve_command(&tree, &unit, None);
    let given: Vec<_> = command.args.iter().filter(|arg| !arg.built_in).map(|arg| &*arg.text).collect();
    assert_eq!(given, ["--a=1", "--b=2"]);
    assert_eq!(command.replaced[0].lost[0].0, "--v=2");
    assert_eq!(candidate_units(&tree), ["k0scontroller.service"]);
    let text = "[Service]\nExecStart=/usr/local/bin/k0s controller\n";
    let tree = MemoryTree::new().file("/etc/systemd/system/k0scontroller.service", text);
    let unit = resolve_unit(&tree, "k0scontroller.service", &Manager::default());
    assert!(resolve_command(&tree, &unit, None).unknown.is_some(), "it runs no kubelet");
}
