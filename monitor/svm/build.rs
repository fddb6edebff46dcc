//! Hands the linker script to the linker, for this binary only.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    println!("cargo::rustc-link-arg-bins=-T{dir}/../x86/link.ld");
    println!("cargo::rustc-link-arg-bins=--no-pie");
    println!("cargo::rerun-if-changed=../x86/link.ld");
    println!("cargo::rerun-if-env-changed=BULKHEAD_MUTANTS");
}
