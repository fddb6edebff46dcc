//! Shared by all programs: link them with the SDK's script, at a fixed address.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../program/program.ld");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg=-T{script}");
    println!("cargo::rustc-link-arg=--no-pie");
    println!("cargo::rustc-link-arg=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg=-znognustack");
}
