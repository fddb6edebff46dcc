//! Channels: memory that one sandbox writes and others read.

use super::memory::wrong_size;
use super::{Context, Item};
use crate::diagnostic::Diagnostic;
use crate::raw::{self, ChannelKind, Guest, Notify};
use crate::size::{self, show};
use crate::source::{k, n};
use bulkhead_channel::layout::{Kind, Shape};
use bulkhead_layout::bell::MAX_BELLS;
use bulkhead_layout::info::MAX_CHANNELS;
use bulkhead_layout::load::PROGRAM_GPA;
use bulkhead_plan::{Arch, Bell, Channel, Facts};

/// A channel has memory, in whole pages.
pub fn channel_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        if let Some((message, help)) = wrong_size(&channel.size, cx.facts().page) {
            let message = format!("size of channel `{}`: {message}", channel.name);
            let at = cx.at(channel, &[k("size")]);
            found.push(Diagnostic::new("channel-size", at, message).help(help));
        }
    }
}

/// The shape of a channel's messages, if it carries some and they fit.
pub fn shape(item: &Item<raw::Channel>) -> Option<Shape> {
    let bytes = usize::try_from(size::parse(&item.size).ok()?).ok()?;
    Shape::within(item.kind.messages()?, bytes, item.message.unwrap_or(0))
}

/// Messages have a size if their kind has one size for all, and there is room for them.
pub fn channel_message(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        if let Some((key, message, help)) = wrong_message(cx.facts(), channel) {
            let message = format!("channel `{}`: {message}", channel.name);
            let at = cx.at(channel, &[k(key)]);
            found.push(Diagnostic::new("channel-message", at, message).help(help));
        }
    }
}

/// Returns the mistake in a channel's messages, its key, and how to mend it.
fn wrong_message(
    facts: &Facts,
    channel: &Item<raw::Channel>,
) -> Option<(&'static str, String, String)> {
    let kind = channel.kind.name();
    match (channel.kind, channel.message) {
        (ChannelKind::Queue | ChannelKind::Mailbox, None) => {
            let why = format!("the messages of a `{kind}` have one size, and it is not said");
            return Some(("kind", why, "add it in bytes, such as `message = 64`".into()));
        }
        (ChannelKind::Queue | ChannelKind::Mailbox, Some(0)) => {
            let why = "its messages have no bytes".to_owned();
            return Some(("message", why, "write their size in bytes, at least 1".into()));
        }
        (
            ChannelKind::Pages | ChannelKind::Program | ChannelKind::Records | ChannelKind::Virtio,
            Some(_),
        ) => {
            let (why, kinds) = match channel.kind {
                ChannelKind::Program => ("a program is no message", "queue"),
                ChannelKind::Pages => {
                    ("raw pages carry no messages", "queue\"` or `kind = \"mailbox")
                }
                ChannelKind::Virtio => ("a virtio device's packets have any length", "queue"),
                _ => ("each of its records has a length of its own", "queue"),
            };
            let help = format!("remove `message`, or write `kind = \"{kinds}\"`");
            return Some(("message", why.into(), help));
        }
        (ChannelKind::Pages | ChannelKind::Program, None) => return None,
        (ChannelKind::Records | ChannelKind::Virtio, None) | (_, Some(_)) => {}
    }
    if wrong_size(&channel.size, facts.page).is_some() || shape(channel).is_some() {
        return None;
    }
    let message = channel.message.unwrap_or(0);
    let least = least(facts, channel.kind, message);
    let why = match channel.kind {
        ChannelKind::Virtio => {
            format!("{} hold no virtio device's rings and packets", channel.size)
        }
        _ => format!("a `{kind}` of {message}-byte messages does not fit in {}", channel.size),
    };
    let help = match least {
        Some(least) => format!("write `size = \"{}\"`, or send less at a time", show(least)),
        None => "no channel is large enough: send less at a time".into(),
    };
    Some(("size", why, help))
}

/// Returns the least size in whole pages that holds one message; `None` if that is more than guests can see.
fn least(facts: &Facts, kind: ChannelKind, message: u32) -> Option<u64> {
    let (kind, page) = (kind.messages()?, facts.page);
    let mut sizes = (1..=facts.guest.channels.len / page).map(|pages| pages * page);
    sizes.find(|bytes| Shape::within(kind, *bytes as usize, message).is_some())
}

/// A sandbox writes it.
pub fn channel_from(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let unknown = |end: &str| !cx.knows(end) && cx.role(end).is_none();
    for channel in cx.channels.iter().filter(|channel| unknown(&channel.from)) {
        let at = cx.at(channel, &[k("from")]);
        found.push(cx.unknown_sandbox("channel-from", at, &channel.from));
    }
}

