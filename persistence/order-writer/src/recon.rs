//! Reconciliation: SQL against the log, row by row, at one vector of LSNs.

pub mod books;
