//! Holds the book against the code. Blocks that a comment marks are compared with the files that they show. Commands
//! are run, and say the page's lines. Examples compile, and tests that are named exist.
//!
//! | marker before a block, or in a line | check of the block or the line |
//! |---|---|
//! | `<!-- whole: FILE -->` | the block is the file |
//! | `<!-- part: FILE -->` | the block is a part of the file; `…` stands for a gap |
//! | `<!-- run -->` | each line behind `$ ` is run from the repository's root, and says the lines below it; `…` stands for any |
//! | `<!-- in: FILE -->` | each line behind `# ` is run in the Linux of the system in FILE, one after the other, and says the lines below it |
//! | `<!-- made: FILE -->` | a reader of the tutorial makes this file of the block |
//! | `<!-- added: FILE -->` | … and adds the block to it |
//! | `<!-- there -->` | … and types each line behind `$ `, or of `sh` each line, in a tree of those files, which says the lines below it |
//! | `<!-- compiles: NAME -->` | the block in C compiles inside of `tests/book/NAME.c`, with the headers that a reader has |
//! | `FILE :: NAME` as code | the file has a test of that name; `make test :: NAME`: this harness has |

use super::control::{initramfs, said, script};
use super::driver::{Bench, Job};
use super::system::{Manifest, artifacts, run};
use crate::build;
use crate::program::Program as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Pages with commands, and the seconds that they may take.
const RUN: [(&str, u64); 1] = [("kernel-tutorial", 200)];

pub fn jobs() -> Vec<Job> {
    let run = RUN.map(|(page, seconds)| {
        Job::one(format!("book/{page}"), seconds, move |_| runs(&read(&format!("docs/{page}.md"))?))
    });
    let same = Job::one("book/files", 20, |_| each_page(files));
    let named = Job::one("book/tests", 20, |_| each_page(tests));
    let typed = Job::one("book/tutorial", 120, |bench| typed(bench, &read("docs/tutorial.md")?));
    let followed = Job::one("book/two-sandboxes", 400, |_| followed(&read("docs/tutorial.md")?));
    let compiled = Job::one("book/c", 20, |bench| each_page(|page| compiles(page, &bench.dir)));
    run.into_iter().chain([same, named, typed, followed, compiled]).collect()
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(build::root().join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Checks all pages; how much there was to check.
fn each_page(check: impl Fn(&str) -> Result<usize, String>) -> Result<String, String> {
    let folder = std::fs::read_dir(build::root().join("docs")).map_err(|e| e.to_string())?;
    let names = folder.flatten().filter_map(|file| file.file_name().into_string().ok());
    let mut count = 0;
    for page in names.filter(|name| name.ends_with(".md")) {
        let text = read(&format!("docs/{page}"))?;
        count += check(&text).map_err(|why| format!("docs/{page}: {why}"))?;
    }
    match count {
        0 => Err("nothing is marked".into()),
        count => Ok(format!("{count} as they are said to be")),
    }
}

/// Blocks behind a marker, with what the marker says.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("<!-- ") {
        rest = after;
        let Some((marker, behind)) = after.split_once(" -->\n```") else { continue };
        let block = behind.split_once('\n').and_then(|(_, body)| body.split_once("```"));
        if let Some((block, _)) = block.filter(|_| !marker.contains('\n')) {
            found.push((marker, block));
        }
    }
    found
}

fn files(page: &str) -> Result<usize, String> {
    let mut count = 0;
    for (marker, block) in blocks(page) {
        let (whole, file) = match marker.split_once(": ") {
            Some(("whole", file)) => (true, file),
            Some(("part", file)) => (false, file),
            _ => continue,
        };
        let text = read(file)?;
        let same = if whole { text == block } else { has_parts(&text, block) };
        if !same {
            return Err(format!("{file} has not what the page shows of it:\n{block}"));
        }
        count += 1;
    }
    Ok(count)
}

