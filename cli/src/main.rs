//! The `bulkhead` command. Each subcommand is a file in `cmd/`; this one only
//! hands over to them. A command prints its result on standard output and its complaints on standard error. Its exit
//! status is 0, 1 (the manifest or the run is not right) or 2 (the command line is not).

mod campaign_picture;
mod cmd;
mod compare;
mod denied;
mod interrupt;
mod kernel;
mod kernel_picture;
mod output;
mod page;
mod pci;
mod picture;
mod saved;
mod sched;
mod status;
mod svg;
mod table;
mod text;
mod top;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use output::Colour;
use std::process::ExitCode;

/// Divides a machine into sandboxes, as a manifest says.
#[derive(Parser)]
#[command(name = "bulkhead", version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// When messages have colours; `NO_COLOR` is for auto.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto)]
    color: Colour,
}

#[derive(Subcommand)]
enum Command {
    New(cmd::new::Arguments),
    Check(cmd::check::Arguments),
    Plan(cmd::plan::Arguments),
    Probe(bulkhead_probe::Arguments),
    Build(cmd::build::Arguments),
    Pack(cmd::pack::Arguments),
    Run(cmd::run::Arguments),
    Watch(cmd::watch::Arguments),
    Exits(cmd::exits::Arguments),
    Top(cmd::top::Arguments),
    Gdb(cmd::gdb::Arguments),
    Report(cmd::report::Arguments),
    Compare(cmd::compare::Arguments),
    Doctor(cmd::doctor::Arguments),
    Explain(cmd::explain::Arguments),
    Sched(cmd::sched::Arguments),
    Trace(cmd::trace::Arguments),
    Audit(cmd::audit::Arguments),
    Inject(cmd::inject::Arguments),
    #[command(hide = true)]
    Pages(cmd::pages::Arguments),
}

fn main() -> ExitCode {
    interrupt::heed();
    let arguments = parsed();
    output::choose(arguments.color);
    match arguments.command {
        Command::New(arguments) => cmd::new::run(&arguments),
        Command::Check(arguments) => cmd::check::run(&arguments),
        Command::Plan(arguments) => cmd::plan::run(&arguments),
        Command::Probe(arguments) => bulkhead_probe::run(&arguments),
        Command::Build(arguments) => cmd::build::run(&arguments),
        Command::Pack(arguments) => cmd::pack::run(&arguments),
        Command::Run(arguments) => cmd::run::run(&arguments),
        Command::Watch(arguments) => cmd::watch::run(&arguments),
        Command::Exits(arguments) => cmd::exits::run(&arguments),
        Command::Top(arguments) => cmd::top::run(&arguments),
        Command::Gdb(arguments) => cmd::gdb::run(&arguments),
        Command::Report(arguments) => cmd::report::run(&arguments),
        Command::Compare(arguments) => cmd::compare::run(&arguments),
        Command::Doctor(arguments) => cmd::doctor::run(&arguments),
        Command::Explain(arguments) => cmd::explain::run(&arguments),
        Command::Sched(arguments) => cmd::sched::run(&arguments),
        Command::Trace(arguments) => cmd::trace::run(&arguments),
        Command::Audit(arguments) => cmd::audit::run(&arguments),
        Command::Inject(arguments) => cmd::inject::run(&arguments),
        Command::Pages(arguments) => cmd::pages::run(&arguments, &mut Arguments::command()),
    }
}

/// Reads the command line. Its own errors and help have the colours that it asks for, so that is looked at before.
fn parsed() -> Arguments {
    let words: Vec<String> = std::env::args().take_while(|word| word != "--").collect();
    let after = words.iter().position(|word| word == "--color").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.strip_prefix("--color="));
    let choice = match after.map(String::as_str).or(joined) {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    };
    let matches = Arguments::command().color(choice).get_matches();
    Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}
