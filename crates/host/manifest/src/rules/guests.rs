//! Guests: their files exist, have the right kind, and fit.

use super::memory::wrong_size;
use super::{Context, GuestFile, Item, Kind, Opened};
use crate::diagnostic::{Diagnostic, nearest};
use crate::guest_file::{self, IMAGE, IMAGE_HELP, Kernel, Program};
use crate::raw::{self, Access, Guest};
use crate::shape::brief;
use crate::size::{self, show};
use crate::source::{Location, k, n};
use crate::{artifact, guest_file::Segment};
use bulkhead_kernel_abi::at;
use bulkhead_layout::{PAGE, info};
use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

const _: () = assert!(at::PROGRAM == 0x40_0000 && at::HEAP == 0x1_0000_0000);

/// Segments start here at the earliest: page tables and descriptors of the bare
/// virtual machine lie below. A program as such starts at 0x20_0000; between the
/// two lies only the start-up code of its further cores, which begin at low addresses.
pub const PROGRAM_LOWEST: u64 = 0x8000;
/// Addresses of a kernel's programs.
const PROGRAM: Range<u64> = at::PROGRAM..at::HEAP;
/// Longest kernel command line.
pub const CMDLINE: usize = 2047;
/// Longest argument text, without its final zero.
pub const ARGS: usize = 255;
/// More than this of a file is never needed in memory at once.
const READ_LIMIT: u64 = 256 << 20;

/// A key that names a file: its place, the kind of file that it wants, and its value.
struct Named<'a> {
    table: &'static str,
    index: usize,
    /// Index of a program in an alternative.
    inner: usize,
    key: &'static str,
    kind: Kind,
    written: Cow<'a, str>,
}

/// Everything that names a file of a guest or of a program.
fn named<'a>(cx: &'a Context<'_, '_>) -> Vec<Named<'a>> {
    let mut all = Vec::new();
    for Described { table, index, guest, .. } in described(cx) {
        let mut add = |key, kind, written: &str| {
            let written = Cow::Owned(written.to_owned());
            all.push(Named { table, index, inner: 0, key, kind, written });
        };
        match &*guest {
            Guest::Linux { kernel, initrd, .. } => {
                add("kernel", Kind::Linux, kernel);
                initrd.iter().for_each(|initrd| add("initrd", Kind::Initrd, initrd));
            }
            Guest::Bare { program, .. } => add("program", Kind::Bare, program),
            Guest::Vacant {} => {}
            Guest::Kernel { kernel, trace, .. } => {
                let file = super::kernel::file(kernel.as_deref(), trace.as_deref());
                add("kernel", Kind::Kernel, file);
            }
        }
    }
    let program = |item: &'a Item<raw::Program>| Named {
        table: "program",
        index: item.index,
        inner: 0,
        key: "file",
        kind: Kind::Program,
        written: Cow::Borrowed(&item.file),
    };
    all.extend(cx.programs.iter().map(program));
    for alternative in &cx.alternatives {
        let instead = |(inner, program): (usize, &'a raw::Instead)| Named {
            table: "alternative",
            index: alternative.index,
            inner,
            key: "file",
            kind: Kind::Program,
            written: Cow::Borrowed(&program.file),
        };
        all.extend(alternative.programs.iter().enumerate().map(instead));
    }
    all
}

/// A guest that the manifest describes.
struct Described<'a> {
    table: &'static str,
    index: usize,
    sandbox: &'a Item<raw::Sandbox>,
    guest: Cow<'a, Guest>,
    /// Its sandbox's name, or its own.
    name: &'a str,
}

