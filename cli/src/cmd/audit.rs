//! `bulkhead audit`: the reach of each sandbox, by the tables of a running machine.

use super::ManifestArguments;
use crate::output;
use bulkhead_audit::{Claim, render};
use bulkhead_plan::Emulator;
use bulkhead_run::audit::{self, Audited};
use bulkhead_run::{Event, Options};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Boot a system in QEMU, stop it in its steady state, walk every confining table, and compare with the manifest. Exit
/// 1 on any difference.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Form of the result.
    #[arg(long, default_value = "human", value_parser = ["human", "json", "sarif"])]
    format: String,
    /// Audit a dump in a folder: registers.json and memory.elf or memory.raw.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["save", "limit"])]
    dump: Option<PathBuf>,
    /// Audit the machine that `bulkhead run` runs in a folder (target/run/NAME); it is
    /// stopped meanwhile and then goes on.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["dump", "save", "limit"])]
    attach: Option<PathBuf>,
    /// Leave a dump of the machine in a folder.
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// Give up after so many seconds without a steady state.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let audited = match (&arguments.dump, &arguments.attach) {
        (Some(folder), _) => existing(arguments, folder, audit::dumped),
        (None, Some(folder)) => existing(arguments, folder, audit::attached),
        (None, None) => live(arguments),
    };
    let audited = match audited {
        Ok(audited) => audited,
        Err(status) => return status,
    };
    let report = &audited.report;
    output::result(&match arguments.format.as_str() {
        "json" => render::json(report),
        "sarif" => render::sarif(report),
        _ => render::human(report),
    });
    output::complain(&format!("audited in {:.2} s", audited.took.as_secs_f64()));
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn live(arguments: &Arguments) -> Result<Audited, ExitCode> {
    let fail = |error: bulkhead_run::Error| output::fail(&error.to_string());
    let checked = load(arguments)?;
    let (folder, _lock) =
        super::run::free_folder(&checked.system.name).map_err(|e| output::fail(&e))?;
    let mut options = Options::new(arguments.manifest.folder(), folder);
    options.limit = Duration::from_secs(arguments.limit);
    options.until_steady = true;
    options.audit = true;
    options.dump.clone_from(&arguments.save);
    let outcome = bulkhead_run::run(checked, &options, |event| {
        if let Event::Started(_) = event {
            output::complain("the machine boots; it is audited once all sandboxes are steady");
        }
    });
    let ended = || output::fail("the machine ended before it could be audited");
    outcome.map_err(fail)?.audited.ok_or_else(ended)
}

/// A machine that is there already, or its dump.
fn existing(
    arguments: &Arguments,
    folder: &Path,
    look: fn(&Path, &Claim) -> Result<Audited, bulkhead_run::Error>,
) -> Result<Audited, ExitCode> {
    let fail = |error: bulkhead_run::Error| output::fail(&error.to_string());
    let checked = load(arguments)?;
    let artifacts = arguments.manifest.folder();
    // The plan's addresses depend on the image's length.
    let baked = bulkhead_run::build(&checked, &artifacts).map_err(fail)?;
    let claim = audit::claim(&baked.plan, &artifacts).map_err(fail)?;
    look(folder, &claim).map_err(fail)
}

fn load(arguments: &Arguments) -> Result<bulkhead_manifest::Checked, ExitCode> {
    let checked = arguments.manifest.load(false).map_err(|findings| {
        super::show(&findings);
        ExitCode::FAILURE
    })?;
    let bochs = checked.system.machine.emulator == Emulator::Bochs;
    if checked.system.multikernel {
        let why = "there are no monitors, so no tables that confine a kernel: nothing to audit";
        return Err(output::fail(why));
    }
    if arguments.attach.is_some() && bochs {
        let why = "Bochs answers nobody but its own process: `bulkhead audit` without --attach boots the system";
        return Err(output::fail(why));
    }
    Ok(checked)
}
