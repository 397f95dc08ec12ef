//! Texts that are made to take long: each a name, and what makes it in any size.

use nodevigil::kubelet::tree::MemoryTree;

use super::rows::{
    ARGUMENT_FILES, COMMAND_LINES, CONFIGURATIONS, ENVIRONMENT_FILES, HEAD, K3S, K3S_OPTIONS,
    Piece, Row, UNITS,
};

const UNIT: &str = "/etc/systemd/system/kubelet.service";
const DEFAULTS: &str = "/etc/default/kubelet";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";

/// A name, and a host with about that many bytes of the shape.
pub(super) type Shape = (String, Box<dyn Fn(usize) -> MemoryTree>);

/// `pieces` in turn until there are `bytes` of them.
fn filled(bytes: usize, piece: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(bytes + 64);
    for number in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&piece(number));
    }
    text
}

/// A table of shapes: name, what comes before, the piece, what comes behind; `host` puts the text in its place.
fn table(rows: &[Row], host: fn(&str) -> MemoryTree) -> Vec<Shape> {
    let shape = |&(name, before, piece, behind): &Row| {
        let make = move |bytes: usize| host(&format!("{before}{}{behind}", filled(bytes, piece)));
        let make: Box<dyn Fn(usize) -> MemoryTree> = Box::new(make);
        (name.to_owned(), make)
    };
    rows.iter().map(shape).collect()
}

fn service(text: &str) -> MemoryTree {
    MemoryTree::new()
        .file(UNIT, format!("[Service]\n{text}"))
        .file(DEFAULTS, "KUBELET_EXTRA_ARGS=--v=2 --node-labels=a=b\n")
}

pub(super) fn units() -> Vec<Shape> {
    let mut shapes = table(UNITS, service);
    shapes.push(drop_ins("drop-ins", |number| {
        format!("[Service]\nEnvironment=A{number}=--v=2\n")
    }));
    shapes.push(drop_ins("drop-ins that reset", |_| {
        "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --v=2\n".to_owned()
    }));
    shapes.push(drop_ins("drop-ins with a mistake", |_| {
        "[service]\nEnvironment=\"A=--v=2\n".to_owned()
    }));
    shapes
}

fn drop_ins(name: &'static str, text: Piece) -> Shape {
    let make = move |bytes: usize| {
        let mut tree = service("ExecStart=/usr/bin/kubelet $A1\n");
        let mut left = bytes;
        for number in 0.. {
            let text = text(number);
            let Some(less) = left.checked_sub(text.len()) else {
                break;
            };
            left = less;
            tree = tree.file(format!("{UNIT}.d/{number:06}.conf"), text);
        }
        tree
    };
    (name.to_owned(), Box::new(make))
}

pub(super) fn command_lines() -> Vec<Shape> {
    table(COMMAND_LINES, |text| {
        service(&format!(
            "Environment=\"A=--v=2 --x\"\nExecStart=/usr/bin/kubelet {text}\n"
        ))
    })
}

pub(super) fn environment_files() -> Vec<Shape> {
    table(ENVIRONMENT_FILES, |text| {
        let lines = "EnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $A ${B} $A ${A} $A1\n";
        MemoryTree::new()
            .file(UNIT, format!("[Service]\n{lines}"))
            .file(DEFAULTS, text)
    })
}

fn with_config(text: &str) -> MemoryTree {
    let exec = format!(
        "ExecStart=/usr/bin/kubelet --config={CONFIG} --config-dir=/etc/kubelet.d --kubeconfig=/k --eviction-hard=memory.available<5%\n"
    );
    service(&exec)
        .file("/etc/kubelet.d/10-x.conf", text)
        .file(CONFIG, text)
}

pub(super) fn configurations() -> Vec<Shape> {
    let mut shapes = table(CONFIGURATIONS, with_config);
    let drop_ins = |bytes: usize| {
        let mut tree = with_config(HEAD);
        for number in 0..bytes / 100 {
            tree = tree.file(
                format!("/etc/kubelet.d/{number:06}.conf"),
                format!("{HEAD}maxPods: {number}\n"),
            );
        }
        tree
    };
    shapes.push(("drop-ins".to_owned(), Box::new(drop_ins)));
    let growing = |bytes: usize| {
        let mut tree = with_config(HEAD);
        for number in 0..bytes / 100 {
            let text = format!("{HEAD}evictionHard: {{a{number}: 5%}}\n");
            tree = tree.file(format!("/etc/kubelet.d/{number:06}.conf"), text);
        }
        tree
    };
    shapes.push(("drop-ins that add to one map".to_owned(), Box::new(growing)));
    shapes
}

fn k3s_agent(arguments: &str) -> MemoryTree {
    let exec = format!("[Service]\nExecStart=/usr/local/bin/k3s agent {arguments}\n");
    MemoryTree::new().file("/etc/systemd/system/k3s-agent.service", exec)
}

pub(super) fn k3s() -> Vec<Shape> {
    let mut shapes = table(K3S, |text| {
        k3s_agent("--kubelet-arg=v=2")
            .file(
                "/etc/rancher/k3s/config.yaml",
                "kubelet-arg:\n- max-pods=50\n",
            )
            .file("/etc/rancher/k3s/config.yaml.d/50-x.yaml", text)
    });
    shapes.extend(table(K3S_OPTIONS, k3s_agent));
    shapes
}

pub(super) fn argument_files() -> Vec<Shape> {
    table(ARGUMENT_FILES, |text| {
        MemoryTree::new()
            .file(
                "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
                "[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
            )
            .file("/var/snap/microk8s/current/args/kubelet", text)
    })
}
