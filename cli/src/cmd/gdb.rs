//! `bulkhead gdb`: gdb in a live sandbox, while the others run on.

use super::ManifestArguments;
use crate::output;
use bulkhead_plan::Guest;
use bulkhead_run::DebugPage;
use nix::sys::signal::{SigSet, Signal};
use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Between two looks at who connects.
const LOOK: Duration = Duration::from_millis(20);

/// Debug the guest of one sandbox in a machine that `bulkhead run` runs: breakpoints, steps, registers, memory. All
/// other sandboxes run on. The manifest has to let a debugger in (`debug = true`).
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// The sandbox.
    sandbox: String,
    /// The folder of the run [default: target/run/NAME].
    #[arg(long, value_name = "FOLDER")]
    attach: Option<PathBuf>,
    /// Start no gdb, and wait for one at this address, such as `127.0.0.1:1234`.
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "more")]
    listen: Option<SocketAddr>,
    /// The program with symbols [default: a bare guest's own].
    #[arg(long, value_name = "FILE")]
    symbols: Option<PathBuf>,
    /// Further arguments for gdb.
    #[arg(last = true, value_name = "GDB ARGUMENTS")]
    more: Vec<String>,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    match debug(arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(ended)) if ended.success() => ExitCode::SUCCESS,
        Ok(Some(ended)) => output::fail(&format!("gdb: {ended}")),
        Err(Some(why)) => output::fail(&why),
        // Findings were shown.
        Err(None) => ExitCode::FAILURE,
    }
}

fn debug(arguments: &Arguments) -> Result<Option<ExitStatus>, Option<String>> {
    let checked = arguments.manifest.load(false).map_err(|findings| {
        super::show(&findings);
        None
    })?;
    let baked = bulkhead_run::build(&checked, &arguments.manifest.folder());
    let baked = baked.map_err(|error| error.to_string())?;
    let mut all = baked.plan.sandboxes.iter();
    let names = || baked.plan.sandboxes.iter().map(|s| s.name.as_str()).collect::<Vec<_>>();
    let index = all.position(|sandbox| sandbox.name == arguments.sandbox);
    let index = index.ok_or_else(|| {
        format!("no sandbox is `{}`; there is {}", arguments.sandbox, names().join(", "))
    })?;
    let usual = || super::run_folder(&checked.system.name);
    let folder = arguments.attach.clone().unwrap_or_else(usual);
    let page = DebugPage::new(&folder, &baked, index);
    let page = page.map_err(|error| format!("{}: {error}", folder.display()))?;
    let at = arguments.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    let listener = TcpListener::bind(at).map_err(|error| format!("{at}: {error}"))?;
    let at = listener.local_addr().map_err(|error| error.to_string())?;
    let mut gdb = match arguments.listen {
        Some(_) => {
            output::complain(&format!("gdb can connect: target remote {at}"));
            None
        }
        None => {
            let own = match &baked.plan.sandboxes[index].guest {
                Guest::Bare { program, .. } => Some(program.clone()),
                _ => None,
            };
            Some(start(arguments.symbols.clone().or(own), at, &arguments.more)?)
        }
    };
    let Some(connection) = accept(&listener, gdb.as_mut())? else {
        return gdb.map_or(Ok(None), |mut gdb| ended(&mut gdb));
    };
    let end = connection.try_clone().map_err(|error| error.to_string())?;
    ends_with(end, gdb.is_some());
    let served = bulkhead_gdb::serve(page, connection);
    if let Err(error) = &served {
        output::complain(&error.to_string());
    }
    let status = gdb.map_or(Ok(None), |mut gdb| ended(&mut gdb))?;
    served.map_err(|_| None)?;
    Ok(status)
}

/// Ends the session in good order when this process is told to end, so that no breakpoint stays. Ctrl-C is gdb's, if it
/// was started here.
fn ends_with(connection: TcpStream, started: bool) {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    // Without this a signal ends the process at once, as by default.
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal != Signal::SIGINT || !started {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    });
}

fn ended(gdb: &mut Child) -> Result<Option<ExitStatus>, Option<String>> {
    gdb.wait().map(Some).map_err(|error| Some(error.to_string()))
}

fn start(symbols: Option<PathBuf>, at: SocketAddr, more: &[String]) -> Result<Child, String> {
    let mut gdb = Command::new("gdb");
    gdb.arg("-q").args(symbols);
    gdb.args(["-ex", "set pagination off", "-ex", "set tcp connect-timeout 20"]);
    gdb.args(["-ex", &format!("target remote {at}")]).args(more);
    gdb.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no gdb here: install Debian's package gdb".to_owned(),
        _ => format!("gdb: {error}"),
    })
}

/// Waits for gdb; `None` if it ends before.
fn accept(
    listener: &TcpListener,
    mut gdb: Option<&mut Child>,
) -> Result<Option<TcpStream>, String> {
    let says = |error: std::io::Error| error.to_string();
    listener.set_nonblocking(true).map_err(says)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(says)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
            Err(error) => return Err(error.to_string()),
        }
        if let Some(gdb) = &mut gdb
            && gdb.try_wait().map_err(says)?.is_some()
        {
            return Ok(None);
        }
    }
}
