//! `bulkheadctl` shows a Linux sandbox the others, and controls those that the manifest trusts it with.
//!
//! The monitors decide about rights: this program asks them as its user says, and prints their answer.
#![forbid(unsafe_code)]

mod ask;
mod console;
mod kick;
mod load;
mod machine;
mod part;
mod show;
mod top;
mod under;
mod why;

use bulkhead_linux::late;
use machine::Machine;
use show::Form;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Why something was not done, in words.
type Wrong = String;

/// Its `--help`; the man page is made of it, too (`cli/src/cmd/pages.rs`).
const USAGE: &str = include_str!("usage.txt");

/// Options of the command line.
struct Options {
    form: Form,
    manifest: Option<PathBuf>,
    until: Option<String>,
    wait: Duration,
    interval: Duration,
    count: u64,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprint!("bulkheadctl: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("bulkheadctl: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, Wrong> {
    let mut options = Options {
        form: Form::Human,
        manifest: None,
        until: None,
        wait: Duration::from_secs(10),
        interval: Duration::from_secs(1),
        count: 0,
        words: Vec::new(),
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--format" => {
                options.form = match value()?.as_str() {
                    "human" => Form::Human,
                    "json" => Form::Json,
                    other => return Err(format!("`{other}` is neither `human` nor `json`")),
                }
            }
            "--manifest" => options.manifest = Some(value()?.into()),
            "--until" => options.until = Some(value()?),
            "--wait" => options.wait = Duration::from_secs(number(&value()?)?),
            "--interval" => match number(&value()?)? {
                0 => return Err("--interval is at least 1".into()),
                millis => options.interval = Duration::from_millis(millis),
            },
            "--count" => options.count = number(&value()?)?,
            flag if flag.starts_with('-') => return Err(format!("there is no {flag}")),
            _ => options.words.push(arg),
        }
    }
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["list" | "top" | "kick" | "lock" | "unlock" | "plug"]
        | ["status" | "exits" | "denials", ..]
        | ["stop" | "start" | "restart" | "unload" | "create" | "destroy", _]
        | ["load", _, _]
        | ["console", _]
        | ["console", _, _]
        | ["consoles", _]
        | ["machine", "enable", _]
        | ["machine", "disable" | "status"] => Ok(options),
        [] => Err("what shall it do?".into()),
        [first, ..] => Err(format!("`{first}` is no command, or not with these words")),
    }
}

fn number(text: &str) -> Result<u64, Wrong> {
    text.parse().map_err(|_| format!("`{text}` is no whole number"))
}

fn run(options: &Options) -> Result<String, Wrong> {
    let words: Vec<&str> = options.words.iter().map(String::as_str).collect();
    match words[..] {
        ["kick"] => return kick::kick(),
        ["machine", "enable", file] => {
            let says = under::enable(file)?;
            // Without a manifest nobody knows which sandboxes are bays: all functions stay.
            let machine = Machine::open()?;
            if let Ok(why) = why::Reader::open(options.manifest.as_deref(), &machine) {
                let plugged = part::plug_all(&machine, &why, options.wait);
                plugged.map_err(|why| format!("{}; {why}", says.trim_end()))?;
            }
            return Ok(says);
        }
        ["machine", "disable"] => return under::disable(options.wait),
        ["machine", ..] => return under::status(),
        _ => {}
    }
    let machine = Machine::open()?;
    let why = || why::Reader::open(options.manifest.as_deref(), &machine);
    match words[..] {
        ["list"] => Ok(show::list(&machine, &why(), options.form, options.wait)),
        ["top"] => top::top(&machine, options.interval, options.count),
        ["lock"] => ask::lock(&machine, true),
        ["unlock"] => ask::lock(&machine, false),
        ["status", ref names @ ..] => show::status(&machine, &why(), names, options.form),
        ["exits", ref names @ ..] => show::exits(&machine, names, options.form),
        ["denials", ref names @ ..] => show::denials(&machine, &why()?, names, options.form),
        ["console", name] => {
            console::attach(&machine, name, None, options.until.as_deref(), options.wait)
        }
        ["console", name, channel] => {
            console::attach(&machine, name, Some(channel), options.until.as_deref(), options.wait)
        }
        ["consoles", folder] => console::serve(&machine, folder, options.wait),
        ["load", name, file] => load::load(&machine, name, file, options.wait, &why()),
        ["create", file] => part::create(&machine, file, options.wait, &why()),
        ["destroy", name] => part::destroy(&machine, name, options.wait, &why()),
        ["plug"] => {
            late::state().map_err(|_| "nothing to ask: modprobe bulkhead")?;
            part::plug_all(&machine, &why()?, options.wait).map(|()| String::new())
        }
        ["unload", name] => load::unload(&machine, name, options.wait, &why()),
        [request, name] => {
            let why = why();
            let name = part::sandbox(&machine, &why, name, options.wait);
            ask::ask(&machine, request, &name, options.wait, &why)
        }
        _ => Err("no such command".into()),
    }
}