/// Lists the guests of all sandboxes, and those that can take their places.
fn described<'a>(cx: &'a Context<'_, '_>) -> Vec<Described<'a>> {
    let own = cx.sandboxes.iter().map(|sandbox| Described {
        table: "sandbox",
        index: sandbox.index,
        sandbox,
        guest: Cow::Borrowed(&sandbox.guest),
        name: &sandbox.name,
    });
    let other = |item: &'a Item<raw::Alternative>| {
        Some(Described {
            table: "alternative",
            index: item.index,
            sandbox: &cx.sandboxes[cx.sandbox_index(&item.sandbox)?],
            guest: Cow::Owned(item.guest.as_ref()?.guest()),
            name: &item.name,
        })
    };
    own.chain(cx.alternatives.iter().filter_map(other)).collect()
}

/// Returns the place of the key that names a file.
fn file_at(cx: &Context<'_, '_>, table: &str, at: [usize; 2], key: &str) -> Location {
    let [index, inner] = at;
    match (table, key) {
        ("alternative", "file") => {
            cx.document.at(&[k(table), n(index), k("programs"), n(inner), k(key)])
        }
        ("sandbox" | "alternative", _) => cx.document.at(&[k(table), n(index), k("guest"), k(key)]),
        _ => cx.document.at(&[k(table), n(index), k(key)]),
    }
}

/// Why a path is not plain, if it is not.
fn not_plain(path: &str) -> Option<String> {
    let (name, artifact) = match path.strip_prefix(artifact::PREFIX) {
        Some(name) => (name, true),
        None => (path, false),
    };
    if name.is_empty() {
        return Some("it is empty".into());
    }
    if let Some(wrong) =
        name.chars().find(|c| c.is_control() || matches!(c, '$' | '~' | '*' | '?' | '\\'))
    {
        return Some(format!("it contains {wrong:?}"));
    }
    let inside = !name.starts_with('.') && !name.contains('/');
    (artifact && !inside)
        .then(|| "an artifact's name has no `/` and does not start with `.`".into())
}

/// The file that a guest's path means.
#[must_use]
pub fn resolve(base: &Path, artifacts: &Path, written: &str) -> std::path::PathBuf {
    match written.strip_prefix(artifact::PREFIX) {
        Some(name) => artifacts.join(name),
        None => artifact::join(base, written),
    }
}

/// Looks at all files that guests name.
pub fn open(cx: &mut Context<'_, '_>) {
    let mut guests = Vec::new();
    for Named { table, index, inner, key, kind, written } in named(cx) {
        let put = cx.put.as_ref().filter(|(bay, _)| table == "sandbox" && *bay == index);
        if not_plain(&written).is_some() || cx.skip_files && put.is_none() {
            continue;
        }
        let base = put.map_or(&cx.base, |(_, folder)| folder);
        let path = resolve(base, &cx.artifacts, &written);
        let (len, file) = match look(&path, kind, cx.facts().elf) {
            Ok((len, file)) => (Ok(len), Some(file)),
            Err(why) => (Err(why), None),
        };
        let written = written.into_owned();
        guests.push(Opened { table, index, inner, key, kind, written, path, len, file });
    }
    cx.guests = guests;
}

type Looked = (u64, Result<GuestFile, String>);

fn look(path: &Path, kind: Kind, elf: (&str, u16)) -> Result<Looked, String> {
    let text = |error: std::io::Error| error.to_string();
    let meta = std::fs::metadata(path).map_err(text)?;
    // A FIFO or a terminal would keep the checker waiting.
    if !meta.is_file() {
        return Err("it is no regular file".into());
    }
    let mut file = std::fs::File::open(path).map_err(text)?;
    let mut read = |limit| {
        let mut bytes = Vec::new();
        file.by_ref().take(limit).read_to_end(&mut bytes).map_err(text).map(|_| bytes)
    };
    let found = match kind {
        Kind::Linux => guest_file::kernel(&read(READ_LIMIT)?, elf).map(GuestFile::Kernel),
        Kind::Bare | Kind::Kernel => {
            guest_file::program(&read(READ_LIMIT)?, elf).map(GuestFile::Program)
        }
        Kind::Program => guest_file::with_symbols(&read(READ_LIMIT)?, elf).map(GuestFile::Program),
        Kind::Initrd if meta.len() == 0 => Err("it is empty".into()),
        Kind::Initrd => read(1).map(|_| GuestFile::Initrd),
    };
    Ok((meta.len(), found))
}

