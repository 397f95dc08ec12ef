//! The configuration of k3s and RKE2, and an arguments file of MicroK8s.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodevigil::kubelet::tree::MemoryTree;
use nodevigil_fuzz::check;

fuzz_target!(|bytes: &[u8]| {
    let tree = MemoryTree::new()
        .file(
            "/etc/systemd/system/k3s-agent.service",
            "[Service]\nExecStart=/usr/local/bin/k3s agent --kubelet-arg=v=2\n",
        )
        .file("/etc/rancher/k3s/config.yaml", "kubelet-arg:\n- max-pods=50\n")
        .file("/etc/rancher/k3s/config.yaml.d/50-x.yaml", bytes)
        .file(
            "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
            "[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
        )
        .file("/var/snap/microk8s/current/args/kubelet", bytes);
    check(&tree, "k3s-agent.service", "1.33.5+k3s1");
    check(&tree, "snap.microk8s.daemon-kubelite.service", "1.32.0");
});
