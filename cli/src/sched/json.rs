//! Reports as JSON. Times are in nanoseconds, shares in percent.

use super::{Report, wait, why};
use crate::kernel;
use bulkhead_plan::admission::Share;
use bulkhead_plan::kernel::Policy;
use serde_json::{Value, json};

/// All reports of a system.
#[must_use]
pub fn system(name: &str, reports: &[Report<'_>]) -> String {
    let sandboxes: Vec<Value> = reports.iter().map(report).collect();
    format!("{:#}\n", json!({ "version": 1, "system": name, "sandboxes": sandboxes }))
}

/// To a hundred thousandth of a percent, as people see it.
fn percent(share: Share) -> Value {
    let text = share.to_string();
    let number = text.trim_end_matches(" %").parse::<f64>();
    number.map_or(Value::Null, |number| json!(number))
}

fn report(report: &Report<'_>) -> Value {
    let kernel = report.kernel;
    let tests: Vec<Value> = { report.verdicts.iter() }
        .map(|(test, refusals)| {
            let why: Vec<String> = refusals.iter().map(|one| why(kernel, *one)).collect();
            json!({ "test": kernel::test(*test), "admits": refusals.is_empty(), "why": why })
        })
        .collect();
    json!({
        "name": report.name,
        "core": report.core,
        "admission": kernel::test(kernel.admission),
        "admitted": report.admitted(),
        "overhead_ns": kernel.overhead,
        "entry_ns": kernel.entry,
        "doorbells_per_second": report.doorbells(),
        "doorbell_ns": kernel.doorbell,
        "run_time_channels_counted": !kernel.has_links(),
        "sum_percent": percent(kernel.sum()),
        "overhead_percent": percent(report.overhead()),
        "overcommitted_percent": percent(report.overcommitted()),
        "tests": tests,
        "contexts": (0..report.rows.len()).map(|index| context(report, index)).collect::<Vec<_>>(),
        "simulated_ns": report.simulated.end,
    })
}

fn context(report: &Report<'_>, index: usize) -> Value {
    let (kernel, row) = (report.kernel, &report.rows[index]);
    let context = &kernel.contexts[index];
    let budget = match context.policy {
        Policy::Sporadic(server) | Policy::Strict(server) => Some(server.budget),
        _ => None,
    };
    let utilization = match context.policy {
        Policy::Pibs { utilization, .. } => Some(percent(Share::of(
            utilization.numerator().into(),
            utilization.denominator().into(),
        ))),
        _ => None,
    };
    let threads: Vec<&str> =
        kernel.users(index).map(|thread| kernel.threads[thread].name.as_str()).collect();
    let (low, high) = report.analysis.priorities(index);
    let waits: Vec<String> = row.unanalysed.iter().map(|one| wait(kernel, *one)).collect();
    json!({
        "name": context.name,
        "policy": kernel::policy(context.policy),
        "budget_ns": budget,
        "utilization_percent": utilization,
        "period_ns": context.period(),
        "share_percent": percent(row.share),
        "threads": threads,
        "priority": [low, high],
        "guaranteed": context.guaranteed && kernel.is_server(index),
        "verdict": super::table::verdict(report, index),
        "blocked_ns": row.blocking.and_then(|blocking| blocking.time),
        "response_ns": row.response.and_then(Result::ok),
        "entered_ns": row.entered,
        "simulated_ns": row.seen,
        "simulated_exceeds": row.exceeds(),
        "not_analysed": waits,
    })
}
