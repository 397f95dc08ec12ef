use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::kubelet::layers::{KubeletCommand, Launcher, resolve_command};
use crate::kubelet::systemd::{Manager, resolve_unit};
use crate::kubelet::tree::MemoryTree;

fn agent(command: &str) -> MemoryTree {
    MemoryTree::new()
        .file(
            "/etc/systemd/system/k3s-agent.service",
            format!("[Service]\nEnvironmentFile=-/etc/default/k3s-agent\nExecStart=/usr/local/bin/k3s {command}\n"),
        )
        .file("/etc/hostname", "Node-1\n")
}

fn rke2(command: &str) -> MemoryTree {
    MemoryTree::new()
        .file(
            "/etc/systemd/system/rke2-server.service",
            format!("[Service]\nExecStart=/usr/local/bin/rke2 {command}\n"),
        )
        .file("/etc/hostname", "node-1\n")
}

fn launched(tree: &MemoryTree) -> KubeletCommand {
    let name = if tree_has(tree, "/etc/systemd/system/rke2-server.service") {
        "rke2-server.service"
    } else {
        "k3s-agent.service"
    };
    resolve_command(tree, &resolve_unit(tree, name, &Manager::default()), None)
}

fn tree_has(tree: &MemoryTree, path: &str) -> bool {
    use crate::kubelet::tree::Tree as _;
    tree.exists(path.as_ref())
}

/// The flags with their places; those of the distribution with `own`.
fn flags(command: &KubeletCommand) -> Vec<String> {
    command
        .args
        .iter()
        .skip(1)
        .map(|word| {
            let from = if word.built_in { "own".to_owned() } else { word.at().file_line() };
            format!("{} ({from})", word.text)
        })
        .collect()
}

/// Those of the flags that the operator gives.
fn given(command: &KubeletCommand) -> Vec<String> {
    flags(command).into_iter().filter(|flag| !flag.ends_with("(own)")).collect()
}

const CONFIG: &str = "/etc/rancher/k3s/config.yaml";

#[test]
fn an_agent_without_options_gets_the_distributions_flags() {
    let command = launched(&agent("agent"));
    assert_eq!(command.launcher, Launcher::K3s);
    assert!(command.launcher.is_in_process());
    assert_eq!(
        flags(&command),
        [
            "--config-dir=/var/lib/rancher/k3s/agent/etc/kubelet.conf.d (own)",
            "--containerd=/run/k3s/containerd/containerd.sock (own)",
            "--hostname-override=node-1 (own)",
            "--kubeconfig=/var/lib/rancher/k3s/agent/kubelet.kubeconfig (own)",
            "--node-labels= (own)",
            "--read-only-port=0 (own)",
        ]
    );
    assert_eq!(command.args[0].text, "kubelet");
    assert!(command.args[1].built_in);
    assert_eq!(command.server_disables_cloud_controller, None);
    // Its configuration is not there yet: what it will hold is in the place of the kubelet's defaults.
    assert!(command.settings.iter().any(|(path, _)| *path == "authorization.mode"));
    let tree = agent("agent").file("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", "");
    assert_eq!(launched(&tree).settings, []);
}

#[test]
fn options_become_flags_at_their_lines() {
    let tree = agent("agent").file(
        CONFIG,
        "node-name: Web\nnode-ip: 10.0.0.1,fd00::1\nnode-label:\n- a=b\n- c=d\nnode-taint: x=y:NoSchedule\n\
         protect-kernel-defaults: true\nresolv-conf: /etc/r.conf\nkubelet-arg: [\"max-pods=50\", \"--v=4\", \"x\"]\n",
    );
    assert_eq!(
        given(&launched(&tree)),
        [
            "--hostname-override=web (/etc/rancher/k3s/config.yaml:1)",
            "--max-pods=50 (/etc/rancher/k3s/config.yaml:9)",
            "--node-ip=10.0.0.1,fd00::1 (/etc/rancher/k3s/config.yaml:2)",
            "--node-labels=a=b,c=d (/etc/rancher/k3s/config.yaml:4)",
            "--protect-kernel-defaults=true (/etc/rancher/k3s/config.yaml:7)",
            "--register-with-taints=x=y:NoSchedule (/etc/rancher/k3s/config.yaml:6)",
            "--resolv-conf=/etc/r.conf (/etc/rancher/k3s/config.yaml:8)",
            "--v=4 (/etc/rancher/k3s/config.yaml:9)",
            "--x=true (/etc/rancher/k3s/config.yaml:9)",
        ]
    );
}

