//! A row of `/proc/net/unix`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::unix_sockets(bytes));
