//! A rogue guest's attacks, as tables ([`Set`]) for the guest and for the tests. Each has its act, its expected result,
//! and the guarantee that it tries to break.
//!
//! The guest makes one attack a life: number `incarnation % n`, or those that the
//! argument `attack=NAME+NAME...` names, in turn. It prints
//! `rogue: attack NAME: expected EXPECT`, and, if it lives on,
//! `rogue: attack NAME: got ...`; then it restarts itself.
//!
//! Its targets are guessed, as an attacker would guess them, or told by arguments:
//!
//! * `victim=ADDRESS`: memory of another sandbox;
//! * `foreign=ID`: the x2APIC ID of another's core;
//! * `sandbox=INDEX`: another sandbox;
//! * `port=NUMBER`: another's device.
//!
//! `uart=NUMBER` is the first port of an own 16550 with a line. `set=devices` and `set=bridge` have the attacks of a
//! sandbox with PCI functions. `set=race` has those that take two cores, `set=loads` those of a sandbox that may load
//! programs. With `set=edu` some of its DMA comes before the attacks of any sandbox.
#![cfg_attr(target_os = "none", no_std)]

pub mod act;
pub mod aim;
pub mod clock;
pub mod config;
pub mod decoder;
pub mod devices;
pub mod edu;
pub mod expect;
pub mod lines;
pub mod loads;
pub mod mov;
pub mod of_others;
pub mod race;
mod special;
pub mod table;

pub use act::Act;
pub use aim::{Aim, Place};
pub use expect::{Expect, Got};
pub use table::ATTACKS;

/// The channel in which a test driver tells how many lives it has read.
pub const PACE: &str = "news";
/// Byte of it where that word is: the last one of its page.
pub const PACE_AT: usize = 4096 - 8;

/// An attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Id of the guarantee that it tries to break.
    pub guarantee: &'static str,
    /// Expected result.
    pub expect: Expect,
    /// The act.
    pub act: Act,
    /// It does not end by itself, so it is made only when it is named.
    pub endless: bool,
}

impl Attack {
    /// One that ends by itself. A constant attack on a guarantee that the register lacks does not compile.
    const fn new(name: &'static str, guarantee: &'static str, act: Act, expect: Expect) -> Self {
        Self { name, guarantee: bulkhead_guarantees::id(guarantee), expect, act, endless: false }
    }
}

/// A list of attacks, one of which is made in each life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Attacks that any sandbox can try: [`ATTACKS`].
    Any,
    /// Attacks that take PCI functions: [`devices::DEVICES`].
    Devices,
    /// [`Set::Devices`] without messages that are forged by DMA, which QEMU's VT-d lets pass.
    VtD,
    /// Attacks that take a function behind a bridge: [`devices::BRIDGE`].
    Bridge,
    /// Attacks that take two cores: [`race::RACES`].
    Race,
    /// Attacks that take the right to load a program: [`loads::LOADS`].
    Loads,
    /// [`EDU`], then the attacks of [`Set::Any`] that have a meaning with a PCI function.
    Edu,
}

/// The three DMA attacks with `edu` that tell all: on its own memory, for comparison; on another sandbox's; on the
/// window of messages.
const EDU: [&str; 3] = ["dma-own", "dma-victim", "dma-message-foreign"];
/// Ports that are there for a sandbox with PCI functions.
const PCI_PORTS: [&str; 2] = ["pci-address", "pci-data"];

impl Set {
    /// By the value of the argument `set`.
    #[must_use]
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("devices") => Self::Devices,
            Some("vtd") => Self::VtD,
            Some("bridge") => Self::Bridge,
            Some("race") => Self::Race,
            Some("loads") => Self::Loads,
            Some("edu") => Self::Edu,
            _ => Self::Any,
        }
    }

    /// Its attacks; of [`Set::Edu`] the second part.
    #[must_use]
    pub fn attacks(self) -> &'static [Attack] {
        match self {
            Self::Any | Self::Edu => ATTACKS,
            Self::Devices | Self::VtD => devices::DEVICES,
            Self::Bridge => devices::BRIDGE,
            Self::Race => race::RACES,
            Self::Loads => loads::LOADS,
        }
    }

    /// Those that end by themselves.
    pub fn ending(self) -> impl Iterator<Item = &'static Attack> + Clone {
        let edu = self == Self::Edu;
        let dma = devices::DEVICES.iter().filter(move |a| edu && EDU.contains(&a.name));
        let other = move |a: &&Attack| match self {
            Self::Edu => !PCI_PORTS.contains(&a.name),
            Self::VtD => a.guarantee != devices::FORGED,
            _ => true,
        };
        dma.chain(self.attacks().iter().filter(|a| !a.endless).filter(other))
    }

    /// The attack of a life.
    #[must_use]
    pub fn of_life(self, incarnation: u64) -> &'static Attack {
        let n = self.ending().count() as u64;
        self.ending().nth((incarnation % n) as usize).unwrap_or(&ATTACKS[0])
    }
}

/// All attacks.
pub fn all() -> impl Iterator<Item = &'static Attack> {
    [Set::Any, Set::Devices, Set::Bridge, Set::Race, Set::Loads].into_iter().flat_map(Set::attacks)
}

/// The attack of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Attack> {
    all().find(|a| a.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for attack in all() {
            let found = by_name(attack.name).expect("is in the table");
            assert!(core::ptr::eq(found, attack), "{}", attack.name);
        }
    }

    #[test]
    fn dma_comes_first() {
        let names: Vec<_> = Set::Edu.ending().map(|a| a.name).collect();
        assert_eq!(names[..3], EDU);
        assert_eq!(names.len(), Set::Any.ending().count() + EDU.len() - PCI_PORTS.len());
    }

    #[test]
    fn every_life_has_its_attack() {
        let n = Set::Any.ending().count() as u64;
        let of_life = |life| Set::Any.of_life(life);
        assert!(n > 60);
        assert_eq!(of_life(n).name, of_life(0).name);
        assert_ne!(of_life(1).name, of_life(0).name);
        assert!(!of_life(n - 1).endless);
    }
}
