//! The register of guarantees (`bulkhead_guarantees`) beside its evidence: attacks with the denials that they left,
//! mutants, the auditor's rules with their planted errors, manifests' rules. `docs/guarantees.md` shows all of it;
//! `BLESS=1` writes the page anew.

use super::driver::Job;
use super::explained;
use super::mutate::{MUTATIONS, Out, last};
use super::{card, ladder, mmio, peer, ring, standby, sweep, under, walk, warm, watchdog};
use crate::build;
use bulkhead_guarantees::{Guarantee, INVARIANTS, Keeper, REGISTER, find};
use rogue::{Attack, Expect};

const PAGE: &str = "docs/guarantees.md";
/// Folders with code of monitors, which asks `enforced("…")`.
const SOURCES: [&str; 6] = [
    "monitor/svm/src",
    "monitor/vmx/src",
    "monitor/x86/src",
    "crates/monitor/monitor/src",
    "crates/monitor/monitor-x86/src",
    "crates/abi/monitor-abi/src",
];
/// Questions of the monitor that are no guarantee. The first makes a core late, to show the effect (`line/late`). The
/// others are steps of roles and snapshots that their models leave out (`role_moves.rs`, `snapshot_commit.rs`).
const SWITCHES: [&str; 9] = [
    "line-prompt",
    "role-again",
    "role-newer",
    "role-taken",
    "role-to",
    "snapshot-buffer",
    "snapshot-flux",
    "snapshot-order",
    "snapshot-union",
];
/// Tests of mutants beside the mutation gate.
const BESIDE: [(&str, &str); 14] = [
    ("doorbell-window", ring::MUTANT),
    ("ladder", ladder::MUTANT),
    ("local-interrupts", under::LOCAL),
    ("mmio-range", mmio::MUTANT),
    ("peer", peer::MUTANT),
    ("release-last", under::RELEASE),
    ("role-function", card::MUTANT),
    ("role-given", standby::MUTANT),
    ("role-message", card::MESSAGES),
    ("snapshot-range", warm::RANGE),
    ("snapshot-room", warm::ROOM),
    ("snapshot-whole", warm::WHOLE),
    ("sweep", sweep::MUTANT),
    ("watchdog", watchdog::MUTANT),
];

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("guarantees/evidence", 10, |_| {
            told(Evidence::gather()?.wrong(), &format!("{} guarantees", REGISTER.len()))
        }),
        Job::one("guarantees/denials", 10, |_| {
            told(denials()?, "each cites the attack's guarantee")
        }),
        Job::one("guarantees/page", 10, |_| page()),
    ]
}

fn told(wrong: Vec<String>, right: &str) -> Result<String, String> {
    if wrong.is_empty() { Ok(right.into()) } else { Err(wrong.join("\n")) }
}

/// A mutant of the gate.
struct Mutant {
    guarantee: &'static str,
    attack: &'static str,
    keeper: Keeper,
}

/// A rule of the auditor: id, sentence.
type Rule = (&'static str, &'static str);

/// All that cites the register.
struct Evidence {
    register: Vec<Guarantee>,
    attacks: Vec<(&'static str, &'static str)>,
    mutants: Vec<Mutant>,
    audit: Vec<Rule>,
    /// Planted errors, with the rule that finds each.
    plants: Vec<(&'static str, &'static str)>,
    /// Ids that monitors ask for.
    asked: Vec<String>,
}

impl Evidence {
    fn gather() -> Result<Self, String> {
        let mutant = |m: &super::mutate::Mutation| Mutant {
            guarantee: m.guarantee,
            attack: last(m).unwrap_or_default(),
            keeper: match m.out {
                Out::Build => Keeper::Monitor,
                Out::Tables(_) => Keeper::Tables,
            },
        };
        Ok(Self {
            register: REGISTER.to_vec(),
            attacks: rogue::all().map(|a| (a.name, a.guarantee)).collect(),
            mutants: MUTATIONS.iter().map(mutant).collect(),
            audit: bulkhead_audit::RULES.iter().map(|rule| (rule.name, rule.what)).collect(),
            plants: walk::plants_and_rules().collect(),
            asked: asked()?,
        })
    }

