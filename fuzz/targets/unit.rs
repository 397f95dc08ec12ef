//! A unit file, and a drop-in after it (a NUL NUL parts them).
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodevigil::kubelet::tree::MemoryTree;
use nodevigil_fuzz::{UNIT, check};

fuzz_target!(|bytes: &[u8]| {
    let middle = bytes.windows(2).position(|pair| pair == [0, 0]);
    let (fragment, drop_in) = bytes.split_at(middle.unwrap_or(bytes.len()));
    let tree = MemoryTree::new()
        .file(UNIT, fragment)
        .file(format!("{UNIT}.d/10-x.conf"), drop_in.get(2..).unwrap_or_default())
        .file("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--v=2 --node-labels=a=b\"\n");
    check(&tree, "kubelet.service", "1.36.3");
});
