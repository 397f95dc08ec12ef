//! A part of the kernel's list of sockets.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::netlink(bytes));
