//! RKE2 and k3s: one unit for kubelet and containerd, and a Node that is not called as its host.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{hang_and_continue, next_kubelet};
use crate::scene::{ObservedNode, Scene};
use crate::support::namespaces::ADDRESS;
use crate::support::node::NodeBuilder;
use crate::support::{programs, wait_until};

const SOCKET: &str = "/run/k3s/containerd/containerd.sock";

/// RKE2's unit (rancher/rke2, bundle/lib/systemd/system), which differs from k3s' in `ExecCondition` and `ExecStopPost`, without its `modprobe`.
const RKE2: &str = r#"
[Unit]
Wants=network-online.target
After=network-online.target
[Install]
WantedBy=multi-user.target
[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/usr/local/lib/systemd/system/%N.env
KillMode=process
Delegate=yes
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecCondition=/bin/sh -c 'if systemctl is-active --quiet rke2-OTHER.service; then echo "Error: rke2-OTHER is running!"; exit 1; fi'
ExecStart=/usr/local/bin/rke2 ROLE
ExecStopPost=-/bin/sh -c "systemd-cgls /system.slice/%n | grep -Eo '[0-9]+ (containerd|kubelet)' | awk '{print $1}' | xargs -r kill"
"#;

/// k3s' unit as its install.sh writes it, without its `modprobe`.
const K3S: &str = "\
[Unit]
Wants=network-online.target
After=network-online.target
[Install]
WantedBy=multi-user.target
[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/k3s-agent.service.env
KillMode=process
Delegate=yes
User=root
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
";

/// What `rke2 agent` does as far as a node shows it (pkg/executor/staticpod): containerd and the kubelet die with it, it ends with containerd,
/// and it starts the kubelet again, at most every five seconds.
const PROGRAM: &str = r"#!/bin/bash
agent=/var/lib/rancher/rke2/agent
name=$(sed -n 's/^node-name: //p' /etc/rancher/rke2/config.yaml)
trap 'kill -KILL $kubelet; exit 0' TERM
setpriv --pdeathsig KILL containerd -c $agent/etc/containerd/config.toml -a /run/k3s/containerd/containerd.sock \
  --state /run/k3s/containerd --root $agent/containerd & containerd=$!
systemd-notify --ready
while :; do
  sleep 5 & timer=$!
  setpriv --pdeathsig KILL kubelet --volume-plugin-dir=/var/lib/kubelet/volumeplugins --file-check-frequency=5s --sync-frequency=30s \
    --config-dir=$agent/etc/kubelet.conf.d --hostname-override=$name --kubeconfig=$agent/kubelet.kubeconfig \
    --node-ip=ADDRESS --read-only-port=0 & kubelet=$!
  wait -n $kubelet $containerd
  kill -0 $containerd || exit 1
  wait $timer
done
";

/// Where the distributions have what kubeadm has elsewhere.
const FILES: &str = r"
agent=/var/lib/rancher/$1/agent
mkdir -p $agent/etc/kubelet.conf.d $agent/etc/containerd /run/k3s/containerd
[ -e $agent/kubelet.kubeconfig ] || mv /etc/kubernetes/kubelet.conf $agent/kubelet.kubeconfig
cp /etc/containerd/config.toml $agent/etc/containerd
sed 's,/run/containerd/,/run/k3s/containerd/,' /var/lib/kubelet/config.yaml >$agent/etc/kubelet.conf.d/00-$1-defaults.conf
";

/// A node without kubeadm's units, which is called otherwise than its Node.
fn node(node: NodeBuilder, program: &str) -> NodeBuilder {
    let files = format!("[Service]\nExecStartPre=/bin/sh /etc/e2e-files {program}\n");
    node.file("/etc/systemd/system/kubelet.service", "")
        .file("/etc/systemd/system/containerd.service", "")
        .file("/etc/hostname", "ip-10-99-0-1\n")
        .file("/etc/hosts", "127.0.0.1 localhost ip-10-99-0-1\n")
        .file("/etc/e2e-files", FILES)
        .file(&format!("/etc/systemd/system/{program}-agent.service.d/e2e.conf"), &files)
        .file("/etc/systemd/system/node.target.d/rancher.conf", &format!("[Unit]\nWants={program}-agent.service\n"))
}

/// The unit of that role, while that of the other one does not run.
fn rke2_unit(role: &str, other: &str) -> String {
    RKE2.replace("ROLE", role).replace("OTHER", other)
}

/// Starts an agent that has the kubelet's credential; returns once it reports on the Node that kubelet and container runtime are healthy.
fn start_agent(node: &ObservedNode, unit: &str) -> Result<()> {
    node.sh(&format!("systemctl enable {unit}; rm /etc/nodevigil/kubeconfig"))?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    let runtime = node.condition("ContainerRuntimeHealthy").wait_for(from, "True", "ContainerRuntimeIsHealthy")?;
    ensure!(runtime.message.contains(SOCKET), "{runtime:?}");
    let (code, text) = node.run("nodevigil check")?;
    ensure!(code == 0, "`nodevigil check` ended with {code}: {text}");
    let status = node.status()?;
    ensure!(status["kubelet"]["unit"] == format!("{unit}.service"), "{}", status["kubelet"]);
    Ok(())
}

/// The end of containerd ends the unit's main process with exit code 1, as SIGTERM does. systemd starts both again, and nothing flips.
fn kill_containerd(node: &ObservedNode, unit: &str) -> Result<()> {
    let (before, from, parent) = (node.kubelet().shown()?, Instant::now(), node.main_pid(unit)?);
    node.sh(&format!("kill -KILL $(pgrep -x containerd -P {parent})"))?;
    wait_until("the next main process", Duration::from_mins(1), || {
        Ok(node.main_pid(unit).ok().filter(|pid| ![0, parent].contains(pid)))
    })?;
    node.kubelet().ensure_no_flip(&before).context("an end with exit code 1 that systemd follows")?;
    node.condition("ContainerRuntimeHealthy").wait_until_shown(from, |shown| shown.status == "True").map(drop)
}

/// A restart by systemd flips nothing; after a stop, the agent knows the Node's name by the files alone.
fn restart_and_stop(node: &ObservedNode, unit: &str) -> Result<()> {
    let before = node.kubelet().shown()?;
    node.sh(&format!("systemctl restart {unit}"))?;
    node.kubelet().ensure_no_flip(&before).context("a planned restart")?;
    let from = Instant::now();
    node.sh(&format!("systemctl stop {unit}"))?;
    let stopped = node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
    node.restart_agent("systemctl restart nodevigil")?;
    node.wait_for_no_trouble()?;
    node.kubelet().ensure_unchanged(&stopped)?;
    node.sh(&format!("systemctl start {unit}"))?;
    node.kubelet().wait_for(stopped.at, "True", "KubeletIsHealthy").map(drop)
}

/// Both units are installed, and the agent's is enabled.
pub fn an_rke2_agent_is_watched_with_both_its_children(scene: &Scene) -> Result<()> {
    let config = format!("server: https://{ADDRESS}:9345\nnode-name: {}\n", scene.node_name());
    let node = scene.ready_with(|builder| {
        node(builder, "rke2")
            .file("/usr/local/lib/systemd/system/rke2-agent.service", &rke2_unit("agent", "server"))
            .file("/usr/local/lib/systemd/system/rke2-server.service", &rke2_unit("server", "agent"))
            .file("/usr/local/lib/systemd/system/rke2-agent.env", "HOME=/root\n")
            .file("/etc/rancher/rke2/config.yaml", &config)
            .program("/usr/local/bin/rke2", &PROGRAM.replace("ADDRESS", ADDRESS))
    })?;
    start_agent(&node, "rke2-agent")?;
    let first = next_kubelet(&node, u64::from(node.main_pid("rke2-agent")?))?;
    let before = node.kubelet().shown()?;
    node.sh(&format!("kill -KILL {first}"))?;
    let second = next_kubelet(&node, first)?;
    node.kubelet().ensure_no_flip(&before)?;
    hang_and_continue(&node, second)?;
    kill_containerd(&node, "rke2-agent")?;
    restart_and_stop(&node, "rke2-agent")
}

/// The kubelet is a part of k3s' process. Here it is the real one, in a program that does of k3s' work only what a node shows.
pub fn a_k3s_agent_is_watched_as_the_kubelet(scene: &Scene) -> Result<()> {
    let layer = programs::layer("k3s", &programs::k3s()?)?;
    let unit = format!("{K3S}ExecStart=/usr/local/bin/k3s \\\n    agent \\\n\t'--node-ip={ADDRESS}' \\\n\n");
    let variables = format!("K3S_URL='https://{ADDRESS}:6443'\nK3S_NODE_NAME='{}'\n", scene.node_name());
    let node = scene.ready_with(|builder| {
        node(builder, "k3s")
            .layer(layer)
            .file("/etc/systemd/system/k3s-agent.service", &unit)
            .file("/etc/systemd/system/k3s-agent.service.env", &variables)
            .program("/usr/local/bin/k3s", "#!/bin/sh\nexec /usr/bin/k3s \"$@\"\n")
    })?;
    start_agent(&node, "k3s-agent")?;
    let (from, pid) = (Instant::now(), node.main_pid("k3s-agent")?);
    node.sh(&format!("kill -KILL {pid}"))?;
    let crashed = node.kubelet().wait_for(from, "False", "KubeletCrashed")?;
    ensure!(crashed.message.contains(&format!("pid {pid}")) && crashed.message.contains("SIGKILL"), "{crashed:?}");
    node.kubelet().wait_for(crashed.at, "True", "KubeletIsHealthy")?;
    hang_and_continue(&node, u64::from(node.main_pid("k3s-agent")?))?;
    kill_containerd(&node, "k3s-agent")?;
    restart_and_stop(&node, "k3s-agent")
}
