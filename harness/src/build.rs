//! Where the harness's own parts are, built if they are not up to date.

use crate::Failure;
use crate::program::Program as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the repository.
#[must_use]
pub fn root() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.parent().unwrap_or(harness).to_owned()
}

/// Returns the build folder.
#[must_use]
pub fn target() -> PathBuf {
    root().join("target")
}

/// Returns the counting plugin. It is no member of the workspace, for its licence's sake.
pub fn plugin() -> Result<PathBuf, Failure> {
    let dir = target().join("plugin");
    let manifest = root().join("plugin/Cargo.toml");
    let manifest = manifest.to_string_lossy();
    cargo(&["--release", "--manifest-path", &manifest], &dir)?;
    Ok(dir.join("release/libbulkhead_plugin.so"))
}

/// One of the programs in harness/bare.
pub fn bare(name: &str) -> Result<PathBuf, Failure> {
    let args =
        ["--package", "harness-bare", "--target", "x86_64-unknown-none", "--profile", "privileged"];
    cargo(&args, &target())?;
    Ok(target().join("x86_64-unknown-none/privileged").join(name))
}

fn cargo(args: &[&str], target: &Path) -> Result<(), Failure> {
    let status = Command::new("cargo")
        .args(["build", "--quiet"])
        .args(args)
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target)
        .ended()?;
    if status.success() {
        return Ok(());
    }
    Err(format!("cargo build {} failed: {status}", args.join(" ")).into())
}
