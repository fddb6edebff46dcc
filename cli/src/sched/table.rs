//! A report as tables.

use super::{Report, priority, wait, why};
use crate::kernel;
use crate::text::table;
use bulkhead_manifest::time::show;
use bulkhead_plan::kernel::{Policy, Test};

/// Everything of one kernel.
pub fn report(out: &mut String, report: &Report<'_>) {
    contexts(out, report);
    tests(out, report);
}

fn contexts(out: &mut String, report: &Report<'_>) {
    let kernel = report.kernel;
    let rows: Vec<Vec<String>> = { report.rows.iter().enumerate() }
        .map(|(index, row)| {
            let context = &kernel.contexts[index];
            let [budget, period] = kernel::budget(context);
            let blocking = row.blocking.map(|blocking| {
                let time = blocking.time.map_or("for ever".into(), show);
                let others = match blocking.others {
                    0 => String::new(),
                    others => format!(" and {others} more"),
                };
                format!("{time}, {}{others}", kernel.contexts[blocking.by].name)
            });
            let response = match row.response {
                None => "-".into(),
                Some(Ok(response)) => show(response),
                Some(Err(_)) => format!("over {period}"),
            };
            vec![
                context.name.clone(),
                kernel::policy(context.policy).into(),
                budget,
                period,
                match context.policy {
                    Policy::Full { .. } => "-".into(),
                    _ => row.share.to_string(),
                },
                kernel::user(kernel, index),
                priority(report, index),
                blocking.unwrap_or_else(|| "-".into()),
                response,
                row.seen.map_or("-".into(), show),
                verdict(report, index).into(),
            ]
        })
        .collect();
    let heads = [
        "context",
        "policy",
        "C or U",
        "T",
        "share",
        "runs",
        "priority",
        "kept waiting",
        "response",
        "simulated",
        "verdict",
    ];
    let title = format!("Contexts of {}, on core {}", report.name, report.core);
    table(out, &title, &heads, &rows);
    remarks(out, report);
}

/// The verdict on a context. A wait beyond its budget is never called in time.
pub fn verdict(report: &Report<'_>, index: usize) -> &'static str {
    let (context, row) = (&report.kernel.contexts[index], &report.rows[index]);
    let waits = !row.unanalysed.is_empty();
    let never = report.never.iter().any(|refusal| refusal.context() == index);
    match (context.policy, row.response, context.guaranteed) {
        _ if never => "never",
        (Policy::Full { .. }, ..) => "what is left",
        (Policy::Pibs { .. }, ..) => "within U",
        (_, Some(Ok(_)), true) if report.analysis.delayed(index).is_some() => "later and later",
        (_, Some(Ok(_)), _) if row.exceeds() => "simulated later",
        (_, Some(Ok(_)), true) if waits => "budget in time, waits not analysed",
        (_, Some(Ok(_)), false) if waits => "budget in time, waits not analysed, not guaranteed",
        (_, Some(Ok(_)), true) if report.kernel.has_links() => "in time but for run-time channels",
        (_, Some(Ok(_)), false) if report.kernel.has_links() => {
            "in time but for run-time channels, not guaranteed"
        }
        (_, Some(Ok(_)), true) => "in time",
        (_, Some(Ok(_)), false) => "in time, not guaranteed",
        (_, _, true) => "late",
        (_, _, false) => "late, not guaranteed",
    }
}

/// Doorbells and interrupts that are counted, and those that are not; waits of contexts beyond their budgets; where the
/// simulation is beyond the analysis.
fn remarks(out: &mut String, report: &Report<'_>) {
    let name = |context: usize| &report.kernel.contexts[context].name;
    let doorbells = report.doorbells();
    if doorbells > 0 {
        let each = show(report.kernel.doorbell);
        out.push_str(&format!(
            "counted: {doorbells} doorbells a second of others' rights over it, {each} each\n"
        ));
    }
    for index in (0..report.rows.len()).filter(|index| report.kernel.sources(*index) > 0) {
        let (count, each) = (2 * report.kernel.sources(index), show(report.kernel.entry));
        out.push_str(&format!(
            "counted: {count} interrupts for {}, {each} each, in the time of each other context\n",
            name(index)
        ));
    }
    for (index, row) in report.rows.iter().enumerate() {
        if let Some(entered) = row.entered.filter(|time| *time > 0) {
            out.push_str(&format!(
                "its budget: {} of {}'s can go to timers and interrupts of others\n",
                show(entered),
                name(index)
            ));
        }
    }
    if report.rows.iter().any(|row| row.entered.is_some_and(|time| time > 0)) {
        out.push_str(
            "these budgets: others are to begin as often in a period as their `activations` say\n",
        );
    }
    if report.kernel.has_links() {
        out.push_str("not counted: doorbells of channels made at run time, one for each that is made, armed or closed\n");
    }
    for (index, row) in report.rows.iter().enumerate() {
        for unanalysed in &row.unanalysed {
            let what = wait(report.kernel, *unanalysed);
            out.push_str(&format!("not analysed: {} can wait for the {what}\n", name(index)));
        }
    }
    for context in report.exceeding() {
        let what = "its simulation takes longer than its response time";
        out.push_str(&format!("wrong: {}: {what}\n", name(context)));
    }
}

fn tests(out: &mut String, report: &Report<'_>) {
    let kernel = report.kernel;
    let row = |(test, refusals): &(Test, Vec<_>)| {
        let asked = if *test == kernel.admission { "asked for" } else { "-" };
        let says = match refusals.first() {
            None => "admits".to_owned(),
            Some(_) => format!("refuses {}", refusals.len()),
        };
        let why: Vec<String> = refusals.iter().map(|refusal| why(kernel, *refusal)).collect();
        let numbers = match test {
            _ if !why.is_empty() => why.join("; "),
            Test::Bound => tightest(report),
            Test::Response => "every guaranteed context within its period".into(),
            Test::None => overcommitment(report),
        };
        vec![kernel::test(*test).to_owned(), asked.into(), says, numbers]
    };
    let rows: Vec<Vec<String>> = report.verdicts.iter().map(row).collect();
    let title = format!(
        "Admission of {}: {} in sum, of which the kernel spends {} ({} for each activation)",
        report.name,
        kernel.sum(),
        report.overhead(),
        show(kernel.overhead)
    );
    table(out, &title, &["test", "manifest", "says", "why"], &rows);
}

/// The sum that is nearest to its limit.
fn tightest(report: &Report<'_>) -> String {
    let kernel = report.kernel;
    let sums = kernel.guaranteed().filter_map(|context| report.analysis.utilization(context).ok());
    match sums.min_by_key(|sum| sum.limit.above(sum.sum)) {
        None => "nothing is guaranteed".into(),
        Some(sum) => format!("{} of at most {} for n = {}", sum.sum, sum.limit, sum.contexts),
    }
}

fn overcommitment(report: &Report<'_>) -> String {
    let over = report.overcommitted();
    match over.0 {
        0 => "nothing is overcommitted".into(),
        _ => format!("overcommitted by {over}"),
    }
}
