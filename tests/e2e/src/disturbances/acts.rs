//! Disturbances that need more than a command.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::scene::ObservedNode;
use crate::support::control_plane::ControlPlane;
use crate::support::namespaces::ADDRESS;
use crate::support::{WAIT, wait_until};

/// Signs of maintenance.
const TAINTS: [&str; 6] = [
    "node.kubernetes.io/out-of-service",
    "karpenter.sh/rebooting",
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
];
const ANNOTATIONS: [(&str, &str); 3] = [
    ("weave.works/kured-reboot-in-progress", "2026-01-01"),
    ("flatcar-linux-update.v1.flatcar-linux.net/reboot-in-progress", "true"),
    ("machineconfiguration.openshift.io/state", "Working"),
];
const CONDITIONS: [&str; 4] = ["DrainInProgress", "Drained", "MaintenanceInProgress", "GracefulNodeShutdownInProgress"];

const STALLED_POD: &str = "/etc/kubernetes/manifests/stalled.json";

/// The limit is that of the node's own PID namespace (since Linux 6.14); the threads are those of the whole machine. 300 are reserved
/// (include/linux/pid.h).
pub fn few_process_ids(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    let threads: u64 = node.sh("cut -d/ -f2 /proc/loadavg | cut -d' ' -f1")?.trim().parse().context("/proc/loadavg")?;
    let max = threads * 107 / 100 + 300;
    node.sh(&format!("cat /proc/sys/kernel/pid_max >/run/pid_max; echo {max} >/proc/sys/kernel/pid_max")).map(drop)
}

/// Fails if the package manager does not hold its lock: then the agent could not see that it works.
fn checked(script: &str, lock: &str) -> String {
    format!("grep -q \"POSIX .* WRITE .*:$(stat --format=%i {lock}) \" /proc/locks\n{script}")
}

/// Installs a package with this script.
pub fn dpkg(node: &ObservedNode, script: &str) -> Result<()> {
    let script = checked(script, "/var/lib/dpkg/lock-frontend");
    node.sh(&format!(
        "set -e; rm -rf /run/deb; mkdir -p /run/deb/DEBIAN
         printf 'Package: story\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n' >/run/deb/DEBIAN/control
         cat >/run/deb/DEBIAN/postinst <<'END'\n#!/bin/sh\nset -e\n{script}\nEND
         chmod 755 /run/deb/DEBIAN/postinst
         dpkg-deb -Znone --build /run/deb /run/story.deb; dpkg --no-triggers --install /run/story.deb"
    ))
    .map(drop)
}

/// The same. The database, and so the lock file, is where Fedora had it until 35.
pub fn rpm(node: &ObservedNode, script: &str) -> Result<()> {
    let script = checked(script, "/var/lib/rpm/.rpm.lock").replace('%', "%%");
    node.sh(&format!(
        "set -e; cat >/run/story.spec <<'END'
Name: story\nVersion: 1\nRelease: 1\nSummary: none\nLicense: none\nBuildArch: noarch
%description\nnone\n%files\n%post\nset -e\n{script}\nEND
         rpmbuild --quiet --define '_topdir /run/rpm' -bb /run/story.spec
         rpm --dbpath /var/lib/rpm --force-debian --nodeps --replacepkgs --install /run/rpm/RPMS/noarch/story-1-1.noarch.rpm"
    ))
    .map(drop)
}

pub fn begin_maintenance(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    let taints = TAINTS.map(|key| format!("{key}=:NoSchedule"));
    let annotations = ANNOTATIONS.map(|(key, value)| format!("{key}={value}"));
    on_node(plane, node, "taint", &taints)?;
    on_node(plane, node, "annotate", &annotations)?;
    patch_conditions(plane, node, |kind| json!({"type": kind, "status": "True", "reason": "Story"}))?;
    node.sh("systemctl restart kubelet containerd").map(drop)
}

pub fn end_maintenance(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    on_node(plane, node, "taint", &TAINTS.map(|key| format!("{key}-")))?;
    on_node(plane, node, "annotate", &ANNOTATIONS.map(|(key, _)| format!("{key}-")))?;
    patch_conditions(plane, node, |kind| json!({"type": kind, "$patch": "delete"}))
}

fn on_node(plane: &ControlPlane, node: &ObservedNode, verb: &str, changes: &[String]) -> Result<()> {
    let mut arguments = vec![verb, "node", node.name()];
    arguments.extend(changes.iter().map(String::as_str));
    plane.kubectl(&arguments).map(drop)
}

