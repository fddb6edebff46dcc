//! Denied accesses in words. The owner of an address, and the line that would grant it, are in the manifest, which the
//! monitors don't have. So the manifest is read here, and has to be that of this machine.

use crate::Wrong;
use crate::machine::Machine;
use bulkhead_explain::{Explained, explain, owner};
use bulkhead_layout::report::{CONDITION_NAMES, Denial, KIND_NAMES};
use bulkhead_linux::late;
use bulkhead_manifest::{Options, load, render};
use bulkhead_plan::{Channel, Part, Plan, RIGHTS};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PLACE: &str = "/etc/bulkhead/system.toml";
/// Where it is if the initramfs brought it and the root is a disk.
const BROUGHT: &str = "/run/bulkhead/system.toml";
const VARIABLE: &str = "BULKHEAD_MANIFEST";

/// Reader of the manifest, for explanations.
pub struct Reader {
    /// The plan, if there is a manifest.
    plan: Option<Plan>,
    path: Option<PathBuf>,
    own: (usize, String),
}

impl Reader {
    /// With the manifest that was named; one that was not need not be there.
    pub fn open(named: Option<&Path>, machine: &Machine) -> Result<Self, Wrong> {
        let variable = std::env::var_os(VARIABLE).map(PathBuf::from);
        let path = match named.map(Path::to_owned).or(variable) {
            Some(path) => Some(path),
            // Its machine description is looked for from where the file really lies.
            None => [PLACE, BROUGHT].iter().find_map(|place| std::fs::canonicalize(place).ok()),
        };
        let plan = path.as_deref().map(|path| plan(path, machine)).transpose()?;
        Ok(Self { plan, path, own: (machine.info.index, machine.info.name.clone()) })
    }

    /// A denial, explained if there is a manifest.
    pub fn explain(&self, sandbox: usize, core: usize, denial: &Denial) -> Option<Explained> {
        Some(explain(self.plan.as_ref()?, sandbox, core, denial))
    }

    /// The manifest.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Tells if it has a sandbox that is a bay.
    pub fn bay(&self, sandbox: usize) -> bool {
        self.plan.as_ref().and_then(|plan| plan.sandboxes.get(sandbox)).is_some_and(|one| one.bay)
    }

    /// Channels of this sandbox that can be PCI functions, each with the sandboxes at its other ends.
    pub fn channels(&self) -> BTreeMap<&str, BTreeSet<usize>> {
        let mut all = BTreeMap::<_, BTreeSet<_>>::new();
        let own = |channel: &&Channel| channel.writes(self.own.0) || channel.reads(self.own.0);
        let regions = self.plan.iter().flat_map(|plan| &plan.channels);
        for region in regions.filter(own).filter(|region| region.part != Part::Program) {
            let ends = region.to.iter().copied().chain([region.from]);
            all.entry(region.name.as_str())
                .or_default()
                .extend(ends.filter(|end| *end != self.own.0));
        }
        all
    }

    /// Where a sandbox's RAM from 0 on ends, if there is a manifest.
    pub fn memory(&self, sandbox: usize) -> Option<u64> {
        let first = self.plan.as_ref()?.sandboxes.get(sandbox)?.ram.first()?;
        Some(first.gpa + first.len)
    }

    /// The line that would let this sandbox control or observe another.
    pub fn grant(&self, key: &str, (index, name): (usize, &str)) -> String {
        let line = format!("{key} = [\"{name}\"]");
        let right = RIGHTS.into_iter().find(|right| *right == key);
        let places = self.plan.as_ref().zip(right).map(|(plan, right)| {
            owner::control(plan, &plan.sandboxes[self.own.0], &plan.sandboxes[index], right).allow
        });
        match places {
            Some(place) => format!("{place} would grant it"),
            None => {
                format!("`{line}` in the manifest's [[sandbox]] `{}` would grant it", self.own.1)
            }
        }
    }

    /// The part that is missing for an explanation.
    pub fn hint(&self) -> Option<String> {
        let text = format!(
            "with the manifest in {PLACE}, ${VARIABLE} or --manifest this says whose it is, which rule denies it and what would allow it"
        );
        self.plan.is_none().then_some(text)
    }
}

/// Cores of the machine, those that were given away among them.
fn cores() -> usize {
    let present = std::fs::read_to_string("/sys/devices/system/cpu/present");
    let last = present.ok().and_then(|text| text.trim().rsplit(['-', ',']).next()?.parse().ok());
    last.map_or(usize::MAX, |last: usize| last + 1)
}

/// The manifest's plan, as the image was laid out by.
fn plan(path: &Path, machine: &Machine) -> Result<Plan, Wrong> {
    let options = Options { skip_files: true, skip_admission: true, ..Options::default() };
    let text = |found| render::human(&found, false);
    let checked = load(path, &options).map_err(text)?;
    let plan = match late::state().ok().filter(|state| state.on != 0) {
        None => checked.plan(machine.info.image).map_err(text)?,
        // The image lies where this Linux had room, and has this Linux as its last sandbox.
        Some(state) => {
            let late = checked.system.under_linux(state.at, cores());
            let late = late.map_err(|why| format!("{}: {}", path.display(), why.message))?;
            let plan = late.plan(machine.info.image);
            plan.map_err(|_| format!("{} does not fit in this image's block", path.display()))?
        }
    };
    let names: Vec<&str> = plan.sandboxes.iter().map(|s| s.name.as_str()).collect();
    if names != machine.info.sandboxes {
        let has = machine.info.sandboxes.join(", ");
        let says = names.join(", ");
        return Err(format!(
            "{} is another system's: it names {says}; this machine has {has}",
            path.display()
        ));
    }
    Ok(plan)
}

/// The explanation that the record alone gives.
pub fn bare(denial: &Denial) -> String {
    let kind = KIND_NAMES.get(usize::from(denial.kind)).copied().unwrap_or("unknown");
    let condition = CONDITION_NAMES.get(usize::from(denial.condition)).copied();
    let condition = condition.unwrap_or("unknown");
    format!("{kind} ({condition}): {:#x}, value {:#x}", denial.address, denial.info)
}
