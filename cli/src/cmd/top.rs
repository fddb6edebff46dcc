//! `bulkhead top`: a running machine, live.

use super::ManifestArguments;
use crate::output::{self, Form};
use crate::top;
use crate::top::{rows, screen, text};
use bulkhead_explain::Snapshot;
use bulkhead_run::Live;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Watch a machine that `bulkhead run` runs: states, exits and their rates, denied accesses, consoles. It stops nobody,
/// and no guest takes an exit for it. Rates are by this host's clock.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// The folder of the run [default: target/run/NAME].
    #[arg(long, value_name = "FOLDER")]
    attach: Option<PathBuf>,
    /// Print one look as a table, and end: two looks, one interval apart.
    #[arg(long)]
    once: bool,
    /// Form of that look.
    #[arg(long, value_enum, default_value_t = Form::Human, requires = "once")]
    format: Form,
    /// Milliseconds between looks.
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal && !arguments.once {
        return output::fail("there is no terminal; `--once` prints one look");
    }
    let checked = match arguments.manifest.load(false) {
        Ok(checked) => checked,
        Err(findings) => {
            super::show(&findings);
            return ExitCode::FAILURE;
        }
    };
    let usual = || super::run_folder(&checked.system.name);
    let folder = arguments.attach.clone().unwrap_or_else(usual);
    let baked = bulkhead_run::build(&checked, &arguments.manifest.folder());
    let live = match baked.and_then(|baked| Live::new(&folder, baked)) {
        Ok(live) => live,
        Err(error) => {
            return output::fail(&format!(
                "no machine runs in {}, as `bulkhead run` would: {error}",
                folder.display()
            ));
        }
    };
    let interval = Duration::from_millis(arguments.interval);
    let ended = match arguments.once {
        true => once(&live, interval, arguments.format),
        false => watch(&live, interval),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => output::fail(&why),
    }
}

/// Looks once; an error if there is nothing to be seen.
fn look(live: &Live) -> Result<Snapshot, String> {
    if live.ended() {
        return Err("the machine has ended".into());
    }
    let seen = live.look().ok_or("the machine's memory cannot be read")?;
    match seen.boot {
        Some(_) => Ok(seen),
        None => Err("the machine has not booted this manifest's image, or not yet".into()),
    }
}

fn once(live: &Live, interval: Duration, format: Form) -> Result<(), String> {
    let (before, at) = (look(live)?, Instant::now());
    std::thread::sleep(interval);
    let (plan, now) = (&live.baked().plan, look(live)?);
    let sheet = text(&plan.system, &rows(plan, &before, &now, at.elapsed()));
    match format {
        Form::Human => output::result(sheet.text.trim_start_matches('\n')),
        Form::Json => {
            output::json(json!({ "version": 1, "system": plan.system, "tables": sheet.tables() }));
        }
    }
    Ok(())
}

fn watch(live: &Live, interval: Duration) -> Result<(), String> {
    let first = look(live)?;
    let mut terminal = ratatui::try_init().map_err(|e| format!("this terminal: {e}"))?;
    let ended = shown(live, interval, first, &mut terminal);
    ratatui::restore();
    ended
}

fn shown(
    live: &Live,
    interval: Duration,
    mut before: Snapshot,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), String> {
    let plan = &live.baked().plan;
    let (mut at, mut chosen) = (Instant::now(), 0usize);
    let mut seen: Vec<top::Row> = rows(plan, &before, &before, interval);
    loop {
        terminal
            .draw(|frame| screen::draw(frame, &plan.system, &seen, chosen))
            .map_err(|e| e.to_string())?;
        let left = interval.saturating_sub(at.elapsed());
        if event::poll(left).map_err(|e| e.to_string())? {
            let Event::Key(key) = event::read().map_err(|e| e.to_string())? else { continue };
            let leaves = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if leaves => return Ok(()),
                KeyCode::Up => chosen = chosen.saturating_sub(1),
                KeyCode::Down => chosen = (chosen + 1).min(seen.len().saturating_sub(1)),
                _ => {}
            }
            continue;
        }
        if live.ended() {
            return Ok(());
        }
        let now = look(live)?;
        seen = rows(plan, &before, &now, at.elapsed());
        (before, at) = (now, Instant::now());
    }
}
