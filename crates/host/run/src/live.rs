//! A machine that another process runs in a folder, such as `bulkhead run` in `target/run/NAME`. It runs on.

use crate::Error;
use crate::audit::banks;
use bulkhead_audit::{Memory as _, RamFile};
use bulkhead_explain::{Snapshot, snapshot, state as state_name};
use bulkhead_gdb::Wire;
use bulkhead_image::{Baked, CONFIGURATION, DEBUGGER, MONITOR_TEXT, Part};
use bulkhead_layout::report::{MAGIC, Report, State};
use bulkhead_qemu::Qmp;
use serde_json::json;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Connects to the emulator in a folder; returns the file of its RAM, too.
pub(crate) fn connect(folder: &Path) -> Result<(Qmp, PathBuf), Error> {
    let mut qmp = Qmp::connect(&folder.join("qmp.sock")).map_err(Error::Machine)?;
    let ram = json!({"path": "/objects/ram", "property": "mem-path"});
    let path = qmp.execute("qom-get", ram).map_err(Error::Machine)?;
    let path = path.as_str().ok_or_else(|| Error::Other(format!("no file of RAM: {path}")))?;
    let path = PathBuf::from(path);
    Ok((qmp, path))
}

/// Opens the RAM of the machine in a folder.
pub(crate) fn memory(folder: &Path, baked: &Baked) -> Result<RamFile, Error> {
    let (_, path) = connect(folder)?;
    open(&path, baked)
}

fn open(path: &Path, baked: &Baked) -> Result<RamFile, Error> {
    let error = |e| Error::Other(format!("{}: {e}", path.display()));
    RamFile::flat(path, &banks(&baked.plan)).map_err(error)
}

/// The machine, to be looked at again and again. A look stops nobody.
pub struct Live {
    memory: RamFile,
    path: PathBuf,
    baked: Baked,
}

impl Live {
    /// Finds the machine in a folder. The manifest is that machine's.
    ///
    /// # Errors
    /// No such machine.
    pub fn new(folder: &Path, baked: Baked) -> Result<Self, Error> {
        let (_, path) = connect(folder)?;
        Ok(Self { memory: open(&path, &baked)?, path, baked })
    }

    /// Returns the system.
    #[must_use]
    pub fn baked(&self) -> &Baked {
        &self.baked
    }

    /// Tells if the machine has ended: whoever ran it has removed its memory's file.
    #[must_use]
    pub fn ended(&self) -> bool {
        !self.path.exists()
    }

    /// Looks at all sandboxes. There is nothing if its memory cannot be read any more.
    #[must_use]
    pub fn look(&self) -> Option<Snapshot> {
        let read = |pa: u64, bytes: &mut [u8]| self.memory.read(pa, bytes);
        snapshot(&read, &self.baked)
    }
}

/// The page that a sandbox' monitor has for a debugger, in a machine that another process runs.
pub struct DebugPage {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    /// In the file: the page, and the sandbox' report.
    at: u64,
    report: u64,
    /// One debugger at a time.
    _lock: File,
}

impl DebugPage {
    /// Finds it in the machine of a folder. The manifest is that machine's.
    ///
    /// # Errors
    /// No such machine, or no debugger is let into the sandbox.
    pub fn new(folder: &Path, baked: &Baked, sandbox: usize) -> Result<Self, Error> {
        let mut parts = baked.map.parts.iter();
        let page = parts.find(|part| part.owner == Some(sandbox) && part.what == DEBUGGER);
        let name = &baked.plan.sandboxes[sandbox].name;
        let page = page.ok_or_else(|| {
            Error::Other(format!(
                "no debugger is let into `{name}`: `debug = true` in its [[sandbox]] would"
            ))
        })?;
        let (_, path) = connect(folder)?;
        let file = File::options().read(true).write(true).open(&path);
        let file = file.map_err(|e| Error::Other(format!("{}: {e}", path.display())))?;
        let place = |pa: u64| {
            // The banks lie in the file one behind the other.
            let mut before = 0;
            let found = banks(&baked.plan).into_iter().find_map(|bank| {
                let at = before;
                before += bank.len;
                bank.contains(pa).then(|| at + pa - bank.start)
            });
            found.ok_or_else(|| Error::Other("the image lies in no RAM".into()))
        };
        let (at, report) = (place(page.start)?, place(baked.map.reports[sandbox])?);
        let lock = File::create(folder.join(format!("gdb-{name}.lock")));
        let lock = lock.map_err(|e| Error::Other(format!("{}: {e}", folder.display())))?;
        let other = |_| Error::Other(format!("another debugger is in `{name}`"));
        lock.try_lock().map_err(other)?;
        let page = Self { folder: folder.to_owned(), path, file, at, report, _lock: lock };
        page.begun(name)?;
        for part in baked.map.parts.iter().filter(|part| part.owner == Some(sandbox)) {
            if part.what == MONITOR_TEXT || part.what == CONFIGURATION {
                page.compare(place(part.start)?, baked, part)?;
            }
        }
        Ok(page)
    }

    /// Refuses a machine that runs another image: its page lies elsewhere.
    fn compare(&self, at: u64, baked: &Baked, part: &Part) -> Result<(), Error> {
        let from = (part.start - baked.plan.image.start) as usize;
        let wanted = baked.bytes.get(from..from + part.len as usize);
        let mut bytes = vec![0; part.len as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(|e| Error::Other(e.to_string()))?;
        if wanted == Some(&bytes[..]) {
            return Ok(());
        }
        Err(Error::Other(format!(
            "the machine runs another image: its {} differs from what this manifest gives now",
            part.what
        )))
    }

    /// Waits until the guest runs.
    fn begun(&self, name: &str) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let due = Instant::now() + PATIENCE;
        loop {
            let state = self.state().map_err(|e| Error::Other(e.to_string()))?;
            match state {
                Some(State::Running) => return Ok(()),
                Some(state) if Instant::now() > due => {
                    return Err(Error::Other(format!("`{name}` is {}", state_name(state))));
                }
                None if Instant::now() > due => {
                    return Err(Error::Other(
                        "the machine has not booted this manifest's image, or not yet".into(),
                    ));
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    fn half(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn state(&self) -> io::Result<Option<State>> {
        if !self.path.exists() {
            return Err(io::Error::other("the machine has ended"));
        }
        let mut magic = [0; 8];
        self.file.read_exact_at(&mut magic, self.report + offset_of!(Report, magic) as u64)?;
        if u64::from_le_bytes(magic) != MAGIC {
            return Ok(None);
        }
        Ok(Some(State::of(self.half(self.report + offset_of!(Report, state) as u64)?)))
    }
}

impl Wire for DebugPage {
    fn word(&self, at: usize) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, self.at + at as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set_word(&self, at: usize, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), self.at + at as u64)
    }

    fn ended(&self) -> io::Result<Option<u8>> {
        let ended = matches!(self.state()?, Some(State::Exited | State::Stopped | State::Failed));
        let code = self.half(self.report + offset_of!(Report, exit_code) as u64)?;
        Ok(ended.then_some(code as u8))
    }

    fn wake(&self) -> io::Result<()> {
        // It reaches the cores that let a debugger in: others have that pin masked.
        let woken = Qmp::connect(&self.folder.join("qmp.sock")).and_then(|mut qmp| qmp.wake());
        woken.map_err(|error| io::Error::other(error.to_string()))
    }
}