    fn attacks_on(&self, id: &str) -> Vec<&'static str> {
        self.attacks.iter().filter(|attack| attack.1 == id).map(|attack| attack.0).collect()
    }

    fn mutants_of(&self, id: &str) -> Vec<&'static str> {
        self.mutants.iter().filter(|m| m.guarantee == id).map(|m| m.attack).collect()
    }

    fn plants_of(&self, id: &str) -> Vec<&'static str> {
        let gate = self.plants.iter().filter(|plant| plant.1 == id).map(|plant| plant.0);
        gate.collect()
    }

    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.register.iter().flat_map(|one| self.of(one)).collect();
        wrong.extend(self.mutants.iter().filter_map(|m| self.of_mutant(m)));
        wrong.extend(self.audit.iter().filter_map(|rule| of_auditor(*rule)));
        for (plant, id) in &self.plants {
            if self.audit.iter().all(|rule| rule.0 != *id) {
                wrong.push(format!(
                    "{plant} is to be found by {id}, which is no rule of the auditor"
                ));
            }
        }
        wrong.extend(self.asked.iter().filter_map(|id| of_monitor(id)));
        wrong
    }

    /// Checks that a guarantee has its evidence, or a reason why not, and never both.
    fn of(&self, one: &Guarantee) -> Vec<String> {
        let id = one.id;
        let mut wrong = Vec::new();
        let parts = self.register.iter().any(|part| part.part_of == Some(id));
        let attacked = !self.attacks_on(id).is_empty();
        let mutated = !self.mutants_of(id).is_empty();
        let shown = BESIDE.iter().any(|beside| beside.0 == id) || !self.plants_of(id).is_empty();
        match (attacked, one.no_attack) {
            (true, Some(_)) => wrong.push(format!("{id} has an attack, and a reason for none")),
            (false, None) if !parts => wrong.push(format!("{id} has no attack, and no reason")),
            _ => {}
        }
        match (mutated, one.no_mutant) {
            (true, Some(_)) => wrong.push(format!("{id} has a mutant, and a reason for none")),
            (false, None) if attacked => wrong.push(format!("no mutant lacks {id}")),
            (false, _) if !attacked && !parts && !shown => {
                wrong.push(format!("{id}: no attack tries it, and nothing else breaks it"));
            }
            _ => {}
        }
        let asked = self.asked.iter().any(|asked| asked == id);
        let kept = asked || parts || shown || one.no_mutant.is_some();
        if one.keeper == Keeper::Monitor && !kept {
            wrong.push(format!("no monitor asks if {id} is enforced"));
        }
        let rules = bulkhead_manifest::rules::NAMES;
        let unknown = one.rests_on.iter().filter(|rule| !rules.contains(rule));
        wrong.extend(unknown.map(|rule| format!("{id} rests on {rule}, which no manifest has")));
        wrong
    }

    fn of_mutant(&self, m: &Mutant) -> Option<String> {
        let named = self.attacks_on(m.guarantee).contains(&m.attack);
        let keeper = self.register.iter().find(|one| one.id == m.guarantee).map(|one| one.keeper);
        match () {
            () if !named => Some(format!("{} is no attack on {}", m.attack, m.guarantee)),
            () if keeper != Some(m.keeper) => {
                Some(format!("{} is kept by {}", m.guarantee, m.keeper.name()))
            }
            () => None,
        }
    }
}

/// The auditor has names and sentences of its own, equal to the register's.
fn of_auditor((id, sentence): Rule) -> Option<String> {
    match find(id) {
        None => Some(format!("the register lacks the auditor's {id}")),
        Some(one) if one.sentence != sentence => {
            Some(format!("{id}: the auditor says {sentence}\nthe register {}", one.sentence))
        }
        Some(_) => None,
    }
}

fn of_monitor(id: &str) -> Option<String> {
    let kept = find(id).is_some_and(|one| one.keeper == Keeper::Monitor);
    (!kept && !SWITCHES.contains(&id)).then(|| format!("a monitor enforces {id}, which is not its"))
}

/// Ids in the monitors' source.
fn asked() -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for folder in SOURCES.map(|folder| build::root().join(folder)) {
        let files = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for file in files.flatten().filter(|file| file.path().is_file()) {
            let text = std::fs::read_to_string(file.path()).map_err(|e| e.to_string())?;
            let uses = text.split("enforced(\"").skip(1);
            ids.extend(uses.filter_map(|t| t.split('"').next()).map(String::from));
        }
    }
    ids.sort();
    ids.dedup();
    Ok(ids)
}

