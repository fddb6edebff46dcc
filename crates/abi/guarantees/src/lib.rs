//! The register of guarantees: each has an id, one sentence, and the invariant of the design that it serves. Denials,
//! attacks, mutants and the book cite the id; the auditor has equal names of its own
//! (docs/decisions/0044-guarantees.md).
//!
//! The crate is data. [`guarantee`] looks an id up, at compile time where the caller is a constant, so that a wrong id
//! does not compile. `docs/guarantees.md` shows the register with its evidence.
#![no_std]

mod register;

pub use register::{INVARIANTS, REGISTER};

/// Part of the system that keeps a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Tables that the host bakes; the processor and the IOMMU heed them.
    Tables,
    /// The monitor, at an exit.
    Monitor,
    /// The boot code, before the first guest runs.
    Boot,
    /// The processor by itself.
    Processor,
}

impl Keeper {
    /// Words for the page.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tables => "tables",
            Self::Monitor => "monitor",
            Self::Boot => "boot code",
            Self::Processor => "processor",
        }
    }
}

/// A statement that holds for each guest, whatever the guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantee {
    /// Name, in kebab case.
    pub id: &'static str,
    /// The statement, without its full stop.
    pub sentence: &'static str,
    /// Number of the invariant that it serves, from 1 on ([`INVARIANTS`]).
    pub invariant: usize,
    /// Part of the system that keeps it.
    pub keeper: Keeper,
    /// The wider guarantee that a denial cites, because a record does not tell its parts apart.
    pub part_of: Option<&'static str>,
    /// Rules of the manifest on which it rests.
    pub rests_on: &'static [&'static str],
    /// Reason why no attack tries it.
    pub no_attack: Option<&'static str>,
    /// Reason why no mutant lacks it.
    pub no_mutant: Option<&'static str>,
}

impl Guarantee {
    const fn new(
        id: &'static str,
        invariant: usize,
        keeper: Keeper,
        sentence: &'static str,
    ) -> Self {
        let rests_on = &[];
        Self {
            id,
            sentence,
            invariant,
            keeper,
            part_of: None,
            rests_on,
            no_attack: None,
            no_mutant: None,
        }
    }

    const fn part_of(self, wider: &'static str) -> Self {
        Self { part_of: Some(wider), ..self }
    }

    const fn rests_on(self, rests_on: &'static [&'static str]) -> Self {
        Self { rests_on, ..self }
    }

    const fn no_attack(self, why: &'static str) -> Self {
        Self { no_attack: Some(why), ..self }
    }

    const fn no_mutant(self, why: &'static str) -> Self {
        Self { no_mutant: Some(why), ..self }
    }
}

/// The guarantee of this id.
///
/// # Panics
/// If there is none. A constant with a wrong id does not compile.
#[must_use]
pub const fn guarantee(id: &str) -> &'static Guarantee {
    match find(id) {
        Some(found) => found,
        None => panic!("the register of guarantees has no such id"),
    }
}

/// The id, which the register has.
///
/// # Panics
/// If it has not.
#[must_use]
pub const fn id(id: &str) -> &'static str {
    guarantee(id).id
}

/// The guarantee of this id, if there is one.
#[must_use]
pub const fn find(id: &str) -> Option<&'static Guarantee> {
    let mut n = 0;
    while n < REGISTER.len() {
        if same(REGISTER[n].id, id) {
            return Some(&REGISTER[n]);
        }
        n += 1;
    }
    None
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut n = 0;
    while n < a.len() && n < b.len() && a[n] == b[n] {
        n += 1;
    }
    n == a.len() && n == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_WORDS: usize = 25;

    fn plain(text: &str) -> bool {
        let words = text.split(' ').count();
        let starts =
            |c: char| c.is_lowercase() || text.starts_with("QEMU") || text.starts_with("VT-x");
        words <= MOST_WORDS && !text.ends_with('.') && text.starts_with(starts)
    }

    #[test]
    fn ids_are_unique_and_in_kebab_case() {
        for (n, one) in REGISTER.iter().enumerate() {
            let letter = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(one.id.chars().all(letter), "{}", one.id);
            assert_eq!(REGISTER.iter().position(|other| other.id == one.id), Some(n));
            assert_eq!(find(one.id), Some(one));
        }
        for wrong in ["", "nested", "nested-map-", "Nested-map"] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sentences_are_short_and_different() {
        for (n, one) in REGISTER.iter().enumerate() {
            assert!(plain(one.sentence), "{}: {}", one.id, one.sentence);
            let reasons = one.no_attack.into_iter().chain(one.no_mutant);
            reasons.for_each(|why| assert!(plain(why), "{}: {why}", one.id));
            let first = REGISTER.iter().position(|other| other.sentence == one.sentence);
            assert_eq!(first, Some(n), "{}", one.id);
        }
    }

    #[test]
    fn parts_have_a_whole_that_is_no_part() {
        for one in REGISTER {
            assert!((1..=INVARIANTS.len()).contains(&one.invariant), "{}", one.id);
            if let Some(wider) = one.part_of {
                assert_eq!(guarantee(wider).part_of, None, "{}", one.id);
            }
        }
    }
}
