//! Names, counts and references of the system as a whole.

use super::Context;
use super::guests::resolve;
use crate::diagnostic::{Diagnostic, list};
use crate::raw;
use crate::shape::brief;
use crate::source::{Document, Location, k, n};
use bulkhead_layout::MAX_SANDBOXES;
use bulkhead_layout::info::NAME;

/// The format's version is one that this program knows.
pub fn version_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if let Some(version) = cx.version.filter(|version| *version != 1) {
        let message = format!("manifest version {version} is not known");
        found.push(
            Diagnostic::new("version-known", cx.document.at(&[k("version")]), message)
                .help("write `version = 1`"),
        );
    }
}

/// Every name with its place: system, sandboxes, channels, parts of kernels' sandboxes.
fn names<'a>(cx: &'a Context<'_, '_>) -> Vec<(&'static str, &'a str, Location)> {
    let system = cx
        .system
        .iter()
        .map(|system| ("system", system.name.as_str(), cx.document.at(&[k("system"), k("name")])));
    let sandboxes =
        cx.sandboxes.iter().map(|item| ("sandbox", item.name.as_str(), cx.at(item, &[k("name")])));
    let channels =
        cx.channels.iter().map(|item| ("channel", item.name.as_str(), cx.at(item, &[k("name")])));
    let roles = cx.roles.iter().map(|item| ("role", item.name.as_str(), cx.at(item, &[k("name")])));
    let mmios = cx.mmios.iter();
    let mmios = mmios.map(|item| ("shared_mmio", item.name.as_str(), cx.at(item, &[k("name")])));
    let others = cx
        .alternatives
        .iter()
        .map(|item| ("alternative", item.name.as_str(), cx.at(item, &[k("name")])))
        .chain(roles)
        .chain(mmios);
    let parts = super::kernel::names::every(cx);
    let parts = parts.into_iter().map(|part| (part.table, part.name, part.at));
    system.chain(sandboxes).chain(channels).chain(others).chain(parts).collect()
}

/// Openings of lines that `bulkhead run` prints itself, in brackets: a guest of that name could print such lines.
const OWN_MARKS: [&str; 3] = ["denied", "blocked", "lost"];

/// Names are short and plain: they go into fixed fields, files and commands.
pub fn name_plain(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for (what, name, at) in names(cx) {
        let own = (what == "sandbox" && OWN_MARKS.contains(&name)).then(|| {
            "lines of `bulkhead run` itself begin with it, and a guest's with its name".to_owned()
        });
        if let Some(why) = not_plain(name).or(own) {
            found.push(wrong_name(what, name, &why, at));
        }
    }
}

/// The finding for a name that cannot be one.
pub fn wrong_name(what: &str, name: &str, why: &str, at: Location) -> Diagnostic {
    let message = format!("`{}` cannot be the name of a {what}: {why}", brief(name));
    let help = format!("use 1 to {} of a-z, 0-9 and -, a letter first", NAME - 1);
    Diagnostic::new("name-plain", at, message).label("this name").help(help)
}

/// Why a text cannot be a name, if it cannot.
pub fn not_plain(name: &str) -> Option<String> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() {
        Some("it is empty".to_owned())
    } else if name.len() >= NAME {
        Some(format!("it has {} bytes", name.len()))
    } else if let Some(wrong) = name.chars().find(|c| !letters(*c)) {
        Some(format!("it contains {wrong:?}"))
    } else {
        let letter = name.starts_with(|c: char| c.is_ascii_lowercase());
        (!letter).then(|| "it does not start with a letter".to_owned())
    }
}

/// Sandboxes, channels and roles have names of their own: guests look them up by name.
pub fn name_twice(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let own = |what: &str| matches!(what, "sandbox" | "channel" | "role");
    let names: Vec<_> = names(cx).into_iter().filter(|(what, ..)| own(what)).collect();
    for (index, (what, name, at)) in names.iter().enumerate() {
        let Some((other, _, first)) = names[..index].iter().find(|(_, earlier, _)| earlier == name)
        else {
            continue;
        };
        let message = format!("the name `{}` of this {what} is a {other}'s already", brief(name));
        found.push(
            Diagnostic::new("name-twice", at.clone(), message)
                .label("second use")
                .related(first.clone(), "first use")
                .help("give each sandbox, each channel and each role a name of its own"),
        );
    }
}

/// There is something to run.
pub fn sandbox_none(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let missing = match cx.document.get(&[k("sandbox")]) {
        None => true,
        Some(node) => node.get_ref().as_array().is_some_and(|array| array.is_empty()),
    };
    if missing {
        found.push(
            Diagnostic::new(
                "sandbox-none",
                cx.document.at(&[k("system")]),
                "the system has no sandbox",
            )
            .help("add a `[[sandbox]]` with name, guest, cores and memory"),
        );
    }
}