fn guest_at(cx: &Context<'_, '_>, guest: &Described<'_>, key: &str) -> Location {
    file_at(cx, guest.table, [guest.index, 0], key)
}

fn opened_at(cx: &Context<'_, '_>, opened: &Opened) -> Location {
    file_at(cx, opened.table, [opened.index, opened.inner], opened.key)
}

/// Paths are plain: nothing in them is expanded.
pub fn path_plain(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for Named { table, index, inner, key, written, .. } in named(cx) {
        if let Some(why) = not_plain(&written) {
            let message = format!("`{}` is no plain path: {why}", brief(&written));
            let help =
                "nothing is expanded; write a path from the manifest's folder, or `artifact:NAME`";
            let at = file_at(cx, table, [index, inner], key);
            found.push(Diagnostic::new("path-plain", at, message).help(help));
        }
    }
}

/// A file beside this one that has nearly its name.
fn neighbour(path: &Path) -> Option<String> {
    let wrong = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != wrong)
        .collect();
    nearest(wrong, names.iter().map(String::as_str)).map(str::to_owned)
}

/// Files are there.
pub fn file_missing(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for opened in &cx.guests {
        let Err(why) = &opened.len else { continue };
        let message = format!("cannot read {}: {why}", opened.path.display());
        let help = if opened.written.starts_with(artifact::PREFIX) {
            "`make run` makes or fetches the source tree's artifacts; `BULKHEAD_ARTIFACTS` names another folder"
        } else if cx.build.is_some() {
            "`[build]` has to make it, by `bulkhead build`; paths start at the manifest's folder"
        } else {
            "paths start at the manifest's folder"
        };
        let help = match neighbour(&opened.path) {
            Some(name) => format!("did you mean `{name}`? It is in that folder; {help}"),
            None => help.to_owned(),
        };
        found.push(Diagnostic::new("file-missing", opened_at(cx, opened), message).help(help));
    }
}

fn wrong_format(
    cx: &Context<'_, '_>,
    kinds: &[Kind],
    rule: &'static str,
    what: &str,
    help: &str,
    found: &mut Vec<Diagnostic>,
) {
    for opened in cx.guests.iter().filter(|opened| kinds.contains(&opened.kind)) {
        if let Some(Err(why)) = &opened.file {
            let message = format!("{} is no {what}: {why}", opened.path.display());
            found.push(Diagnostic::new(rule, opened_at(cx, opened), message).help(help));
        }
    }
}

/// A kernel has a 64-bit entry, its initrd is not empty.
pub fn kernel_format(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    wrong_format(cx, &[Kind::Linux], "kernel-format", IMAGE, IMAGE_HELP, found);
    let help = "give a cpio archive, or leave `initrd` out";
    wrong_format(cx, &[Kind::Initrd], "kernel-format", "initial RAM file system", help, found);
}

/// A program is a static ELF64 file.
pub fn program_format(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let help = "link it statically for fixed addresses from 0x20_0000 on, as the SDK does";
    let what = "static ELF64 program";
    wrong_format(cx, &[Kind::Bare], "program-format", what, help, found);
    let help = "link it statically for fixed addresses, as the SDK does";
    wrong_format(cx, &[Kind::Program, Kind::Kernel], "program-format", what, help, found);
}

/// The file of a kind that a guest names.
fn opened<'a>(cx: &'a Context<'_, '_>, guest: &Described<'_>, kind: Kind) -> Option<&'a Opened> {
    let own = |o: &&Opened| o.table == guest.table && o.index == guest.index;
    cx.guests.iter().filter(own).find(|opened| opened.kind == kind)
}

