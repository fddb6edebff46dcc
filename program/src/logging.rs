//! The crate `log` for a program: each record is a line on the sandbox's console, with the program's name and the
//! record's level. Levels above `log=` in the program's arguments (`off`, `error`, `warn`, `info`, `debug`, `trace`;
//! `info` if it is not given) are left out.

use crate::names::Program;
use crate::println;
use crate::start::current;
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Console;

impl Log for Console {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let name = current().map_or("program", Program::name);
            let level = match record.level() {
                Level::Error => "error",
                Level::Warn => "warning",
                Level::Info => "info",
                Level::Debug => "debug",
                Level::Trace => "trace",
            };
            println!("{name}: {level}: {}", record.args());
        }
    }

    fn flush(&self) {}
}

impl Program {
    /// Lets the macros of `log` print. A second time changes nothing but the level.
    pub fn log(self) {
        let wanted = self.arg("log").and_then(|level| level.parse().ok());
        log::set_max_level(wanted.unwrap_or(LevelFilter::Info));
        // It fails if there is one, which is this one.
        let _ = log::set_logger(&Console);
    }
}
