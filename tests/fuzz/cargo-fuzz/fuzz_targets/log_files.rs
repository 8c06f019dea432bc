//! libFuzzer on the body of `stockade_fuzz::log_files`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::log_files::body(data));
