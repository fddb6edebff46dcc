//! The book's pictures of schedules are those that `bulkhead sched` draws (`BLESS=1` writes them).

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_books_schedules_are_drawn_by_the_command() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let folder = Path::new(root).join("docs/figures");
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let manifests: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
    assert!(!manifests.is_empty());
    for manifest in manifests {
        let name = manifest.file_stem().unwrap().to_str().unwrap();
        let drawn = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.svg"));
        let output = Command::new(env!("CARGO_BIN_EXE_bulkhead"))
            .args(["sched", "--skip-files", "--refills", "--svg"])
            .args([&drawn, &manifest])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let (svg, kept) =
            (std::fs::read_to_string(&drawn).unwrap(), manifest.with_extension("svg"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&kept, &svg).unwrap();
        }
        let expected = std::fs::read_to_string(&kept).unwrap_or_default();
        assert_eq!(svg, expected, "{name}: BLESS=1 writes it");
        assert!(svg.len() < 16 << 10, "{name} has {} bytes", svg.len());
    }
}
