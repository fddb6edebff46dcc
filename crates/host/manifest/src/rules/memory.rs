//! Memory of sandboxes: sizes, places, and whether all of it fits.

use super::{Context, Item, Places};
use crate::diagnostic::Diagnostic;
use crate::raw;
use crate::size::{self, show};
use crate::source::{Location, k};
use bulkhead_layout::PAGE;
use bulkhead_plan::{Facts, Misfit, Owner, Reason, Span, System};

/// Bytes that a monitor, its tables and its launch record take, roughly.
const MONITOR_ESTIMATE: u64 = 1 << 20;

/// Returns the place of a sandbox's size.
fn size_at(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>) -> Location {
    match &sandbox.memory {
        raw::Memory::Size(_) => cx.at(sandbox, &[k("memory")]),
        raw::Memory::Placed(_) => cx.at(sandbox, &[k("memory"), k("size")]),
    }
}

/// Returns the place of the reason for a sandbox's address: the address itself, if there is one.
pub fn place_at(cx: &Context<'_, '_>, sandbox: &Item<raw::Sandbox>) -> Location {
    match sandbox.memory.at() {
        Some(_) => cx.at(sandbox, &[k("memory"), k("at")]),
        None => size_at(cx, sandbox),
    }
}

/// Returns the mistake in a size of pages of so many bytes, if there is one, and how to mend it.
pub fn wrong_size(text: &str, page: u64) -> Option<(String, String)> {
    let example = "write a whole number and a unit, such as `\"16 MiB\"`".to_owned();
    match size::parse(text) {
        Err(why @ (size::BadSize::Decimal | size::BadSize::Unit)) => Some((
            format!("`{}` is no size: {why}", crate::shape::brief(text)),
            size::meant(text).map_or(example, |meant| format!("did you mean `\"{meant}\"`?")),
        )),
        Err(why) => Some((format!("`{}` is no size: {why}", crate::shape::brief(text)), example)),
        Ok(0) => Some(("the size is 0".into(), example)),
        Ok(bytes) if !bytes.is_multiple_of(page) => {
            let message = format!("{bytes} bytes are no whole number of pages");
            let near = bytes.checked_next_multiple_of(page).unwrap_or(bytes - bytes % page);
            Some((message, format!("pages have {}: write `\"{}\"`", show(page), show(near))))
        }
        Ok(_) => None,
    }
}

/// A sandbox has memory, in whole pages.
pub fn memory_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        if let Some((message, help)) = wrong_size(sandbox.memory.size(), cx.facts().page) {
            let message = format!("memory of sandbox `{}`: {message}", sandbox.name);
            found.push(Diagnostic::new("memory-size", size_at(cx, sandbox), message).help(help));
        }
    }
}

/// A place is an address that large pages can map.
pub fn memory_place(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let Some(text) = sandbox.memory.at() else {
            continue;
        };
        let at = cx.at(sandbox, &[k("memory"), k("at")]);
        let align = match size::parse(sandbox.memory.size()) {
            Ok(bytes) if bytes >= cx.facts().large => cx.facts().large,
            _ => cx.facts().page,
        };
        let finding = match size::parse(text) {
            Err(why) => Diagnostic::new(
                "memory-place",
                at,
                format!("`{}` is no address: {why}", crate::shape::brief(text)),
            )
            .help("write it like `\"4 GiB\"` or `\"0x1_0000_0000\"`"),
            Ok(address) if !address.is_multiple_of(align) => {
                let below = address - address % align;
                Diagnostic::new(
                    "memory-place",
                    at,
                    format!("{address:#x} is no multiple of {}", show(align)),
                )
                .help(format!("{below:#x} and {:#x} are", below.saturating_add(align)))
            }
            Ok(_) => continue,
        };
        found.push(finding);
    }
}

/// Sizes of the decoded sandboxes and channels that are right.
fn total(cx: &Context<'_, '_>) -> u128 {
    let sandboxes = cx.sandboxes.iter().map(|sandbox| sandbox.memory.size());
    let sandboxes = sandboxes.filter_map(|text| size::parse(text).ok());
    let channels =
        cx.channels.iter().map(|channel| super::channels::bytes(cx.facts().page, channel));
    sandboxes.chain(channels).map(u128::from).sum()
}

/// RAM that sandboxes, channels and the image can have.
fn usable(facts: &Facts, ram: &[Span]) -> u128 {
    let usable = |piece: &Span| piece.end().saturating_sub(piece.start.max(facts.lowest));
    ram.iter().map(|piece| u128::from(usable(piece))).sum()
}

fn exceeds(cx: &Context<'_, '_>) -> Option<(u128, u128)> {
    let machine = cx.machine.as_ref()?;
    let (wanted, there) = (total(cx), usable(cx.facts(), &machine.ram));
    (wanted > there).then_some((wanted, there))
}

/// All of it together is not more than the machine has.
pub fn memory_total(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let Some((wanted, there)) = exceeds(cx) else {
        return;
    };
    let Some(largest) =
        cx.sandboxes.iter().max_by_key(|sandbox| size::parse(sandbox.memory.size()).unwrap_or(0))
    else {
        return;
    };
    let mib = |bytes: u128| bytes.div_ceil(1 << 20);
    let message = format!(
        "sandboxes and channels want {} MiB, the machine has {} MiB for them",
        mib(wanted),
        there >> 20
    );
    let help = format!("give them {} MiB less in sum", mib(wanted - there));
    found.push(
        Diagnostic::new("memory-total", size_at(cx, largest), message)
            .label("the largest one")
            .help(help),
    );
}