/// Sandboxes read it, each named once.
pub fn channel_to(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        // A role's own memory.
        let kept = channel.kind == ChannelKind::Pages && cx.role(&channel.from).is_some();
        if channel.to.is_empty() && !kept {
            let message = format!("channel `{}` leads to nobody", channel.name);
            found.push(
                Diagnostic::new("channel-to", cx.at(channel, &[k("to")]), message)
                    .help("name at least one reader, or remove the channel"),
            );
        }
        for (index, reader) in channel.to.iter().enumerate() {
            let at = cx.at(channel, &[k("to"), n(index)]);
            if !cx.knows(reader) && cx.role(reader).is_none() {
                found.push(cx.unknown_sandbox("channel-to", at, reader));
            } else if channel.to[..index].contains(reader) {
                let message = format!("`{reader}` stands here twice");
                found.push(Diagnostic::new("channel-to", at, message).help("name it once"));
            }
        }
    }
}

/// A channel's writer is not one of its readers: it reads its own writes anyway.
pub fn channel_self(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        if let Some(index) = channel.to.iter().position(|reader| *reader == channel.from) {
            let message =
                format!("channel `{}` leads from `{}` to itself", channel.name, channel.from);
            let help = "a writer can read its channel anyway; name other readers";
            let at = cx.at(channel, &[k("to"), n(index)]);
            found.push(Diagnostic::new("channel-self", at, message).help(help));
        }
    }
}

/// A program goes to one bare sandbox, which has room for it and no rights that follow another one's segments.
pub fn channel_program(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let programs = || cx.channels.iter().filter(|channel| channel.kind == ChannelKind::Program);
    for channel in programs() {
        let earlier = programs().take_while(|one| one.name != channel.name);
        let taken = earlier.into_iter().any(|one| one.to == channel.to);
        if let Some((key, why, help)) = wrong_program(cx, channel, taken) {
            let message = format!("channel `{}`: {why}", channel.name);
            let at = cx.at(channel, &[k(key)]);
            found.push(Diagnostic::new("channel-program", at, message).help(help));
        }
    }
}

/// Returns the mistake in a program's channel, its key, and how to mend it.
fn wrong_program(
    cx: &Context<'_, '_>,
    channel: &raw::Channel,
    taken: bool,
) -> Option<(&'static str, String, String)> {
    let [to] = &channel.to[..] else {
        let why = "a program is for one sandbox".to_owned();
        return Some(("to", why, "name one, and make a channel for each".into()));
    };
    let sandbox = cx.sandboxes.iter().find(|item| item.name == *to)?;
    let Guest::Bare { access, .. } = sandbox.guest else {
        let why = format!("`{to}` is no bare guest");
        return Some(("to", why, "only a bare guest's program can be loaded".into()));
    };
    if access != raw::Access::Rwx {
        let why = format!("the rights to `{to}`'s memory follow the segments of its own program");
        return Some(("to", why, format!("write `access = \"rwx\"` in `{to}`'s guest")));
    }
    if taken {
        let why = format!("`{to}` has another one for its program");
        return Some(("to", why, "one sandbox may load it".into()));
    }
    let (size, memory) = (size::parse(&channel.size).ok()?, sandbox.memory.size());
    let least = size.saturating_add(PROGRAM_GPA);
    (size::parse(memory).ok()?.min(cx.facts().guest.ram[0].end()) < least).then(|| {
        let why = format!("a program of {} does not fit in `{to}`'s {memory}", channel.size);
        let help = format!("it lies from {} on: {} of memory", show(PROGRAM_GPA), show(least));
        ("size", why, help)
    })
}

/// An end that is to be woken can be: a receiver of messages says when, and a monitor does it.
pub fn channel_notify(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in cx.channels.iter().filter(|channel| channel.notify != Notify::Poll) {
        let (why, help) = match channel.kind.messages() {
            None => (
                "raw pages have no word by which a reader asks to be woken",
                "write `notify = \"poll\"`, or another `kind`",
            ),
            _ if cx.multikernel() => (
                "it is a monitor that wakes, and there are none",
                "write `notify = \"poll\"`, or leave out `monitors = false`",
            ),
            _ if channel.kind == ChannelKind::Virtio && has_bare(cx, channel) => (
                "a bare guest at an end of a `virtio` channel is not woken",
                "write `notify = \"poll\"`: both look",
            ),
            _ => continue,
        };
        let message = format!("channel `{}`: {why}", channel.name);
        let at = cx.at(channel, &[k("notify")]);
        found.push(Diagnostic::new("channel-notify", at, message).help(help));
    }
}

/// True if an end of a channel is a bare guest: its information page has one doorbell of each channel.
fn has_bare(cx: &Context<'_, '_>, channel: &raw::Channel) -> bool {
    let mut known = cx.sandboxes.iter();
    known.any(|one| {
        let is = |end: &String| cx.is_end(end, &one.name);
        let ends = is(&channel.from) || channel.to.iter().any(is);
        ends && matches!(one.guest, Guest::Bare { .. })
    })
}

/// A sandbox rings, and is woken, through so many ends of channels at most.
pub fn bells_too_many(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let all: Vec<[&String; 2]> = cx.channels.iter().flat_map(doorbells).collect();
    for sandbox in &cx.sandboxes {
        let count = |n: usize| all.iter().filter(|one| *one[n] == sandbox.name).count();
        let (rings, wakes) = (count(0), count(1));
        let (count, why) = match rings > MAX_BELLS {
            true => (rings, "rings for"),
            false => (wakes, "is woken by"),
        };
        if count > MAX_BELLS {
            let message = format!("`{}` {why} {count} ends of channels", sandbox.name);
            let help = format!("at most {MAX_BELLS}: write `notify = \"poll\"` for the others");
            let at = cx.at(sandbox, &[k("name")]);
            found.push(Diagnostic::new("bells-too-many", at, message).help(help));
        }
    }
}

