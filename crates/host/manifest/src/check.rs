//! Loading: text, shape, decoding, files, rules, in this order. Each step uses all that the step before it could
//! decode, so that one run shows every finding.

use crate::artifact;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::machine;
use crate::part::Put;
use crate::rules::{self, Context, Item};
use crate::source::{Document, Source, k, n};
use crate::{limits, schema, shape};
use bulkhead_plan::{Machine, Plan, System};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::{DeValue, ValueDeserializer};

/// How to load.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folder in which `artifact:NAME` is looked up. Without it: the folder in `BULKHEAD_ARTIFACTS`, else
    /// `target/artifacts` in the source tree.
    pub artifacts: Option<PathBuf>,
    /// Machine description that takes the place of the manifest's.
    pub machine: Option<PathBuf>,
    /// True if the guests' files are not opened: a file that is not built yet is no error.
    pub skip_files: bool,
    /// True if admission of the kernels' contexts is not checked. A command that shows by how much contexts fail
    /// needs this.
    pub skip_admission: bool,
}

/// A manifest that keeps every rule, with its machine.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The system before placement.
    pub system: System,
    /// An image length that is about right, for a first [`Checked::plan`].
    pub image_estimate: u64,
    /// Places of the memory sizes, for findings that only placement makes.
    pub(crate) places: rules::Places,
}

impl Checked {
    /// Places everything behind an image of `image_len` bytes.
    ///
    /// # Errors
    /// The parts that do not fit.
    pub fn plan(&self, image_len: u64) -> Result<Plan, Diagnostics> {
        self.system.plan(image_len).map_err(|misfits| {
            Diagnostics::new(
                misfits
                    .into_iter()
                    .map(|misfit| rules::memory::misfit(&self.system, &self.places, misfit))
                    .collect(),
            )
        })
    }
}

/// Reads a manifest and checks it with everything that it names.
///
/// # Errors
/// Everything that was found.
pub fn load(path: &Path, options: &Options) -> Result<Checked, Diagnostics> {
    match limits::read(path) {
        Ok(source) => load_text(&source, options),
        Err(finding) => Err(Diagnostics::new(vec![*finding])),
    }
}

/// Checks a manifest's text; `source.path` says where it would stand.
///
/// # Errors
/// Everything that was found.
pub fn load_text(source: &Arc<Source>, options: &Options) -> Result<Checked, Diagnostics> {
    all(source, options, None, |_| ()).map(|(checked, ())| checked)
}

/// Checks a manifest, with a part in the place of a bay's guest if there is one; and what `look` finds in its context.
pub(crate) fn all<R>(
    source: &Arc<Source>,
    options: &Options,
    put: Option<&Put<'_, '_>>,
    look: impl FnOnce(&Context<'_, '_>) -> R,
) -> Result<(Checked, R), Diagnostics> {
    let (mut document, errors) = Document::parse(source, &source.text);
    // A syntax error may have lost a key: any further finding would be guesswork.
    if !errors.is_empty() {
        return Err(Diagnostics::new(unreadable(&document, &errors)));
    }
    let mut found = limits::check(&document);
    rules::names::sandboxes_too_many(&document, &mut found);
    if !found.is_empty() {
        return Err(Diagnostics::new(found));
    }
    found.extend(shape::check(&document, &schema::manifest()));
    for (put, key) in put.iter().flat_map(|put| ["guest", "memory"].map(|key| (put, key))) {
        let own = vec![k("sandbox"), n(put.bay), k(key)];
        document.put(own, put.document, vec![k("part"), k(key)]);
    }
    let mut decoder = Decoder { document: &document, found: &mut found };
    let mut sandboxes = decoder.many("sandbox");
    let bays = rules::bay::open(&mut sandboxes);
    if let Some(put) = put {
        let bay = sandboxes.iter_mut().find(|one| one.index == put.bay);
        bay.into_iter().for_each(|bay| put.into(&mut bay.raw));
    }
    let mut context = Context {
        document: &document,
        version: decoder.one("version"),
        system: decoder.one("system"),
        build: decoder.one("build"),
        run: decoder.one("run"),
        under_linux: decoder.one("under_linux"),
        sandboxes,
        bays,
        channels: decoder.many("channel"),
        healths: decoder.many("health"),
        alternatives: decoder.many("alternative"),
        peers: decoder.many("peer"),
        roles: decoder.many("role"),
        mmios: decoder.many("shared_mmio"),
        programs: decoder.many("program"),
        threads: decoder.many("thread"),
        contexts: decoder.many("context"),
        endpoints: decoder.many("endpoint"),
        notifications: decoder.many("notification"),
        shared: decoder.many("shared"),
        machine: None,
        base: source.path.parent().unwrap_or(Path::new("")).to_owned(),
        artifacts: options.artifacts.clone().unwrap_or_else(|| artifact::folder(&source.path)),
        skip_files: options.skip_files,
        skip_admission: options.skip_admission,
        guests: Vec::new(),
        put: put.map(|put| (put.bay, put.folder.clone())),
    };
    let without = context.multikernel();
    match describe(&context, options.machine.as_deref()) {
        Ok(machine) => {
            context.machine = machine;
            // The IOMMU stays off: its tables would have to belong to a kernel, which is trusted with all memory
            // anyway.
            if let Some(machine) = context.machine.as_mut().filter(|_| without) {
                machine.iommu = None;
            }
        }
        Err(more) => found.extend(more),
    }
    rules::guests::open(&mut context);
    for rule in rules::ALL {
        rule(&context, &mut found);
    }
    if found.is_empty() {
        let (system, places) = rules::build::system(&context);
        let image_estimate = rules::memory::image_estimate(&context);
        Ok((Checked { system, image_estimate, places }, look(&context)))
    } else {
        Err(Diagnostics::new(found))
    }
}

