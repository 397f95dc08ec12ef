//! A unit file, and a drop-in after it (a NUL NUL parts them).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::unit(bytes));
