//! `bulkhead trace`: kernels' events, as a file for Perfetto.

use super::ManifestArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, Progress};
use bulkhead_manifest::{Checked, time};
use bulkhead_plan::Guest;
use bulkhead_qemu::Time;
use bulkhead_run::{Event, Options, Traced};
use bulkhead_trace::{EVENTS, Kernel, Timeline, perfetto};
use clap::ValueEnum;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Boot a system in QEMU, in deterministic virtual time, and write its traced kernels' events to a file that
/// ui.perfetto.dev opens. Events are context switches, replenishments, donations, timeouts and interrupts. Traced are
/// those that have `trace` in their `guest`; if none has, all are.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// How long, from each kernel's first event on, such as `100ms` [default: until the run ends].
    #[arg(long = "for", value_name = "TIME", value_parser = super::sched::duration)]
    length: Option<u64>,
    /// The file.
    #[arg(short, long, value_name = "FILE", default_value = "trace.perfetto-trace")]
    output: PathBuf,
    /// Form of the file.
    #[arg(long, value_enum, default_value_t = Format::Perfetto)]
    format: Format,
    /// Host time.
    #[arg(long)]
    live: bool,
    /// Read the kernels' events from the machine that `bulkhead run` runs in a folder (target/run/NAME), which goes on.
    /// The manifest is that machine's, and has `trace`. Without `--for`: the content of the rings.
    #[arg(long, value_name = "FOLDER", conflicts_with = "live")]
    attach: Option<PathBuf>,
    /// Give up after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    limit: u64,
}

/// Bytes of a ring, where the manifest does not say.
const RING: u64 = 1 << 20;

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Perfetto's messages.
    Perfetto,
    /// A line for each event: microseconds since the processor's start, sandbox, event.
    Text,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut checked = match arguments.manifest.load(false) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    // A system that runs already is traced or not.
    if arguments.attach.is_none() && !ensure_traced(&mut checked) {
        return output::fail(&format!("no sandbox of `{}` runs a kernel", checked.system.name));
    }
    let names: Vec<_> =
        checked.system.sandboxes.iter().map(|wanted| wanted.sandbox.name.clone()).collect();
    let traces = match &arguments.attach {
        Some(folder) => attached(arguments, folder, &checked),
        None => system(arguments, checked),
    };
    let mut traces = match traces {
        Ok(traces) => traces,
        Err(status) => return status,
    };
    if let Some(length) = arguments.length {
        traces.iter_mut().for_each(|traced| traced.timeline.cut(length));
    }
    let kernels: Vec<_> = traces
        .iter()
        .map(|traced| Kernel {
            name: &names[traced.sandbox],
            timeline: &traced.timeline,
            names: &traced.names,
        })
        .collect();
    let bytes = match arguments.format {
        Format::Perfetto => perfetto(&kernels),
        Format::Text => kernels.iter().map(text).collect::<String>().into_bytes(),
    };
    if let Err(error) = std::fs::write(&arguments.output, bytes) {
        return output::fail(&format!("cannot write {}: {error}", arguments.output.display()));
    }
    output::result(&summary(&kernels, &arguments.output));
    ExitCode::SUCCESS
}

/// Has kernels traced of a manifest that asks for no trace. False: there is no kernel.
fn ensure_traced(checked: &mut Checked) -> bool {
    let guests = checked.system.sandboxes.iter_mut().map(|wanted| &mut wanted.sandbox.guest);
    let mut kernels: Vec<_> = guests
        .filter_map(|guest| match guest {
            Guest::Kernel(kernel) => Some(kernel),
            _ => None,
        })
        .collect();
    if kernels.iter().all(|kernel| kernel.trace == 0) {
        for kernel in &mut kernels {
            kernel.trace = RING;
            if kernel.file.file_name().is_some_and(|name| name == "kernel") {
                kernel.file.set_file_name("kernel-trace");
            }
        }
    }
    !kernels.is_empty()
}

/// Runs the system.
fn system(arguments: &Arguments, checked: Checked) -> Result<Vec<Traced>, ExitCode> {
    let (folder, _lock) =
        super::run::free_folder(&checked.system.name).map_err(|e| output::fail(&e))?;
    let mut options = Options::new(arguments.manifest.folder(), folder);
    options.limit = Duration::from_secs(arguments.limit);
    options.trace = true;
    options.until_traced = arguments.length;
    if arguments.live {
        options.time = Time::Live;
    }
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    let progress = RefCell::new(Progress::begin());
    options.stop = Some(Box::new(move || {
        progress.borrow_mut().tell("the machine runs");
        asked.came()
    }));
    let outcome = bulkhead_run::run(checked, &options, |event| {
        if let Event::Started(_) = event {
            interrupt.arm();
        }
    });
    outcome.map(|outcome| outcome.traces).map_err(|error| output::fail(&error.to_string()))
}

/// Reads from a machine that runs already.
fn attached(
    arguments: &Arguments,
    folder: &Path,
    checked: &Checked,
) -> Result<Vec<Traced>, ExitCode> {
    let interrupt = Interrupt::default();
    interrupt.arm();
    let baked = bulkhead_run::build(checked, &arguments.manifest.folder());
    let traces = baked.and_then(|baked| {
        let limit = Duration::from_secs(arguments.limit);
        bulkhead_run::attached(folder, &baked, arguments.length, limit, &|| interrupt.came())
    });
    traces.map_err(|error| output::fail(&error.to_string()))
}

/// A line for each event.
fn text(kernel: &Kernel<'_>) -> String {
    let Kernel { name, timeline, names } = kernel;
    let line = |record: bulkhead_trace::Record| {
        let at = timeline.nanoseconds(record.ticks);
        format!("{:>12}.{:03} {name} {}\n", at / 1_000, at % 1_000, names.tell(&record.event))
    };
    timeline.records().map(line).collect()
}

/// The amount of events, in words.
fn summary(kernels: &[Kernel<'_>], file: &Path) -> String {
    let mut out = String::new();
    for Kernel { name, timeline, .. } in kernels {
        let all = timeline.records().count();
        let time = time::show(timeline.length());
        out += &format!("{name}: {all} events in {time}, {} lost\n", timeline.lost());
        for (event, count) in counts(timeline) {
            out += &format!("  {event:<12}{count:>8}\n");
        }
    }
    out + &format!("written to {}\n", file.display())
}

/// How often each event came that came.
fn counts(timeline: &Timeline) -> Vec<(&'static str, usize)> {
    let count = |number: u64| {
        timeline.records().filter(|r| u64::from(r.event.encode().0) == number).count()
    };
    let all = EVENTS.iter().map(|event| (event.name, count(event.number)));
    all.filter(|(_, count)| *count > 0).collect()
}
