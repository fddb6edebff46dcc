#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bulkhead_fuzz::feed("web", bytes));
