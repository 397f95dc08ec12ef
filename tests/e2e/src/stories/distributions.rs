//! Distributions by their shape: their units, environment files and paths, with the real kubelet and the real containerd.

mod rancher;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

pub use self::rancher::{a_k3s_agent_is_watched_as_the_kubelet, an_rke2_agent_is_watched_with_both_its_children};
use crate::disturbances::wait_until_not_young;
use crate::scene::{Condition, ObservedNode, Scene};
use crate::support::namespaces::ADDRESS;
use crate::support::node::NodeBuilder;
use crate::support::{WAIT, wait_until};

/// nodeadm's unit on Amazon Linux 2023 (awslabs/amazon-eks-ami), without the rule for iptables.
const AL2023: &str = "\
[Unit]
After=containerd.service
Wants=containerd.service
[Service]
Slice=runtime.slice
EnvironmentFile=/etc/eks/kubelet/environment
ExecStart=/usr/bin/kubelet $NODEADM_KUBELET_ARGS
Restart=on-failure
RestartForceExitStatus=SIGPIPE
KillMode=process
CPUAccounting=true
MemoryAccounting=true
";

/// `AgentBaker`'s unit on AKS, without its rules for ebtables and with another path of the kubelet.
const AKS: &str = "\
[Unit]
ConditionPathExists=/usr/bin/kubelet
Wants=network-online.target containerd.service
After=network-online.target containerd.service
[Service]
Restart=always
EnvironmentFile=/etc/default/kubelet
SuccessExitStatus=143
WatchdogSec=60s
ExecStart=/usr/bin/kubelet --enable-server --node-labels=\"${KUBELET_NODE_LABELS}\" --v=2 \
  $KUBELET_TLS_BOOTSTRAP_FLAGS $KUBELET_CONFIG_FILE_FLAGS $KUBELET_FLAGS
";

const CONFIG_FLAGS: &str = "--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml";

/// As `k0s install worker` writes it (k0s 1.34), without the token.
const UNIT: &str = "\
[Unit]
Description=k0s - Zero Friction Kubernetes
After=dbus.service
[Service]
StartLimitInterval=5
StartLimitBurst=10
ExecStart=/bin/bash /usr/local/bin/k0s worker
RestartSec=10
Delegate=yes
KillMode=process
Restart=always
";

/// What `k0s worker` does as far as a node shows it: it starts containerd and the kubelet, and the kubelet again five seconds after its end.
const PROGRAM: &str = "\
trap 'kill $kubelet $containerd; wait; exit' TERM
mkdir -p /run/k0s /var/lib/k0s/containerd
mv -n /etc/kubernetes/kubelet.conf /var/lib/k0s
containerd --config /etc/containerd/config.toml --root /var/lib/k0s/containerd --state /run/k0s/containerd \
  --address /run/k0s/containerd.sock & containerd=$!
while :; do
  sed 's,/run/containerd/,/run/k0s/,' /var/lib/kubelet/config.yaml >/run/k0s/kubelet.yaml
  kubelet --kubeconfig=/var/lib/k0s/kubelet.conf --config=/run/k0s/kubelet.yaml $KUBELET_EXTRA_ARGS & kubelet=$!
  wait $kubelet
  sleep 5 & wait $!
done
";

/// An empty file masks a unit (systemd.unit(5)).
fn k0s(node: NodeBuilder) -> NodeBuilder {
    node.file("/etc/systemd/system/kubelet.service", "")
        .file("/etc/systemd/system/containerd.service", "")
        .file("/etc/systemd/system/node.target.d/k0s.conf", "[Unit]\nWants=k0sworker.service\n")
        .file("/etc/systemd/system/k0sworker.service", UNIT)
        .file("/etc/systemd/system/k0sworker.service.d/e2e.conf", "[Service]\nEnvironmentFile=/etc/default/kubelet\n")
        .file("/usr/local/bin/k0s", PROGRAM)
}

/// A node with this unit instead of kubeadm's, and its environment file.
fn with_unit<'a>(unit: &'a str, (path, text): (&'a str, &'a str)) -> impl FnOnce(NodeBuilder) -> NodeBuilder + 'a {
    move |node| {
        node.file("/etc/systemd/system/kubelet.service", unit)
            .file("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "")
            .file(path, text)
    }
}

/// A crash and a stop are told apart, and `nodevigil check` finds no error.
fn ends_are_known(node: &ObservedNode) -> Result<()> {
    let (code, text) = node.run("nodevigil check")?;
    ensure!(code == 0, "`nodevigil check` ended with {code}: {text}");
    node.crash_and_recover()?;
    let from = Instant::now();
    node.sh("systemctl stop kubelet")?;
    node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator").map(drop)
}

