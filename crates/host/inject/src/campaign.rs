//! A campaign: many faults, on several cores of this machine, and a part of them where it runs in shards.

use crate::{Error, Fault, Golden, Judge, Kind, Result, Row, Store, System, run};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// A part of a campaign: number `part` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its number.
    pub part: u64,
    /// How many there are.
    pub of: u64,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { part: 1, of: 1 };

    /// Tells if a fault is in it.
    #[must_use]
    pub const fn holds(self, id: u64) -> bool {
        id % self.of == self.part % self.of
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let read = || {
            let (part, of) = text.split_once('/')?;
            let (part, of) = (part.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&part).then_some(Self { part, of })
        };
        read().ok_or_else(|| format!("{text:?} is no shard: expected 3/64, from 1/64 to 64/64"))
    }
}

/// See the module.
pub struct Campaign<'a> {
    /// The system.
    pub system: &'a System,
    /// Its run without a fault.
    pub golden: &'a Golden,
    /// Seed.
    pub seed: u64,
    /// Kinds of faults; none: all.
    pub kinds: Vec<Kind>,
    /// Faults of all shards together.
    pub faults: u64,
    /// The part of them.
    pub shard: Shard,
    /// Runs side by side.
    pub jobs: usize,
}

impl Campaign<'_> {
    /// Returns the facts that tell campaigns apart. A file has no rows of two.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        vec![
            ("system", self.system.baked.plan.system.clone()),
            ("target", self.system.struck().name.clone()),
            ("image", format!("{:016x}", self.system.sum())),
            ("seed", self.seed.to_string()),
            ("kinds", if kinds.is_empty() { "all".into() } else { kinds.join(",") }),
        ]
    }

    /// Draws a fault.
    #[must_use]
    pub fn fault(&self, id: u64) -> Fault {
        Fault::draw(self.system, self.golden, self.seed, id, &self.kinds)
    }

    /// Strikes all faults that the database does not have yet; `see` hears of each. Folders of the runs are in `dir`.
    ///
    /// # Errors
    /// The first of a run, or of the database.
    pub fn run(&self, store: &Store, dir: &Path, mut see: impl FnMut(&Row)) -> Result<()> {
        let known = store.known()?;
        let wanted = |id: &u64| self.shard.holds(*id) && !known.contains(id);
        let left: Vec<u64> = (1..=self.faults).filter(wanted).collect();
        let next = AtomicUsize::new(0);
        let (tell, told) = mpsc::channel::<Result<Row>>();
        std::thread::scope(|scope| {
            for worker in 0..self.jobs.clamp(1, left.len().max(1)) {
                let (tell, next, left) = (tell.clone(), &next, &left);
                let dir = dir.join(format!("worker-{worker}"));
                scope.spawn(move || {
                    while let Some(id) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let fault = self.fault(*id);
                        let row =
                            run::run(self.system, self.golden, &fault, Judge::default(), &dir);
                        let row = row.map_err(|error| Error::Other(format!("fault {id}: {error}")));
                        if tell.send(row).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(tell);
            for row in told {
                let row = row?;
                store.add(&row)?;
                see(&row);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_share_all_faults() {
        let shards: Vec<Shard> =
            ["1/3", "2/3", "3/3"].iter().map(|text| text.parse().expect("a shard")).collect();
        for id in 1..100 {
            assert_eq!(shards.iter().filter(|shard| shard.holds(id)).count(), 1, "{id}");
            assert!(Shard::WHOLE.holds(id));
        }
        for bad in ["", "0/3", "4/3", "1", "1/0", "a/b"] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
