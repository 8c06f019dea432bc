//! libFuzzer on the body of `stockade_fuzz::json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::json::body(data));
