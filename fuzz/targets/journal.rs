//! A file of the journal's.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::journal(bytes));
