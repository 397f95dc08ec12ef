use super::*;
use crate::{
    kubelet::{
        resolve::{Inputs, snapshot},
        snapshot::{Loaded, Process},
        tree::MemoryTree,
    },
    rules::testing::{external, kubeadm},
};

const OWN: &str = "/etc/systemd/system/kubelet.service.d/20-cloud.conf";

/// Where the flag got lost, in short, and the place of its text.
fn lost(tree: &MemoryTree, inputs: Inputs) -> String {
    let snapshot = snapshot(tree, inputs);
    let wanted = ExpectedFlag::new("cloud-provider", "external");
    assert!(!wanted.reaches(&snapshot));
    let loss = find(&snapshot, &wanted);
    let name = format!("{loss:?}");
    let name = name.split([' ', '{']).next().unwrap().to_owned();
    match loss.place() {
        Some(at) => format!("{name} {at}:{}+{}", at.column, at.width),
        None => name,
    }
}

fn lost_in(path: &str, text: &str) -> String {
    lost(&kubeadm().file(path, text), external())
}

#[test]
fn flags_are_found_in_any_text() {
    let found = |text| -> Vec<(String, Option<String>, usize)> {
        flags_in(text)
            .into_iter()
            .map(|flag| (flag.name, flag.value.or(flag.next).map(str::to_owned), flag.offset))
            .collect()
    };
    let flag = |name: &str, value: &str, offset| (name.to_owned(), Some(value.to_owned()), offset);
    assert_eq!(found("--node_ip=1"), [flag("node-ip", "1", 0)]);
    assert_eq!(found("Environment=\"A=--x=1 --y 2\""), [flag("x", "1", 15), flag("y", "2", 21)]);
    assert_eq!(found("--x=\"a b\" c"), [flag("x", "a b", 0)]);
    assert_eq!(found("# --x=1\n; --y=1\nA='--z=1'"), [flag("z", "1", 19)]);
    assert_eq!(found("--a --b=1"), [("a".to_owned(), None, 0), flag("b", "1", 4)]);
    assert_eq!(found("a--b ---c --1 -- x=-- –-y"), []);
}

#[test]
fn a_flag_that_a_file_beats_is_found_in_the_drop_in() {
    let text = "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--v=2 --cloud-provider=external\"\n";
    assert_eq!(lost_in(OWN, text), format!("Overridden {OWN}:2:39+25"));
}

#[test]
fn a_flag_that_a_later_drop_in_beats_or_clears_is_found_in_the_earlier_one() {
    let first = "[Service]\nEnvironment=\"KUBELET_X=--cloud-provider=external\"\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_X\n";
    let later = |text: &str| {
        let path = "/etc/systemd/system/kubelet.service.d/30-later.conf";
        lost(&kubeadm().file(OWN, first).file(path, text), external())
    };
    assert_eq!(later("[Service]\nEnvironment=\"KUBELET_X=--v=2\"\n"), format!("Overridden {OWN}:2:24+25"));
    assert!(later("[Service]\nEnvironment=\n").starts_with(&format!("Cleared {OWN}:2")));
    assert!(later("[Service]\nExecStart=\nExecStart=/usr/bin/kubelet\n").starts_with(&format!("Unreferenced {OWN}:2")));
}

#[test]
fn a_flag_in_a_replaced_command_is_found_there() {
    let tree = kubeadm()
        .file(crate::rules::testing::UNIT, "[Service]\nExecStart=/usr/bin/kubelet --cloud-provider=external\n");
    let unit = crate::rules::testing::UNIT;
    assert_eq!(lost(&tree, external()), format!("ReplacedExec {unit}:2:28+25"));
}

#[test]
fn a_flag_in_text_that_is_ignored_or_unread_is_found_there() {
    let env = "/etc/default/kubelet";
    for (path, text, expected) in [
        (env, "KUBELET_EXTRA_ARG=--cloud-provider=external\n", "Unreferenced /etc/default/kubelet:1:19+25"),
        (env, "export KUBELET_EXTRA_ARGS=--cloud-provider=external\n", "Ignored /etc/default/kubelet:1"),
        (env, "--cloud-provider external\n", "Ignored /etc/default/kubelet:1"),
        (OWN, "[service]\nEnvironment=\"KUBELET_EXTRA_ARGS=--cloud-provider=external\"\n", "Ignored "),
        (OWN, "[Service]\nEnvironment=KUBELET_KUBEADM_ARGS=--v=2 --cloud-provider=external\n", "Ignored "),
        (&format!("{OWN}.bak"), "[Service]\n\n  Environment=\"X=--cloud-provider=external\"\n", "DropIn "),
        ("/run/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\n", "Nowhere"),
    ] {
        let found = lost_in(path, text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    let bak = format!("{OWN}.bak");
    let text = "[Service]\n\n  Environment=\"X=--cloud-provider=external\"\n";
    assert_eq!(lost_in(&bak, text), format!("DropIn {bak}:3:18+25"));
}

#[test]
fn a_flag_in_the_argument_list_that_does_not_count_is_found_there() {
    let found = lost_in("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--cloud-provider=external --cloud-provider=\"\n");
    assert_eq!(found, "LaterFlag /etc/default/kubelet:1:21+25");
    let found = lost_in(
        OWN,
        "[Service]\nEnvironment=\"X=--v=2 --cloud-provider=external\"\nExecStart=\nExecStart=/usr/bin/kubelet ${X}\n",
    );
    assert!(found.starts_with(&format!("InsideWord {OWN}:2")), "{found}");
}

#[test]
fn a_flag_in_memory_alone_or_in_the_process_alone_is_said_to_be_there() {
    let flag = "--cloud-provider=external".to_owned();
    let inputs = Inputs {
        loaded: Some(Loaded { environment: vec![format!("KUBELET_EXTRA_ARGS={flag}")], ..Loaded::default() }),
        ..external()
    };
    assert_eq!(lost(&kubeadm(), inputs), "Memory");
    let inputs = Inputs {
        process: Some(Process { argv: vec!["kubelet".to_owned(), flag], ..Process::default() }),
        ..external()
    };
    assert_eq!(lost(&kubeadm(), inputs), "Process");
    assert_eq!(lost(&kubeadm(), external()), "Nowhere");
}

#[test]
fn what_is_wanted_reaches_by_whatever_way() {
    let reaches = |env: &str, wanted: &ExpectedFlag| {
        let tree = kubeadm().file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"{env}\"\n"));
        wanted.reaches(&snapshot(&tree, Inputs::default()))
    };
    let label = ExpectedFlag::new("node-labels", "pool=blue");
    assert!(reaches("--node-labels=a=b,pool=blue --node-labels=c=d", &label));
    assert!(!reaches("--node-labels=pool=blue --node-labels=pool=red", &label));
    assert!(reaches("--node-labels=pool=red --node_labels pool=blue", &label));
    let ip = ExpectedFlag::new("node-ip", "10.0.0.9");
    assert!(reaches("--node-ip=10.0.0.9,fd00::9", &ip));
    assert!(!reaches("--node-ip=10.0.0.90", &ip));
}
