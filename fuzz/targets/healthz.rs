//! What a kubelet's healthz answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::healthz(bytes));
