//! Commands typed at a terminal, and the pages that show them.
//!
//! Every command that README, the book or a banner names has a run behind it: `tests/book/commands.txt` names the
//! test that types it. A command without a line there is a failure, and so is a line without a command.

use super::driver::{Bench, Job, tail};
use crate::build;
use crate::program::Program as _;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Text that the screen shows first, and keys that are typed then.
pub type Step = (String, String);

pub fn jobs() -> Vec<Job> {
    vec![
        Job::one("guest/demo-shell", 660, demo_shell),
        Job::one("book/commands", 20, |_| commands()),
    ]
}

/// A step.
fn step(seen: &str, typed: &str) -> Step {
    (seen.to_owned(), typed.to_owned())
}

/// Runs a system live on a terminal and types; all that was on the screen.
///
/// # Errors
/// The text that was not seen, or how the run ended if that was not well.
pub fn at_terminal(system: &str, limit: u64, steps: &[Step]) -> Result<String, String> {
    let program = build::target().join("release/bulkhead");
    let command = format!("{} run --live --limit {limit} {system}", program.display());
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(build::root())
        .env_remove("CI")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .started()?;
    let (mut keyboard, screen) = (child.stdin.take(), child.stdout.take());
    let (mut seen, mut read, mut typed) = (String::new(), 0, 0);
    let mut bytes = [0; 4096];
    let mut screen = screen.ok_or("no screen")?;
    // The job's own limit ends this if nothing more comes.
    while let Ok(n @ 1..) = screen.read(&mut bytes) {
        seen += &String::from_utf8_lossy(&bytes[..n]);
        while let Some((after, text)) = steps.get(typed) {
            let Some(at) = seen[read..].find(after) else { break };
            read += at + after.len();
            typed += 1;
            let keyboard = keyboard.as_mut().ok_or("no keyboard")?;
            keyboard.write_all(text.as_bytes()).map_err(|e| e.to_string())?;
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    match steps.get(typed) {
        None if status.success() => Ok(seen),
        None => Err(format!("the run ended with {status}\n{}", tail(&seen))),
        Some((wanted, _)) => Err(format!("{wanted:?} was not seen\n{}", tail(&seen))),
    }
}

const VIEW: &str = "q: leave the view";
const BANNER: &str = "`poweroff` ends this sandbox";
/// Commands of README's shell, besides those of Debian's few packages.
const EXPECTED: [&str; 5] = ["poweroff", "reboot", "halt", "clear", "which"];

/// The demo as README has it: the live view, `q`, a shell, what the page of `bulkheadctl` shows there, `reboot`, and
/// `poweroff`. Nothing is judged of such a run, so it ends well though something was denied in it.
fn demo_shell(_: &Bench) -> Result<String, String> {
    let page = read("docs/bulkheadctl.md")?;
    let marker = "<!-- typed: guest/demo-shell -->\n```text\n";
    let (_, block) = page.split_once(marker).ok_or("nothing is typed in docs/bulkheadctl.md")?;
    let block = block.split("```").next().unwrap_or_default();
    let shown: Vec<(&str, &str)> =
        block.split("# ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    let mut steps = vec![step(VIEW, "q"), step(BANNER, "")];
    for name in EXPECTED {
        steps.push(step("# ", &format!("which {name} && echo found-$((40 + 2))-{name}\n")));
        steps.push(step(&format!("found-42-{name}"), ""));
    }
    steps.push(step("# ", "clear; echo clear-$?-\n"));
    steps.push(step("clear-0-", ""));
    for (n, (command, _)) in shown.iter().enumerate() {
        steps.push(step("# ", &format!("{command}; echo end-$((40 + {n}))-\n")));
        steps.push(step(&format!("end-{}-", 40 + n), ""));
    }
    steps.push(step("# ", "reboot\n"));
    steps.extend([step(VIEW, "q"), step(BANNER, ""), step("# ", "poweroff\n")]);
    steps.push(step("Power down", ""));
    let seen = at_terminal("systems/demo.toml", 640, &steps)?;
    if seen.contains("BROKEN") || !seen.contains("not judged") {
        return Err(format!("a live run was judged\n{}", tail(&seen)));
    }
    for (n, (command, expected)) in shown.iter().enumerate() {
        let echo = format!("echo end-$((40 + {n}))-");
        let said = seen.split_once(&echo).map_or("", |(_, rest)| rest);
        let said = said.split(&format!("end-{}-", 40 + n)).next().unwrap_or_default();
        let lacking: Vec<_> =
            expected.lines().map(shape).filter(|l| !shape_all(said).contains(l)).collect();
        if !lacking.is_empty() {
            return Err(format!("# {command}\nsays\n{said}\nwithout {lacking:?}"));
        }
    }
    Ok(format!("{} commands of the page, {} of the shell", shown.len(), EXPECTED.len() + 1))
}

/// A line without what differs from run to run: numbers (`-` is none yet), and the width of columns. A sandbox that is
/// restarted again and again is launched again and again.
fn shape(line: &str) -> String {
    let mut text = String::new();
    for word in line.split_whitespace() {
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let word = if word == "-" || word.chars().all(number) { "N" } else { word };
        let word = if word == "launching" { "running" } else { word };
        text += word;
        text.push(' ');
    }
    text
}

fn shape_all(text: &str) -> BTreeSet<String> {
    text.lines().map(shape).collect()
}

/// Checks that a run says each line that a page shows of it, but for the numbers; `...` stands for anything.
///
/// # Errors
/// The first line that the run did not say.
pub fn sample(block: &str, said: &str) -> Result<usize, String> {
    let said: BTreeSet<String> = said.lines().map(numberless).collect();
    // A line that is too long for the page goes on in the next one.
    let whole = block.replace("\n  (", " (").replace("\n  it, ", " it, ");
    let lines = whole.lines().filter(|line| *line != "..." && !line.is_empty());
    let mut count = 0;
    for line in lines {
        let expected = numberless(line).replace("...", "…");
        if !said.iter().any(|line| super::book::is_line(line, &expected)) {
            return Err(format!("the page shows, and the run does not say\n{line}"));
        }
        count += 1;
    }
    Ok(count)
}

/// The block of a page that begins with a line.
///
/// # Errors
/// The page has none.
pub fn block(page: &str, first: &str) -> Result<String, String> {
    let text = read(page)?;
    let (_, rest) = text
        .split_once(&format!("```text\n{first}"))
        .ok_or_else(|| format!("{page}: no {first:?}"))?;
    Ok(format!("{first}{}", rest.split("```").next().unwrap_or_default()))
}

/// A line with 0 for each number. A sandbox that is restarted again and again may be on its way up.
fn numberless(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.trim_end();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let hex = number.strip_prefix("0x");
        let after = hex.unwrap_or(number).trim_start_matches(|c: char| {
            c.is_ascii_digit() || hex.is_some() && c.is_ascii_hexdigit()
        });
        text += before;
        text += "0";
        rest = after;
    }
    (text + rest).replace("launching", "running")
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(build::root().join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Programs with a verb as the first argument.
const WITH_VERBS: [&str; 8] = [
    "make",
    "bulkhead",
    "bulkheadctl",
    "bhchannel",
    "bhdemo",
    "bhvirtio",
    "cargo",
    "bulkhead-harness",
];
/// Programs that do one thing, besides those in `tools/`.
const ALONE: [&str; 8] =
    ["bhview", "bhio", "bhbench", "poweroff", "reboot", "halt", "clear", "which"];

/// The command that a text names, as its program and the verb, if it has one.
fn head(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| word.contains('='));
    let program = words.next()?;
    let program = program.strip_prefix("target/release/").unwrap_or(program);
    let tool = program.strip_prefix("tools/").is_some_and(|name| !name.is_empty());
    if tool || ALONE.contains(&program) {
        return Some(program.to_owned());
    }
    if !WITH_VERBS.contains(&program) {
        return None;
    }
    // Without a verb it is a name, and nothing to type.
    let verb = words.next()?;
    let is_verb =
        verb.starts_with(|c: char| c.is_ascii_lowercase()) && !verb.contains(['.', '/', '=']);
    is_verb.then(|| format!("{program} {verb}"))
}

/// Lists the commands of a page, each with its line. A block without a marker that runs it gives whole lines; text in a
/// line gives program and verb.
fn named(page: &str) -> Vec<(usize, String)> {
    let (mut found, mut fence, mut marked, mut before) = (Vec::new(), None, false, "");
    for (n, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind) };
            marked = before.starts_with("<!-- ");
        } else if let Some(kind) = fence {
            let command = match kind {
                "sh" => Some(line),
                "text" => line.strip_prefix("$ ").or(line.strip_prefix("# ")),
                _ => None,
            };
            // A remark behind it is none of it.
            let command = command.map(|text| text.split("  #").next().unwrap_or(text).trim_end());
            found.extend(
                command
                    .filter(|text| !marked && !text.is_empty())
                    .map(|text| (n + 1, text.to_owned())),
            );
        } else {
            let spans = line.split('`').skip(1).step_by(2).filter(|span| !span.contains(" :: "));
            found.extend(spans.filter_map(head).map(|command| (n + 1, command)));
        }
        before = line;
    }
    found
}

