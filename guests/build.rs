//! Shared by all bare guests: link them with the SDK's script, at a fixed address. This is a build script, not
//! `.cargo/config.toml`, because its arguments reach guests only. Boot code and monitors are built for that target,
//! too.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/guest.ld");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg=-T{script}");
    // The target's default is a position-independent executable, and no loader is there to relocate it.
    println!("cargo::rustc-link-arg=--no-pie");
    println!("cargo::rustc-link-arg=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg=-znognustack");
}
