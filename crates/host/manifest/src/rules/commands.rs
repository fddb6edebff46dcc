//! Commands that make the guests' files.

use super::Context;
use crate::diagnostic::Diagnostic;
use crate::source::{k, n};

/// Each command of `[build]` names a program, and nothing in it ends a text for the operating system.
pub fn build_command(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let commands = cx.build.iter().flat_map(|build| &build.run).enumerate();
    for (index, words) in commands {
        let at = |word: Option<usize>| {
            let whole = [k("build"), k("run"), n(index)];
            let path: Vec<_> = whole.into_iter().chain(word.map(n)).collect();
            cx.document.at(&path)
        };
        let help = "write a program and its arguments: `[\"cargo\", \"build\", \"--release\"]`";
        if words.first().is_none_or(String::is_empty) {
            let message = "a command without a program".to_owned();
            found.push(Diagnostic::new("build-command", at(None), message).help(help));
        }
        if let Some(word) = words.iter().position(|word| word.contains('\0')) {
            let message = "a NUL in a command: no program can be given that".to_owned();
            found.push(Diagnostic::new("build-command", at(Some(word)), message).help(help));
        }
    }
}
