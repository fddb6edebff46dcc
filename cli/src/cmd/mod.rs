//! The subcommands, and their common parts.

pub mod audit;
pub mod build;
pub mod check;
pub mod compare;
pub mod doctor;
pub mod exits;
pub mod explain;
pub mod gdb;
pub mod inject;
pub mod make;
pub mod new;
pub mod pack;
pub mod pages;
pub mod plan;
pub mod report;
pub mod run;
pub mod sched;
pub mod top;
pub mod trace;
pub mod watch;

use crate::output;
use bulkhead_explain::owner;
use bulkhead_layout::monitor::Action;
use bulkhead_manifest::{Checked, Diagnostics, Options, load, render};
use bulkhead_plan::{Guest, Plan, Severed};
use std::path::PathBuf;
use std::process::ExitCode;

/// Which manifest, and where its files are.
#[derive(clap::Args)]
pub struct ManifestArguments {
    /// The manifest.
    #[arg(value_name = "MANIFEST")]
    pub manifest: PathBuf,
    /// Folder of `artifact:NAME` files [default: $BULKHEAD_ARTIFACTS, else target/artifacts of the source tree around
    /// the manifest, or those installed with this command].
    #[arg(long, value_name = "FOLDER")]
    pub artifacts: Option<PathBuf>,
    /// Architecture: x86-64-vmx takes Bochs' machine with Intel's VT-x in place of the manifest's machine.
    #[arg(long, value_name = "ARCH", default_value = "x86-64", value_parser = ["x86-64", VMX])]
    pub arch: String,
}

/// Value of `--arch` for VT-x.
const VMX: &str = "x86-64-vmx";

impl ManifestArguments {
    /// The folder of artifacts.
    pub fn folder(&self) -> PathBuf {
        let default = || bulkhead_manifest::artifacts(&self.manifest);
        self.artifacts.clone().unwrap_or_else(default)
    }

    /// Loads and checks it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, skip_files: bool) -> Result<Checked, Diagnostics> {
        load(&self.manifest, &self.options(skip_files))
    }

    /// Terms on which it is loaded.
    pub fn options(&self, skip_files: bool) -> Options {
        let artifacts = self.artifacts.clone();
        let machine =
            (self.arch == VMX).then(|| bulkhead_manifest::described(&self.manifest, "bochs-vmx"));
        Options { artifacts, skip_files, machine, ..Options::default() }
    }
}

/// A manifest that is only to be looked at.
#[derive(clap::Args)]
pub struct PlanArguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Do not open the guests' files, which may not have been built yet.
    #[arg(long)]
    skip_files: bool,
}

impl PlanArguments {
    /// Its plan. Its errors have been printed.
    ///
    /// # Errors
    /// The status to end with.
    pub fn plan(&self) -> Result<Plan, ExitCode> {
        let checked = self.manifest.load(self.skip_files);
        checked.and_then(|checked| checked.plan(checked.image_estimate)).map_err(|findings| {
            show(&findings);
            ExitCode::FAILURE
        })
    }
}

/// Folder of a system's run, if nobody names another one.
pub fn run_folder(system: &str) -> PathBuf {
    PathBuf::from("target/run").join(system)
}

/// Sandboxes that learn: place and name.
pub fn learners(checked: &Checked) -> Vec<String> {
    named(checked, |sandbox| sandbox.learn)
}

/// Sandboxes that a debugger may look into, likewise.
pub fn debugged(checked: &Checked) -> Vec<String> {
    named(checked, |sandbox| sandbox.debug)
}

fn named(checked: &Checked, is: impl Fn(&bulkhead_plan::Sandbox) -> bool) -> Vec<String> {
    let all = checked.system.sandboxes.iter().map(|wanted| &wanted.sandbox);
    let show = |s: &bulkhead_plan::Sandbox| format!("{}: `{}`", owner::at(&s.place), s.name);
    all.filter(|sandbox| is(sandbox)).map(show).collect()
}

/// Places and names of the sandboxes that are restarted at each failure, however often that is.
pub fn unlimited(checked: &Checked) -> Vec<String> {
    named(checked, |sandbox| sandbox.actions.contains(&Action::Restart))
}

/// Says which calls of passive servers a guard can cut off, and what would be right.
pub fn severed(checked: &Checked) -> Vec<String> {
    let all = checked.system.sandboxes.iter().map(|wanted| &wanted.sandbox.guest);
    let kernels = all.filter_map(|guest| match guest {
        Guest::Kernel(kernel) => Some(kernel),
        _ => None,
    });
    let show = |call: Severed| {
        let Severed { server, caller, manager, longest } = call;
        let mut mends = Vec::new();
        if server.priority <= manager.priority {
            mends.push(format!("a priority above {} for `{}`", manager.priority, server.name));
        }
        if !longest {
            mends.push("a `longest` at the endpoint".to_owned());
        }
        format!(
            "{}: `{}` can be stopped by `{}` in the middle of a call, and then `{}` never answers again: it is \
             passive; what helps is {}",
            owner::at(&caller.place),
            caller.name,
            manager.name,
            server.name,
            mends.join(" and ")
        )
    };
    kernels.flat_map(|kernel| kernel.severed()).map(show).collect()
}

/// Prints findings for a person.
pub fn show(findings: &Diagnostics) {
    eprint!("{}", render::human(findings, output::colour()));
}
