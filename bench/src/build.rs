//! Where the programs are that the demo starts. Under cargo they are built first, so that a clean
//! clone needs one command; elsewhere they must lie beside this program.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["stockade-server", "stockade-writer"];

/// The folder that holds the programs.
///
/// # Errors
/// They cannot be built, or are not there.
pub fn programs() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let dir = own.parent().unwrap_or(Path::new(".")).to_path_buf();
    // Set by `cargo run`, and only there.
    if let (Some(cargo), Some(_)) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_PKG_NAME"))
    {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let release = dir.ends_with("release");
        eprintln!("building stockade-server and stockade-writer");
        let mut command = Command::new(cargo);
        command.current_dir(workspace).args(["build", "--locked"]);
        // Without -p, features are those of the whole workspace, as in `cargo build`: nothing that
        // is built already is built again.
        command.args(PROGRAMS.into_iter().flat_map(|name| ["--bin", name]));
        // What cargo tells this program about itself would make crates that ask for it build again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_MANIFEST") || text.starts_with("CARGO_PKG") {
                command.env_remove(&name);
            }
        }
        if release {
            command.arg("--release");
        }
        let status = command.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Err("the programs could not be built".into());
        }
    }
    for name in PROGRAMS {
        if !dir.join(name).is_file() {
            return Err(format!(
                "{} is missing; build it with `cargo build --release`",
                dir.join(name).display()
            ));
        }
    }
    Ok(dir)
}
