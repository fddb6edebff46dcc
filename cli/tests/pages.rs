//! Man pages and completions: each command and option is there, and shells can read them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn bulkhead(arguments: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_bulkhead")).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Writes all of it for one test.
fn pages(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = std::fs::remove_dir_all(&folder);
    bulkhead(&["pages", folder.to_str().unwrap()]);
    folder
}

/// Names below `Commands:` of a help text.
fn subcommands(help: &str) -> Vec<String> {
    let below = help.split_once("Commands:\n").map_or("", |(_, below)| below);
    let entries = below.lines().take_while(|line| !line.is_empty());
    let names = entries.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Long options of a help text.
fn options(help: &str) -> Vec<String> {
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.filter_map(|line| line.split([' ', ',', '=']).find(|w| w.starts_with("--")));
    words.map(str::to_owned).collect()
}

/// Compares a command's page with its help, and goes on below it.
fn walk(words: &[String], folder: &Path, seen: &mut usize) {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let name = [&["bulkhead"], &arguments[..]].concat().join("-");
    arguments.push("--help");
    let help = bulkhead(&arguments);
    let file = folder.join(format!("man/man1/{name}.1"));
    let page = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    for option in options(&help) {
        let written = option.replace('-', "\\-");
        assert!(page.contains(&written), "{name}.1 lacks {option}");
    }
    for part in [".SH NAME", ".SH SYNOPSIS", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT"] {
        assert!(page.contains(part), "{name}.1 lacks {part}");
    }
    *seen += 1;
    for below in subcommands(&help) {
        walk(&[words, &[below]].concat(), folder, seen);
    }
}

#[test]
fn each_subcommand_has_a_page_with_each_of_its_options() {
    let folder = pages("manual");
    let mut seen = 0;
    walk(&[], &folder, &mut seen);
    assert!(seen > 17, "{seen} commands");
    let all = folder.join("man/man1").read_dir().unwrap().count();
    // Those two have no command line in clap.
    assert_eq!(all, seen + 2);
    let ctl = std::fs::read_to_string(folder.join("man/man1/bulkheadctl.1")).unwrap();
    for word in ["create PART.toml", "machine enable IMAGE", ".SH OPTIONS"] {
        assert!(ctl.contains(word), "bulkheadctl.1 lacks {word}");
    }
    let cc = std::fs::read_to_string(folder.join("man/man1/bulkhead-cc.1")).unwrap();
    assert!(cc.contains("bulkhead\\-cc program OUTPUT"), "{cc}");
}

/// Words that bash offers for the last of a line.
fn offered(file: &Path, line: &str) -> Vec<String> {
    let words = line.split(' ').count();
    let script = format!(
        "source {0}\nCOMP_WORDS=({1})\nCOMP_CWORD={2}\nCOMP_LINE='{1}'\nCOMP_POINT=${{#COMP_LINE}}\n\
         _bulkhead bulkhead \"${{COMP_WORDS[{2}]}}\" \"${{COMP_WORDS[{3}]}}\" 2>/dev/null\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\ncomplete -p bulkhead\n",
        file.display(),
        line,
        words - 1,
        words - 2
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = String::from_utf8(bash.output().unwrap().stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_offers_commands_options_and_files() {
    let file = pages("bash").join("bash-completion/completions/bulkhead");
    let has = |line: &str, word: &str| {
        let offered = offered(&file, line);
        assert!(offered.iter().any(|one| one == word), "{line}: {word} is not in {offered:?}");
    };
    has("bulkhead che", "check");
    has("bulkhead check --for", "--format");
    has("bulkhead check --format js", "json");
    has("bulkhead inject sh", "show");
    has("bulkhead plan systems/demo.toml --svg Carg", "Cargo.toml");
    // For a word that the function has no answer to, bash offers files by itself.
    let answer = offered(&file, "bulkhead check Carg");
    assert!(matches!(&answer[..], [only] if only.contains("-o default")), "{answer:?}");
}

#[test]
fn shells_can_read_their_completions() {
    let folder = pages("shells");
    let files = [
        ("bash", "bash-completion/completions/bulkhead"),
        ("zsh", "zsh/site-functions/_bulkhead"),
        ("fish", "fish/vendor_completions.d/bulkhead.fish"),
    ];
    for (shell, file) in files {
        let file = folder.join(file);
        assert!(file.is_file(), "{}", file.display());
        // A machine need not have all shells.
        let Ok(done) = Command::new(shell).arg("-n").arg(&file).output() else { continue };
        assert!(done.status.success(), "{shell}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
