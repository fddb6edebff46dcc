//! `bulkhead watch`, as a user sees it: a change builds and runs again, a mistake leaves the last run alone, and Ctrl-C
//! ends all of it. Each wait has a limit.

use super::driver::{Bench, Job, tail};
use crate::build;
use crate::program::Program as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Longest wait for a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// A guest of the artifacts is the project's source, and copying builds it. It hangs, so that its run goes on.
const MANIFEST: &str = r#"version = 1

[system]
name = "watched"
machine = "qemu-q35.toml"

[build]
run = [["mkdir", "-p", "target"], ["cp", "guest", "target/guest"]]

[[sandbox]]
name = "guest"
guest = { kind = "bare", program = "target/guest", args = "way=hang" }
cores = [0]
memory = "4 MiB"
"#;

pub fn jobs() -> Vec<Job> {
    vec![Job::one("command/watch", 200, watched)]
}

/// The command, and the lines that it says.
struct Watched {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Watched {
    fn start(folder: &Path) -> Result<Self, String> {
        let mut command = Command::new(build::target().join("release/bulkhead"));
        command.args(["watch", "system.toml", "--", "--live"]).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.started()?;
        let (sender, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let out = out.map(|out| Box::new(out) as Box<dyn Read + Send>);
        let err = err.map(|err| Box::new(err) as Box<dyn Read + Send>);
        for stream in out.into_iter().chain(err) {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let lines = BufReader::new(stream).lines().map_while(Result::ok);
                lines.for_each(|line| drop(sender.send(line)));
            });
        }
        Ok(Self { child, lines, said: String::new() })
    }

    /// Waits for a line with a text.
    fn until(&mut self, text: &str) -> Result<(), String> {
        let limit = Instant::now() + PATIENCE;
        while let Ok(line) =
            self.lines.recv_timeout(limit.saturating_duration_since(Instant::now()))
        {
            self.said += &format!("{line}\n");
            if line.contains(text) {
                return Ok(());
            }
        }
        Err(format!("it did not say `{text}`:\n{}", tail(&self.said)))
    }

    /// Ctrl-C, and the exit status.
    fn interrupted(&mut self) -> Result<i32, String> {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).ended()?;
        let limit = Instant::now() + PATIENCE;
        while Instant::now() < limit {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return status.code().ok_or_else(|| format!("it ended with {status}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("Ctrl-C did not end it:\n{}", tail(&self.said)))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn watched(bench: &Bench) -> Result<String, String> {
    let folder = &bench.dir;
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, folder.join(name)).map(drop).map_err(|e| format!("{name}: {e}"))
    };
    let artifacts = build::target().join("artifacts");
    copy(&build::root().join("machines/qemu-q35.toml"), "qemu-q35.toml")?;
    copy(&artifacts.join("fail"), "guest")?;
    write("system.toml", MANIFEST)?;
    let mut watch = Watched::start(folder)?;
    // A run reads the manifest, too, so it has to be there first.
    watch.until("life 0, hang")?;
    // A mistake: its place is shown, and the run goes on.
    write("system.toml", &MANIFEST.replace("[0]", "[99]"))?;
    watch.until("system.toml changed")?;
    watch.until("has no core 99")?;
    watch.until("the run of before goes on")?;
    // It is mended, and the new run takes the old one's place.
    write("system.toml", MANIFEST)?;
    watch.until("system.toml changed")?;
    watch.until("life 0, hang")?;
    // Another source: its run ends by itself. The file that is built from it is no source.
    copy(&artifacts.join("hello"), "guest")?;
    watch.until("guest changed")?;
    watch.until("the run ended, and all that was judged is right; it waits for a change")?;
    if watch.lines.recv_timeout(Duration::from_secs(2)).is_ok() {
        return Err(format!("something runs again without a change:\n{}", tail(&watch.said)));
    }
    write("new.txt", "")?;
    watch.until("new.txt came")?;
    watch.until("watch: right")?;
    let ended = watch.interrupted();
    let _ = std::fs::remove_file(folder.join("new.txt"));
    match ended? {
        130 => Ok("four changes, one of them a mistake".to_owned()),
        other => Err(format!("its exit status is {other}:\n{}", tail(&watch.said))),
    }
}