fn program_of<'a>(cx: &'a Context<'_, '_>, guest: &Described<'_>) -> Option<&'a Program> {
    opened(cx, guest, Kind::Bare).and_then(|opened| match &opened.file {
        Some(Ok(GuestFile::Program(program))) => Some(program),
        _ => None,
    })
}

fn kernel_of<'a>(cx: &'a Context<'_, '_>, guest: &Described<'_>) -> Option<(&'a Kernel, u64)> {
    let of = |kind| opened(cx, guest, kind);
    let initrd = of(Kind::Initrd).and_then(|opened| opened.len.as_ref().ok()).copied().unwrap_or(0);
    match &of(Kind::Linux)?.file {
        Some(Ok(GuestFile::Kernel(kernel))) => Some((kernel, initrd)),
        _ => None,
    }
}

/// A program's segments lie where programs may, and their rights can be kept apart.
pub fn program_segments(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for guest in described(cx) {
        let Guest::Bare { access, .. } = &*guest.guest else {
            continue;
        };
        let Some(program) = program_of(cx, &guest) else {
            continue;
        };
        for (message, help) in segment_errors(program, *access, PROGRAM_LOWEST..u64::MAX) {
            let at = guest_at(cx, &guest, "program");
            let message = format!("program of `{}`: {message}", guest.name);
            found.push(Diagnostic::new("program-segments", at, message).help(help));
        }
    }
    kernel_segments(cx, found);
}

/// Checks the segments of kernels and their programs: memory that can be written can never be executed.
fn kernel_segments(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for opened in &cx.guests {
        let (addresses, what) = match opened.kind {
            Kind::Kernel => (0..u64::MAX, "kernel"),
            Kind::Program => (PROGRAM, "program"),
            _ => continue,
        };
        let Some(Ok(GuestFile::Program(program))) = &opened.file else { continue };
        for (message, help) in segment_errors(program, Access::Segments, addresses) {
            // The key that lets a bare program have such segments does not exist for these.
            let help = help.split(", or grant it").next().unwrap_or(help);
            let message = format!("{what} {}: {message}", opened.path.display());
            let at = opened_at(cx, opened);
            found.push(Diagnostic::new("program-segments", at, message).help(help));
        }
    }
}

fn segment_errors(
    program: &Program,
    access: Access,
    addresses: Range<u64>,
) -> Vec<(String, &'static str)> {
    let mut errors = Vec::new();
    let low = match addresses.start {
        at::PROGRAM => "link it for addresses from 0x40_0000 on, as the SDK does",
        _ => "link it for addresses from 0x20_0000 on, as the SDK does",
    };
    let show = |s: &Segment| format!("{:#x} to {:#x}", s.start, s.start + s.len);
    for segment in &program.segments {
        if segment.start < addresses.start {
            let message = format!("a segment starts at {:#x}", segment.start);
            errors.push((message, low));
        } else if segment.start + segment.len > addresses.end {
            let message = format!("a segment ends at {:#x}", segment.start + segment.len);
            let help = "link it for addresses below 0x1_0000_0000, as the SDK does";
            errors.push((message, help));
        }
        if access == Access::Segments && segment.write && segment.execute {
            let message = format!("the segment {} is writable and executable", show(segment));
            errors.push((message, "link text and data apart, or grant it: `access = \"rwx\"`"));
        }
    }
    if access == Access::Segments
        && let Some((one, other)) = guest_file::clash(&program.segments)
    {
        let message = format!(
            "segments {} and {} have different rights on one page",
            show(&one),
            show(&other)
        );
        errors.push((message, "align segments to 4 KiB, or grant it: `access = \"rwx\"`"));
    }
    let holds = |s: &&Segment| s.start <= program.entry && program.entry - s.start < s.len;
    let executable = |s: &Segment| s.execute || access == Access::Rwx;
    if !program.segments.iter().find(holds).is_some_and(executable) {
        let message = format!("its entry {:#x} is in no executable segment", program.entry);
        errors.push((message, "name the entry in the linker script (`ENTRY`)"));
    }
    errors
}

