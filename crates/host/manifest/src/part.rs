//! Parts: what a sandbox creates in a bay of another one's while the machine runs. A part is checked as if it stood in
//! the system's manifest, by the rules for that.

use crate::check::{self, Options};
use crate::diagnostic::{Diagnostic, Diagnostics, join};
use crate::raw::{Guest, Part, Sandbox};
use crate::rules::names::{not_plain, wrong_name};
use crate::rules::{Context, guests};
use crate::size;
use crate::source::{Document, Location, k};
use crate::{limits, schema, shape};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::de::ValueDeserializer;

/// A part that fits in a bay.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The part's name.
    pub name: String,
    /// The bay's.
    pub bay: String,
    /// The file of its program.
    pub program: PathBuf,
    /// Text for it.
    pub args: String,
}

/// A part in the place of a bay's guest.
pub(crate) struct Put<'a, 't> {
    /// The bay's index in the system's manifest.
    pub bay: usize,
    pub document: &'a Document<'t>,
    pub part: &'a Part,
    pub folder: PathBuf,
}

impl Put<'_, '_> {
    /// Puts it into the sandboxes that were decoded.
    pub fn into(&self, sandbox: &mut Sandbox) {
        let Guest::Bare { program, args, .. } = &self.part.guest else { return };
        let Guest::Bare { program: own, args: text, .. } = &mut sandbox.guest else { return };
        (*own, *text) = (program.clone(), args.clone());
        sandbox.memory = crate::raw::Memory::Size(self.part.memory.clone());
    }
}

/// Checks a part against a system, and finds the smallest bay for it. `taken` says why a bay cannot be had now.
///
/// # Errors
/// Everything that was found in either file; `part-room`: no bay fits.
pub fn load(
    part: &Path,
    system: &Path,
    options: &Options,
    taken: impl Fn(&str) -> Option<String>,
) -> Result<Fit, Diagnostics> {
    let read = |path| limits::read(path).map_err(|finding| Diagnostics::new(vec![*finding]));
    let (source, system) = (read(part)?, read(system)?);
    let (document, errors) = Document::parse(&source, &source.text);
    if !errors.is_empty() {
        return Err(Diagnostics::new(check::unreadable(&document, &errors)));
    }
    let mut found = limits::check(&document);
    found.extend(shape::check(&document, &schema::part()));
    if !found.is_empty() {
        return Err(Diagnostics::new(found));
    }
    let node = document.get(&[k("part")]).cloned();
    let part = match node.map(|node| Part::deserialize(ValueDeserializer::from(node))) {
        Some(Ok(part)) => part,
        Some(Err(error)) => {
            return Err(Diagnostics::new(vec![check::syntax(&document, &error)]));
        }
        None => return Err(Diagnostics::new(vec![missing(&document)])),
    };
    if let Some(why) = not_plain(&part.name) {
        let at = document.at(&[k("part"), k("name")]);
        return Err(Diagnostics::new(vec![wrong_name("part", &part.name, &why, at)]));
    }
    let written = document.get(&[k("part"), k("guest"), k("access")]);
    if let Some(access) = written.filter(|access| access.get_ref().as_str() != Some("rwx")) {
        let at = document.location(access.span());
        let message = "a part has all rights to its memory".to_owned();
        let help = "leave `access` out: the bay's tables were made before the part was";
        return Err(Diagnostics::new(vec![Diagnostic::new("part-guest", at, message).help(help)]));
    }
    let Guest::Bare { program, args, .. } = &part.guest else {
        let at = document.at(&[k("part"), k("guest"), k("kind")]);
        let finding = Diagnostic::new("part-guest", at, "a part is a bare guest".to_owned());
        let help = "write `guest = { kind = \"bare\", program = \"FILE\" }`";
        return Err(Diagnostics::new(vec![finding.help(help)]));
    };
    // The system's other files lie where it was built.
    let options = Options { skip_files: true, skip_admission: true, ..options.clone() };
    let (_, bay) = check::all(&system, &options, None, |cx| choose(cx, &document, &part, &taken))?;
    let (bay, name) = bay.map_err(|finding| Diagnostics::new(vec![*finding]))?;
    let folder = source.path.parent().unwrap_or(Path::new("")).to_owned();
    let (base, args) = (folder.clone(), args.clone().unwrap_or_default());
    let put = Put { bay, document: &document, part: &part, folder };
    let artifacts = |cx: &Context<'_, '_>| cx.artifacts.clone();
    let (_, artifacts) = check::all(&system, &options, Some(&put), artifacts)?;
    let program = guests::resolve(&base, &artifacts, program);
    Ok(Fit { name: part.name.clone(), bay: name, program, args })
}

fn missing(document: &Document<'_>) -> Diagnostic {
    let at = Location::start(document.source());
    let message = "there is no `[part]`".to_owned();
    Diagnostic::new("part-guest", at, message).help("docs/bays.md has one to begin with")
}

/// The smallest bay that has all that a part asks for: its index in the file, and its name.
fn choose(
    cx: &Context<'_, '_>,
    document: &Document<'_>,
    part: &Part,
    taken: &impl Fn(&str) -> Option<String>,
) -> Result<(usize, String), Box<Diagnostic>> {
    if cx.knows(&part.name) {
        let at = document.at(&[k("part"), k("name")]);
        let message = format!("`{}` is a sandbox of the system", part.name);
        let finding = Diagnostic::new("name-twice", at, message);
        return Err(Box::new(finding.help("give the part another name")));
    }
    let bays = cx.sandboxes.iter().filter(|sandbox| cx.bays.contains(&sandbox.index));
    let memory = |text: &str| size::parse(text).unwrap_or(0);
    let wrong = |sandbox: &Sandbox| {
        let asked = memory(&part.memory);
        let has = sandbox.memory.size();
        if asked > memory(has) {
            return Some(format!("has {has}"));
        }
        let device = |name: &&String| !sandbox.devices.iter().any(|own| own.name() == **name);
        if let Some(device) = part.devices.iter().find(device) {
            return Some(format!("has no device `{device}`"));
        }
        let ends = |name: &String| {
            let mut ends = cx.channels.iter().filter(|channel| channel.name == *name);
            ends.any(|one| one.from == sandbox.name || one.to.contains(&sandbox.name))
        };
        if let Some(channel) = part.channels.iter().find(|name| !ends(name)) {
            return Some(format!("is at no end of `{channel}`"));
        }
        taken(&sandbox.name)
    };
    let (mut fitting, mut reasons) = (Vec::new(), Vec::new());
    for bay in bays {
        match wrong(bay) {
            None => fitting.push(bay),
            Some(why) => reasons.push(format!("`{}` {why}", bay.name)),
        }
    }
    if let Some(bay) = fitting.into_iter().min_by_key(|bay| memory(bay.memory.size())) {
        return Ok((bay.index, bay.name.clone()));
    }
    let at = document.at(&[k("part"), k("name")]);
    let finding = Diagnostic::new("part-room", at, format!("no bay takes `{}`", part.name));
    Err(Box::new(finding.help(match reasons.is_empty() {
        true => "the system has no `[[sandbox]]` with `guest = { kind = \"vacant\" }`".into(),
        false => join(&reasons),
    })))
}
