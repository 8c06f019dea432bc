//! The rules of the house, as tests in `tests/tidy.rs`: what may import what, how files look, what
//! lies at the top. The crate itself is empty.
