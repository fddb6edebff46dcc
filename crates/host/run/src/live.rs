//! A machine that another process runs in a folder, such as `bulkhead run` in `target/run/NAME`. It runs on.

use crate::Error;
use crate::audit::banks;
use bulkhead_audit::{Memory as _, RamFile};
use bulkhead_explain::{Snapshot, snapshot};
use bulkhead_image::Baked;
use bulkhead_qemu::Qmp;
use serde_json::json;
use std::path::{Path, PathBuf};

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
