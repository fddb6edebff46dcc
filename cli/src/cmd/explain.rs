//! `bulkhead explain`: the owner of a thing, the reason, and the line that would grant it.

use super::PlanArguments;
use crate::output::{self, Form};
use bulkhead_explain::owner::{self, Thing};
use serde_json::json;
use std::process::ExitCode;

/// Say which sandbox owns an address, port, interrupt, register or device, and why. Say also a sandbox's access to it,
/// and the line of the manifest that would grant it.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: PlanArguments,
    /// The sandbox that would use it.
    sandbox: String,
    /// A guest-physical address such as `0x1000`, `port N`, `irq N`, `msr N`, `pci:BB:DD.F` (or by vendor and device,
    /// or class), or the name of a device.
    #[arg(required = true, num_args = 1..=2)]
    thing: Vec<String>,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Form::Human)]
    format: Form,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match arguments.manifest.plan() {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    if plan.multikernel {
        return output::fail(
            "there are no monitors, so nothing is denied to a kernel; `plan` shows what its programs may do",
        );
    }
    let Some(who) = plan.sandboxes.iter().find(|s| s.name == arguments.sandbox) else {
        let names: Vec<&str> = plan.sandboxes.iter().map(|s| s.name.as_str()).collect();
        let (name, names) = (&arguments.sandbox, names.join(", "));
        return output::fail(&format!("there is no sandbox `{name}`; there is {names}"));
    };
    let thing = match Thing::parse(&plan, &arguments.thing.join(" ")) {
        Ok(thing) => thing,
        Err(why) => return output::fail(&why),
    };
    let answer = owner::about(&plan, who, &thing);
    let place = owner::at(&who.place);
    if arguments.format == Form::Json {
        output::json(json!({
            "version": 1, "thing": answer.what, "sandbox": who.name, "place": place, "whose": answer.owner,
            "why": answer.why, "rule": answer.rule.to_string(), "gets": answer.gets, "grant": answer.allow.to_string(),
        }));
        return ExitCode::SUCCESS;
    }
    output::result(&format!(
        "{} for {} ({place})\n  whose  {}\n  why    {}\n  rule   {}\n  gets   {}\n  grant  {}\n",
        answer.what, who.name, answer.owner, answer.why, answer.rule, answer.gets, answer.allow
    ));
    ExitCode::SUCCESS
}
