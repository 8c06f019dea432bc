//! Placeholder crate root; see the folder README in docs/ARCHITECTURE.md.
