//! The configuration of k3s and RKE2, and an arguments file of MicroK8s.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::k3s_config(bytes));
