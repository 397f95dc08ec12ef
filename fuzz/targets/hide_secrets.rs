//! A text that is to be shown.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::hide_secrets(bytes));
