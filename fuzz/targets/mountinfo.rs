//! `/proc/PID/mountinfo`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::mountinfo(bytes));