/// Lists the doorbells of a channel: the sandbox that rings, and the one that is woken. The driver of a virtio device
/// is woken, too.
fn doorbells(channel: &Item<raw::Channel>) -> Vec<[&String; 2]> {
    let both = channel.kind == ChannelKind::Virtio;
    let pair = |to| {
        let there = [&channel.from, to];
        [Some(there), both.then_some([to, &channel.from])].into_iter().flatten()
    };
    let woken = channel.to.iter().filter(|_| wakes(channel));
    woken.flat_map(pair).collect()
}

/// True if a channel has a doorbell that wakes a sandbox.
pub fn is_woken(channel: &Item<raw::Channel>, sandbox: &str) -> bool {
    doorbells(channel).iter().any(|[_, woken]| *woken == sandbox)
}

/// Counts the doorbells of a channel that a sandbox rings.
pub fn rings(channel: &Item<raw::Channel>, sandbox: &str) -> usize {
    doorbells(channel).iter().filter(|[rings, _]| *rings == sandbox).count()
}

/// True if the receivers of a channel are woken.
fn wakes(channel: &raw::Channel) -> bool {
    channel.notify != Notify::Poll && channel.kind.messages().is_some()
}

/// How the receivers of a channel are woken; not yet by which number and vector.
pub fn bell(arch: Arch, channel: &raw::Channel) -> Option<Bell> {
    let adaptive = channel.notify == Notify::Adaptive;
    wakes(channel).then(|| Bell::new(arch, 0, 0, adaptive))
}

/// Numbers the doorbell of a region that follows others.
pub fn placed(arch: Arch, bell: Bell, region: &Channel, before: &[Channel]) -> Bell {
    let belled = || before.iter().filter(|one| one.bell.is_some());
    let (rung, woken) = (
        belled().filter(|one| one.to == region.to).count(),
        belled().filter(|one| one.from == region.from).count(),
    );
    Bell::new(arch, rung as u16, woken as u16, bell.adaptive)
}

/// All channels fit in the window that guests see them through.
pub fn channels_window(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let window = cx.facts().guest.channels;
    let mut ends = super::build::Ends::new(cx);
    for channel in &cx.channels {
        let fitted = ends.channels <= window.end();
        let _ = super::build::seen(cx, channel, &mut ends);
        let end = ends.channels;
        if fitted && end > window.end() {
            let sum = end - window.start;
            let message = format!("up to channel `{}` the channels have {sum} bytes", channel.name);
            let help = format!(
                "all channels together have at most {}; one that a Linux has an end of counts as the power of two above its peers' sections",
                show(window.len)
            );
            let at = cx.at(channel, &[k("size")]);
            found.push(Diagnostic::new("channels-window", at, message).help(help));
        }
    }
}

/// Bytes of all its regions; 0 if its size is wrong.
pub fn bytes(page: u64, channel: &raw::Channel) -> u64 {
    let size = size::parse(&channel.size).unwrap_or(0);
    match channel.kind.messages() {
        None => size,
        Some(Kind::Virtio) => size.saturating_mul(2).saturating_mul(channel.to.len() as u64),
        Some(_) => size.saturating_add(page).saturating_mul(channel.to.len() as u64),
    }
}

/// How many windows a sandbox has on a channel: a sender of messages has one for each receiver.
pub fn windows(cx: &Context<'_, '_>, channel: &raw::Channel, sandbox: &str) -> usize {
    match (cx.is_end(&channel.from, sandbox), channel.kind) {
        (true, ChannelKind::Pages | ChannelKind::Program) => 1,
        (true, _) => channel.to.len(),
        (false, _) => usize::from(channel.to.iter().any(|reader| cx.is_end(reader, sandbox))),
    }
}

/// The info page has room for so many channels and observed reports.
pub fn windows_too_many(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let name = &sandbox.name;
        let channels = cx.channels.iter().map(|channel| windows(cx, channel, name)).sum::<usize>();
        let (reports, links) = (sandbox.observe.len(), super::link::windows(cx, name));
        let roles = cx.roles.iter().filter(|role| role.holders.contains(name)).count();
        if channels + reports + links + roles > MAX_CHANNELS {
            let also = |count: usize, what| match count {
                0 => String::new(),
                _ => format!(" and {count} {what}"),
            };
            let (links, roles) = (also(links, "links"), also(roles, "roles"));
            let message =
                format!("`{name}` sees {channels} channels and {reports} reports{links}{roles}");
            let help = format!("a sandbox sees at most {MAX_CHANNELS} of all together");
            let at = cx.at(sandbox, &[k("name")]);
            found.push(Diagnostic::new("windows-too-many", at, message).help(help));
        }
    }
}
