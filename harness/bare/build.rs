//! Links the programs at fixed addresses: the loader out of the way of what it
//! loads, the others where an image would lie.

fn main() {
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/bare.ld");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg=-T{script}");
    println!("cargo::rustc-link-arg=--no-pie");
    println!("cargo::rustc-link-arg=-zmax-page-size=4096");
    println!("cargo::rustc-link-arg=-znognustack");
    for (bin, base) in [
        ("selftest", "0x1000000"),
        ("svm-probe", "0x1000000"),
        ("vmx-probe", "0x1000000"),
        ("bareload", "0x60000000"),
    ] {
        println!("cargo::rustc-link-arg-bin={bin}=--defsym=LOAD_BASE={base}");
    }
}
