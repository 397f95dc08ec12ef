//! An environment file, and what it makes of a command line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::env_file(bytes));
