//! Hands the linker script to the linker, for this binary only.

fn main() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    let checked = std::env::var_os("CARGO_FEATURE_CHECKED").is_some();
    let script = if checked { "link-checked.ld" } else { "link.ld" };
    println!("cargo::rustc-link-arg-bins=-T{dir}/../x86/{script}");
    println!("cargo::rustc-link-arg-bins=--no-pie");
    println!("cargo::rerun-if-changed=../x86/{script}");
    println!("cargo::rerun-if-env-changed=BULKHEAD_MUTANTS");
}
