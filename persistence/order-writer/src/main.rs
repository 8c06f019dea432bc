//! `stockade-writer`: see [`stockade_order_writer::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    stockade_order_writer::cli::main()
}
