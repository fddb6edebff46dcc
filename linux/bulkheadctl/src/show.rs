//! Tables and JSON.

use crate::Wrong;
use crate::ask::granted;
use crate::machine::Machine;
use crate::why::{Reader, bare};
use bulkhead_explain::{fold, refused, state};
use bulkhead_layout::report::CAUSE_NAMES;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// How it prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Human,
    Json,
}

fn put(out: &mut String, arguments: std::fmt::Arguments) {
    // Text takes all.
    let _ = out.write_fmt(arguments);
    out.push('\n');
}

fn text(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Every sandbox, with the rights to it.
pub fn list(machine: &Machine, why: &Result<Reader, Wrong>, form: Form, wait: Duration) -> String {
    // Without the manifest nobody knows that a sandbox is a bay.
    let bays: Vec<_> =
        why.iter().flat_map(|reader| crate::part::bays(machine, reader, wait)).collect();
    let part = |name: &str| {
        let mut all = bays.iter().filter(|(bay, _)| *bay == name);
        all.next().map(|(_, part)| part.as_deref().unwrap_or("vacant"))
    };
    let rights = |n: usize| {
        let own = (n == machine.info.index).then_some("itself");
        let sees = machine.observes(n).then_some("observe");
        let loads = machine.loads(n).map(|_| "load");
        own.into_iter().chain(machine.rights(n)).chain(sees).chain(loads).collect::<Vec<_>>()
    };
    let locked = |n: usize| machine.known(n).status.is_some_and(|status| status.locked);
    let all = machine.info.sandboxes.iter().enumerate();
    if form == Form::Json {
        let all = all.map(|(n, name)| json!({ "name": name, "index": n, "rights": rights(n), "part": part(name), "locked": locked(n) }));
        return text(&Value::Array(all.collect()));
    }
    let mut out = format!("{:<16}{}\n", "sandbox", "rights of this one");
    for (n, name) in all {
        let rights = rights(n);
        let rights = if rights.is_empty() { "none".into() } else { rights.join(", ") };
        let part = part(name).map(|part| format!("; {part}")).unwrap_or_default();
        let locked = if locked(n) { "; it is locked" } else { "" };
        put(&mut out, format_args!("{name:<16}{rights}{part}{locked}"));
    }
    out
}

/// State, restarts, exits and denials.
pub fn status(
    machine: &Machine,
    why: &Result<Reader, Wrong>,
    names: &[&str],
    form: Form,
) -> Result<String, Wrong> {
    let mut rows = Vec::new();
    let mut out = format!(
        "{:<16}{:<11}{:>8}{:>7}{:>14}{:>10}{:>9}{:>13}\n",
        "sandbox", "state", "restarts", "cores", "steady exits", "in s", "denials", "overwritten"
    );
    for n in seen(machine, names)? {
        let (name, mut known) = (&machine.info.sandboxes[n], machine.known(n));
        // A user that names a sandbox without a right to it gets the monitors' answer.
        if known.status.is_none() && !names.is_empty() {
            let status = machine.status(n).map_err(|e| granted(e, "start", (n, name), why))?;
            known.status = Some(status);
        }
        let [mut was, mut restarts, mut cores] = ["?", "-", "-"].map(str::to_owned);
        let [mut steady, mut seconds, mut denials] = ["-", "-", "-"].map(str::to_owned);
        let mut overwritten = String::from("-");
        let mut row = Map::from_iter([("name".to_owned(), json!(name))]);
        if let Some(status) = known.status {
            (was, restarts) = (state(status.state).to_owned(), status.restarts.to_string());
            row.insert("state".into(), json!(was));
            row.insert("restarts".into(), json!(status.restarts));
            row.insert("loaded".into(), json!(status.loaded));
            row.insert("locked".into(), json!(status.locked));
            if status.locked {
                // It lives, or it would not be locked.
                was = "locked".into();
            }
        }
        if let Some(seen) = &known.report {
            let exits = machine.exits(seen);
            (cores, denials) = (seen.cores.len().to_string(), seen.denials().to_string());
            if seen.overwritten() > 0 {
                overwritten = seen.overwritten().to_string();
            }
            steady = exits.steady.values().sum::<u64>().to_string();
            seconds = format!("{:.3}", exits.steady_seconds);
            row.insert("cores".into(), json!(seen.cores.len()));
            row.insert("exits".into(), json!(exits));
            row.insert("denials".into(), json!(seen.denials()));
            row.insert("overwritten".into(), json!(seen.overwritten()));
            row.insert("by_condition".into(), json!(refused(&seen.cores, |_, _| None)));
            let exited = was == "exited";
            row.insert("exit_code".into(), json!(exited.then_some(seen.report.exit_code)));
            if exited {
                write!(was, " {}", seen.report.exit_code).map_err(|why| why.to_string())?;
            }
        }
        put(
            &mut out,
            format_args!(
                "{name:<16}{was:<11}{restarts:>8}{cores:>7}{steady:>14}{seconds:>10}{denials:>9}{overwritten:>13}"
            ),
        );
        rows.push(Value::Object(row));
    }
    Ok(if form == Form::Json { text(&Value::Array(rows)) } else { out })
}

/// Exits by cause.
pub fn exits(machine: &Machine, names: &[&str], form: Form) -> Result<String, Wrong> {
    let mut rows = Map::new();
    let mut out = format!("{:<16}{:<12}{:>12}{:>12}\n", "sandbox", "cause", "boot", "steady");
    for n in seen(machine, names)? {
        let name = &machine.info.sandboxes[n];
        let Some(seen) = observed(machine, n, names)? else { continue };
        let exits = machine.exits(&seen);
        for cause in CAUSE_NAMES {
            let of = |phase: &std::collections::BTreeMap<&str, u64>| {
                phase.get(cause).copied().unwrap_or(0)
            };
            let (boot, steady) = (of(&exits.boot), of(&exits.steady));
            if boot + steady > 0 {
                put(&mut out, format_args!("{name:<16}{cause:<12}{boot:>12}{steady:>12}"));
            }
        }
        put(&mut out, format_args!("{name:<16}steady for {:.3} s", exits.steady_seconds));
        rows.insert(name.clone(), json!(exits));
    }
    Ok(if form == Form::Json { text(&Value::Object(rows)) } else { out })
}

/// The denied accesses with records that are there, oldest first. If there were more, also each condition's count of
/// refusals.
pub fn denials(
    machine: &Machine,
    why: &Reader,
    names: &[&str],
    form: Form,
) -> Result<String, Wrong> {
    let (mut rows, mut out, mut gone) = (Vec::new(), String::new(), String::new());
    let (mut all, mut shown, mut overwritten) = (0, 0, 0);
    for n in seen(machine, names)? {
        let name = &machine.info.sandboxes[n];
        let Some(seen) = observed(machine, n, names)? else { continue };
        let denials = seen.cores.iter().enumerate();
        let denials = denials.flat_map(|(core, c)| c.kept.iter().map(move |d| (core, d)));
        let mut denials: Vec<_> = denials.collect();
        denials.sort_by_key(|(_, denial)| denial.ticks);
        shown += denials.len();
        let explained = denials.iter().map(|(core, denial)| why.explain(n, *core, denial));
        match explained.collect::<Option<Vec<_>>>() {
            Some(explained) => {
                for explained in fold(explained) {
                    put(&mut out, format_args!("{explained}"));
                    rows.push(json!(explained));
                }
            }
            None => {
                for (core, denial) in denials {
                    let text = bare(denial);
                    put(
                        &mut out,
                        format_args!("{name} core {core} at {:#x}: {text}", denial.instruction),
                    );
                    rows.push(json!({ "sandbox": name, "core": core, "access": text }));
                }
            }
        }
        all += seen.denials();
        overwritten += seen.overwritten();
        if seen.overwritten() > 0 {
            put(&mut gone, format_args!("{name} was denied, by condition:"));
            for refused in refused(&seen.cores, |core, d| why.explain(n, core, d)) {
                put(&mut gone, format_args!("  {:<20}{:>10}", refused.condition, refused.count));
            }
        }
    }
    if form == Form::Json {
        return Ok(text(&Value::Array(rows)));
    }
    out += &gone;
    let more = "records were overwritten by later ones";
    put(
        &mut out,
        format_args!("{all} denied accesses, {shown} of them above; {overwritten} {more}"),
    );
    out.extend(why.hint().filter(|_| shown > 0).map(|hint| hint + "\n"));
    Ok(out)
}

/// Which sandboxes are meant; an error if nobody is.
fn seen(machine: &Machine, names: &[&str]) -> Result<Vec<usize>, Wrong> {
    let all = machine.named(names)?;
    match all.is_empty() {
        false => Ok(all),
        true => Err(format!(
            "the manifest lets `{0}` see and control nobody; `observe = [...]`, `stop`, `start` and `restart = [...]` in its [[sandbox]] `{0}` would",
            machine.info.name
        )),
    }
}

/// A sandbox's report. Without one: left out where all were asked for, an error where it was named.
fn observed(
    machine: &Machine,
    n: usize,
    names: &[&str],
) -> Result<Option<bulkhead_explain::SandboxSnapshot>, Wrong> {
    let (known, name) = (machine.known(n), &machine.info.sandboxes[n]);
    match known.report {
        None if names.is_empty() => Ok(None),
        None => Err(format!(
            "the report of `{name}` is not shown to `{0}`; `observe = [\"{name}\"]` in the manifest's [[sandbox]] `{0}` would",
            machine.info.name
        )),
        report => Ok(report),
    }
}