#[test]
fn later_files_replace_lists_and_a_plus_appends() {
    let tree = agent("agent")
        .file(CONFIG, "kubelet-arg:\n- a=1\n- b=1\n")
        .file(format!("{CONFIG}.d/10-x.yml"), "kubelet-arg+: c=1\n")
        .file(format!("{CONFIG}.d/20-x.YAML"), "kubelet-arg:\n- d=1\n- b=2\n")
        .file(format!("{CONFIG}.d/30-x.yaml.bak"), "kubelet-arg: e=1\n")
        .file(format!("{CONFIG}.d/40-x.yaml/y"), "")
        .file(format!("{CONFIG}.d/50-x.yaml"), "{\"kubelet-arg+\": [\"f=1\"]}");
    let command = launched(&tree);
    assert_eq!(
        given(&command),
        [
            "--b=2 (/etc/rancher/k3s/config.yaml.d/20-x.YAML:3)",
            "--d=1 (/etc/rancher/k3s/config.yaml.d/20-x.YAML:2)",
            "--f=1 (/etc/rancher/k3s/config.yaml.d/50-x.yaml:1)",
        ]
    );
    let [list] = &command.replaced[..] else {
        panic!("{:?}", command.replaced);
    };
    assert_eq!(list.at.file_line(), "/etc/rancher/k3s/config.yaml:1");
    assert_eq!(list.by.file_line(), "/etc/rancher/k3s/config.yaml.d/20-x.YAML:1");
    let lost: Vec<String> = list.lost.iter().map(|(item, at)| format!("{item} {at}")).collect();
    assert_eq!(lost, ["a=1 /etc/rancher/k3s/config.yaml:2", "c=1 /etc/rancher/k3s/config.yaml.d/10-x.yml:1"]);
    let files: Vec<_> = command.files.iter().map(|file| file.file.to_string()).collect();
    assert_eq!(files.len(), 4, "{files:?}");
}

#[test]
fn a_key_that_stands_twice_in_a_file_replaces_too() {
    let tree = agent("agent").file(CONFIG, "kubelet-arg: a=1\nkubelet-arg: b=1\n");
    let command = launched(&tree);
    assert_eq!(given(&command), ["--b=1 (/etc/rancher/k3s/config.yaml:2)"]);
    assert_eq!(command.replaced[0].lost[0].0, "a=1");
}

#[test]
fn the_command_line_goes_over_files_and_files_over_variables() {
    let tree =
        agent("agent --node-name cli --kubelet-arg=a=2 -kubelet-arg b=1 --debug --with-node-id=false -i 10.0.0.9")
            .file("/etc/default/k3s-agent", "K3S_NODE_NAME=variable\nK3S_RESOLV_CONF=/r\nK3S_URL=https://x\n")
            .file(CONFIG, "node-name: file\nkubelet-arg:\n- a=1\n- c=1\nnode-ip: 10.0.0.1\n");
    let command = launched(&tree);
    assert_eq!(
        given(&command),
        [
            "--a=1 (/etc/rancher/k3s/config.yaml:3)",
            "--a=2 (/etc/systemd/system/k3s-agent.service:3)",
            "--b=1 (/etc/systemd/system/k3s-agent.service:3)",
            "--c=1 (/etc/rancher/k3s/config.yaml:4)",
            "--hostname-override=cli (/etc/systemd/system/k3s-agent.service:3)",
            "--node-ip=10.0.0.1,10.0.0.9 (/etc/rancher/k3s/config.yaml:5)",
            "--resolv-conf=/r (/etc/default/k3s-agent:2)",
        ]
    );
    assert!(command.replaced.is_empty(), "lists are joined");
}

#[test]
fn the_configuration_file_is_named_by_the_variable_then_by_the_option() {
    let with_option = agent("agent --config /opt/c.yaml")
        .file("/opt/c.yaml", "kubelet-arg: a=1\n")
        .file("/opt/c.yaml.d/x.yaml", "kubelet-arg+: b=1\n")
        .file(CONFIG, "kubelet-arg: never=1\n");
    assert_eq!(given(&launched(&with_option)).len(), 2);
    let with_variable = with_option
        .file("/etc/default/k3s-agent", "K3S_CONFIG_FILE=/opt/v.yaml\n")
        .file("/opt/v.yaml", "kubelet-arg: v=1\n");
    assert_eq!(given(&launched(&with_variable)), ["--v=1 (/opt/v.yaml:1)"]);
    let remote = agent("agent -c https://example.test/c.yaml");
    let command = launched(&remote);
    assert_eq!(command.unreadable.len(), 1);
    assert_eq!(given(&command), Vec::<String>::new());
}

/// k3s-io/k3s#5488: the reservations of such a file reached the kubelet.
#[test]
fn a_key_may_name_the_flag_itself() {
    let tree = agent("agent").file(CONFIG, "kubelet-arg=v: 2\nkubelet-arg: a=1\nkubelet-arg=kube-reserved: cpu=1\n");
    let command = launched(&tree);
    assert_eq!(command.unknown_options.len(), 0);
    let given: BTreeSet<_> = given(&command).into_iter().collect();
    let at = |flag: &str, line| format!("{flag} (/etc/rancher/k3s/config.yaml:{line})");
    assert_eq!(given, [at("--a=1", 2), at("--kube-reserved=cpu=1", 3), at("--v=2", 1)].into());
}

