//! Contexts: each policy has its numbers, they can be, and something runs on each.

use super::build::policy;
use super::{MOST_REFILLS, all, complete};
use crate::diagnostic::{Diagnostic, join, list};
use crate::raw::{self, Policy};
use crate::rules::{Context, Item};
use crate::shape::brief;
use crate::source::k;
use crate::time::{self, BadTime};
use bulkhead_plan::kernel::{self as plan, OVERHEAD};
use bulkhead_sched::PLACES;

/// Returns the mistake in a time, if there is one, and how to mend it.
#[must_use]
pub fn wrong_time(text: &str) -> Option<(String, String)> {
    let example = "write a whole number and a unit, such as `\"200 us\"`".to_owned();
    match time::parse(text) {
        Ok(0) => Some(("the time is 0".into(), example)),
        Ok(_) => None,
        Err(why) => {
            let meant = time::meant(text).filter(|_| why == BadTime::Unit);
            let help = meant.map_or(example, |meant| format!("did you mean `\"{meant}\"`?"));
            Some((format!("`{}` is no time: {why}", brief(text)), help))
        }
    }
}

/// Times are times.
pub fn context_time(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.contexts {
        for (key, text) in [("budget", &item.budget), ("period", &item.period)] {
            let Some((why, help)) = text.as_deref().and_then(wrong_time) else { continue };
            let message = format!("{key} of context `{}`: {why}", item.name);
            let at = cx.at(item, &[k(key)]);
            found.push(Diagnostic::new("context-time", at, message).help(help));
        }
    }
    for item in &cx.endpoints {
        if let Some((why, help)) = item.longest.as_deref().and_then(wrong_time) {
            let message = format!("longest call of endpoint `{}`: {why}", item.name);
            let at = cx.at(item, &[k("longest")]);
            found.push(Diagnostic::new("context-time", at, message).help(help));
        }
    }
}

/// A utilization is a share of a processor.
pub fn context_share(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.contexts {
        let Some(text) = &item.utilization else { continue };
        if let Err(why) = time::parse_share(text) {
            let message = format!("`{}` is no share of a processor: {why}", brief(text));
            let at = cx.at(item, &[k("utilization")]);
            let help = "write a number and `%`, such as `\"4 %\"`";
            found.push(Diagnostic::new("context-share", at, message).help(help));
        }
    }
}

/// As manifests write a policy, the keys that it needs, and those that it may have.
const fn keys(policy: Policy) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
    const SERVER: &[&str] = &["budget", "period"];
    const MORE: &[&str] = &["refills", "background", "guaranteed", "activations"];
    match policy {
        Policy::Sporadic => ("sporadic", SERVER, MORE),
        Policy::Strict => ("strict", SERVER, MORE),
        Policy::Pibs => ("pibs", &["utilization", "period"], &["background"]),
        Policy::Full => ("full", &["period"], &[]),
    }
}

/// A context has the numbers of its policy, and no others.
pub fn context_policy(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.contexts {
        let given = [
            ("budget", item.budget.is_some()),
            ("period", item.period.is_some()),
            ("utilization", item.utilization.is_some()),
            ("refills", item.refills.is_some()),
            ("background", item.background),
            ("guaranteed", item.guaranteed == Some(true)),
            ("activations", item.activations.is_some()),
        ];
        let (word, needs, may) = keys(item.policy);
        let missing = |key: &&&str| given.iter().any(|(name, there)| name == *key && !there);
        for key in needs.iter().filter(missing) {
            let message = format!("context `{}` is {word} and has no `{key}`", item.name);
            let help = format!("a {word} context needs {}", list(needs));
            found.push(Diagnostic::new("context-policy", cx.at(item, &[]), message).help(help));
        }
        for (key, _) in given.iter().filter(|(_, there)| *there) {
            if !needs.contains(key) && !may.contains(key) {
                let message = format!("`{key}` means nothing for `{}`, which is {word}", item.name);
                let all = [needs, may].concat();
                let help = format!("leave it out: a {word} context has {}", list(&all));
                let at = cx.at(item, &[k(key)]);
                found.push(Diagnostic::new("context-policy", at, message).help(help));
            }
        }
    }
}

/// A budget fits in its period, with the time that the kernel spends on it.
pub fn context_budget(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.contexts {
        let (key, message, help) = match policy(item) {
            Some(plan::Policy::Sporadic(server) | plan::Policy::Strict(server)) => {
                let Some((message, help)) = wrong_budget(item, server) else { continue };
                ("budget", message, help)
            }
            Some(plan::Policy::Pibs { utilization, period }) => {
                let budget = utilization.of(period);
                if budget > OVERHEAD {
                    continue;
                }
                let message = format!(
                    "{} of {} are {}, and the kernel itself spends {} on each activation",
                    time::show_share(utilization),
                    time::show(period),
                    time::show(budget),
                    time::show(OVERHEAD)
                );
                let least = time::show(utilization.stretch(OVERHEAD + 1));
                ("period", message, format!("give it a period of at least `\"{least}\"`"))
            }
            _ => continue,
        };
        let message = format!("context `{}`: {message}", item.name);
        found.push(Diagnostic::new("context-budget", cx.at(item, &[k(key)]), message).help(help));
    }
}

