//! Where the programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The `mongod` to start: what `./dev mongod-path` says, which fetches it once.
///
/// # Errors
/// When there is none and it could not be fetched.
pub fn mongod_path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("MONGOD") {
        return Ok(path.into());
    }
    let dev = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev");
    let output = Command::new(&dev)
        .arg("mongod-path")
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running {}", dev.display()))?;
    if !output.status.success() {
        bail!("`./dev mongod-path` found no mongod");
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// The router to start: `POINTSMAN_BIN`, else `pointsman` in the profile folder of the running executable.
///
/// # Errors
/// When there is none.
pub fn router_path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("POINTSMAN_BIN") {
        return Ok(path.into());
    }
    let executable = std::env::current_exe()?;
    // Tests are in target/PROFILE/deps, binaries in target/PROFILE.
    let found =
        executable.ancestors().skip(1).take(2).map(|dir| dir.join("pointsman")).find(|path| path.is_file());
    found.context("the router is not built: run the tests with --workspace, or set POINTSMAN_BIN")
}
