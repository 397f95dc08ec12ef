//! cloud-init's status, or the end of its output.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::cloud_init(bytes));