/// Compares the guarantee that each stored denial cites with the attack's own.
fn denials() -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let mut all = 0;
    for (group, text) in explained::groups()? {
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate().filter(|(_, line)| !line.starts_with(' ')) {
            let (name, rest) = line.split_once(": ").unwrap_or((line, ""));
            let cited = lines.get(n + 2).map_or("", |line| line.trim());
            let attack = rogue::by_name(name);
            match attack {
                None => wrong.push(format!("{group}: there is no attack {name}")),
                Some(_) if rest == "no record" => {}
                Some(attack) => {
                    all += 1;
                    wrong.extend(misses(attack, cited).map(|why| format!("{group}: {why}")));
                }
            }
        }
    }
    if all < 100 {
        wrong.push(format!("only {all} denials are stored"));
    }
    Ok(wrong)
}

/// Says how a denial's line `id: sentence` misses the guarantee that an attack tries, or the wider one that this is a
/// part of. Where a race decides, it may be any.
fn misses(attack: &Attack, line: &str) -> Option<String> {
    let (id, words) = line.split_once(": ").unwrap_or((line, ""));
    let tried = find(attack.guarantee)?;
    let cites = id == tried.id || Some(id) == tried.part_of;
    let chance = matches!(attack.expect, Expect::OneOf(_));
    match find(id) {
        None => Some(format!("{} cites {id}, which the register lacks", attack.name)),
        Some(one) if !words.starts_with(one.sentence) => {
            Some(format!("{} says of {id}: {words}", attack.name))
        }
        Some(_) if !cites && !chance => {
            Some(format!("{} tries {}, and its denial cites {id}", attack.name, tried.id))
        }
        Some(_) => None,
    }
}

fn page() -> Result<String, String> {
    let text = write(&Evidence::gather()?);
    let path = build::root().join(PAGE);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).map_err(|e| format!("{PAGE}: {e}"))?;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    match text.lines().zip(stored.lines()).find(|(now, then)| now != then) {
        Some((now, then)) => Err(format!("{PAGE}: now     {now}\nstored  {then}")),
        None if text != stored => Err(format!("{PAGE}: one is longer; BLESS=1 writes it")),
        None => Ok(format!("{} lines", text.lines().count())),
    }
}

const HEAD: &str = "# Guarantees

A guarantee holds for each guest, whatever the guest does. It has an id and one sentence. Denials, attacks, mutants and
the auditor cite the id. The register is `crates/abi/guarantees`. `BLESS=1` with `make test :: guarantees/page` writes
this page from the register and its evidence.

| column | meaning |
|---|---|
| kept by | Part of the system that keeps the guarantee. Tables are baked by the host; processor and IOMMU heed them. |
| attacks | Attacks that try to break it (`guests/rogue`), or the reason for none. |
| mutants | Attacks that succeed on a system without it (`mutation/…`), or the reason for none. |
| audit | Number of planted errors that the [auditor](audit.md) must find by this rule (`walk/finds-…`); \
at 0 its own tests plant them. |
| manifest | [Rules of the manifest](manifest.md) on which it rests. |

Some guarantees are parts of a wider one. A denial cites the wider one where its record does not tell the parts apart.
";

fn write(evidence: &Evidence) -> String {
    let mut text = HEAD.to_owned();
    for (n, invariant) in (1..).zip(INVARIANTS) {
        text += &format!("\n## Invariant {n}\n\n{invariant}.\n");
        let rows = evidence.register.iter().filter(|one| one.invariant == n);
        let rows: String = rows.map(|one| row(evidence, one)).collect();
        if rows.is_empty() {
            text += match n {
                4 => {
                    "The [causes of exits](monitor.md) are its list, and [promises](report.md) judge their numbers.\n"
                }
                _ => {
                    "[The kernel's evidence](kernel-evidence.md) and [time](time.md) are about it.\n"
                }
            };
            continue;
        }
        text += "\n| id | guarantee | kept by | attacks | mutants | audit | manifest |\
             \n|---|---|---|---|---|---|---|\n";
        text += &rows;
    }
    text
}

