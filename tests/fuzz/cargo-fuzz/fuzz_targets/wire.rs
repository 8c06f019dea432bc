//! libFuzzer on the body of `stockade_fuzz::wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::wire::body(data));
