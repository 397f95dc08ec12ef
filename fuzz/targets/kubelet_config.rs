//! A KubeletConfiguration, and a drop-in of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::kubelet_config(bytes));
