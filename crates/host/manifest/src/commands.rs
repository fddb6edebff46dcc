//! Commands that make the guests' files, for those who execute them. Nothing here executes anything.

use crate::check::{self, Options};
use crate::diagnostic::Diagnostics;
use crate::limits;
use crate::rules::Context;
use crate::source::{Document, Location, k, n};
use std::path::{Path, PathBuf};

/// A command of `[build]`.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The manifest's folder, in which it is run.
    pub folder: PathBuf,
    /// Its place in the manifest.
    pub at: Location,
}

/// Reads the commands of a manifest that has them, and keeps every rule that needs no guest's file.
///
/// # Errors
/// Everything that is wrong with the manifest, the guests' files aside: no command of a wrong one is executed.
pub fn commands(path: &Path, options: &Options) -> Result<Vec<Command>, Diagnostics> {
    let source = limits::read(path).map_err(|finding| Diagnostics::new(vec![*finding]))?;
    // Most manifests have none, and are checked once.
    let (document, errors) = Document::parse(&source, &source.text);
    if errors.is_empty() && document.get(&[k("build")]).is_none() {
        return Ok(Vec::new());
    }
    let options = Options { skip_files: true, ..options.clone() };
    check::all(&source, &options, None, of).map(|(_, commands)| commands)
}

fn of(cx: &Context<'_, '_>) -> Vec<Command> {
    let all = cx.build.iter().flat_map(|build| &build.run).enumerate();
    let folder = if cx.base.as_os_str().is_empty() { Path::new(".") } else { &cx.base };
    let command = |(index, words): (usize, &Vec<String>)| {
        let (program, arguments) = words.split_first()?;
        Some(Command {
            program: program.clone(),
            arguments: arguments.to_vec(),
            folder: folder.to_owned(),
            at: cx.document.at(&[k("build"), k("run"), n(index)]),
        })
    };
    all.filter_map(command).collect()
}
