//! A line from the other side of the helper's socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::protocol(bytes));
