//! Plain English (CONTRIBUTING.md): how long sentences are, how they open, and words that stand where a noun should.
//!
//! `tests/plain-english.toml` has a ceiling for each page, and for the comments of each folder. A ceiling can only
//! sink: one finding more fails, and one less fails until the ceiling is lowered (`BLESS=1` lowers it). A page or a
//! folder without a ceiling may have no finding.

use super::sentences::{self, Sentence};
use super::{pages, read, root, sources};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Words in a sentence.
const MOST: usize = 25;
const OPENINGS: [&str; 8] = ["what", "who", "whom", "whose", "whether", "of", "nobody", "none"];
const PHRASES: [&str; 4] = ["the same", "as above", "whom", "whose"];
const FILE: &str = "tests/plain-english.toml";

/// The findings of a page or a folder, by kind.
#[derive(Default)]
struct Findings {
    sentences: usize,
    openings: Vec<String>,
    phrases: Vec<String>,
    long: Vec<String>,
    lengths: Vec<usize>,
}

impl Findings {
    fn add(&mut self, file: &str, sentence: &Sentence) {
        let place = format!("{file}:{}: {}", sentence.line, sentence.text);
        self.sentences += 1;
        if opens_badly(&sentence.text) {
            self.openings.push(place.clone());
        }
        if let Some(phrase) = phrase(&sentence.text) {
            self.phrases.push(format!("{place} ({phrase})"));
        }
        if !sentence.cell {
            self.lengths.push(sentence.words());
        }
        if !sentence.cell && sentence.words() > MOST {
            self.long.push(format!("{place} ({} words)", sentence.words()));
        }
    }

    /// The length that nine of ten sentences do not exceed.
    fn ninetieth(&self) -> usize {
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        lengths
            .get((lengths.len() * 9 / 10).min(lengths.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0)
    }

    /// Counts that have a ceiling. The 90th percentile may rise up to the rule's most.
    fn counts(&self) -> [(&'static str, usize, &[String]); 4] {
        [
            ("openings", self.openings.len(), &self.openings),
            ("phrases", self.phrases.len(), &self.phrases),
            ("long", self.long.len(), &self.long),
            ("p90", self.ninetieth().max(MOST), &self.long),
        ]
    }
}

/// The words of a sentence in lower case, with one blank on each side; a backtick for each span of code.
fn words(text: &str) -> String {
    let apart = |c: char| !(c.is_alphanumeric() || c == '`' || c == '\'' || c == '’' || c == '-');
    let prose: Vec<_> = text.split('`').step_by(2).collect();
    let prose = prose.join(" ` ");
    let words: Vec<_> = prose.split(apart).filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" ").to_lowercase())
}

/// A question may open with any word, and a cell with a sign such as `%`.
fn opens_badly(text: &str) -> bool {
    let text = text.trim_start_matches(['"', '(', '*', '_', '“']);
    let words = words(text);
    let first = words.split_whitespace().next().unwrap_or_default();
    OPENINGS.contains(&first) && text.starts_with(char::is_alphabetic) && !text.ends_with('?')
}

fn phrase(text: &str) -> Option<&'static str> {
    let words = words(text);
    PHRASES.into_iter().find(|phrase| words.contains(&format!(" {phrase} ")))
}

