//! A kubeconfig, whose files lie in `files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::kubeconfig(bytes));
