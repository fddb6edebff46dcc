//! Which of the monitor's text was reached, and the source lines of what was not.

use crate::program::Program as _;
use std::collections::BTreeMap;
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
            // What fills the gap to the next function.
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
            // What the compiler brought from elsewhere is nobody's line here.
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
