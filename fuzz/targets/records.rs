#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millrun_persistence::fuzz::records(bytes));
