//! libFuzzer on the body of `stockade_fuzz::commands`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::commands::body(data));