/// Everything has a place, those that say where as well. The image's length is
/// not known before it is baked, so an estimate stands for it.
pub fn memory_fits(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if cx.machine.is_none() || exceeds(cx).is_some() {
        return;
    }
    let (system, places) = super::build::sizes(cx);
    if let Err(misfits) = system.plan(image_estimate(cx)) {
        found.extend(misfits.into_iter().map(|misfit| self::misfit(&system, &places, misfit)));
    }
}

/// An image's length, roughly: the guests' files and a monitor for each.
pub fn image_estimate(cx: &Context<'_, '_>) -> u64 {
    let files = cx.guests.iter().filter_map(|opened| opened.len.as_ref().ok());
    let pristine: u64 = files.fold(0, |sum, len| sum.saturating_add(len.saturating_add(PAGE)));
    let monitors = (cx.sandboxes.len() as u64 + 1) * MONITOR_ESTIMATE;
    pristine.saturating_add(monitors)
}

/// Makes a finding of a part that does not fit.
#[must_use]
pub fn misfit(system: &System, places: &Places, misfit: Misfit) -> Diagnostic {
    match misfit {
        Misfit::Image { len, room } => {
            let message = format!(
                "the image needs about {} MiB, and {} MiB are free at {:#x}",
                len.div_ceil(1 << 20),
                room >> 20,
                system.facts().image
            );
            Diagnostic::new("image-large", places.system.clone(), message)
                .help("make the guests' files smaller, above all initrds")
        }
        Misfit::Memory { owner, len, why } => memory_misfit(system, places, owner, len, why),
    }
}

/// Names the machine's reserved range at an address.
fn reserved(system: &System, address: u64) -> Option<&str> {
    let mut all = system.machine.reserved.iter();
    all.find(|(_, span)| span.contains(address)).map(|(name, _)| name.as_str())
}

fn name(system: &System, owner: Owner) -> String {
    match owner {
        Owner::Sandbox(index) => format!("sandbox `{}`", system.sandboxes[index].sandbox.name),
        Owner::Channel(index) => format!("channel `{}`", system.channels[index].name),
        Owner::Link(index) => {
            format!("a link of `{}`", system.sandboxes[system.links[index].owner].sandbox.name)
        }
    }
}

fn place_of(places: &Places, owner: Owner) -> Location {
    match owner {
        Owner::Sandbox(index) => places.sandboxes[index].clone(),
        Owner::Channel(index) => places.channels[index].clone(),
        Owner::Link(index) => places.links[index].clone(),
    }
}

fn memory_misfit(
    system: &System,
    places: &Places,
    owner: Owner,
    len: u64,
    why: Reason,
) -> Diagnostic {
    let at = place_of(places, owner);
    let who = name(system, owner);
    let Facts { lowest, boot_sees, .. } = system.facts();
    let pieces: Vec<String> = system
        .ram()
        .iter()
        .filter(|piece| piece.end() > *lowest)
        .map(|piece| format!("{:#x} to {:#x}", piece.start.max(*lowest), piece.end()))
        .collect();
    match why {
        Reason::Outside { start, holds } => {
            let message = match holds {
                Some(piece) => format!(
                    "{} of {who} from here on end after the RAM does, at {:#x}",
                    show(len),
                    piece.end()
                ),
                None => {
                    let mut message = format!("memory of {who} would start where no free RAM is");
                    if let Some(there) = reserved(system, start) {
                        message.push_str(&format!(", at `{there}`"));
                    }
                    message
                }
            };
            Diagnostic::new("memory-outside", at, message)
                .help(format!("free RAM is at {}", pieces.join(", ")))
        }
        Reason::OnImage => Diagnostic::new(
            "memory-overlap",
            at,
            format!("memory of {who} would overlap the image"),
        )
        .help(format!(
            "the image starts at {:#x}; leave `at` away or take a higher one",
            system.facts().image
        )),
        Reason::On(other) => {
            let message = format!("memory of {who} would overlap that of {}", name(system, other));
            Diagnostic::new("memory-overlap", at, message)
                .related(place_of(places, other), "it is here")
                .help("leave one `at` away, so that a free place is found")
        }
        Reason::NoRoom(largest) if matches!(owner, Owner::Channel(_)) => {
            let message = format!(
                "no free piece of RAM below {} has {} for {who}; the largest has {}",
                show(*boot_sees),
                show(len),
                show(largest)
            );
            Diagnostic::new("memory-room", at, message).help(format!(
                "the boot code clears channels, and sees the first {}: make it smaller, or give \
                 large sandboxes `memory.at` above",
                show(*boot_sees)
            ))
        }
        Reason::NoRoom(largest) => {
            let message = format!(
                "no free piece of RAM has {} for {who}; the largest has {}",
                show(len),
                show(largest)
            );
            Diagnostic::new("memory-room", at, message)
                .help("make it smaller, or leave `at` of others away so that less is cut up")
        }
    }
}
