//! A run without a fault, which says what is right. It is looked at often: pages that are equal at all looks are
//! steady ([`crate::pages`]).

use crate::clock::Clock;
use crate::pages::{self, Page};
use crate::stand::{Came, Stop};
use crate::watch::{Deeds, Heard, Watch};
use crate::{Result, Stand, System, other};
use std::path::Path;

/// Instructions from a look to the next, until all sandboxes run.
const BOOT: u64 = 500_000;
/// Instructions in which they have to run.
const LATEST: u64 = 20_000_000_000;
/// Looks at a run from then on, at least.
const LOOKS: u64 = 64;
/// Looks that compare pages.
const COMPARED: u64 = 8;
/// Instructions between two looks of the first pass.
const FIRST: u64 = 100_000;

/// See the module.
pub struct Golden {
    /// Number of the instruction at which all sandboxes run.
    pub begin: u64,
    /// Number of that at the end.
    pub end: u64,
    /// Instructions from a look to the next.
    pub step: u64,
    /// Looks: number of the instruction, ns since the machine's start. The first is at `begin`, the last at the end.
    pub(crate) looks: Vec<(u64, u64)>,
    /// Consoles at each of them.
    heard: Vec<Heard>,
    /// Deeds of each sandbox.
    pub(crate) deeds: Vec<Deeds>,
    /// Pages that stay as they are.
    pub(crate) steady: Vec<Page>,
    pub(crate) clock: Clock,
}

impl Golden {
    /// Runs the system twice: the first pass tells how long it is, the second one looks at fixed parts of that.
    ///
    /// # Errors
    /// The emulator; sandboxes that don't run, or don't end.
    pub fn new(system: &System, dir: &Path) -> Result<Self> {
        let mut first = Pass::new(system, dir)?;
        let begin = first.boot()?;
        let end = first.end(begin, FIRST, |_, _, _, _| Ok(()))?;
        drop(first);
        let step = ((end - begin) / LOOKS).max(1);
        let mut second = Pass::new(system, dir)?;
        second.go(begin)?;
        let boot = second.watch.last().and_then(|last| last.boot);
        let booted = second.watch.booted();
        let hz = boot.map_or(0, |boot| boot.hz);
        let clock = Clock::new(system, hz)?;
        let mut now = clock.now(&mut second.stand, clock.of_ticks(booted))?;
        let mut looks = vec![(begin, now)];
        let mut steady = pages::all(system, second.stand.ram())?;
        let mut heard = vec![second.watch.heard()];
        let end = second.end(begin, step, |stand, watch, number, over| {
            now = clock.now(stand, now)?;
            looks.push((number, now));
            heard.push(watch.heard());
            match over || looks.len() as u64 % (LOOKS / COMPARED) == 0 {
                true => pages::keep_steady(&mut steady, stand.ram()),
                false => Ok(()),
            }
        })?;
        let deeds = second.watch.deeds();
        Ok(Self { begin, end, step, looks, heard, deeds, steady, clock })
    }

    /// When the first and the last look were, ns since the machine's start.
    pub(crate) fn span(&self) -> (u64, u64) {
        let ns = |look: Option<&(u64, u64)>| look.map_or(0, |look| look.1);
        (ns(self.looks.first()), ns(self.looks.last()))
    }

    /// When the last look before an instruction was: until its fault a run is this one.
    pub(crate) fn before(&self, number: u64) -> u64 {
        let before = self.looks.iter().take_while(|look| look.0 <= number).last();
        before.map_or(self.span().0, |look| look.1)
    }

    /// Looks at a run from an instruction on, before which it is this one.
    pub(crate) fn resumed<'a>(&self, system: &'a System, number: u64) -> Watch<'a> {
        let before = self.looks.iter().zip(&self.heard).take_while(|(look, _)| look.0 <= number);
        let none = || Watch::new(system);
        before.last().map_or_else(none, |(_, heard)| Watch::resumed(system, heard, &self.deeds))
    }

    /// How many pages of other sandboxes' guests, and of monitors and the machine, are steady.
    #[must_use]
    pub fn steady_pages(&self) -> (usize, usize) {
        let guests = self.steady.iter().filter(|p| matches!(p.owner, pages::Owner::Guest(_)));
        let guests = guests.count();
        (guests, self.steady.len() - guests)
    }
}

/// One of the two.
struct Pass<'a> {
    system: &'a System,
    stand: Stand,
    watch: Watch<'a>,
}

impl<'a> Pass<'a> {
    fn new(system: &'a System, dir: &Path) -> Result<Self> {
        Ok(Self { system, stand: Stand::start(system, dir)?, watch: Watch::new(system) })
    }

    /// Goes on to an instruction and looks.
    fn go(&mut self, at: u64) -> Result<Came> {
        let came = self.stand.go(Stop::any(at))?;
        if came == Came::Ended {
            return other("the emulator ended in a run without a fault");
        }
        self.watch.look(&self.stand)?;
        Ok(came)
    }

    /// Goes on until all sandboxes run; the number of the instruction.
    fn boot(&mut self) -> Result<u64> {
        let mut at = BOOT;
        while at < LATEST {
            let Came::At(now) = self.go(at)? else { break };
            if self.watch.is_steady() {
                return Ok(now.number);
            }
            at = now.number + BOOT;
        }
        other("not all sandboxes run in a run without a fault")
    }

    /// Goes on to the end, and calls `see` at each look.
    fn end(
        &mut self,
        begin: u64,
        step: u64,
        mut see: impl FnMut(&mut Stand, &Watch<'a>, u64, bool) -> Result<()>,
    ) -> Result<u64> {
        let ends = self.system.ends();
        let ends = if ends.is_empty() { self.system.others().collect() } else { ends };
        let mut at = begin;
        while at < begin + LATEST {
            at += step;
            let Came::At(now) = self.go(at)? else { break };
            let over = self.watch.have_ended(&ends);
            see(&mut self.stand, &self.watch, now.number, over)?;
            if over {
                return Ok(now.number);
            }
        }
        other(
            "a run without a fault does not end: `ends_with` has to name another sandbox than the target",
        )
    }
}