/// Why a text cannot be handed to a guest, if it cannot.
fn wrong_text(text: &str, limit: usize) -> Option<(String, String)> {
    if text.len() > limit {
        let help = format!("it can have {limit} bytes at most");
        return Some((format!("it has {} bytes", text.len()), help));
    }
    let wrong = text.chars().find(|c| c.is_control())?;
    Some((format!("it contains {wrong:?}"), "write it in one line of plain text".into()))
}

/// A kernel command line is short enough and one line.
pub fn cmdline_text(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for guest in described(cx) {
        let Guest::Linux { cmdline: Some(cmdline), .. } = &*guest.guest else {
            continue;
        };
        let own = kernel_of(cx, &guest).map_or(CMDLINE, |(kernel, _)| kernel.cmdline as usize);
        if let Some((why, help)) = wrong_text(cmdline, own.min(CMDLINE)) {
            let message = format!("kernel command line of `{}`: {why}", guest.name);
            let at = guest_at(cx, &guest, "cmdline");
            found.push(Diagnostic::new("cmdline-text", at, message).help(help));
        }
    }
}

/// A program's arguments fit in its info page.
pub fn args_text(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    const _: () = assert!(ARGS < size_of::<[u8; 256]>() && size_of::<info::Info>() == 4096);
    for guest in described(cx) {
        let Guest::Bare { args: Some(args), .. } = &*guest.guest else {
            continue;
        };
        if let Some((why, help)) = wrong_text(args, ARGS) {
            let message = format!("arguments of `{}`: {why}", guest.name);
            let at = guest_at(cx, &guest, "args");
            found.push(Diagnostic::new("args-text", at, message).help(help));
        }
    }
    for program in &cx.programs {
        if let Some((why, help)) = program.args.as_deref().and_then(|args| wrong_text(args, ARGS)) {
            let message = format!("arguments of program `{}`: {why}", program.name);
            let at = cx.at(program, &[k("args")]);
            found.push(Diagnostic::new("args-text", at, message).help(help));
        }
    }
}

/// A guest's file fits in its memory.
pub fn memory_small(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for guest in described(cx) {
        let sandbox = guest.sandbox;
        let Ok(memory) = size::parse(sandbox.memory.size()) else {
            continue;
        };
        let end = cx.facts().guest.ram[0].end();
        let low = memory.min(end);
        let (needed, what) = match needs(cx, &guest) {
            Some(needs)
                if needs.0 > low
                    && wrong_size(sandbox.memory.size(), cx.facts().page).is_none() =>
            {
                needs
            }
            _ => continue,
        };
        let at = cx.at(sandbox, &[k("memory")]);
        let message = format!("{} are too little for `{}`: {what}", show(memory), guest.name);
        let finding = Diagnostic::new("memory-small", at, message);
        found.push(if needed > end {
            finding.help(format!("nothing of it can lie above {end:#x}"))
        } else {
            let whole = needed.next_multiple_of(1 << 20);
            finding.help(format!("give it at least `\"{}\"`", show(whole)))
        });
    }
}

/// Returns the bytes of memory that a guest's files need, and their purpose.
fn needs(cx: &Context<'_, '_>, guest: &Described<'_>) -> Option<(u64, String)> {
    if let Some((kernel, initrd)) = kernel_of(cx, guest) {
        let end = kernel.load.saturating_add(kernel.init_size);
        let pages = initrd.checked_next_multiple_of(PAGE)?;
        let mut what = format!("its kernel uses addresses up to {end:#x} while it starts");
        if initrd > 0 {
            what.push_str(&format!(", and its initrd {} KiB more", pages >> 10));
        }
        return Some((end.saturating_add(pages), what));
    }
    let program = program_of(cx, guest)?;
    let end = program.segments.iter().map(|segment| segment.start + segment.len).max()?;
    Some((end, format!("its program ends at {end:#x}")))
}
