//! `bulkhead check`: is a manifest right?

use super::ManifestArguments;
use crate::output;
use bulkhead_manifest::{Diagnostics, part, render};
use bulkhead_plan::{Guest, Iommu, System, forges};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check a manifest: exit status 0 if it is right, 1 if not.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Do not open the guests' files, which may not have been built yet.
    #[arg(long)]
    skip_files: bool,
    /// Check this part instead: what `bulkheadctl create` makes of it while the system runs.
    #[arg(long, value_name = "PART")]
    part: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Source lines with marks.
    Human,
    /// One object with all findings.
    Json,
    /// SARIF 2.1.0, for code review tools.
    Sarif,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    if let Some(part) = &arguments.part {
        return run_part(part, arguments);
    }
    let checked = arguments.manifest.load(arguments.skip_files);
    let (findings, good) = match checked {
        Ok(checked) => (Diagnostics::default(), Some(checked)),
        Err(findings) => (findings, None),
    };
    for learner in good.iter().flat_map(super::learners) {
        output::complain(&format!(
            "{learner} learns: denied accesses are noted and answered as absent, whatever \
             `[[health]]` says; `bulkhead build --release` refuses it"
        ));
    }
    for restarted in good.iter().flat_map(super::unlimited) {
        output::complain(&format!(
            "{restarted} is restarted at each failure, however often it fails; a `ladder` in its `[[health]]` has limits"
        ));
    }
    good.iter().flat_map(super::severed).for_each(|call| output::complain(&call));
    if good.as_ref().is_some_and(|checked| checked.system.multikernel) {
        output::complain(
            "there are no monitors: each kernel can reach all memory, devices and cores; a program is \
             confined by its kernel alone",
        );
    }
    if good.as_ref().is_some_and(|checked| depends_on_lines(&checked.system)) {
        output::complain(
            "whether this boots depends on the machine: where its IOMMU sees the IOAPIC's messages (Debian 13's QEMU), a \
             device could send any interrupt beside the level-triggered line, and the boot stops with error 23; \
             `remaps_lines` of the machine description says which it is",
        );
    }
    match (arguments.format, &good) {
        (Format::Human, Some(checked)) => {
            let system = &checked.system;
            let mut names: Vec<_> = system.channels.iter().map(|channel| &channel.name).collect();
            names.dedup();
            output::result(&format!(
                "{}: ok ({}, {}{} on {})\n",
                arguments.manifest.manifest.display(),
                crate::text::count(system.sandboxes.len(), "sandbox", "sandboxes"),
                programs(system),
                crate::text::count(names.len(), "channel", "channels"),
                system.machine.name
            ));
        }
        (Format::Human, None) => super::show(&findings),
        (Format::Json, _) => output::result(&render::json(&findings)),
        (Format::Sarif, _) => output::result(&render::sarif(&findings)),
    }
    if good.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a part, as if all bays were vacant.
fn run_part(part: &Path, arguments: &Arguments) -> ExitCode {
    let options = arguments.manifest.options(true);
    let checked = part::load(part, &arguments.manifest.manifest, &options, |_| None);
    let found = checked.as_ref().err().cloned().unwrap_or_default();
    match (arguments.format, &checked) {
        (Format::Human, Ok(fit)) => {
            let (file, bay) = (part.display(), &fit.bay);
            output::result(&format!("{file}: ok, `{}` fits in bay `{bay}`\n", fit.name));
        }
        (Format::Human, Err(found)) => super::show(found),
        (Format::Json, _) => output::result(&render::json(&found)),
        (Format::Sarif, _) => output::result(&render::sarif(&found)),
    }
    if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells if the boot code's finding about interrupt lines decides if the system starts.
fn depends_on_lines(system: &System) -> bool {
    let unknown = |iommu: Iommu| iommu.remaps_interrupts && iommu.remaps_lines().is_none();
    system.machine.iommu.is_some_and(unknown)
        && forges(system.sandboxes.iter().map(|wanted| &wanted.sandbox))
}

/// How many programs kernels run, if there is a kernel.
fn programs(system: &System) -> String {
    let kernels = system.sandboxes.iter().filter_map(|wanted| match &wanted.sandbox.guest {
        Guest::Kernel(kernel) => Some(kernel.programs.len()),
        _ => None,
    });
    match kernels.sum() {
        0 => String::new(),
        number => format!("{}, ", crate::text::count(number, "program", "programs")),
    }
}