fn row(evidence: &Evidence, one: &Guarantee) -> String {
    let part = one.part_of.map_or(String::new(), |wider| format!(", part of `{wider}`"));
    let audited = evidence.audit.iter().any(|rule| rule.0 == one.id);
    let audit = match audited {
        true => evidence.plants_of(one.id).len().to_string(),
        false => String::new(),
    };
    let beside = BESIDE.iter().filter(|beside| beside.0 == one.id).map(|beside| beside.1);
    let mutants = evidence.mutants_of(one.id).into_iter().chain(beside).collect::<Vec<_>>();
    format!(
        "| `{}`{part} | {}. | {} | {} | {} | {audit} | {} |\n",
        one.id,
        capital(one.sentence),
        one.keeper.name(),
        names(&evidence.attacks_on(one.id), one.no_attack),
        names(&mutants, one.no_mutant),
        names(one.rests_on, None)
    )
}

/// The first names of a list, and the number of the rest; or the reason why there is none.
fn names(all: &[&str], none: Option<&str>) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<String> = all.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    if all.len() > SHOWN {
        shown.push(format!("{} more", all.len() - SHOWN));
    }
    let reason = none.map(|why| format!("{}.", capital(why)));
    if all.is_empty() { reason.unwrap_or_default() } else { shown.join(", ") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(spoil: impl Fn(&mut Evidence)) -> String {
        let mut evidence = Evidence::gather().unwrap();
        spoil(&mut evidence);
        evidence.wrong().join("\n")
    }

    fn of<'a>(evidence: &'a mut Evidence, id: &str) -> &'a mut Guarantee {
        evidence.register.iter_mut().find(|one| one.id == id).unwrap()
    }

    #[test]
    fn the_register_has_its_evidence() {
        assert_eq!(wrong(|_| {}), "");
    }

    #[test]
    fn lacking_and_needless_evidence_is_told() {
        let told = wrong(|e| e.attacks.retain(|attack| attack.1 != "clock-write"));
        assert!(told.contains("clock-write has no attack, and no reason"), "{told}");
        assert!(told.contains("clock-write-memory is no attack on clock-write"), "{told}");
        let told = wrong(|e| of(e, "nested-map").no_attack = Some("x"));
        assert_eq!(told, "nested-map has an attack, and a reason for none");
        let told = wrong(|e| e.mutants.retain(|mutant| mutant.guarantee != "load-sum"));
        assert_eq!(told, "no mutant lacks load-sum");
        let told = wrong(|e| of(e, "load-sum").no_mutant = Some("x"));
        assert_eq!(told, "load-sum has a mutant, and a reason for none");
        let told = wrong(|e| e.plants.retain(|plant| plant.1 != "frames"));
        assert_eq!(told, "frames: no attack tries it, and nothing else breaks it");
        let told = wrong(|e| of(e, "doorbell").keeper = Keeper::Boot);
        assert_eq!(told, "doorbell is kept by tables");
    }

    #[test]
    fn foreign_names_are_told() {
        let told = wrong(|e| e.audit.push(("vmcb", "")));
        assert_eq!(told, "the register lacks the auditor's vmcb");
        let told = wrong(|e| e.audit[0].1 = "other words");
        assert!(told.starts_with("nested-map: the auditor says other words"), "{told}");
        let told = wrong(|e| e.plants.push(("x", "clock-write")));
        assert_eq!(told, "x is to be found by clock-write, which is no rule of the auditor");
        let told = wrong(|e| e.asked.push("ports".into()));
        assert_eq!(told, "a monitor enforces ports, which is not its");
        let told = wrong(|e| e.asked.retain(|id| id != "load-sum"));
        assert_eq!(told, "no monitor asks if load-sum is enforced");
        let told = wrong(|e| of(e, "frames").rests_on = &["no-rule"]);
        assert_eq!(told, "frames rests on no-rule, which no manifest has");
    }

    #[test]
    fn a_denial_cites_what_the_attack_tries() {
        let attack = rogue::by_name("ipi-smi").unwrap();
        let of = |id: &str| format!("{id}: {}", find(id).unwrap().sentence);
        assert_eq!(misses(attack, &(of("ipi-form") + ": and more")), None);
        let told = misses(attack, &of("ipi-destination"));
        assert_eq!(told.unwrap(), "ipi-smi tries ipi-form, and its denial cites ipi-destination");
        assert!(misses(attack, "ipi-form: other words").unwrap().contains("says of ipi-form"));
        assert!(misses(attack, "form: x").unwrap().contains("the register lacks"));
        let part = rogue::by_name("ioapic-smi").unwrap();
        assert_eq!(misses(part, &of("interrupt-lines")), None);
    }
}
