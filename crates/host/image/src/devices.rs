//! The part of a target that is baked for a machine's devices: lines of its interrupt controller, and its IOMMU.

use crate::Error;
use crate::pages::Pages;
use crate::space::Space;
use bulkhead_layout::MAX_SANDBOXES;
use bulkhead_layout::image::{ConfigOp, Range};
use bulkhead_layout::info::Info;
use bulkhead_plan::{Bdf, Granted, Machine, Plan};

/// Kinds of interrupt controllers and of IOMMUs that an architecture has. The machine description picks one of each.
pub trait Devices {
    /// Parts of the image that all monitors with lines share.
    type Shared: Copy;
    /// Lines of a sandbox, as its monitor is told of them.
    type Lines;
    /// An IOMMU's part of the image's header.
    type Header;

    /// Sets the shared parts aside, if there are lines.
    fn share(pages: &mut Pages, plan: &Plan) -> Option<Self::Shared>;
    /// Describes the lines of a sandbox; `None`: it has none.
    ///
    /// # Errors
    /// Lines that cannot be given away so.
    fn lines(
        plan: &Plan,
        index: usize,
        shared: Option<Self::Shared>,
    ) -> Result<Option<Self::Lines>, Error>;
    /// Tells a guest of its lines.
    fn tell(lines: &Self::Lines, info: &mut Info);
    /// Bakes the part of lines that one monitor alone has, and lists everything that it maps for them.
    fn map(
        pages: &mut Pages,
        plan: &Plan,
        lines: &Self::Lines,
        shared: Option<Self::Shared>,
    ) -> Space;

    /// Finds the route of a function's messages.
    ///
    /// # Errors
    /// The IOMMU has no room for it.
    fn route(plan: &Plan, function: Bdf) -> Result<Route, Error>;
    /// Bakes tables by which a function reaches memory; their root, if there is any.
    ///
    /// # Errors
    /// See [`Space::bake`].
    fn tables(pages: &mut Pages, machine: &Machine, memory: &Space) -> Result<Option<u64>, Error>;
    /// Bakes those of a Linux that runs already: the late boot code takes the block out of them.
    ///
    /// # Errors
    /// See [`Space::bake`].
    fn running(pages: &mut Pages, machine: &Machine, memory: &Space) -> Result<Option<u64>, Error> {
        Self::tables(pages, machine, memory)
    }
    /// Counts the steps of the boot code that the IOMMU adds to those of PCI.
    fn steps(machine: &Machine) -> usize;
    /// Returns the boot code's steps that have timers bring the ticks of watchdogs.
    fn timers(_: &Plan) -> Vec<ConfigOp> {
        Vec::new()
    }
    /// Bakes the IOMMU's other tables, with all grants.
    ///
    /// # Errors
    /// The IOMMU has no room for them.
    fn iommu(
        pages: &mut Pages,
        plan: &Plan,
        grants: &[Grant],
        shared: Option<Self::Shared>,
    ) -> Result<Unit<Self::Header>, Error>;
}

/// How a monitor puts a message of a function or a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// As it is: nobody remaps it.
    Direct,
    /// By an entry that it makes in a table of the function's own.
    Table,
    /// By the number of an entry, counted from this one on.
    Entries(u32),
}

/// Rights of a requester of DMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Its requester ID.
    pub requester: Bdf,
    /// Root of the tables by which it reaches memory.
    pub root: Option<u64>,
    /// Tag of its translations: one for each root.
    pub domain: u16,
    /// Table that its owner's monitor fills for its messages.
    pub messages: Option<u64>,
    /// It sends no messages.
    pub silent: bool,
}

/// An IOMMU, for the boot code.
#[derive(Default)]
pub struct Unit<H> {
    /// Its part of the image's header.
    pub header: H,
    /// Log of the accesses that it refused; empty if there is none.
    pub events: Range,
    /// Steps after those of PCI.
    pub steps: Vec<ConfigOp>,
}

/// Lists the grants of a sandbox' functions, with the root and the message table of each. Functions of one domain have
/// one root: `own` is the root of each function that reaches all of its sandbox.
pub fn grants(
    plan: &Plan,
    index: usize,
    own: Option<u64>,
    roots: &[Option<u64>],
    messages: &[(Bdf, u64)],
) -> Vec<Grant> {
    let grants = |(granted, root): (&Granted, &Option<u64>)| {
        let bdf = granted.function.bdf;
        let messages = messages.iter().find(|(of, _)| *of == bdf).map(|(_, table)| *table);
        let domain = match *root == own {
            true => index,
            false => {
                let all = &plan.machine.functions;
                MAX_SANDBOXES + all.iter().position(|one| one.bdf == bdf).unwrap_or(0)
            }
        };
        let silent = granted.role.is_some();
        let grant =
            Grant { requester: bdf, root: *root, domain: domain as u16 + 1, messages, silent };
        let others = granted.function.requesters.iter();
        let others = others.map(move |requester| Grant { requester: *requester, ..grant });
        [grant].into_iter().chain(others).collect::<Vec<_>>()
    };
    // A role's function has one grant, whoever has the role.
    let own = |(granted, _): &(&Granted, _)| plan.counts(index, granted);
    plan.sandboxes[index].functions.iter().zip(roots).filter(own).flat_map(grants).collect()
}
