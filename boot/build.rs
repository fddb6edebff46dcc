//! Hands the linker script to the linker, for this binary only.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    println!("cargo::rustc-link-arg-bins=-T{dir}/link.ld");
    println!("cargo::rustc-link-arg-bins=--no-pie");
    // The image builder moves the code to the memory that a running Linux gives.
    println!("cargo::rustc-link-arg-bin=bulkhead-late=--emit-relocs");
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=build.rs");
}
