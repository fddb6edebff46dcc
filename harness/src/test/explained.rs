//! Words by which the denials of a rogue's attacks explain themselves: a stored file for each group of attacks, which a
//! person has read. `BLESS=1` writes it anew.

use super::system::Seen;
use crate::build;
use bulkhead_explain::Explained;
use rogue::{Attack, Set};
use std::path::PathBuf;

/// Name of an attack, and the words of its records.
pub type Said = (&'static str, String);

/// Words for all attacks of a set, each made in a life of its own.
pub fn all(seen: &Seen, set: Set) -> Vec<Said> {
    let one = |(life, attack): (usize, &'static Attack)| (attack.name, said(seen, life, attack));
    set.ending().enumerate().map(one).collect()
}

/// Words for an attack, four lines for each record; or a line which says that there is no record.
pub fn said(seen: &Seen, life: usize, attack: &Attack) -> String {
    let of_this = |d: &&Explained| d.sandbox == "rogue" && d.record.incarnation == life as u32;
    let words = |d: &Explained| {
        let Explained { condition, access, owner, guarantee, rule, allow, .. } = d;
        let first = format!("{}: {condition}: {access}", attack.name);
        format!("{first}\n  it is {owner}\n  {guarantee}: {rule}\n  {allow}\n")
    };
    let text: String = seen.denials.iter().filter(of_this).map(words).collect();
    if text.is_empty() {
        return format!("{}: no record\n", attack.name);
    }
    // The folders of this run's manifest and of the tree are in the places of lines.
    let text = text.replace(&format!("{}/", seen.place), "");
    let text = text.replace(&format!("{}/", build::root().display()), "");
    text.lines().map(|line| without_place(line) + "\n").collect()
}

fn file(group: &str) -> PathBuf {
    build::root().join(format!("tests/explained/{group}.txt"))
}

fn stored(group: &str) -> String {
    std::fs::read_to_string(file(group)).unwrap_or_default()
}

/// All stored files: group, text.
pub fn groups() -> Result<Vec<(String, String)>, String> {
    let folder = build::root().join("tests/explained");
    let files = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let group = |file: std::fs::DirEntry| file.path().file_stem()?.to_str().map(str::to_owned);
    Ok(files.flatten().filter_map(group).map(|group| (group.clone(), stored(&group))).collect())
}

fn blesses() -> bool {
    std::env::var_os("BLESS").is_some()
}

fn store(group: &str, text: &str) -> Result<(), String> {
    let path = file(group);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Compares the words of a group's attacks with the stored ones.
pub fn compare(group: &str, all: &[Said]) -> Result<String, String> {
    let all: String = all.iter().map(|(_, text)| text.as_str()).collect();
    if blesses() {
        store(group, &all)?;
    }
    same(&all, &stored(group))
}

fn same(all: &str, stored: &str) -> Result<String, String> {
    let differs = all.lines().zip(stored.lines()).find(|(now, then)| now != then);
    match differs {
        Some((now, then)) => Err(format!("said    {now}\nstored  {then}")),
        None if all != stored => Err("one text is longer than the other".into()),
        None => Ok(counted(all)),
    }
}

fn counted(all: &str) -> String {
    let silent = all.lines().filter(|line| line.ends_with(": no record")).count();
    format!(
        "{} denials explained, {silent} attacks without a record",
        (all.lines().count() - silent) / 4
    )
}

/// Looks for the words of each attack among the texts that are stored for it: chance decides which comes. `BLESS=1`
/// adds new ones, and a person takes out old ones.
pub fn among(group: &str, all: &[Said]) -> Result<String, String> {
    if blesses() {
        let known = stored(group);
        let all = all.iter().map(|(name, text)| {
            let mut texts = of_attack(&known, name);
            texts.extend((!texts.contains(text)).then(|| text.clone()));
            texts.concat()
        });
        store(group, &all.collect::<String>())?;
    }
    one_of(all, &stored(group))
}

fn one_of(all: &[Said], stored: &str) -> Result<String, String> {
    for (name, text) in all {
        let texts = of_attack(stored, name);
        if !texts.contains(text) {
            return Err(format!("said    {text}stored  {}", texts.join("or      ")));
        }
    }
    Ok(counted(&all.iter().map(|(_, text)| text.as_str()).collect::<String>()))
}

/// Texts stored for an attack, each of one record or of none.
fn of_attack(stored: &str, name: &str) -> Vec<String> {
    let starts = format!("{name}: ");
    let mut texts: Vec<String> = Vec::new();
    let mut own = false;
    for line in stored.lines() {
        let begins = !line.starts_with(' ');
        own = if begins { line.starts_with(&starts) } else { own };
        if own && begins {
            texts.push(String::new());
        }
        if let Some(text) = texts.last_mut().filter(|_| own) {
            *text += &format!("{line}\n");
        }
    }
    texts
}

/// A line in which an address of the guest's own program, which each change of it moves, is named as such.
fn without_place(line: &str) -> String {
    const PROGRAM: std::ops::Range<u64> = 0x20_0000..0x40_0000;
    let word = |word: &str| {
        let address =
            word.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match address {
            Some(address) if PROGRAM.contains(&address) => "(in the program)".to_owned(),
            _ => word.to_owned(),
        }
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = "a: no record\nb: x: read\n  it is c's\n  rule\n  line\nb: y: write\n  it is d's\n  rule\n  \
                          line\n";
    const READ: &str = "b: x: read\n  it is c's\n  rule\n  line\n";

    #[test]
    fn each_word_counts() {
        assert!(same(STORED, STORED).is_ok_and(|said| said.starts_with("2 denials")));
        assert!(same(&STORED.replace("d's", "c's"), STORED).is_err());
        assert!(same(READ, STORED).is_err());
        assert!(same(&STORED[..STORED.len() - 30], STORED).is_err());
    }

    #[test]
    fn chance_chooses_among_what_is_stored() {
        let none = ("a", "a: no record\n".to_owned());
        let read = ("b", READ.to_owned());
        assert_eq!(of_attack(STORED, "b").len(), 2);
        assert!(one_of(&[none.clone(), read], STORED).is_ok());
        for wrong in [READ.replace("c's", "nobody's"), String::new(), READ.repeat(2)] {
            assert!(one_of(&[none.clone(), ("b", wrong.clone())], STORED).is_err(), "{wrong}");
        }
        assert!(one_of(&[("a", READ.replace("b: ", "a: "))], STORED).is_err());
        assert!(one_of(&[none], "").is_err());
    }
}
