//! A KubeletConfiguration, and a drop-in of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodevigil::kubelet::tree::MemoryTree;
use nodevigil_fuzz::{UNIT, check};

fuzz_target!(|bytes: &[u8]| {
    let tree = MemoryTree::new()
        .file(
            UNIT,
            "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubelet.d --kubeconfig=/k --eviction-hard=memory.available<5%\n",
        )
        .file("/var/lib/kubelet/config.yaml", bytes)
        .file("/etc/kubelet.d/10-x.conf", bytes);
    for version in ["1.29.1", "1.36.3"] {
        check(&tree, "kubelet.service", version);
    }
});
