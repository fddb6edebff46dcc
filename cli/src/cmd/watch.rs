//! `bulkhead watch`: builds, checks and runs a system again when something of it changes.
//!
//! Building and running are commands of their own, children of this one, so Ctrl-C ends each of them. Files are looked
//! at twice a second. The kernel's notices (inotify) would need a second way for file systems without them, and for
//! folders that come and go.

use super::ManifestArguments;
use crate::interrupt::Interrupt;
use crate::{output, status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Build, check and run a system, and do it again when the manifest, a file that it names, or a source changes. Sources
/// are all files in the manifest's folder, if the manifest has `[build]`. Results in `target`, hidden files and this
/// command's own output are left out. A run goes on until a newer system is right. Each run is the scenario in virtual
/// time, as without a terminal. Ctrl-C ends.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    manifest: ManifestArguments,
    /// Options of `bulkhead run`, such as `-- --live --duration 60`.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(500);
/// Time without a further change after which an editor or a checkout is done, and how often it may begin anew.
const QUIET: (Duration, usize) = (Duration::from_millis(200), 20);
/// How long a run may take to end.
const ENDING: Duration = Duration::from_secs(20);
/// Files that are looked at, at most.
const MOST: usize = 20_000;

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let mut watch = match Watch::new(arguments) {
        Ok(watch) => watch,
        Err(why) => return output::fail(&why),
    };
    let ended = watch.rounds();
    watch.end_run();
    let _ = std::fs::remove_file(&watch.image);
    match ended {
        Ok(()) => ExitCode::from(status::INTERRUPTED),
        Err(why) => output::fail(&why),
    }
}

/// Time of the last change, and length, of each file.
type Files = BTreeMap<PathBuf, (SystemTime, u64)>;

struct Watch<'a> {
    arguments: &'a Arguments,
    program: PathBuf,
    interrupt: Interrupt,
    /// File that each build writes, and that is not needed.
    image: PathBuf,
    /// The run under way.
    run: Option<Child>,
}

impl<'a> Watch<'a> {
    fn new(arguments: &'a Arguments) -> Result<Self, String> {
        let program =
            std::env::current_exe().map_err(|e| format!("this command's own path: {e}"))?;
        let manifest = &arguments.manifest.manifest;
        if !manifest.is_file() {
            return Err(format!("{}: there is no such manifest", manifest.display()));
        }
        let name = format!("bulkhead-watch-{}.image", std::process::id());
        let image = std::env::temp_dir().join(name);
        let interrupt = Interrupt::default();
        interrupt.arm();
        Ok(Self { arguments, program, interrupt, image, run: None })
    }

    /// Goes round until Ctrl-C.
    fn rounds(&mut self) -> Result<(), String> {
        let mut sources = self.sources();
        loop {
            if !self.round()? {
                return Ok(());
            }
            // Files that the build made are those of before; sources are those from which it was made.
            let mut known = self.named();
            known.extend(sources);
            match self.wait(&known) {
                None => return Ok(()),
                Some((changed, now)) => {
                    output::complain(&format!("watch: {changed}"));
                    sources = now;
                }
            }
        }
    }

    /// Builds and runs once. False: Ctrl-C came.
    fn round(&mut self) -> Result<bool, String> {
        let begun = Instant::now();
        let mut build = self.command("build");
        build.arg("-o").arg(&self.image).stdout(Stdio::null());
        let mut build = self.start(build)?;
        let status = loop {
            if let Some(status) = build.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if self.interrupt.came() {
                end(&mut build);
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = begun.elapsed().as_secs_f64();
        if !status.success() {
            let then = match self.running() {
                true => "the run of before goes on",
                false => "it waits for a change",
            };
            output::complain(&format!("watch: not right, after {took:.1} s; {then}"));
            return Ok(true);
        }
        self.end_run();
        output::complain(&format!("watch: right, after {took:.1} s; it runs"));
        let mut run = self.command("run");
        run.args(&self.arguments.options);
        self.run = Some(self.start(run)?);
        Ok(true)
    }

    /// A command of ours on the manifest.
    fn command(&self, name: &str) -> Command {
        let ManifestArguments { manifest, artifacts, arch } = &self.arguments.manifest;
        let mut command = Command::new(&self.program);
        command.arg(name).arg(manifest).args(["--arch", arch]).stdin(Stdio::null());
        if let Some(folder) = artifacts {
            command.arg("--artifacts").arg(folder);
        }
        command
    }

    /// Starts this program once more. It heeds signals by itself ([`crate::interrupt::heed`]).
    fn start(&self, mut command: Command) -> Result<Child, String> {
        command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))
    }

    /// Tells if the last run is under way; says how it ended, once.
    fn running(&mut self) -> bool {
        let Some(run) = &mut self.run else { return false };
        match run.try_wait() {
            Ok(None) => true,
            ended => {
                self.run = None;
                output::complain(&format!("watch: {}; it waits for a change", how(ended)));
                false
            }
        }
    }

    /// Ends the last run.
    fn end_run(&mut self) {
        if let Some(mut run) = self.run.take() {
            end(&mut run);
        }
    }

