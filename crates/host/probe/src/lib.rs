//! `bulkhead probe`: the description of a machine from what its Linux knows.
//!
//! It only reads files of `/proc` and `/sys`, and writes their facts in one order and form. So a machine always has one
//! description: with any driver or disk, in any order of Linux' finding, after a start by BIOS or UEFI. Facts that no
//! Linux can know are kept from an older description ([`keep`]).
//!
//! It keeps one thing true: no claim of firmware or devices makes it panic or go on for ever.

mod acpi;
mod bytes;
mod config;
mod devices;
mod diff;
mod found;
mod keep;
mod lines;
mod memory;
mod pci;
mod reset;
mod resources;
mod tree;
mod write;

use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Diagnostic, Diagnostics, limits, machine};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub use acpi::{Dmar, Iommu, dmar};
pub use diff::{Difference, differences};
pub use found::{Found, look};
pub use keep::keep;
pub use tree::Tree;

/// Write the description of the machine that this runs on, from what its Linux
/// knows. To be run as root.
#[derive(clap::Args)]
pub struct Arguments {
    /// Read from a copy of `/proc` and `/sys` instead.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Take facts that no Linux can know from an older description: name, console, debug port, `[qemu]`, more requester
    /// IDs. Lines that Linux has not routed, and devices that it does not show, are kept, too.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Say how the machine differs from an older description, instead; the exit
    /// status is 1 if it matters.
    #[arg(long, value_name = "FILE", conflicts_with = "keep")]
    diff: Option<PathBuf>,
    /// Write to a file.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// An older description: its text, and what it says.
struct Old {
    text: String,
    file: bulkhead_manifest::raw_machine::MachineFile,
}

fn old(path: &Path) -> Result<Old, String> {
    let wrong = |finding: Box<Diagnostic>| Diagnostics::new(vec![*finding]).to_string();
    let source = limits::read(path).map_err(wrong)?;
    let text = source.text.clone();
    let file = machine::parse(&source).map_err(|found| Diagnostics::new(found).to_string())?;
    Ok(Old { text, file })
}

/// `[qemu]` of a description, with its comments.
fn qemu(text: &str) -> &str {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "[qemu]" {
            return &text[at..];
        }
        at += line.len();
    }
    ""
}

/// Returns the description of the machine below a root, and what it broke of the rules of
/// machine descriptions.
///
/// # Errors
/// A fact that is missing, or a fault of the description to keep facts from.
pub fn describe(root: &Path, kept: Option<&Path>) -> Result<(String, Vec<String>), String> {
    let mut found = look(&Tree::new(root))?;
    let mut rest = String::new();
    if let Some(path) = kept {
        let old = old(path)?;
        keep(&mut found, &old.file);
        if found.file.qemu.is_some() {
            rest = format!("\n{}", qemu(&old.text));
        }
    }
    let text = write::toml(&found.file, &found.notes) + &rest;
    let source = Arc::new(Source::new("(probed)".into(), text.clone()));
    let broken = machine::read(&source).err().unwrap_or_default();
    let broken = broken.iter().map(|finding| format!("{}: {}", finding.rule, finding.message));
    Ok((text, broken.collect()))
}

/// Returns how the machine below a root differs from an older description.
///
/// # Errors
/// As [`describe`].
pub fn compare(root: &Path, older: &Path) -> Result<Vec<Difference>, String> {
    let mut found = look(&Tree::new(root))?;
    let old = old(older)?;
    keep(&mut found, &old.file);
    Ok(differences(&old.file, &found))
}

fn said(arguments: &Arguments) -> Result<(String, bool), String> {
    if let Some(older) = &arguments.diff {
        let all = compare(&arguments.root, older)?;
        let line = |difference: &Difference| {
            let mark = if difference.matters { "matters" } else { "harmless" };
            format!("{mark}: {}\n", difference.text)
        };
        let matters = all.iter().any(|difference| difference.matters);
        return Ok((all.iter().map(line).collect(), !matters));
    }
    let (text, broken) = describe(&arguments.root, arguments.keep.as_deref())?;
    for finding in &broken {
        complain(finding);
    }
    Ok((text, broken.is_empty()))
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "bulkhead probe: {text}");
}

/// Runs it.
#[must_use]
pub fn run(arguments: &Arguments) -> ExitCode {
    let (text, right) = match said(arguments) {
        Ok(said) => said,
        Err(why) => {
            complain(&why);
            return ExitCode::FAILURE;
        }
    };
    let written = match &arguments.output {
        Some(path) => std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display())),
        None => std::io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string()),
    };
    match written {
        Ok(()) if right => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}
