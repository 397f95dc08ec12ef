//! A command line: words, quotes, escapes, specifiers, variables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::exec_start(bytes));