/// A set of sandboxes is one 32-bit word. Asked before the rules: many of them look at each pair.
pub fn sandboxes_too_many(document: &Document<'_>, found: &mut Vec<Diagnostic>) {
    let count = document
        .get(&[k("sandbox")])
        .and_then(|node| node.get_ref().as_array())
        .map_or(0, |all| all.len());
    if count > MAX_SANDBOXES {
        let first = document.at(&[k("sandbox"), n(MAX_SANDBOXES)]);
        let message = format!("{count} sandboxes are too many");
        found.push(
            Diagnostic::new("sandboxes-too-many", first, message)
                .label("the first one too many")
                .help(format!("a system has at most {MAX_SANDBOXES} sandboxes")),
        );
    }
}

/// A scenario's text is for sandboxes that exist, and for a program of a kernel's sandbox.
pub fn scenario_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(run) = &cx.run else { return };
    for (index, scenario) in run.scenario.iter().enumerate() {
        let at = |key| cx.document.at(&[k("run"), k("scenario"), n(index), k(key)]);
        if !cx.knows(&scenario.sandbox) {
            found.push(cx.unknown_sandbox("scenario-known", at("sandbox"), &scenario.sandbox));
        } else if let Some((key, message, help)) = wrong_program(cx, scenario) {
            found.push(Diagnostic::new("scenario-known", at(key), message).help(help));
        }
    }
}

/// Returns the mistake in a scenario's program, if there is one, and how to mend it.
fn wrong_program(
    cx: &Context<'_, '_>,
    scenario: &raw::Scenario,
) -> Option<(&'static str, String, String)> {
    let sandbox = cx.sandboxes.get(cx.sandbox_index(&scenario.sandbox)?)?;
    let kernel = matches!(sandbox.guest, raw::Guest::Kernel { .. });
    let names = super::kernel::parts(cx, sandbox).names("program");
    let (name, choice) = (&scenario.sandbox, format!("its programs are {}", list(&names)));
    match &scenario.program {
        None if kernel && scenario.append.is_empty() => None,
        None if kernel => {
            Some(("sandbox", format!("`{name}` runs programs; one of them is meant"), choice))
        }
        Some(program) if !kernel => {
            let message = format!("`{name}` runs no kernel, so it has no program `{program}`");
            Some(("program", message, "leave `program` out".into()))
        }
        Some(program) if !names.contains(&program.as_str()) => {
            Some(("program", format!("`{name}` has no program `{}`", brief(program)), choice))
        }
        _ => None,
    }
}

/// A run ends with sandboxes that exist, each named once.
pub fn ends_with_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some(run) = &cx.run else { return };
    for (index, name) in run.ends_with.iter().enumerate() {
        let at = cx.document.at(&[k("run"), k("ends_with"), n(index)]);
        if !cx.knows(name) {
            found.push(cx.unknown_sandbox("ends-with-known", at, name));
        } else if run.ends_with[..index].contains(name) {
            let message = format!("`{name}` stands here twice");
            found.push(Diagnostic::new("ends-with-known", at, message).help("name it once"));
        }
    }
}

/// A hub is of networks that the machine has.
pub fn hub_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let (Some(run), Some(machine)) = (&cx.run, &cx.machine) else { return };
    for (index, name) in run.hub.iter().enumerate() {
        let (message, help) = if !machine.networks.contains(name) {
            let help = match machine.networks.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", list(&machine.networks)),
            };
            (format!("machine `{}` has no network `{}`", machine.name, brief(name)), help)
        } else if run.hub[..index].contains(name) {
            (format!("`{name}` stands here twice"), "name it once".to_owned())
        } else {
            continue;
        };
        let at = cx.document.at(&[k("run"), k("hub"), n(index)]);
        found.push(Diagnostic::new("hub-known", at, message).help(help));
    }
}

/// Files are for drives that the machine has, one for each.
pub fn drive_known(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let (Some(run), Some(machine)) = (&cx.run, &cx.machine) else { return };
    for (index, drive) in run.drive.iter().enumerate() {
        let at = |key| cx.document.at(&[k("run"), k("drive"), n(index), k(key)]);
        if !machine.drives.contains(&drive.name) {
            let message = format!("machine `{}` has no drive `{}`", machine.name, drive.name);
            let help = match machine.drives.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", list(&machine.drives)),
            };
            found.push(Diagnostic::new("drive-known", at("name"), message).help(help));
        } else if run.drive[..index].iter().any(|other| other.name == drive.name) {
            let message = format!("drive `{}` is given twice", drive.name);
            let help = "a drive has one file";
            found.push(Diagnostic::new("drive-known", at("name"), message).help(help));
        }
        // Other runs have the artifacts, too.
        if drive.keep && drive.file.starts_with("artifact:") {
            let message = format!("drive `{}` would change an artifact", drive.name);
            let help = "name a copy of your own by its path, or leave `keep` out";
            found.push(Diagnostic::new("drive-known", at("keep"), message).help(help));
        }
        let path = resolve(&cx.base, &cx.artifacts, &drive.file);
        if cx.skip_files {
            continue;
        }
        if let Err(error) = std::fs::metadata(&path) {
            let message = format!("there is no file for drive `{}`: {error}", drive.name);
            let help = format!("it is looked for at {}", path.display());
            found.push(Diagnostic::new("drive-known", at("file"), message).help(help));
        }
    }
}
