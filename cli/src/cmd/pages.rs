//! `bulkhead pages`, hidden: man pages and completions. `tools/install.sh` puts them where an installation has them.
//!
//! A subcommand, and no build script: those who build the command need no page, and pages need the whole command line.

use crate::output;
use crate::status::{STATUSES, VARIABLES};
use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write man pages and completions for shells.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder `share` of an installation.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Shells, and where each of them looks for others' completions below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Pages of what has no command line in clap: name, a line about it, and its usage.
const OTHERS: [(&str, &str, &str); 2] = [
    (
        "bulkheadctl",
        "other sandboxes on the command line of a Linux that the manifest trusts with them",
        include_str!("../../../linux/bulkheadctl/src/usage.txt"),
    ),
    ("bulkhead-cc", "compile and link C for Bulkhead", include_str!("../../../sdk/c/cc.sh")),
];

/// Writes all of it.
pub fn run(arguments: &Arguments, command: &mut Command) -> ExitCode {
    match written(&arguments.folder, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::fail(&format!("{}: {error}", arguments.folder.display())),
    }
}

fn written(folder: &Path, command: &mut Command) -> Result<()> {
    *command = in_short(command.clone());
    for (shell, place) in SHELLS {
        let place = folder.join(place);
        std::fs::create_dir_all(&place)?;
        let file = generate_to(shell, command, "bulkhead", &place)?;
        // bash-completion(7) loads a file of the command's own name.
        if shell == Shell::Bash {
            std::fs::rename(file, place.join("bulkhead"))?;
        }
    }
    let pages = folder.join("man/man1");
    std::fs::create_dir_all(&pages)?;
    // Names each subcommand after all words that lead to it.
    command.build();
    for (name, text) in manual(command)? {
        std::fs::write(pages.join(format!("{name}.1")), text)?;
    }
    for (name, about, usage) in OTHERS {
        std::fs::write(pages.join(format!("{name}.1")), other(name, about, usage))?;
    }
    Ok(())
}

/// Leaves lists and titles the first sentence about each command; all sentences stay in its own description.
fn in_short(command: Command) -> Command {
    let whole = command.get_about().map(ToString::to_string).unwrap_or_default();
    let first = whole.split(". ").next().unwrap_or_default().to_owned();
    command.about(first).long_about(whole).mut_subcommands(in_short)
}

/// Pages of a command and of those below it, by name.
fn manual(command: &Command) -> Result<Vec<(String, String)>> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut text = Vec::new();
    Man::new(command.clone()).source(SOURCE).manual(MANUAL).render(&mut text)?;
    let mut text = String::from_utf8(text).map_err(Error::other)?;
    text += &ending(&name);
    let mut all = vec![(name, text)];
    // `help` shows what the pages have.
    let shown = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(shown) {
        all.extend(manual(below)?);
    }
    Ok(all)
}

/// Both ends of a page's last line.
const SOURCE: &str = concat!("bulkhead ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Bulkhead";

/// Sections that each page of the command ends with.
fn ending(name: &str) -> String {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        entry(&mut page, &status.to_string(), meaning);
    }
    page.control("SH", ["ENVIRONMENT"]);
    for (variable, effect) in VARIABLES {
        entry(&mut page, variable, effect);
    }
    if name != "bulkhead" {
        page.control("SH", ["SEE ALSO"]);
        page.text([bold("bulkhead"), roman("(1)")]);
    }
    page.to_roff()
}

fn entry(page: &mut Roff, term: &str, meaning: &str) {
    page.control("TP", []);
    page.text([bold(term)]);
    page.text([roman(meaning)]);
}

/// A page of a usage text. A line that is indented has a term, blanks and its meaning. `word:` opens a section.
/// A script has it as its first comment.
fn other(name: &str, about: &str, usage: &str) -> String {
    let mut page = Roff::new();
    page.control("TH", [name, "1", "", SOURCE, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["DESCRIPTION"]);
    let comment = usage.starts_with("#!");
    let lines = usage.lines().skip(usize::from(comment));
    for line in lines.take_while(|line| !comment || line.starts_with('#')) {
        let line = if comment { line.trim_start_matches('#') } else { line };
        if line.contains("SPDX") {
            continue;
        }
        // A comment has a blank before each of its lines.
        let indented = line.starts_with(if comment { "   " } else { "  " });
        let line = line.trim().replace("cc.sh", "bulkhead-cc");
        match (line.split_once("  "), line.strip_suffix(':').filter(|title| !title.contains(' '))) {
            _ if line.is_empty() => page.control("PP", []),
            (Some((term, meaning)), _) if indented => {
                entry(&mut page, term, meaning.trim());
                &mut page
            }
            (None, _) if indented => page.control("TP", []).text([bold(line)]),
            (_, Some(title)) => page.control("SH", [title.to_uppercase().as_str()]),
            _ => page.control("PP", []).text([roman(line)]),
        };
    }
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_has_terms_and_sections() {
        let page = other(
            "tool",
            "do it",
            "usage: tool WORD\n  list    all of it\noptions:\n  --one N  a number\n",
        );
        for part in
            ["tool \\- do it", "\\fBlist\\fR", "all of it", ".SH OPTIONS", "\\fB\\-\\-one N\\fR"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        let script = other(
            "tool",
            "do it",
            "#!/bin/sh\n# Does it:\n#\n#   cc.sh one FILE   a file\n# SPDX-1\nset -eu\n",
        );
        assert!(
            script.contains("\\fBbulkhead\\-cc one FILE\\fR") && !script.contains("SPDX"),
            "{script}"
        );
        assert!(!script.contains("set"), "{script}");
    }
}
