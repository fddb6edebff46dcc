//! What a rogue guest tries, what should come of it, and the rule of the monitor
//! that stands in its way: one table, [`ATTACKS`], for the guest and for the
//! tests.
//!
//! The guest makes one attack a life: number `incarnation % n`, or the one that
//! the argument `attack=NAME` names. It prints
//! `rogue: attack NAME: expected EXPECT`, and, if it lives on,
//! `rogue: attack NAME: got ...`; then it restarts itself.
//!
//! Where it aims is guessed, as an attacker would, or told by arguments:
//! `victim=ADDRESS` (memory of another sandbox), `foreign=ID` (x2APIC ID of
//! another's core), `sandbox=INDEX` (another sandbox), `port=NUMBER` (another's
//! device). `uart=NUMBER` is the first port of an own 16550 with a line.
#![cfg_attr(target_os = "none", no_std)]

pub mod act;
pub mod aim;
pub mod expect;
pub mod lines;
mod special;
pub mod table;

pub use act::Act;
pub use aim::{Aim, Place};
pub use expect::{Expect, Got};
pub use table::ATTACKS;

/// An attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// The monitor's rule that it is named after.
    pub rule: &'static str,
    /// What should come of it.
    pub expect: Expect,
    /// What it does.
    pub act: Act,
    /// It does not end by itself, so it is made only when it is named.
    pub endless: bool,
}

/// The attacks that end by themselves.
pub fn ending() -> impl Iterator<Item = &'static Attack> + Clone {
    ATTACKS.iter().filter(|a| !a.endless)
}

/// The attack of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|a| a.name == name)
}

/// The attack of a life.
#[must_use]
pub fn of_life(incarnation: u64) -> &'static Attack {
    let attacks = ending();
    let n = attacks.clone().count() as u64;
    attacks.clone().nth((incarnation % n) as usize).unwrap_or(&ATTACKS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for attack in ATTACKS {
            let found = by_name(attack.name).expect("is in the table");
            assert!(core::ptr::eq(found, attack), "{}", attack.name);
        }
    }

    #[test]
    fn every_life_has_its_attack() {
        let n = ending().count() as u64;
        assert!(n > 60);
        assert_eq!(of_life(n).name, of_life(0).name);
        assert_ne!(of_life(1).name, of_life(0).name);
        assert!(!of_life(n - 1).endless);
    }
}
