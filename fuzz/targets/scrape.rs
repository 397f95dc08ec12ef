//! What a client of the metrics' socket says.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nodevigil_fuzz::scrape(bytes));
