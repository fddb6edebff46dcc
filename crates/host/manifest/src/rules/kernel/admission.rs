//! Admission: contexts that are guaranteed get their budgets in time.

use super::{all, complete};
use crate::diagnostic::{Diagnostic, list};
use crate::rules::{Context, Item};
use crate::source::k;
use crate::time::show;
use bulkhead_plan::admission::{Analysis, Blocking, Refusal};
use bulkhead_plan::kernel::{Kernel, call_needs};

/// Names in a help.
const MOST_NAMES: usize = 5;

/// The test that the manifest asks for admits the contexts.
pub fn admission(cx: &Context<'_, '_>, found: &mut Vec<Diagnostic>) {
    // A manifest that is incomplete or wrong cannot be judged.
    if !found.is_empty() || cx.skip_admission || !complete(cx) {
        return;
    }
    for parts in all(cx) {
        let crate::raw::Guest::Kernel { admission, .. } = parts.sandbox.guest else { continue };
        let kernel = super::build::kernel(cx, parts.sandbox, "".into(), admission);
        let analysis = Analysis::new(&kernel);
        for refusal in analysis.refusals(kernel.admission) {
            let (context, message, help) = explain(&kernel, &analysis, refusal);
            let item: &Item<_> = parts.contexts[context];
            let key = if matches!(refusal, Refusal::Short { .. }) { "budget" } else { "name" };
            let at = cx.at(item, &[k(key)]);
            found.push(Diagnostic::new("admission", at, message).help(help));
        }
    }
}

/// A budget that is too short for a call: beside the call there is the kernel's work before it.
fn short(kernel: &Kernel, context: usize, endpoint: usize, needed: u64) -> (usize, String, String) {
    let (given, endpoint) = (&kernel.contexts[context], &kernel.endpoints[endpoint]);
    let longest = endpoint.longest.unwrap_or(0);
    let message = format!(
        "the budget of `{}` never has room for a call of `{}`, which takes up to {}: the kernel begins it only with \
         that much left, and uses up to {} before",
        given.name,
        endpoint.name,
        show(longest),
        show(call_needs(0, kernel.overhead))
    );
    let most = given.gross(kernel.overhead).saturating_sub(call_needs(0, kernel.overhead));
    let budget = format!("give it a budget of at least `\"{}\"`", show(needed));
    let help = match most {
        0 => budget,
        _ => format!("{budget}, or let `longest` be at most `\"{}\"`", show(most)),
    };
    (context, message, help)
}

/// Returns the context that is refused, the reason, and how to mend it.
fn explain(kernel: &Kernel, analysis: &Analysis<'_>, refusal: Refusal) -> (usize, String, String) {
    let name = |context: usize| &kernel.contexts[context].name;
    match refusal {
        Refusal::Late { context, response } => {
            let period = kernel.contexts[context].period();
            let message = format!(
                "`{}` can need {} or more for its budget, and its period is {}: {} too much",
                name(context),
                show(response),
                show(period),
                show(response.saturating_sub(period))
            );
            (context, message, before(kernel, analysis, context))
        }
        Refusal::Delayed { context, by } => {
            let message = format!(
                "`{}` is strict, and `{}` can keep it waiting: what a strict context loses so it \
                 does not get back, and it comes later and later",
                name(context),
                name(by)
            );
            let help = "take `policy = \"sporadic\"`; or give it a priority above all others, below \
                        no device and no called server; or do without a guarantee \
                        (`guaranteed = false`)";
            (context, message, help.into())
        }
        Refusal::Blocked { context, blocking: Blocking { by, endpoint, .. } } => {
            let endpoint = &kernel.endpoints[endpoint].name;
            let message = format!(
                "`{}` can wait for ever: `{}` is below it and calls a passive server above it by \
                 `{endpoint}`, and nothing says how long that takes",
                name(context),
                name(by)
            );
            let help = format!(
                "say how long a call takes at most, `longest` of endpoint `{endpoint}`; the kernel \
                 sees to it"
            );
            (context, message, help)
        }
        Refusal::Arrears { context, by } => {
            let message = match by == context {
                true => format!(
                    "`{}` calls a server of a lower priority, for which the bound does not apply",
                    name(by)
                ),
                false => format!(
                    "`{}` calls a server below `{}`, where it can be late by any time, and comes \
                     back above with all that it has missed",
                    name(by),
                    name(context)
                ),
            };
            let help = "give the server at least the priority of all its callers";
            (context, message, help.into())
        }
        Refusal::Short { context, endpoint, needed } => short(kernel, context, endpoint, needed),
        Refusal::Circle { context, endpoint } => {
            let endpoint = &kernel.endpoints[endpoint].name;
            let message = format!(
                "`{}` can wait for ever: a call of `{endpoint}` comes back to the thread that made \
                 it, which alone could answer",
                name(context)
            );
            (context, message, "let another thread serve one of the endpoints in the circle".into())
        }
        Refusal::NotRateMonotonic { shorter, longer } => {
            let message = format!(
                "the bound does not apply: `{}` has a shorter period than `{}` ({} and {}), and no \
                 higher priority",
                name(shorter),
                name(longer),
                show(kernel.contexts[shorter].period()),
                show(kernel.contexts[longer].period())
            );
            let help =
                "give shorter periods higher priorities, or take `admission = \"response-time\"`";
            (shorter, message, help.into())
        }
        Refusal::Above { context, sum } => {
            let message = format!(
                "from `{}` on up the sum is {}, and {} contexts may have {} at most: {} too much",
                name(context),
                sum.sum,
                sum.contexts,
                sum.limit,
                sum.sum.above(sum.limit)
            );
            let help = format!(
                "{}; or take `admission = \"response-time\"`, which is exact",
                before(kernel, analysis, context)
            );
            (context, message, help)
        }
    }
}

/// Returns the change by which a context would come in time.
fn before(kernel: &Kernel, analysis: &Analysis<'_>, context: usize) -> String {
    let own = analysis.floor(context);
    let others = (0..kernel.contexts.len())
        .filter(|other| *other != context && analysis.priorities(*other).1 >= own);
    let names: Vec<&str> = others.map(|other| kernel.contexts[other].name.as_str()).collect();
    let blocking = analysis.blocking(context).and_then(|blocking| {
        let time = show(blocking.time?);
        Some(format!(
            " {} waiting for {time} by calls of `{}`;",
            keeps(&kernel.contexts[blocking.by].name, blocking.others),
            kernel.endpoints[blocking.endpoint].name
        ))
    });
    let blocking = blocking.unwrap_or_default();
    let alone = names.is_empty();
    // The first names suffice to begin with.
    let names = match names.len() {
        0..=MOST_NAMES => list(&names),
        count => {
            format!("`{}` and {} others", names[..MOST_NAMES].join("`, `"), count - MOST_NAMES)
        }
    };
    match alone {
        true => {
            format!("{blocking} give it less of a budget, or a longer period").trim().to_owned()
        }
        false => format!(
            "{names} come before it;{blocking} give some of them less, or do without a guarantee \
             (`guaranteed = false`)"
        ),
    }
}

/// Contexts that keep another one waiting.
fn keeps(longest: &str, others: usize) -> String {
    match others {
        0 => format!("`{longest}` keeps it"),
        _ => format!("`{longest}` and {others} more keep it"),
    }
}
