//! What the API server says: a line of a watch, a list, a Lease, a refusal.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::node(bytes));
