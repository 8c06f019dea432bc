//! libFuzzer on the body of `stockade_fuzz::entry`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::entry::body(data));