/// Tells if a text has the pieces between lines of `…`, in their order.
fn has_parts(text: &str, block: &str) -> bool {
    let mut rest = text;
    block.split("…\n").all(|piece| match rest.split_once(piece) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

/// Compiles the blocks of a page in C, which all have to be marked. Blocks that are a whole file have a test elsewhere.
fn compiles(page: &str, dir: &Path) -> Result<usize, String> {
    let all = blocks(page);
    let marked =
        all.iter().filter_map(|(marker, block)| Some((marker.strip_prefix("compiles: ")?, block)));
    let mut count = 0;
    for (name, block) in marked {
        let example = dir.join("example.c");
        std::fs::write(&example, block).map_err(|e| format!("{}: {e}", example.display()))?;
        let done = Command::new("gcc")
            .args(["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
            .args(["-Isdk/include", "-Ilinux/support/c/include"])
            .arg(format!("-DEXAMPLE=\"{}\"", example.display()))
            .arg(format!("tests/book/{name}.c"))
            .current_dir(build::root())
            .printed()?;
        if !done.status.success() {
            return Err(format!("{}{block}", String::from_utf8_lossy(&done.stderr)));
        }
        count += 1;
    }
    let whole = |marker: &str| marker.starts_with("whole: ") && marker.ends_with(".c");
    count += all.iter().filter(|(marker, _)| whole(marker)).count();
    match page.matches("\n```c\n").count() {
        shown if shown == count => Ok(count),
        shown => Err(format!("{count} of {shown} blocks in C are marked")),
    }
}

fn runs(page: &str) -> Result<String, String> {
    let mut count = 0;
    for (_, block) in blocks(page).into_iter().filter(|(marker, _)| *marker == "run") {
        for (command, expected) in steps(block, "$ ") {
            let said = shell(command, &build::root())?;
            if !says(&said, expected) {
                return Err(format!("$ {command}\nsays\n{said}\nand not\n{expected}"));
            }
            count += 1;
        }
    }
    Ok(format!("{count} commands"))
}

/// The steps of a block: commands, and what each says.
fn steps<'a>(block: &'a str, prompt: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let steps = block.split(prompt).skip(1);
    steps.map(|step| step.split_once('\n').unwrap_or((step, "")))
}

/// Runs a page's commands in a Linux, which gets them as a script.
fn typed(bench: &Bench, page: &str) -> Result<String, String> {
    let all: Vec<_> = blocks(page)
        .into_iter()
        .filter_map(|(marker, block)| Some((marker.strip_prefix("in: ")?, block)))
        .collect();
    let (file, _) = *all.first().ok_or("nothing is typed")?;
    if all.iter().any(|(other, _)| *other != file) {
        return Err("one system a page".into());
    }
    let steps: Vec<_> = all.iter().flat_map(|(_, block)| steps(block, "# ")).collect();
    let names: Vec<_> = (0..steps.len()).map(|n| format!("step {n}")).collect();
    let commands: Vec<_> = names.iter().zip(&steps).map(|(n, step)| (&n[..], step.0)).collect();
    let manifest = Manifest(
        read(file)?
            .replace("\"../machines/", "\"machines/")
            .replace("artifact:ctl.cpio", "ctl.cpio")
            .replace("console=ttyS1,115200", "console=ttyS1,115200 bulkhead.run=sh:/test.sh"),
    );
    initramfs(None, bench, &script(&commands), &[])?;
    let seen = run(&manifest, &bench.dir, |o| o.limit = Duration::from_secs(100))?;
    for (name, (command, expected)) in names.iter().zip(&steps) {
        let (text, _) = said(&seen, name)?;
        let text = text.trim_start_matches(['\r', '\n']);
        if !says(text, expected) {
            return Err(seen.wrong(format!("# {command}\nsays\n{text}\nand not\n{expected}")));
        }
    }
    Ok(format!("{} commands", steps.len()))
}

/// Follows the tutorial as a reader does: files and commands in the page's order, in a tree beside ours.
fn followed(page: &str) -> Result<String, String> {
    let tree = build::target().join("book");
    plant(&tree).map_err(|e| format!("{}: {e}", tree.display()))?;
    let write = |file: &str, text: &str| {
        let path = tree.join(file);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    let mut count = 0;
    for (marker, block) in blocks(page) {
        if let Some(file) = marker.strip_prefix("made: ") {
            write(file, block)?;
            // The tutorial: "And once more with `logger` for `sensor`."
            if file == "guests/sensor/Cargo.toml" {
                write("guests/logger/Cargo.toml", &block.replace("sensor", "logger"))?;
            }
        } else if let Some(file) = marker.strip_prefix("added: ") {
            let before =
                std::fs::read_to_string(tree.join(file)).map_err(|e| format!("{file}: {e}"))?;
            write(file, &format!("{before}\n{block}"))?;
        } else if marker == "there" && block.contains("$ ") {
            for (command, expected) in steps(block, "$ ") {
                let said = shell(command, &tree)?;
                if !says(&said, expected) {
                    return Err(format!("$ {command}\nsays\n{said}\nand not\n{expected}"));
                }
                count += 1;
            }
        } else if marker == "there" {
            let said = shell(&format!("set -e; {block} echo well"), &tree)?;
            if !said.ends_with("well\n") {
                return Err(format!("{block}says\n{said}"));
            }
            count += block.lines().count();
        }
    }
    match count {
        0 => Err("nothing is typed".into()),
        count => Ok(format!("{count} commands")),
    }
}

/// Plants our tree once more, by links. It has folders of its own where a reader makes files, and the two members that
/// the tutorial adds.
fn plant(tree: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::symlink;
    const OWN: [&str; 5] = ["guests", "systems", "target", "Cargo.toml", "Cargo.lock"];
    let root = build::root();
    for folder in ["guests", "systems"] {
        // An earlier test's files go; those built below `target` stay.
        let _ = std::fs::remove_dir_all(tree.join(folder));
        std::fs::create_dir_all(tree.join(folder))?;
        for file in std::fs::read_dir(root.join(folder))?.flatten() {
            let to = tree.join(folder).join(file.file_name());
            // A folder that is copied has to be one.
            if file.file_name() == "hello-c" {
                std::fs::create_dir(&to)?;
                for part in std::fs::read_dir(file.path())?.flatten() {
                    std::fs::copy(part.path(), to.join(part.file_name()))?;
                }
            } else {
                symlink(file.path(), to)?;
            }
        }
    }
    for file in std::fs::read_dir(&root)?.flatten() {
        let (name, to) = (file.file_name(), tree.join(file.file_name()));
        if !OWN.iter().any(|own| name == *own) && name != ".git" && !to.is_symlink() {
            symlink(file.path(), to)?;
        }
    }
    let members = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let members = members
        .replace("members = [", "members = [\n    \"guests/logger\",\n    \"guests/sensor\",");
    std::fs::write(tree.join("Cargo.toml"), members)?;
    std::fs::copy(root.join("Cargo.lock"), tree.join("Cargo.lock")).map(|_| ())
}

/// Both outputs of a command, as a reader has set up the shell, without notes about this very emulator.
fn shell(command: &str, folder: &Path) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("sh")
        .args(["-c", &format!("{{ {command}\n}} 2>&1")])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", build::target().join("release").display()))
        .env("BULKHEAD_ARTIFACTS", artifacts())
        .env("CI", "true")
        .printed()?;
    let said = String::from_utf8_lossy(&out.stdout);
    Ok(said.split_inclusive('\n').filter(|line| !line.starts_with("bulkhead: note: ")).collect())
}

/// Tells if a line is the expected one, with anything for `…` in it.
pub fn is_line(said: &str, expected: &str) -> bool {
    let Some((first, rest)) = expected.split_once('…') else { return said == expected };
    let Some(mut left) = said.strip_prefix(first) else { return false };
    let pieces: Vec<_> = rest.split('…').collect();
    let (last, between) = pieces.split_last().unwrap_or((&"", &[]));
    for piece in between {
        let Some((_, after)) = left.split_once(piece) else { return false };
        left = after;
    }
    left.ends_with(last)
}

/// A line without the address of an instruction: that is the compiler's.
fn without_address(line: &str) -> String {
    match line.split_once(" at 0x") {
        Some((before, after)) if line.starts_with("[denied] ") => {
            format!("{before} at 0x{}", after.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
        }
        _ => line.to_owned(),
    }
}

/// Tells if the lines are the expected ones, with any others for `…`.
fn says(said: &str, expected: &str) -> bool {
    let trimmed =
        |text: &str| text.lines().map(|line| without_address(line.trim_end())).collect::<Vec<_>>();
    let (said, expected) = (trimmed(said.trim_end()), trimmed(expected.trim_end()));
    let gap = |line: &String| line == "…";
    let (mut at, mut any) = (0, false);
    for (n, piece) in expected.split(gap).enumerate() {
        any = n > 0;
        let end = n == expected.iter().filter(|line| gap(line)).count();
        let place = (at..=said.len()).find(|start| {
            let lines = said[*start..].iter().zip(piece);
            said.len() - start >= piece.len()
                && lines.into_iter().all(|(said, expected)| is_line(said, expected))
                && (any || *start == at)
                && (!end || start + piece.len() == said.len())
        });
        let Some(place) = place else { return false };
        at = place + piece.len();
    }
    any || at == said.len()
}

fn tests(page: &str) -> Result<usize, String> {
    let spans = page.split('`').skip(1).step_by(2);
    let named: Vec<_> = spans.filter_map(|span| span.split_once(" :: ")).collect();
    let ours: Vec<String> = super::jobs().into_iter().flat_map(|job| job.tests).collect();
    for (file, name) in &named {
        let there = match *file {
            "FILE" => continue,
            "make test" => ours.iter().any(|test| test == name),
            file => read(file)?.contains(&format!("fn {name}(")),
        };
        if !there {
            return Err(format!("there is no test {name} in {file}"));
        }
    }
    Ok(named.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_blocks_only() {
        let page = "a\n<!-- run -->\n```text\n$ x\ny\n```\n```text\nz\n```\n<!-- a note -->\n";
        assert_eq!(blocks(page), [("run", "$ x\ny\n")]);
    }

    #[test]
    fn gaps_lie_in_lines_too() {
        let said = "[denied] a at 0x12: port; more\nheld: 53 denied, 53 restarts, launching\n";
        assert!(says(said, "[denied] a at 0x34: port; …\nheld: … denied, … restarts, …\n"));
        assert!(!says(said, "[denied] a at 0x34: msr; …\n…\n"));
        assert!(!says(said, "…\nheld: … denied, … lives, …\n"));
        assert!(!says(said, "…\nheld: … denied, … restarts\n"));
    }

    #[test]
    fn parts_have_an_order() {
        assert!(has_parts("a\nb\nc\nd\n", "a\n…\nc\n"));
        assert!(!has_parts("a\nb\nc\nd\n", "c\n…\na\n"));
        assert!(!has_parts("a\nb\n", "a\nc\n"));
    }

    #[test]
    fn what_is_said_is_what_is_expected() {
        let said = "a\nb\nc\n";
        for expected in ["a\nb\nc\n", "…\nc\n", "a\n…\n", "a\n…\nc\n", "…\nb\n…\n"] {
            assert!(says(said, expected), "{expected}");
        }
        for expected in ["a\nb\n", "b\nc\n", "…\nb\n", "b\n…\n", "a\nc\n", "", "c\n…\na\n"] {
            assert!(!says(said, expected), "{expected}");
        }
    }
}