/// A parser's errors as findings, as many as are ever shown and one more: a text can have one at each byte.
pub(crate) fn unreadable(document: &Document<'_>, errors: &[toml::de::Error]) -> Vec<Diagnostic> {
    errors.iter().take(Diagnostics::MOST + 1).map(|error| syntax(document, error)).collect()
}

/// A parser's or decoder's error as a finding.
pub(crate) fn syntax(document: &Document<'_>, error: &toml::de::Error) -> Diagnostic {
    let at = document.location(error.span().unwrap_or(0..0));
    let message = error.message().replace('\n', ", ");
    let help = if message.starts_with("duplicate key") {
        "a key stands once in a table; of sandboxes, channels and health there may be several, each under two brackets: `[[sandbox]]`"
    } else {
        "the format is described at toml.io; strings stand in quotes"
    };
    Diagnostic::new("syntax", at, format!("this is not TOML as it is expected here: {message}"))
        .help(help)
}

/// Takes pieces of a document apart. A piece of the wrong shape has been
/// reported already and is left out.
struct Decoder<'a, 't> {
    document: &'a Document<'t>,
    found: &'a mut Vec<Diagnostic>,
}

/// Takes out the keys that were reported as unknown, so that the rest of their table is still checked.
fn prune(value: &mut DeValue<'_>, found: &[Diagnostic]) {
    let unknown = |span: std::ops::Range<usize>| {
        found.iter().any(|finding| finding.rule == "unknown-key" && finding.at.range == span)
    };
    match value {
        DeValue::Table(table) => {
            let kept = std::mem::take(table).into_iter().filter(|(key, _)| !unknown(key.span()));
            *table = kept.collect();
            for (_, value) in table.iter_mut() {
                prune(value.get_mut(), found);
            }
        }
        DeValue::Array(array) => array.iter_mut().for_each(|value| prune(value.get_mut(), found)),
        _ => {}
    }
}

impl Decoder<'_, '_> {
    fn decode<T: DeserializeOwned>(&mut self, path: &[crate::source::Step<'_>]) -> Option<T> {
        let mut node = self.document.get(path)?.clone();
        prune(node.get_mut(), self.found);
        match T::deserialize(ValueDeserializer::from(node)) {
            Ok(value) => Some(value),
            Err(error) => {
                // Only if the shape check let it pass: nothing may vanish unseen.
                if self.found.is_empty() {
                    self.found.push(syntax(self.document, &error));
                }
                None
            }
        }
    }

    fn one<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        self.decode(&[k(key)])
    }

    fn many<T: DeserializeOwned>(&mut self, key: &'static str) -> Vec<Item<T>> {
        let array = self.document.get(&[k(key)]).and_then(|node| node.get_ref().as_array());
        let len = array.map_or(0, |array| array.len());
        (0..len)
            .filter_map(|index| {
                let raw = self.decode(&[k(key), n(index)])?;
                Some(Item { table: key, index, raw })
            })
            .collect()
    }
}

/// The machine that the manifest names: looked for from its folder, then from
/// the root of the source tree.
fn describe(
    context: &Context<'_, '_>,
    instead: Option<&Path>,
) -> Result<Option<Machine>, Vec<Diagnostic>> {
    if let Some(path) = instead {
        let source = limits::read(path).map_err(|finding| vec![*finding])?;
        return machine::read(&source).map(Some);
    }
    let machine = context.document.get(&[k("system"), k("machine")]);
    let Some(machine) = machine.and_then(|node| node.get_ref().as_str()) else {
        return Ok(None);
    };
    let near = artifact::join(&context.base, machine);
    let root = artifact::root(&context.document.source().path);
    let far = root.map(|root| artifact::join(&root, machine));
    let path = if near.is_file() { near } else { far.filter(|far| far.is_file()).unwrap_or(near) };
    let source = limits::read(&path).map_err(|finding| {
        if finding.rule != "file-unreadable" {
            return vec![*finding];
        }
        let at = context.document.at(&[k("system"), k("machine")]);
        let help =
            format!("give a path from the manifest's folder, such as `{}`", machine::EXAMPLE);
        vec![Diagnostic::new("machine-missing", at, finding.message).help(help)]
    })?;
    machine::read(&source).map(Some)
}
