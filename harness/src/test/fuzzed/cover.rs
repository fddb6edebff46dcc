//! Which of the monitor's text was reached, and the source lines of what was not.

use crate::build;
use crate::program::Program as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// By byte of a text, whether the plugin has noted it in any of these files.
pub fn reached(files: &[PathBuf]) -> Vec<bool> {
    let texts: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap_or_default()).collect();
    let len = texts.iter().map(Vec::len).max().unwrap_or(0);
    let at = |at: usize| texts.iter().any(|text| text.get(at).is_some_and(|byte| *byte != 0));
    (0..len).map(at).collect()
}

/// A source line, and whether any instruction of it was reached.
pub struct Lines {
    /// By file and line.
    pub lines: BTreeMap<(String, u32), bool>,
    /// Functions without a reached instruction.
    pub functions: Vec<String>,
    /// Instructions, and those that were reached.
    pub instructions: [usize; 2],
}

/// Lines of a monitor's file, by what was reached of its text. It takes binutils, as building does.
pub fn lines(monitor: &Path, reached: &[bool]) -> Result<Lines, String> {
    let run = |program: &str, args: &[&str]| {
        let out = Command::new(program).args(args).arg(monitor).printed()?;
        Ok::<_, String>(String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let text = run("objdump", &["-d", "-l", "-C", "--no-show-raw-insn"])?;
    let mut found = Lines { lines: BTreeMap::new(), functions: Vec::new(), instructions: [0, 0] };
    let (mut line, mut function, mut start) = (None, (String::new(), false), None);
    for row in text.lines() {
        if let Some(name) = row.strip_suffix(">:").and_then(|r| r.split_once(" <")).map(|r| r.1) {
            if !function.0.is_empty() && !function.1 {
                found.functions.push(std::mem::take(&mut function.0));
            }
            function = (name.to_owned(), false);
        } else if let Some((at, _)) = row.trim_start().split_once(":\t") {
            let Ok(at) = u64::from_str_radix(at, 16) else { continue };
            // Filling of the gap to the next function.
            if row.ends_with("int3") || row.contains("\tnop") {
                continue;
            }
            let from = *start.get_or_insert(at);
            let was = reached.get((at - from) as usize).copied().unwrap_or(false);
            found.instructions[0] += 1;
            found.instructions[1] += usize::from(was);
            function.1 |= was;
            if let Some(line) = line.clone() {
                *found.lines.entry(line).or_default() |= was;
            }
        } else if let Some((file, rest)) = row.rsplit_once(':')
            && let Ok(number) = rest.split(' ').next().unwrap_or_default().parse::<u32>()
        {
            // Code that the compiler brought from elsewhere has no line here.
            let own = ["crates/", "monitor/"].iter().find_map(|dir| Some(&file[file.find(dir)?..]));
            line = own.filter(|f| !f.contains("library/")).map(|f| (f.to_owned(), number));
        }
    }
    if !function.0.is_empty() && !function.1 {
        found.functions.push(function.0);
    }
    if found.instructions[0] == 0 {
        return Err(format!("{}: objdump shows no instruction", monitor.display()));
    }
    Ok(found)
}

/// Lines without a reached instruction, a row for each file.
pub fn missed(lines: &Lines) -> String {
    let mut files: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for ((file, line), reached) in &lines.lines {
        if !reached {
            files.entry(file).or_default().push(*line);
        }
    }
    let row = |(file, lines): (&str, Vec<u32>)| {
        let lines: Vec<_> = lines.iter().map(u32::to_string).collect();
        format!("{file}: {}\n", lines.join(", "))
    };
    files.into_iter().map(row).collect()
}

/// Returns the source's functions without a reached line, and all that the monitor has. One that the compiler has put
/// into its callers counts, too.
pub fn functions(lines: &Lines) -> [BTreeSet<Function>; 2] {
    let source = |file: &str| std::fs::read_to_string(build::root().join(file)).unwrap_or_default();
    by_function(lines, source)
}

/// File and name of a function.
pub type Function = (String, String);

fn by_function(lines: &Lines, source: impl Fn(&str) -> String) -> [BTreeSet<Function>; 2] {
    let mut all: BTreeMap<Function, bool> = BTreeMap::new();
    let mut read: BTreeMap<&str, Vec<Option<String>>> = BTreeMap::new();
    for ((file, line), reached) in &lines.lines {
        let names = read.entry(file).or_insert_with(|| names(&source(file)));
        // Line 0 is nobody's.
        let name = (*line as usize).checked_sub(1).and_then(|line| names.get(line)?.clone());
        if let Some(name) = name {
            *all.entry((file.clone(), name)).or_default() |= reached;
        }
    }
    let missed = all.iter().filter(|(_, reached)| !**reached).map(|(function, _)| function.clone());
    [missed.collect(), all.into_keys().collect()]
}

/// For each line of a source, the function that begins there or was the last one to begin.
fn names(source: &str) -> Vec<Option<String>> {
    const BEFORE: [&str; 5] = ["pub ", "pub(crate) ", "const ", "unsafe ", "extern \"C\" "];
    let begins = |line: &str| {
        let mut rest = line.trim_start();
        while let Some(more) = BEFORE.iter().find_map(|word| rest.strip_prefix(word)) {
            rest = more;
        }
        let name: String = rest
            .strip_prefix("fn ")?
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        Some(name)
    };
    let mut last = None;
    let name = |line| {
        last = begins(line).or_else(|| last.take());
        last.clone()
    };
    source.lines().map(name).collect()
}

/// Functions that the fuzzer is known not to reach, each with its reason.
pub type Known = BTreeMap<Function, String>;

/// The list in the tree.
pub const LIST: &str = "tests/not-reached.txt";

/// Reads the list.
pub fn known() -> Result<Known, String> {
    let text = std::fs::read_to_string(build::root().join(LIST));
    parsed(&text.map_err(|e| format!("{LIST}: {e}"))?)
}

/// Lines `FILE FUNCTION: reason`, and comments.
fn parsed(text: &str) -> Result<Known, String> {
    let line = |line: &str| {
        let (function, why) = line.split_once(": ")?;
        let (file, name) = function.split_once(' ')?;
        Some(((file.to_owned(), name.to_owned()), why.to_owned()))
    };
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|text| line(text).ok_or_else(|| format!("{LIST}: {text}"))).collect()
}

/// Compares the functions that were not reached with the list. Returns words for listed functions that were reached.
///
/// # Errors
/// Functions that are not listed, and listed ones that the monitor does not have.
pub fn held([missed, all]: &[BTreeSet<Function>; 2], known: &Known) -> Result<String, String> {
    let said = |(file, name): &Function| format!("{file}: {name}");
    let listed: BTreeSet<Function> = known.keys().cloned().collect();
    let new: Vec<_> = missed.difference(&listed).map(said).collect();
    if !new.is_empty() {
        return Err(format!("not reached, and not in {LIST}: {}", new.join(", ")));
    }
    let gone: Vec<_> = listed.difference(all).map(said).collect();
    if !gone.is_empty() {
        return Err(format!("in {LIST}, but not in the monitor: {}", gone.join(", ")));
    }
    let reached: Vec<_> = listed.difference(missed).map(said).collect();
    Ok(match reached[..] {
        [] => String::new(),
        _ => format!("listed, but reached: {}", reached.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "use x;\n\n/// fn of no one\npub(crate) const unsafe fn first<T>(\n) {\n    a\n}\n\n    fn second() {\n        let fn_ = b;\n    }\n";

    fn lines(reached: &[(u32, bool)]) -> Lines {
        let line = |(line, reached): &(u32, bool)| (("f.rs".to_owned(), *line), *reached);
        let lines = reached.iter().map(line).collect();
        Lines { lines, functions: Vec::new(), instructions: [0, 0] }
    }

    fn function(name: &str) -> Function {
        ("f.rs".into(), name.into())
    }

    #[test]
    fn a_function_is_reached_by_one_line() {
        let of = |reached: &[(u32, bool)]| by_function(&lines(reached), |_| SOURCE.to_owned());
        let [missed, all] =
            of(&[(0, false), (1, false), (4, false), (6, true), (9, false), (10, false)]);
        assert_eq!(missed, [function("second")].into());
        assert_eq!(all, [function("first"), function("second")].into());
        assert_eq!(of(&[(6, false), (10, true), (99, false)])[0], [function("first")].into());
    }

    #[test]
    fn the_list_is_held() {
        let known = parsed("# why\n\nf.rs first: it is: so\n").expect("a list");
        assert!(parsed("f.rs first").is_err());
        let all: BTreeSet<_> = ["first", "second"].map(function).into();
        let held = |missed: &[&str]| {
            held(&[missed.iter().map(|name| function(name)).collect(), all.clone()], &known)
        };
        assert_eq!(held(&["first"]), Ok(String::new()));
        assert_eq!(held(&[]), Ok("listed, but reached: f.rs: first".into()));
        assert!(held(&["first", "second"]).is_err_and(|why| why.contains("f.rs: second")));
        let other: BTreeSet<_> = [function("second")].into();
        let gone = super::held(&[BTreeSet::new(), other], &known);
        assert!(gone.is_err_and(|why| why.contains("not in the monitor: f.rs: first")));
    }

    #[test]
    fn each_listed_function_has_a_reason_and_is_in_its_file() {
        for ((file, name), why) in known().expect("the list") {
            let source = std::fs::read_to_string(build::root().join(&file)).expect("a source");
            assert!(names(&source).contains(&Some(name.clone())), "{file} has no {name}");
            assert!(why.len() > 10, "{file}: {name}: {why}");
        }
    }
}
