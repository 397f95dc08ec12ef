//! A command line: words, quotes, escapes, specifiers, variables.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nodevigil::kubelet::tree::MemoryTree;
use nodevigil_fuzz::{UNIT, check};

fuzz_target!(|bytes: &[u8]| {
    let mut unit = b"[Service]\nEnvironment=\"A=--x y\" 'B=\"q' C=\nExecStart=/usr/bin/kubelet ".to_vec();
    unit.extend(bytes.iter().filter(|byte| **byte != b'\n'));
    unit.push(b'\n');
    let tree = MemoryTree::new().file(UNIT, unit);
    check(&tree, "kubelet.service", "1.36.3");
});