/// Every page's commands have a run behind them, and nothing else has one.
fn commands() -> Result<String, String> {
    let ours: BTreeSet<String> = super::jobs().into_iter().flat_map(|job| job.tests).collect();
    let list = read("tests/book/commands.txt")?;
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    let mut table = BTreeMap::new();
    for line in lines {
        let (command, test) = line.split_once(" => ").ok_or(format!("{line:?} has no ` => `"))?;
        table.insert(command, test);
        let there = match test.strip_prefix("by ") {
            // Not a test but what runs the tests, or is run at the end of each piece of work.
            Some(file) => build::root().join(file.split(':').next().unwrap_or(file)).is_file(),
            None => ours.contains(test),
        };
        if !there {
            return Err(format!("tests/book/commands.txt: {command}: there is no {test}"));
        }
    }
    let mut pages = vec![
        "README.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "linux/init/src/main.rs".to_owned(),
    ];
    let folder = std::fs::read_dir(build::root().join("docs")).map_err(|e| e.to_string())?;
    let names = folder.flatten().filter_map(|file| file.file_name().into_string().ok());
    pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")));
    pages.sort();
    let (mut missing, mut used) = (Vec::new(), BTreeSet::new());
    for page in pages {
        let text = read(&page)?;
        for (line, command) in named(&text) {
            match table.get_key_value(command.as_str()) {
                Some((known, _)) => drop(used.insert(*known)),
                None => missing.push(format!("{page}:{line}: {command}")),
            }
        }
    }
    if !missing.is_empty() {
        return Err(format!("no run is behind\n{}", missing.join("\n")));
    }
    let unused: Vec<_> = table.keys().filter(|command| !used.contains(*command)).collect();
    if !unused.is_empty() {
        return Err(format!("tests/book/commands.txt has what no page names: {unused:?}"));
    }
    Ok(format!("{} commands", table.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_other_words() {
        for (text, is) in [
            ("CI=true bulkhead run x.toml", Some("bulkhead run")),
            ("target/release/bulkhead plan x", Some("bulkhead plan")),
            ("bulkheadctl", None),
            ("make FUZZ=1", None),
            ("tools/", None),
            ("poweroff", Some("poweroff")),
            ("tools/lines.sh --all", Some("tools/lines.sh")),
            ("serves = [\"x\"]", None),
            ("flight", None),
        ] {
            assert_eq!(head(text).as_deref(), is, "{text}");
        }
    }

    #[test]
    fn commands_of_a_page_are_found_once_they_have_no_run() {
        let page = "a `make run` b\n```sh\nmake run  # it\n```\n<!-- run -->\n```text\n$ make x\n```\n\
            ```text\n# halt now\nsaid\n```\n```toml\n# a remark\n```\n";
        let lines = [(1, "make run"), (3, "make run"), (10, "halt now")];
        assert_eq!(named(page), lines.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn samples_differ_in_numbers_only() {
        let said = "[a] x at 0x20f, 12 of 13; more\nheld b: launching, 7\n";
        assert_eq!(sample("[a] x at 0x3, 1 of 2; ...\n...\nheld b: running, 1234\n", said), Ok(2));
        assert!(sample("[a] y at 0x3, 1 of 2; ...\n", said).is_err());
        assert!(sample("held b: running\n", said).is_err());
        let wrapped = "[denied] x y (z) w";
        assert_eq!(sample("[denied] x y\n  (z) w\n", wrapped), Ok(1));
    }

    #[test]
    fn numbers_have_no_shape() {
        assert_eq!(shape("rogue   launching  157 0.000"), shape("rogue running 9 4.2"));
        assert_ne!(shape("rogue stopped 9"), shape("rogue running 9"));
    }
}
