//! The systems and machines of the source tree keep every rule.

use bulkhead_manifest::{Options, load};
use std::path::Path;

#[test]
fn every_system_is_right() {
    right("systems");
}

#[test]
fn every_system_of_the_kernels_tests_is_right() {
    right("tests/kernel");
    right("tests/multikernel");
}

fn right(folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(folder);
    let options = Options { skip_files: true, ..Options::default() };
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let system = load(&path, &options).unwrap_or_else(|findings| panic!("{findings}"));
            system.plan(system.image_estimate).unwrap_or_else(|findings| panic!("{findings}"));
            checked += 1;
        }
    }
    assert!(checked > 0, "no system found");
}
