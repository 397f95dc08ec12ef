//! An environment file, and what it makes of a command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodevigil::kubelet::{place::Place, systemd::env_file, tree::MemoryTree};
use nodevigil_fuzz::{UNIT, check};

fuzz_target!(|bytes: &[u8]| {
    for version in [252, 255] {
        let parsed = env_file::parse(&Place::file("/etc/default/kubelet"), bytes, version);
        for assignment in &parsed.assignments {
            assert!(!assignment.name.is_empty() && !assignment.name.contains('='));
            assert!(assignment.marks.is_sorted_by_key(|(offset, _)| *offset));
        }
    }
    let tree = MemoryTree::new()
        .file(
            UNIT,
            "[Service]\nEnvironmentFile=-/etc/default/kubelet\nExecStart=/usr/bin/kubelet $A ${B} $KUBELET_EXTRA_ARGS\n",
        )
        .file("/etc/default/kubelet", bytes);
    check(&tree, "kubelet.service", "1.36.3");
});
