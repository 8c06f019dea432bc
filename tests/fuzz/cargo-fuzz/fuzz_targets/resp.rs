//! libFuzzer on the body of `stockade_fuzz::resp`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stockade_fuzz::resp::body(data));