/// The folder that a source's comments are counted for: a crate, or a folder at the top.
fn folder(path: &str) -> String {
    let depth = if path.starts_with("crates/") { 3 } else { 1 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

fn of_pages() -> BTreeMap<String, Findings> {
    let mut all: Vec<_> = ["README.md", "CONTRIBUTING.md"].map(|page| root().join(page)).into();
    pages(&root().join("docs"), &mut all);
    let mut found = BTreeMap::new();
    for path in all {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let findings: &mut Findings = found.entry(name.clone()).or_default();
        sentences::of_page(&read(&name)).iter().for_each(|s| findings.add(&name, s));
    }
    found
}

fn of_comments() -> BTreeMap<String, Findings> {
    let mut all = Vec::new();
    sources(&root(), &mut all);
    let mut found = BTreeMap::new();
    for path in all.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let findings: &mut Findings = found.entry(folder(&name)).or_default();
        sentences::of_comments(&read(&name)).iter().for_each(|s| findings.add(&name, s));
    }
    found
}

type Ceilings = BTreeMap<String, BTreeMap<String, BTreeMap<String, usize>>>;

/// Compares findings with ceilings; the ceilings as they may be from now on.
fn judge(
    kind: &str,
    found: &BTreeMap<String, Findings>,
    ceilings: &Ceilings,
    wrong: &mut String,
) -> String {
    let mut lowered = format!("[{kind}]\n");
    for (name, findings) in found {
        let old = ceilings.get(kind).and_then(|all| all.get(name));
        let mut row = Vec::new();
        for (what, count, places) in findings.counts() {
            let least = if what == "p90" { MOST } else { 0 };
            let ceiling = old.and_then(|old| old.get(what)).copied().unwrap_or(least);
            if count > ceiling {
                let _ = writeln!(
                    wrong,
                    "{name}: {what} {count}, at most {ceiling}:\n  {}",
                    places.join("\n  ")
                );
            } else if count < ceiling {
                let _ = writeln!(wrong, "{name}: {what} {count}: lower the count of {ceiling}");
            }
            let new = count.min(ceiling);
            row.extend((new > least).then(|| format!("{what} = {new}")));
        }
        if !row.is_empty() {
            let _ = writeln!(lowered, "{name:?} = {{ {} }}", row.join(", "));
        }
    }
    for name in ceilings.get(kind).into_iter().flat_map(|all| all.keys()) {
        if !found.contains_key(name) {
            let _ = writeln!(wrong, "{name}: it is not there; take its ceiling out");
        }
    }
    lowered
}

/// One line of figures: sentences, their 90th percentile, bad openings in a thousand.
fn figures(kind: &str, found: &BTreeMap<String, Findings>) -> String {
    let mut all = Findings::default();
    for one in found.values() {
        all.sentences += one.sentences;
        all.lengths.extend(&one.lengths);
        all.openings.extend_from_slice(&one.openings);
        all.phrases.extend_from_slice(&one.phrases);
        all.long.extend_from_slice(&one.long);
    }
    let thousand = |n: usize| n * 1000 / all.sentences.max(1);
    format!(
        "{kind}: {} sentences, 90 % of at most {} words, {} longer than {MOST}; in 1,000: {} openings, {} phrases",
        all.sentences,
        all.ninetieth(),
        all.long.len(),
        thousand(all.openings.len()),
        thousand(all.phrases.len())
    )
}

#[test]
fn plain_english() {
    let ceilings: Ceilings = toml::from_str(&read(FILE)).unwrap();
    let mut wrong = String::new();
    let head: String = read(FILE)
        .lines()
        .take_while(|l| l.starts_with('#'))
        .fold(String::new(), |all, l| all + l + "\n");
    let mut lowered = head;
    for (kind, found) in [("pages", of_pages()), ("comments", of_comments())] {
        println!("{}", figures(kind, &found));
        lowered += "\n";
        lowered += &judge(kind, &found, &ceilings, &mut wrong);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(root().join(FILE), lowered).unwrap();
        wrong = wrong
            .lines()
            .filter(|line| !line.contains(": lower the count") && !line.ends_with("ceiling out"))
            .fold(String::new(), |all, l| all + l + "\n");
    }
    assert!(
        wrong.is_empty(),
        "CONTRIBUTING.md, \"Plain English\"; BLESS=1 lowers a ceiling of {FILE}\n{wrong}"
    );
}

#[test]
fn openings_and_phrases_are_words_outside_of_code() {
    for bad in ["Of it.", "whether a", "(None of it)", "What it is: this"] {
        assert!(opens_badly(bad), "{bad}");
    }
    for good in ["Office", "`None` if", "`a` of", "% of it", "What is it?", "It is of use."] {
        assert!(!opens_badly(good), "{good}");
    }
    assert_eq!(phrase("It has the\u{20}same, no more"), Some("the same"));
    assert_eq!(phrase("The sameness"), None);
    assert_eq!(phrase("It is `a::whose_it_is`."), None);
}

#[test]
fn a_ceiling_can_only_sink() {
    let findings = |text: &str| {
        let mut findings = Findings::default();
        sentences::of_page(text).iter().for_each(|s| findings.add("a.md", s));
        BTreeMap::from([("a.md".to_owned(), findings)])
    };
    let ceilings: Ceilings = toml::from_str("[pages]\n\"a.md\" = { openings = 1 }").unwrap();
    let judged = |text: &str| {
        let mut wrong = String::new();
        (judge("pages", &findings(text), &ceilings, &mut wrong), wrong)
    };
    assert_eq!(judged("Of it."), ("[pages]\n\"a.md\" = { openings = 1 }\n".into(), String::new()));
    assert_eq!(
        judged("It is."),
        ("[pages]\n".into(), "a.md: openings 0: lower the count of 1\n".into())
    );
    let (lowered, wrong) = judged("It is.\n\nOf it. None.");
    assert_eq!(lowered, "[pages]\n\"a.md\" = { openings = 1 }\n");
    assert_eq!(wrong, "a.md: openings 2, at most 1:\n  a.md:3: Of it.\n  a.md:3: None.\n");
    let (_, wrong) = judged(&format!("Of it.\n\n{}.", "word ".repeat(26)));
    assert!(wrong.contains("long 1, at most 0") && wrong.contains("p90 26, at most 25"), "{wrong}");
}
