//! Printing. A reader that goes away (`bulkhead plan M | head`) is no error.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Prints a result.
pub fn result(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != ErrorKind::BrokenPipe
    {
        complain(&format!("cannot write the result: {error}"));
    }
}

/// Form of a result, for a command that has these two.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For a person.
    Human,
    /// One object, for programs.
    Json,
}

/// Prints a result for programs.
pub fn json(value: serde_json::Value) {
    result(&format!("{value:#}\n"));
}

/// When there are colours.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// In a terminal, unless `NO_COLOR` is not empty.
    Auto,
    /// Also in a file or a pipe.
    Always,
    /// Nowhere.
    Never,
}

static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Keeps the user's choice.
pub fn choose(colour: Colour) {
    let _ = COLOUR.set(colour);
}

/// Columns of the terminal that results go to, if it is one.
pub fn columns() -> Option<usize> {
    /// Width taken for an output that tells none.
    const USUAL: usize = 80;
    let out = std::io::stdout();
    let size = || rustix::termios::tcgetwinsize(&out).ok();
    let columns = || size().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    out.is_terminal().then(|| columns().unwrap_or(USUAL))
}

/// Prints a complaint.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "bulkhead: {text}");
}

/// Complains and fails.
pub fn fail(text: &str) -> ExitCode {
    complain(text);
    ExitCode::FAILURE
}

/// Tells if standard error shows colours (<https://no-color.org>).
#[must_use]
pub fn colour() -> bool {
    match COLOUR.get() {
        Some(Colour::Always) => return true,
        Some(Colour::Never) => return false,
        Some(Colour::Auto) | None => {}
    }
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    wanted && std::io::stderr().is_terminal()
}

/// Says now and then that something is still under way, also without a terminal: after two seconds, after ten, and then
/// every ten.
pub struct Progress {
    begun: Instant,
    due: Duration,
}

impl Progress {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self { begun: Instant::now(), due: Duration::from_secs(2) }
    }

    /// Says it, if it is time to.
    pub fn tell(&mut self, doing: &str) {
        const EACH: u64 = 10;
        let took = self.begun.elapsed();
        if took >= self.due {
            let seconds = took.as_secs();
            complain(&format!("note: {doing} for {seconds} s now"));
            self.due = Duration::from_secs((seconds / EACH + 1) * EACH);
        }
    }
}
