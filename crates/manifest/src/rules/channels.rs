//! Channels: memory that one sandbox writes and others read.

use super::Context;
use super::memory::wrong_size;
use crate::diagnostic::Diagnostic;
use crate::raw::Notify;
use crate::size::{self, show};
use crate::source::{k, n};
use bulkhead_layout::info::MAX_CHANNELS;
use bulkhead_layout::map::{CHANNELS_END, CHANNELS_GPA};

/// A channel has memory, in whole pages.
pub fn channel_size(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        if let Some((message, help)) = wrong_size(&channel.size) {
            let message = format!("size of channel `{}`: {message}", channel.name);
            let at = cx.at(channel, &[k("size")]);
            found.push(Diagnostic::new("channel-size", at, message).help(help));
        }
    }
}

/// A sandbox writes it.
pub fn channel_from(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in cx.channels.iter().filter(|channel| !cx.knows(&channel.from)) {
        let at = cx.at(channel, &[k("from")]);
        found.push(cx.unknown_sandbox("channel-from", at, &channel.from));
    }
}

/// Sandboxes read it, each named once.
pub fn channel_to(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in &cx.channels {
        if channel.to.is_empty() {
            let message = format!("channel `{}` leads to nobody", channel.name);
            found.push(
                Diagnostic::new("channel-to", cx.at(channel, &[k("to")]), message)
                    .help("name at least one reader, or remove the channel"),
            );
        }
        for (index, reader) in channel.to.iter().enumerate() {
            let at = cx.at(channel, &[k("to"), n(index)]);
            if !cx.knows(reader) {
                found.push(cx.unknown_sandbox("channel-to", at, reader));
            } else if channel.to[..index].contains(reader) {
                let message = format!("`{reader}` stands here twice");
                found.push(Diagnostic::new("channel-to", at, message).help("name it once"));
            }
        }
    }
}

/// Its writer is not one of its readers: it reads what it writes anyway.
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

/// Only polling is implemented.
pub fn channel_notify(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for channel in cx.channels.iter().filter(|channel| channel.notify != Notify::Poll) {
        let word = if channel.notify == Notify::Doorbell { "doorbell" } else { "adaptive" };
        let message = format!("`notify = \"{word}\"` is not implemented yet");
        let at = cx.at(channel, &[k("notify")]);
        found
            .push(Diagnostic::new("channel-notify", at, message).help("write `notify = \"poll\"`"));
    }
}

/// All channels fit in the window that guests see them through.
pub fn channels_window(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    let window = CHANNELS_END - CHANNELS_GPA;
    let mut sum = 0u64;
    for channel in &cx.channels {
        let fitted = sum <= window;
        sum = sum.saturating_add(size::parse(&channel.size).unwrap_or(0));
        if fitted && sum > window {
            let message = format!("up to channel `{}` the channels have {sum} bytes", channel.name);
            let help = format!("all channels together have at most {}", show(window));
            let at = cx.at(channel, &[k("size")]);
            found.push(Diagnostic::new("channels-window", at, message).help(help));
        }
    }
}

/// The info page has room for so many channels and observed reports.
pub fn windows_too_many(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for sandbox in &cx.sandboxes {
        let name = &sandbox.name;
        let channels = cx
            .channels
            .iter()
            .filter(|channel| channel.from == *name || channel.to.contains(name))
            .count();
        let count = channels + sandbox.observe.len();
        if count > MAX_CHANNELS {
            let message =
                format!("`{name}` sees {channels} channels and {} reports", sandbox.observe.len());
            let help = format!("a sandbox sees at most {MAX_CHANNELS} of both together");
            let at = cx.at(sandbox, &[k("name")]);
            found.push(Diagnostic::new("windows-too-many", at, message).help(help));
        }
    }
}
