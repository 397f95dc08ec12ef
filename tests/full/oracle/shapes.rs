//! The units that real installers write, each the beginning of a tree.

use crate::case::Entry;
use crate::draft::{Draft, weighted};

/// A file of a shape: its path, `<D>` for the directory of the unit, `<T>` for the name of its fragment; its text.
type File = (&'static str, &'static str);

/// A shape: its name, its environment files, its files. A file whose path starts with `?` is there in half of the
/// trees.
struct Shape {
    name: &'static str,
    /// Where its fragment usually lies.
    directory: &'static str,
    env_files: &'static [&'static str],
    files: &'static [File],
}

const SHAPES: [(u32, Shape); 10] = [
    (30, KUBEADM),
    (8, IMAGE_BUILDER),
    (10, K3S),
    (8, EKS),
    (8, KUBESPRAY),
    (8, AKS),
    (6, OPENSHIFT),
    (5, KOPS),
    (12, BY_HAND),
    (5, BARE),
];

const KUBEADM_UNIT: &str = "\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

const KUBEADM: Shape = Shape {
    name: "shape: kubeadm",
    directory: "/usr/lib/systemd/system",
    env_files: &["/var/lib/<N>/kubeadm-flags.env", "/etc/default/<N>"],
    files: &[
        ("<D>/<T>", KUBEADM_UNIT),
        (
            "<D>/<T>.d/10-kubeadm.conf",
            r#"# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generates at runtime
EnvironmentFile=-/var/lib/<N>/kubeadm-flags.env
EnvironmentFile=-/etc/default/<N>
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#,
        ),
        (
            "?/var/lib/<N>/kubeadm-flags.env",
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock <F>\"\n",
        ),
        ("?/etc/default/<N>", "KUBELET_EXTRA_ARGS=\n"),
        ("?/etc/systemd/system/<U>.d/20-extra-args.conf", "[Service]\nEnvironment=\"KUBELET_EXTRA_ARGS=<F> <F>\"\n"),
    ],
};

const IMAGE_BUILDER: Shape = Shape {
    name: "shape: image-builder",
    directory: "/usr/lib/systemd/system",
    env_files: &["/var/lib/<N>/kubeadm-flags.env", "/etc/sysconfig/<N>", "/etc/default/<N>"],
    files: &[
        ("<D>/<T>", KUBEADM_UNIT),
        (
            "<D>/<T>.d/10-kubeadm.conf",
            "[Service]\nEnvironmentFile=-/etc/sysconfig/<N>\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_EXTRA_ARGS\n",
        ),
        (
            "/etc/systemd/system/<U>.d/10-kubeadm.conf",
            r#"[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/<N>/kubeadm-flags.env
EnvironmentFile=-/etc/sysconfig/<N>
EnvironmentFile=-/etc/default/<N>
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#,
        ),
        ("?/etc/sysconfig/<N>", "KUBELET_EXTRA_ARGS=<F>\n"),
        ("?/etc/default/<N>", "KUBELET_EXTRA_ARGS=<F> <F>\n"),
        ("?/var/lib/<N>/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"<F>\"\n"),
    ],
};

const K3S: Shape = Shape {
    name: "shape: k3s",
    directory: "/etc/systemd/system",
    env_files: &["/etc/default/<N>-agent", "/etc/sysconfig/<N>-agent", "/etc/systemd/system/<N>.service.env"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Lightweight Kubernetes
Documentation=https://k3s.io

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/<N>.service.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/bin/true overlay
ExecStart=/usr/local/bin/k3s \\
    agent \\
\t'--kubelet-arg=cloud-provider=external' \\
\t'--node-label' \\
\t'a=b' \\

",
        ),
        ("?/etc/systemd/system/<N>.service.env", "K3S_TOKEN='secret'\nK3S_URL='https://10.0.0.1:6443'\n"),
        ("?/etc/default/<N>-agent", "KUBELET_EXTRA_ARGS=<F>\n"),
    ],
};

