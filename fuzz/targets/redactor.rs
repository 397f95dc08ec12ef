//! A text for a bundle, and a file with credentials (a NUL NUL parts them).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::redactor(bytes));