#[test]
fn the_operators_flags_take_the_place_of_the_distributions() {
    let tree = agent("agent").file(
        CONFIG,
        "node-label: a=b\nkubelet-arg:\n- node-labels+=c=d\n- read-only-port=10255\n- --containerd-=/x\n\
         - config=/etc/k.yaml\n",
    );
    let command = launched(&tree);
    let all = flags(&command);
    assert!(all.contains(&"--node-labels=a=b (/etc/rancher/k3s/config.yaml:1)".to_owned()));
    assert!(all.contains(&"--node-labels=c=d (/etc/rancher/k3s/config.yaml:3)".to_owned()));
    assert!(!all.contains(&"--read-only-port=0 (own)".to_owned()));
    let containerd: Vec<_> = all.iter().filter(|flag| flag.starts_with("--containerd=")).collect();
    assert_eq!(containerd.len(), 2);
    assert!(containerd[0].contains("/x "));
    assert!(all.contains(&"--config=/etc/k.yaml (/etc/rancher/k3s/config.yaml:6)".to_owned()));
    // Since 1.32 it is copied into the directory, where it comes after the distribution's own.
    let copied = tree.file("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/10-cli-config.conf", "");
    assert!(!flags(&launched(&copied)).iter().any(|flag| flag.starts_with("--config=")));
}

#[test]
fn a_server_says_what_its_cloud_controller_does() {
    let server = launched(&rke2("server"));
    assert_eq!(server.server_disables_cloud_controller, Some(false));
    assert!(flags(&server).contains(&"--cloud-provider=external (own)".to_owned()));
    let without =
        rke2("server").file("/etc/rancher/rke2/config.yaml", "disable-cloud-controller: true\ndata-dir: /data\n");
    let without = launched(&without);
    assert_eq!(without.server_disables_cloud_controller, Some(true));
    let all = flags(&without);
    assert!(!all.iter().any(|flag| flag.contains("cloud-provider")), "{all:?}");
    assert!(all.contains(&"--kubeconfig=/data/agent/kubelet.kubeconfig (own)".to_owned()));
    let none = launched(&rke2("server --disable-agent"));
    assert!(none.args.is_empty() && none.unknown.is_some());
}

#[test]
fn rke2_names_the_cloud_and_takes_klogs_flags_for_itself() {
    let tree = rke2("agent").file(
        "/etc/rancher/rke2/config.yaml",
        "cloud-provider-name: rancher-vsphere\nkubelet-arg:\n- log_file=/x\n- v=2\n- alsologtostderr\n",
    );
    let command = launched(&tree);
    assert_eq!(command.launcher, Launcher::Rke2);
    assert!(!command.launcher.is_in_process());
    assert_eq!(
        given(&command),
        ["--cloud-provider=external (/etc/rancher/rke2/config.yaml:1)", "--v=2 (/etc/rancher/rke2/config.yaml:4)",]
    );
    assert!(flags(&command).contains(&"--sync-frequency=30s (own)".to_owned()));
}

#[test]
fn what_is_no_map_of_options_is_said() {
    for text in ["- a\n", "kubelet-arg: [\n", "kubelet-arg: x: y\n"] {
        let command = launched(&agent("agent").file(CONFIG, text));
        assert_eq!(command.unreadable.len(), 1, "{text}");
        assert_eq!(given(&command), Vec::<String>::new());
    }
    for text in ["", "# nothing\n", "tls-san:\n- a: b\n", "node-label:\n"] {
        let command = launched(&agent("agent").file(CONFIG, text));
        assert_eq!(command.unreadable, [], "{text}");
    }
}

/// Would take hours if any step looked at all items for each.
#[test]
fn a_megabyte_of_items_is_read() {
    let mut items = String::from("kubelet-arg:\n");
    for n in 0..100_000 {
        writeln!(items, "- a{n}-=1").unwrap();
    }
    let same = format!("kubelet-arg+:\n{}", "- x-=1\n".repeat(100_000));
    let tree = agent("agent")
        .file(CONFIG, items)
        .file(format!("{CONFIG}.d/1.yaml"), same)
        .file(format!("{CONFIG}.d/2.yaml"), "kubelet-arg: z=1\n".repeat(60_000));
    let command = launched(&tree);
    assert_eq!(command.args.len(), 8);
    assert_eq!(command.replaced.len(), 1);
    assert_eq!(command.replaced[0].lost.len(), 200_000);
}

#[test]
fn a_profile_of_rke2_protects_the_kernels_defaults() {
    let tree = MemoryTree::new()
        .file("/usr/local/lib/systemd/system/rke2-agent.service", "[Service]\nExecStart=/usr/local/bin/rke2 agent\n")
        .file("/etc/rancher/rke2/config.yaml", "server: https://a:9345\nprofile: cis\n");
    let unit = resolve_unit(&tree, "rke2-agent.service", &Manager::default());
    let command = resolve_command(&tree, &unit, None);
    assert!(command.args.iter().any(|word| word.text == "--protect-kernel-defaults=true"), "{:?}", command.args);
}