    /// Waits for a change: what changed, and all sources then. Nothing: Ctrl-C came.
    fn wait(&mut self, known: &Files) -> Option<(String, Files)> {
        loop {
            let begun = Instant::now();
            while begun.elapsed() < LOOK {
                if self.interrupt.came() {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            self.running();
            let mut now = self.all();
            if let Some(changed) = difference(known, &now) {
                for _ in 0..QUIET.1 {
                    std::thread::sleep(QUIET.0);
                    let later = self.all();
                    if std::mem::replace(&mut now, later) == now {
                        break;
                    }
                }
                return Some((changed, self.sources()));
            }
        }
    }

    fn all(&self) -> Files {
        let mut all = self.named();
        all.extend(self.sources());
        all
    }

    fn folder(&self) -> &Path {
        let folder = self.arguments.manifest.manifest.parent();
        folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.arguments.manifest.manifest).unwrap_or_default()
    }

    /// The manifest, and the files that it names. A manifest that is wrong names files, too, so each text in it is
    /// taken for a name.
    fn named(&self) -> Files {
        let (text, artifacts) = (self.text(), self.arguments.manifest.folder());
        let path = |name: &str| match name.strip_prefix("artifact:") {
            Some(name) => artifacts.join(name),
            None => self.folder().join(name),
        };
        let paths = text.split('"').skip(1).step_by(2).filter(|name| !name.is_empty()).map(path);
        let mut files = Files::new();
        let results = self.folder().join("target");
        let paths = paths.filter(|path| !(self.builds() && path.starts_with(&results)));
        for path in paths.chain([self.arguments.manifest.manifest.clone()]) {
            note(&mut files, path);
        }
        files
    }

    /// Sources of that which `[build]` builds.
    fn sources(&self) -> Files {
        let mut files = Files::new();
        if self.builds() {
            collect(self.folder(), &mut files);
        }
        // A run that writes them would be the reason for the next one.
        let own = ["/proc/self/fd/1", "/proc/self/fd/2"].map(|link| std::fs::read_link(link).ok());
        let report =
            |path: &Path| self.arguments.options.iter().any(|option| path.ends_with(option));
        let is_own = |path: &Path| {
            let place = path.canonicalize().ok();
            place.is_some() && own.contains(&place)
        };
        files.retain(|path, _| !report(path) && !is_own(path));
        files
    }

    /// Tells if the manifest has `[build]`.
    fn builds(&self) -> bool {
        self.text().lines().any(|line| line.trim() == "[build]")
    }
}

/// Notes a file, if it is one.
fn note(files: &mut Files, path: PathBuf) {
    let Ok(file) = std::fs::metadata(&path) else { return };
    if file.is_file() && files.len() < MOST {
        let changed = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        files.insert(path, (changed, file.len()));
    }
}

/// Notes all files below a folder. Editors keep their own in hidden ones and such as end with `~`; only `.cargo`, among
/// the hidden ones, is a source.
fn collect(folder: &Path, files: &mut Files) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && name != ".cargo";
        if hidden || name.ends_with('~') || name == "target" {
            continue;
        }
        // Links to folders are not followed: they may lead round.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), files),
            _ => note(files, entry.path()),
        }
    }
}

/// Says what changed first, by name, and how many more.
fn difference(before: &Files, now: &Files) -> Option<String> {
    let came = now.iter().filter(|(path, file)| before.get(*path) != Some(file));
    let came = came.map(|(path, _)| match before.contains_key(path) {
        true => format!("{} changed", path.display()),
        false => format!("{} came", path.display()),
    });
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    let mut all = came.chain(gone.map(|path| format!("{} is gone", path.display())));
    let first = all.next()?;
    match all.count() {
        0 => Some(first),
        more => Some(format!("{first}, and {more} more")),
    }
}

/// Says how a run ended.
fn how(ended: std::io::Result<Option<ExitStatus>>) -> String {
    match ended.map(|status| status.and_then(|status| status.code())) {
        Ok(Some(0)) => "the run ended, and all that was judged is right".into(),
        Ok(Some(code)) => format!("the run ended with exit status {code}"),
        _ => "the run was ended".into(),
    }
}

/// Ends a child in good order, and in time.
fn end(child: &mut Child) {
    let id = i32::try_from(child.id()).unwrap_or_default();
    let _ = kill(Pid::from_raw(id), Signal::SIGINT);
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() > ENDING {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, u64)]) -> Files {
        let file = |(name, len): &(&str, u64)| (name.into(), (SystemTime::UNIX_EPOCH, *len));
        all.iter().map(file).collect()
    }

    #[test]
    fn the_first_change_is_named_and_others_are_counted() {
        let before = files(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(difference(&before, &before), None);
        let now = files(&[("a", 1), ("b", 2), ("c", 1)]);
        assert_eq!(difference(&before, &now).as_deref(), Some("b changed"));
        let now = files(&[("a", 1), ("d", 1)]);
        assert_eq!(difference(&before, &now).as_deref(), Some("d came, and 2 more"));
        let now = files(&[("a", 1), ("b", 1)]);
        assert_eq!(difference(&before, &now).as_deref(), Some("c is gone"));
    }
}
