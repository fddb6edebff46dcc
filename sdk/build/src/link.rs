//! Arguments for the linker. This is a build script's affair, not `.cargo/config.toml`'s, because a guest and a program
//! of the kernel have one target and different scripts. Boot code and monitors are built for that target, too.

use std::path::Path;

/// Links the package's programs at a fixed address, by a linker script. A build of a package for another machine, such
/// as that of its tests, is left alone.
pub fn with(script: &str) {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    // A copy, because the text has been built in: so nothing here depends on the place of these sources.
    let folder = std::env::var("OUT_DIR").expect("cargo names a folder for files");
    let copy = Path::new(&folder).join("bulkhead.ld");
    std::fs::write(&copy, script).expect("cargo's folder for files can be written");
    println!("cargo::rustc-link-arg=-T{}", copy.display());
    // The target's default is a position-independent executable, and no loader is there to relocate it.
    println!("cargo::rustc-link-arg=--no-pie");
    println!("cargo::rustc-link-arg=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg=-znognustack");
}
