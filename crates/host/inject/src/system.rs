//! A system, and the sandbox that faults strike.

use crate::{Error, Result, other};
use bulkhead_image::Baked;
use bulkhead_manifest::Checked;
use bulkhead_plan::kernel::{Managed, Program};
use bulkhead_plan::{Emulator, Guest, Sandbox};
use std::path::{Path, PathBuf};

/// See the module.
pub struct System {
    /// The image.
    pub baked: Baked,
    /// Index of the sandbox that faults strike.
    pub target: usize,
    /// QEMU's plugin.
    pub plugin: PathBuf,
}

impl System {
    /// Builds the image. Without a name the target is the first sandbox with a watchdog, or the first one.
    ///
    /// # Errors
    /// A build that fails, a sandbox that is not there, a machine that nothing can stop.
    pub fn new(
        checked: &Checked,
        artifacts: &Path,
        plugin: PathBuf,
        target: Option<&str>,
    ) -> Result<Self> {
        let baked = bulkhead_run::build(checked, artifacts).map_err(Error::Run)?;
        let plan = &baked.plan;
        if plan.machine.emulator != Emulator::Qemu || plan.multikernel {
            return other("a campaign needs a machine of QEMU's, and monitors");
        }
        let wanted = |s: &Sandbox| match target {
            Some(name) => s.name == name,
            None => s.watch.is_some(),
        };
        let found = plan.sandboxes.iter().position(wanted);
        let none = || Error::Other(format!("no sandbox is called {}", target.unwrap_or_default()));
        let target = found.or_else(|| target.is_none().then_some(0)).ok_or_else(none)?;
        if !plugin.is_file() {
            let why = "QEMU's plugin is not there: `make build` makes it";
            return other(format!("{}: {why}", plugin.display()));
        }
        Ok(Self { baked, target, plugin })
    }

    /// The sandbox that faults strike.
    #[must_use]
    pub fn struck(&self) -> &Sandbox {
        &self.baked.plan.sandboxes[self.target]
    }

    /// Names of programs of the target's kernel that manage other threads: they find what fails.
    #[must_use]
    pub fn guards(&self) -> Vec<&str> {
        let Guest::Kernel(kernel) = &self.struck().guest else { return Vec::new() };
        let manages = |program: &&Program| {
            program.manages.iter().any(|managed| matches!(managed, Managed::Thread(_)))
        };
        kernel.programs.iter().filter(manages).map(|program| program.name.as_str()).collect()
    }

    /// Indices of all other sandboxes.
    pub fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.baked.plan.sandboxes.len()).filter(|index| *index != self.target)
    }

    /// Sandboxes that end a run by their end; without any the golden run's length counts.
    pub fn ends(&self) -> Vec<usize> {
        let all = self.baked.plan.ends_with.iter().copied();
        all.filter(|index| *index != self.target).collect()
    }

    /// A sum of the image and of the choice of the target: campaigns with others are not comparable.
    #[must_use]
    pub fn sum(&self) -> u64 {
        crate::pages::sum(&self.baked.bytes) ^ self.target as u64
    }
}
