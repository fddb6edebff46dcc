//! Fuzz targets: whoever reads what others made, each as a function of bytes. Nothing
//! may panic; what is accepted must keep the rules that the check stands for, said
//! here another way than there.
//!
//! `fuzz/` runs them under libFuzzer (`make fuzz`), [`drive`] without it (`make test`).
//! Both start with the corpora in `fuzz/corpus`.

mod channel;
mod dmar;
pub mod drive;
mod hypercall;
mod icr;
mod image;
mod input;
mod ioapic;
mod kernel;
mod manifest;
mod mmio;
mod pci;
mod virtio;
mod web;

pub use input::Input;

use std::path::{Path, PathBuf};

/// Attempts of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Things that it tried.
    pub tried: u64,
    /// Things that were accepted.
    pub through: u64,
}

impl Seen {
    fn add(&mut self, through: bool) {
        self.tried += 1;
        self.through += u64::from(through);
    }
}

/// One of them.
#[derive(Debug)]
pub struct Target {
    /// Also its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Function that feeds it; an error is a deed that it must not do.
    pub run: fn(&[u8]) -> Result<Seen, String>,
    /// Bytes of a random input, at most.
    pub len: usize,
    /// True if random bytes are not worth a try.
    pub text: bool,
    /// Pieces to put into inputs of the corpus.
    pub pieces: &'static [&'static str],
}

const fn target(name: &'static str, run: fn(&[u8]) -> Result<Seen, String>, len: usize) -> Target {
    Target { name, run, len, text: false, pieces: &[] }
}

/// All targets.
pub static TARGETS: [Target; 12] = [
    target("channel", channel::run, 512),
    target("dmar", dmar::run, 256),
    target("hypercall", hypercall::run, 512),
    target("icr", icr::run, 512),
    target("image", image::run, 64),
    target("ioapic", ioapic::run, 2048),
    target("kernel", kernel::run, 4096),
    Target { text: true, pieces: manifest::PIECES, ..target("manifest", manifest::run, 0) },
    target("mmio", mmio::run, 2048),
    target("pci", pci::run, 2048),
    target("virtio", virtio::run, 512),
    target("web", web::run, 512),
];

/// A target by its name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Feeds a target, as libFuzzer does.
///
/// # Panics
/// If there is none of that name, and with what the target must not do.
pub fn feed(name: &str, input: &[u8]) {
    let target = named(name).unwrap_or_else(|| panic!("there is no target {name}"));
    if let Err(why) = (target.run)(input) {
        panic!("{name}: {why}");
    }
}

/// The source tree.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Folder of the files built for the machine: boot code, monitor, guests.
fn artifacts() -> PathBuf {
    let named = std::env::var_os("BULKHEAD_ARTIFACTS").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target/artifacts"))
}