pub fn the_unit_of_al2023(scene: &Scene) -> Result<()> {
    let flags = format!("{CONFIG_FLAGS} --hostname-override={} --node-ip={ADDRESS}", scene.node_name());
    let environment = format!("NODEADM_KUBELET_ARGS={flags}\n");
    ends_are_known(&*scene.healthy_with(with_unit(AL2023, ("/etc/eks/kubelet/environment", &environment)))?)
}

pub fn the_unit_of_aks(scene: &Scene) -> Result<()> {
    let flags = format!("--hostname-override={} --node-ip={ADDRESS}", scene.node_name());
    let environment = format!(
        "KUBELET_NODE_LABELS=agentpool=one,mode=system\nKUBELET_FLAGS={flags}\nKUBELET_CONFIG_FILE_FLAGS={CONFIG_FLAGS}\n"
    );
    ends_are_known(&*scene.healthy_with(with_unit(AKS, ("/etc/default/kubelet", &environment)))?)
}

/// As on Flatcar: the program lies in /opt.
pub fn a_read_only_usr(scene: &Scene) -> Result<()> {
    let program = "[Service]\nExecStart=\nExecStart=/opt/bin/nodevigil run\n";
    let node = scene.ready_with(|node| node.file("/etc/systemd/system/nodevigil.service.d/opt.conf", program))?;
    node.sh("mkdir -p /opt/bin; cp /usr/bin/nodevigil /opt/bin
         mount --bind /usr /usr; mount -o remount,bind,ro /usr; ! touch /usr/file 2>/dev/null")?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    ends_are_known(&node)
}

/// Waits until a kubelet runs that is not the one before, and the agent watches it; returns its pid.
fn next_kubelet(node: &ObservedNode, before: u64) -> Result<u64> {
    let is_next = |pid: &u64| *pid != before;
    wait_until("the agent to watch the next kubelet", WAIT, || {
        let status = node.status().unwrap_or_default();
        let is_healthy = status["conditions"][0]["status"] == "True";
        let pids = node.sh("pidof kubelet").unwrap_or_default();
        let watched = status["kubelet"]["pid"].as_u64().filter(is_next).filter(|_| is_healthy);
        Ok(watched.filter(|pid| pids.split_whitespace().any(|one| one == pid.to_string())))
    })
}

/// The kubelet of that pid hangs until it continues; returns what the Node then shows.
fn hang_and_continue(node: &ObservedNode, pid: u64) -> Result<Condition> {
    wait_until_not_young(node);
    let from = Instant::now();
    node.sh(&format!("kill -STOP {pid}"))?;
    let hung = node.kubelet().wait_for(from, "False", "KubeletHung")?;
    ensure!(hung.message.contains(&format!("pid {pid} ")) && hung.message.contains("state T"), "{hung:?}");
    node.sh(&format!("kill -CONT {pid}"))?;
    node.kubelet().wait_for(hung.at, "True", "KubeletIsHealthy")
}

pub fn a_kubelet_that_k0s_has_started_is_watched_like_any_other(scene: &Scene) -> Result<()> {
    let (node, from) = (scene.ready_with(k0s)?, Instant::now());
    // The credential is that of the kubelet's command line, and of the files once no kubelet runs.
    node.sh("rm /etc/nodevigil/kubeconfig")?;
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    let first = next_kubelet(&node, u64::from(node.main_pid("k0sworker")?))?;
    let runtime =
        node.condition("ContainerRuntimeHealthy").wait_for(Instant::now(), "True", "ContainerRuntimeIsHealthy");
    ensure!(runtime?.message.contains("/run/k0s/containerd.sock"), "the socket is that of the kubelet's configuration");
    let before = node.kubelet().shown()?;

    // k0s starts it again, and nobody but k0s knows how it ended.
    node.sh(&format!("kill -KILL {first}"))?;
    let second = next_kubelet(&node, first)?;
    node.kubelet().ensure_no_flip(&before)?;

    let healthy = hang_and_continue(&node, second)?;

    // From now on each kubelet exits at its start.
    node.sh(&format!("sed -i.good 's/}}$/,\"maxPods\":-1}}/' /var/lib/kubelet/config.yaml; kill -KILL {second}"))?;
    let crashed = node.kubelet().wait_until_shown(healthy.at, |shown| shown.status == "False")?;
    ensure!(["KubeletCrashed", "KubeletCrashLooping"].contains(&crashed.reason.as_str()), "{crashed:?}");
    ensure!(crashed.message.contains("of k0sworker.service had started, has ended"), "{crashed:?}");
    node.sh("mv /var/lib/kubelet/config.yaml.good /var/lib/kubelet/config.yaml")?;
    next_kubelet(&node, second).context("after the repair")?;

    let from = Instant::now();
    node.sh("systemctl stop k0sworker")?;
    let stopped = node.kubelet().wait_for(from, "Unknown", "KubeletStoppedByOperator")?;
    node.restart_agent("systemctl restart nodevigil")?;
    node.wait_for_no_trouble()?;
    node.kubelet().ensure_unchanged(&stopped)
}