const EKS: Shape = Shape {
    name: "shape: EKS",
    directory: "/etc/systemd/system",
    env_files: &["/etc/<N>/kubelet/environment"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Kubernetes Kubelet

[Service]
Slice=runtime.slice
EnvironmentFile=/etc/<N>/kubelet/environment
ExecStartPre=-/bin/true
ExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS

Restart=on-failure
RestartForceExitStatus=SIGPIPE
RestartSec=5
KillMode=process
CPUAccounting=true
MemoryAccounting=true
",
        ),
        ("/etc/<N>/kubelet/environment", "NODEADM_KUBELET_ARGS=<F> <F> <F>"),
    ],
};

const KUBESPRAY: Shape = Shape {
    name: "shape: kubespray",
    directory: "/etc/systemd/system",
    env_files: &["/etc/<N>/kubelet.env"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Kubernetes Kubelet Server

[Service]
EnvironmentFile=-/etc/<N>/kubelet.env
ExecStart=/usr/local/bin/kubelet \\
\t\t$KUBE_LOGTOSTDERR \\
\t\t$KUBE_LOG_LEVEL \\
\t\t$KUBELET_API_SERVER \\
\t\t$KUBELET_ADDRESS \\
\t\t$KUBELET_HOSTNAME \\
\t\t$KUBELET_ARGS \\
\t\t$KUBELET_EXTRA_ARGS
Restart=always
RestartSec=10s

[Install]
WantedBy=multi-user.target
",
        ),
        (
            "?/etc/<N>/kubelet.env",
            "KUBE_LOG_LEVEL=\"--v=2\"\nKUBELET_ADDRESS=\"--node-ip=10.0.0.7\"\nKUBELET_HOSTNAME=\"--hostname-override=worker-1\"\n\nKUBELET_ARGS=\"--config=/etc/kubernetes/kubelet-config.yaml \\\n--kubeconfig=/etc/kubernetes/kubelet.conf \\\n--runtime-cgroups=/system.slice/containerd.service \\\n \"\nKUBELET_CLOUDPROVIDER=\"\"\n\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
        ),
    ],
};

const AKS: Shape = Shape {
    name: "shape: AKS",
    directory: "/etc/systemd/system",
    env_files: &["/etc/default/<N>"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Kubelet
ConditionPathExists=/opt/bin/kubelet
[Service]
Restart=always
RestartSec=10
EnvironmentFile=/etc/default/<N>
SuccessExitStatus=143
ExecStartPre=-/bin/bash -c \"true\"
ExecStart=/opt/bin/kubelet \\
        --enable-server \\
        --node-labels=\"${KUBELET_NODE_LABELS}\" \\
        --v=2 \\
        --volume-plugin-dir=/etc/kubernetes/volumeplugins \\
        $KUBELET_TLS_BOOTSTRAP_FLAGS \\
        $KUBELET_CONTAINERD_FLAGS \\
        $KUBELET_FLAGS
[Install]
WantedBy=multi-user.target
",
        ),
        (
            "/etc/systemd/system/<U>.d/10-containerd.conf",
            "[Service]\nEnvironment=\"KUBELET_CONTAINERD_FLAGS=--runtime-request-timeout=15m --container-runtime-endpoint=unix:///run/containerd/containerd.sock\"\n",
        ),
        (
            "?/etc/systemd/system/<U>.d/10-tlsbootstrap.conf",
            "[Service]\nEnvironment=\"KUBELET_TLS_BOOTSTRAP_FLAGS=--kubeconfig /var/lib/kubelet/kubeconfig --bootstrap-kubeconfig /var/lib/kubelet/bootstrap-kubeconfig\"\n",
        ),
        (
            "/etc/default/<N>",
            "KUBELET_FLAGS=<F> <F>\nKUBELET_REGISTER_SCHEDULABLE=true\nKUBELET_NODE_LABELS=agentpool=a b,kubernetes.azure.com/role=agent\n",
        ),
    ],
};