fn wrong_budget(
    item: &Item<raw::Context>,
    plan::Budget { budget, period, .. }: plan::Budget,
) -> Option<(String, String)> {
    let kernel = OVERHEAD.saturating_mul(item.activations.unwrap_or(1).into());
    if budget.saturating_add(kernel) <= period {
        return None;
    }
    let [shown, whole, spent] = [budget, period, kernel].map(time::show);
    let message = match budget > period {
        true => format!("its budget of {shown} is above its period of {whole}"),
        false => format!(
            "its budget of {shown} and {spent} that the kernel spends on it in each period are \
             above its period of {whole}"
        ),
    };
    let help = match period.checked_sub(kernel) {
        Some(most @ 1..) => format!("give it at most `\"{}\"`", time::show(most)),
        _ => format!("its period has to be longer than {spent}"),
    };
    Some((message, help))
}

/// Refill lists have a length that the kernel has objects for, and something is activated.
pub fn context_refills(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for item in &cx.contexts {
        if let Some(refills) = item.refills.filter(|n| !(2..=MOST_REFILLS).contains(n)) {
            let message = format!("context `{}` cannot have {refills} refills", item.name);
            let at = cx.at(item, &[k("refills")]);
            let help =
                format!("write 2 to {MOST_REFILLS}; each time that its thread waits can take one");
            found.push(Diagnostic::new("context-refills", at, message).help(help));
        }
        if item.activations == Some(0) {
            let message = format!("context `{}` is activated at least once in a period", item.name);
            let at = cx.at(item, &[k("activations")]);
            let help = "write 1, and 1 more for each time that its thread waits";
            found.push(Diagnostic::new("context-refills", at, message).help(help));
        }
        found.extend(short_list(cx, item));
    }
}

/// Finds a refill list that is too short. Each wait splits a refill; a list that is full merges budget at the latest
/// time. A guaranteed context would then not have C in each T.
fn short_list(cx: &Context<'_, '_>, item: &Item<raw::Context>) -> Option<Diagnostic> {
    let Some(plan::Policy::Sporadic(server) | plan::Policy::Strict(server)) = policy(item) else {
        return None;
    };
    let activations = item.activations.unwrap_or(1);
    let possible = (2..=MOST_REFILLS).contains(&server.refills);
    if item.guaranteed == Some(false) || !possible || server.refills > activations {
        return None;
    }
    let message = format!(
        "context `{}` is guaranteed and activated {activations} times in a period, and {} refills \
         are too few to keep apart what comes again when",
        item.name, server.refills
    );
    let help = match activations < MOST_REFILLS {
        true => format!("write `refills = {}`, or `guaranteed = false`", activations + 1),
        false => format!(
            "{MOST_REFILLS} are the most: {} activations at most, or `guaranteed = false`",
            MOST_REFILLS - 1
        ),
    };
    let key = if item.refills.is_some() { "refills" } else { "activations" };
    Some(Diagnostic::new("context-refills", cx.at(item, &[k(key)]), message).help(help))
}

/// The scheduler has a place for each context.
pub fn contexts_too_many(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    for parts in all(cx) {
        if let Some(first) = parts.contexts.get(PLACES) {
            let (name, count) = (&parts.sandbox.name, parts.contexts.len());
            let message = format!("{count} contexts of `{name}` are too many");
            let at = cx.at(first, &[k("name")]);
            found.push(
                Diagnostic::new("contexts-too-many", at, message)
                    .label("the first one too many")
                    .help(format!("a kernel has at most {PLACES} contexts")),
            );
        }
    }
}

/// A context is one thread's or one notification's.
pub fn context_bound(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    if !complete(cx) {
        return;
    }
    // If a kernel has too many contexts, each one is not reported again.
    for parts in all(cx).filter(|parts| parts.contexts.len() <= PLACES) {
        for context in &parts.contexts {
            let own = |name: &Option<String>| name.as_deref() == Some(&*context.name);
            let threads = parts.threads.iter().filter(|item| own(&item.context));
            let threads = threads
                .map(|item| (cx.at(item, &[k("context")]), format!("thread `{}`", item.name)));
            let others = parts.notifications.iter().filter(|item| own(&item.context));
            let others = others.map(|item| {
                (cx.at(item, &[k("context")]), format!("notification `{}`", item.name))
            });
            let users: Vec<_> = threads.chain(others).collect();
            match users.as_slice() {
                [_] => {}
                [] => {
                    let message = format!("nothing runs on context `{}`", context.name);
                    let help =
                        "name it as the `context` of a thread or of a notification, or remove it";
                    let at = cx.at(context, &[k("name")]);
                    found.push(Diagnostic::new("context-bound", at, message).help(help));
                }
                [(first, _), .., (last, _)] => {
                    let names: Vec<String> = users.iter().map(|(_, name)| name.clone()).collect();
                    let message = format!("context `{}` is that of {}", context.name, join(&names));
                    found.push(
                        Diagnostic::new("context-bound", last.clone(), message)
                            .label("named again")
                            .related(first.clone(), "named here first")
                            .help("a context is one thread's or one notification's; make another"),
                    );
                }
            }
        }
    }
}