fn patch_conditions(
    plane: &ControlPlane,
    node: &ObservedNode,
    change: impl Fn(&str) -> serde_json::Value,
) -> Result<()> {
    let patch = json!({"status": {"conditions": CONDITIONS.map(change)}}).to_string();
    plane.kubectl(&["patch", "node", node.name(), "--subresource=status", "--patch", &patch]).map(drop)
}

/// Has the kubelet make the directories of a pod on a frozen disk.
pub fn begin_stall(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stalled", "namespace": "default"},
        "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "none.invalid/none", "imagePullPolicy": "Never"}]},
    });
    node.sh(&format!("sync; fsfreeze -f /srv/kubelet/pods; cat >{STALLED_POD} <<'END'\n{pod}\nEND"))?;
    let thread = format!("grep -l '^State:.D' /proc/{}/task/*/status", node.main_pid("kubelet")?);
    wait_until("a thread of the kubelet to wait for the disk", WAIT, || Ok((node.run(&thread)?.0 == 0).then_some(())))
}

/// It fails if the kubelet does not wait any more or does not answer: then nothing was shown.
pub fn end_stall(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    let checked = node.main_pid("kubelet").and_then(|pid| {
        node.sh(&format!(
            "grep -l '^State:.D' /proc/{pid}/task/*/status && curl -sS --fail http://127.0.0.1:{}/healthz",
            node.healthz_port()
        ))
    });
    thaw(node)?;
    checked.map(drop)
}

pub fn thaw(node: &ObservedNode) -> Result<()> {
    node.sh(&format!("fsfreeze -u /srv/kubelet/pods; rm -f {STALLED_POD}")).map(drop)
}

#[expect(clippy::unnecessary_wraps, reason = "a row's function")]
pub fn stop_apiserver(_: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    plane.stop_apiserver();
    Ok(())
}

pub fn hang_apiserver(_: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    plane.signal_apiserver(Signal::SIGSTOP)
}

pub fn continue_apiserver(_: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    plane.signal_apiserver(Signal::SIGCONT)
}

pub fn reset_api_packets(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    api_packets(node, plane, "reject with tcp reset")
}

pub fn lose_most_api_packets(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    api_packets(node, plane, "limit rate over 10/second drop")
}

/// What is dropped where it leaves the host would count as never sent.
pub fn lose_api_packets(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    api_packets(node, plane, "meta mark set 0x9e11")?;
    firewall(node, "input", "meta mark 0x9e11 drop")
}

/// A firewall for what kubelet and agent send to the API server.
fn api_packets(node: &ObservedNode, plane: &ControlPlane, verdict: &str) -> Result<()> {
    let rule = format!("ip daddr {ADDRESS} tcp dport {} meta skgid daemon {verdict}", plane.port());
    firewall(node, "output", &rule)
}

pub fn lose_healthz_packets(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    firewall(node, "input", &format!("tcp dport {} drop", node.healthz_port()))
}

pub fn reset_healthz_packets(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    firewall(node, "input", &format!("tcp dport {} reject with tcp reset", node.healthz_port()))
}

fn firewall(node: &ObservedNode, hook: &str, rule: &str) -> Result<()> {
    node.sh(&format!(
        "nft add table ip e2e
         nft add chain ip e2e {hook} '{{ type filter hook {hook} priority 0; }}'
         nft add rule ip e2e {hook} {rule}"
    ))
    .map(drop)
}

/// The table is that of the run's network namespace; its size is the machine's. The packets are dropped, so that no host refuses them.
pub fn fill_conntrack(node: &ObservedNode, _: &ControlPlane) -> Result<()> {
    node.sh("cat /proc/sys/net/netfilter/nf_conntrack_udp_timeout >/run/udp_timeout")?;
    firewall(node, "output", "ct state new accept")?;
    firewall(node, "input", "meta l4proto udp drop")?;
    sleep(Duration::from_secs(12)); // the connections that there are get into the table, as those of a real host are
    let send = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(300000):
    try: s.sendto(b\"x\", (\"127.1.%d.%d\" % (n // 50000, n % 250 + 1), n % 50000 + 1))
    except OSError: pass";
    let count = node.sh(&format!(
        "cd /proc/sys/net/netfilter; echo 15 >nf_conntrack_udp_timeout; /usr/bin/python3 -c '{send}'
         cat nf_conntrack_count nf_conntrack_max"
    ))?;
    let numbers: Vec<u64> = count.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [used, max] = numbers[..] else { bail!("no count and limit: {count}") };
    ensure!(used >= max * 9 / 10, "{used} of {max} connections are no full table");
    Ok(())
}