const OPENSHIFT: Shape = Shape {
    name: "shape: OpenShift",
    directory: "/etc/systemd/system",
    env_files: &["/etc/<N>/kubelet-workaround", "/etc/<N>/kubelet-env"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Kubernetes Kubelet
[Service]
Type=notify
EnvironmentFile=/etc/os-release
EnvironmentFile=-/etc/<N>/kubelet-workaround
EnvironmentFile=-/etc/<N>/kubelet-env
ExecStart=/usr/local/bin/kubenswrapper \\
    /usr/bin/kubelet \\
      --config=/etc/kubernetes/kubelet.conf \\
      --node-labels=node-role.kubernetes.io/worker,node.openshift.io/os_id=${ID} \\
      --node-ip=\"${KUBELET_NODE_IP}\" \\
      --v=${KUBELET_LOG_LEVEL}

Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
",
        ),
        ("?/etc/systemd/system/<U>.d/20-logging.conf", "[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=2\"\n"),
        (
            "?/etc/systemd/system/<U>.d/20-nodenet.conf",
            "[Service]\nEnvironment=\"KUBELET_NODE_IP=192.168.0.4\" \"KUBELET_NODE_IPS=192.168.0.4\"\n",
        ),
    ],
};

const KOPS: Shape = Shape {
    name: "shape: kOps",
    directory: "/usr/lib/systemd/system",
    env_files: &["/etc/sysconfig/<N>"],
    files: &[
        (
            "<D>/<T>",
            "[Unit]\nDescription=Kubernetes Kubelet Server\n\n[Service]\nEnvironmentFile=/etc/sysconfig/<N>\nExecStart=/usr/local/bin/kubelet \"$DAEMON_ARGS\"\nRestart=always\nRestartSec=2s\n",
        ),
        ("/etc/sysconfig/<N>", "DAEMON_ARGS=\"<F> <F>  <F>\"\n"),
    ],
};

const BY_HAND: Shape = Shape {
    name: "shape: by hand",
    directory: "/etc/systemd/system",
    env_files: &["/etc/default/<N>"],
    files: &[
        (
            "<D>/<T>",
            "\
[Unit]
Description=Kubernetes Kubelet

[Service]
Environment=KUBELET_EXTRA_ARGS=<F>
Environment=\"KUBELET_FLAGS=<F> <F>\"
EnvironmentFile=-/etc/default/<N>
ExecStart=/usr/local/bin/kubelet --v=2 <F> $KUBELET_EXTRA_ARGS ${KUBELET_FLAGS}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=multi-user.target
",
        ),
        ("?/etc/default/<N>", "KUBELET_EXTRA_ARGS=\"<F> <F>\"\n"),
    ],
};

const BARE: Shape = Shape {
    name: "shape: bare",
    directory: "/etc/systemd/system",
    env_files: &[],
    files: &[("<D>/<T>", "[Service]\nExecStart=/opt/bin/kubelet $KUBELET_EXTRA_ARGS <F>\n")],
};

/// Begins a tree with one of the shapes.
pub(crate) fn begin(draft: &mut Draft) {
    let choices: Vec<(u32, &Shape)> = SHAPES.iter().map(|(weight, shape)| (*weight, shape)).collect();
    let shape = weighted(&mut draft.random, &choices);
    draft.ingredients.push(shape.name.to_owned());
    let directory = if draft.chance(80) { shape.directory } else { draft.directory() };
    let name = draft.fragment_name();
    draft.fragment = format!("{directory}/{name}");
    for path in shape.env_files {
        let path = path.replace("<N>", &draft.stem);
        draft.env_files.push(path);
    }
    for (path, text) in shape.files {
        let (optional, path) = match path.strip_prefix('?') {
            Some(path) => (true, path),
            None => (false, *path),
        };
        if optional && draft.chance(50) {
            continue;
        }
        let path = path
            .replace("<D>", directory)
            .replace("<T>", &name)
            .replace("<N>", &draft.stem)
            .replace("<U>", &draft.unit);
        let text = draft.fill(text.as_bytes());
        draft.add(path, Entry::file(text));
    }
}
