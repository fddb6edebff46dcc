//! A tree of files, in the way of fsstress. Several processes make, write, rename, link and remove files and folders at
//! a time. Each has a folder of its own, with a model of it. All share one more, without a model.

use crate::{fill, same};
use bulkhead_random::SplitMix64;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files and folders of a process, at most, and bytes of a file.
const ENTRIES: usize = 60;
const BYTES: usize = 24_000;
/// Folders below one another, at most.
const DEEP: usize = 4;
/// Folder that all processes share.
const COMMON: &str = "common";

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    /// A file, by the number of its content: links share one.
    File(usize),
    Link(String),
}

/// A process' folder and its model. Without a folder the model alone is played.
struct Tree {
    base: PathBuf,
    real: bool,
    entries: BTreeMap<String, Entry>,
    contents: Vec<Vec<u8>>,
    random: SplitMix64,
}

fn base(folder: &str, number: u64) -> PathBuf {
    Path::new(folder).join(format!("p{number}"))
}

/// Seed of a process.
const fn own(seed: u64, number: u64) -> u64 {
    seed.wrapping_mul(1000) + number
}

/// Lets some processes work at a time.
pub fn exercise(folder: &str, [seed, processes, operations]: [u64; 3]) -> Result<()> {
    fs::create_dir_all(Path::new(folder).join(COMMON))?;
    let me = std::env::current_exe()?;
    let start = |number: u64| {
        let words = [seed, number, operations].map(|word| word.to_string());
        Command::new(&me).args(["tree-one", folder]).args(words).spawn()
    };
    let children: Vec<_> = (0..processes).map(start).collect::<Result<_>>()?;
    let mut well = true;
    for mut child in children {
        well &= child.wait()?.success();
    }
    if !well {
        return Err(Error::other("a process has found what must not be"));
    }
    println!("bhfs: {folder}: {processes} processes, {operations} operations each, all as written");
    Ok(())
}

/// Does the work of one process, and compares its folder.
pub fn one(folder: &str, [seed, number, operations]: [u64; 3]) -> Result<()> {
    let mut tree = Tree::new(base(folder, number), true, own(seed, number));
    fs::create_dir(&tree.base)?;
    let common = Path::new(folder).join(COMMON);
    let mut wild = SplitMix64(own(seed, number) ^ 0x5555);
    for n in 0..operations {
        tree.step().map_err(|why| Error::other(format!("operation {n}: {why}")))?;
        disturb(&common, &mut wild)?;
    }
    tree.compare()
}

/// Compares the folders with what such an exercise has left.
pub fn again(folder: &str, [seed, processes, operations]: [u64; 3]) -> Result<()> {
    for number in 0..processes {
        let mut tree = Tree::new(base(folder, number), false, own(seed, number));
        (0..operations).try_for_each(|_| tree.step())?;
        tree.compare()?;
    }
    println!("bhfs: {folder}: {processes} folders again, all as written");
    Ok(())
}

/// An operation in the folder of all, where another process may be first.
fn disturb(common: &Path, random: &mut SplitMix64) -> Result<()> {
    let mut name = || common.join(format!("c{}", random.below(12)));
    let (one, other) = (name(), name());
    let done = match random.below(7) {
        0 | 1 => fs::write(&one, vec![0x55; random.index(9000)]),
        2 => fs::rename(&one, &other),
        3 => fs::remove_file(&one),
        4 => fs::create_dir(&one),
        5 => fs::remove_dir(&one),
        _ => fs::hard_link(&one, &other),
    };
    const OTHERS: [ErrorKind; 7] = [
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::IsADirectory,
        ErrorKind::NotADirectory,
        ErrorKind::DirectoryNotEmpty,
        ErrorKind::PermissionDenied,
        ErrorKind::InvalidInput,
    ];
    match done {
        Err(why) if !OTHERS.contains(&why.kind()) => {
            Err(Error::new(why.kind(), format!("{}: {why}", one.display())))
        }
        _ => Ok(()),
    }
}

impl Tree {
    fn new(base: PathBuf, real: bool, seed: u64) -> Self {
        let (entries, contents) = (BTreeMap::new(), Vec::new());
        Self { base, real, entries, contents, random: SplitMix64(seed) }
    }

    /// Does something to the folder on the disk, if there is one.
    fn with(&self, work: impl FnOnce(&dyn Fn(&str) -> PathBuf) -> Result<()>) -> Result<()> {
        if self.real { work(&|name| self.base.join(name)) } else { Ok(()) }
    }

    /// A name in one of the folders, of an entry or of none.
    fn name(&mut self) -> String {
        let folders: Vec<&String> =
            self.entries.iter().filter(|(_, e)| **e == Entry::Folder).map(|(n, _)| n).collect();
        let place = self.random.index(folders.len() + 1);
        let folder = folders.get(place).map_or(String::new(), |name| format!("{name}/"));
        format!("{folder}e{}", self.random.below(9))
    }

    /// An entry of a kind.
    fn some(&mut self, kind: impl Fn(&Entry) -> bool) -> Option<(String, Entry)> {
        let all: Vec<_> = self.entries.iter().filter(|(_, entry)| kind(entry)).collect();
        let place = self.random.index(all.len());
        all.get(place).map(|(name, entry)| ((*name).clone(), (*entry).clone()))
    }

    fn file(&mut self) -> Option<(String, usize)> {
        match self.some(|entry| matches!(entry, Entry::File(_)))? {
            (name, Entry::File(content)) => Some((name, content)),
            _ => None,
        }
    }

    fn step(&mut self) -> Result<()> {
        let kind = if self.entries.len() > ENTRIES { 12 } else { self.random.below(16) };
        match kind {
            0..3 => self.create(),
            3..5 => self.write(),
            5 => self.resize(),
            6 | 7 => self.read(),
            8 => self.make_folder(),
            9 => self.rename(),
            10 => self.link(),
            11 => self.point(),
            12 | 13 => self.remove(),
            14 => self.remove_folder(),
            _ => self.flush(),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.random.index(BYTES)];
        fill(&mut bytes, self.random.any());
        bytes
    }

    /// A new file, or a file anew.
    fn create(&mut self) -> Result<()> {
        let (name, bytes) = (self.name(), self.bytes());
        match self.entries.get(&name) {
            None => {
                self.contents.push(bytes);
                let number = self.contents.len() - 1;
                self.entries.insert(name.clone(), Entry::File(number));
            }
            Some(Entry::File(number)) => self.contents[*number] = bytes,
            Some(_) => return Ok(()),
        }
        let Some(Entry::File(number)) = self.entries.get(&name) else { return Ok(()) };
        self.with(|at| fs::write(at(&name), &self.contents[*number]))
    }

    /// Bytes anywhere in a file, or behind it.
    fn write(&mut self) -> Result<()> {
        let Some((name, number)) = self.file() else { return Ok(()) };
        let bytes = self.bytes();
        let room = BYTES.saturating_sub(bytes.len()).min(self.contents[number].len() + 4096);
        let at = self.random.index(room + 1);
        let content = &mut self.contents[number];
        if !bytes.is_empty() {
            content.resize(content.len().max(at + bytes.len()), 0);
            content[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        self.with(|path| {
            OpenOptions::new().write(true).open(path(&name))?.write_all_at(&bytes, at as u64)
        })
    }

    fn resize(&mut self) -> Result<()> {
        let Some((name, number)) = self.file() else { return Ok(()) };
        let size = self.random.index(BYTES);
        self.contents[number].resize(size, 0);
        self.with(|at| OpenOptions::new().write(true).open(at(&name))?.set_len(size as u64))
    }

    fn read(&mut self) -> Result<()> {
        let Some((name, number)) = self.file() else { return Ok(()) };
        self.with(|at| same(&fs::read(at(&name))?, &self.contents[number], 0, &name))
    }

    fn make_folder(&mut self) -> Result<()> {
        let name = self.name();
        if self.entries.contains_key(&name) || name.matches('/').count() >= DEEP {
            return Ok(());
        }
        self.entries.insert(name.clone(), Entry::Folder);
        self.with(|at| fs::create_dir(at(&name)))
    }

    /// Renames a file or a link, also onto another; a folder with all that is in it, to a free name.
    fn rename(&mut self) -> Result<()> {
        let Some((from, entry)) = self.some(|_| true) else { return Ok(()) };
        let to = self.name();
        let free = match self.entries.get(&to) {
            None => true,
            Some(Entry::Folder) => false,
            Some(there) => entry != Entry::Folder && *there != entry,
        };
        let below = format!("{from}/");
        if !free || to == from || to.starts_with(&below) || to.matches('/').count() >= DEEP {
            return Ok(());
        }
        let moved: Vec<String> =
            self.entries.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for name in moved {
            if let Some(entry) = self.entries.remove(&name) {
                self.entries.insert(format!("{to}/{}", &name[below.len()..]), entry);
            }
        }
        self.entries.remove(&from);
        self.entries.insert(to.clone(), entry);
        self.with(|at| fs::rename(at(&from), at(&to)))
    }

    fn link(&mut self) -> Result<()> {
        let Some((from, number)) = self.file() else { return Ok(()) };
        let to = self.name();
        if self.entries.contains_key(&to) {
            return Ok(());
        }
        self.entries.insert(to.clone(), Entry::File(number));
        self.with(|at| fs::hard_link(at(&from), at(&to)))
    }

    /// A symbolic link that leads nowhere.
    fn point(&mut self) -> Result<()> {
        let (name, target) = (self.name(), format!("t{}", self.random.any()));
        if self.entries.contains_key(&name) {
            return Ok(());
        }
        self.entries.insert(name.clone(), Entry::Link(target.clone()));
        self.with(|at| symlink(&target, at(&name)))
    }

    fn remove(&mut self) -> Result<()> {
        let Some((name, _)) = self.some(|entry| *entry != Entry::Folder) else { return Ok(()) };
        self.entries.remove(&name);
        self.with(|at| fs::remove_file(at(&name)))
    }

    /// Removes a folder, if it is empty; the disk's has to say so, too.
    fn remove_folder(&mut self) -> Result<()> {
        let Some((name, _)) = self.some(|entry| *entry == Entry::Folder) else { return Ok(()) };
        let below = format!("{name}/");
        let empty = !self.entries.keys().any(|other| other.starts_with(&below));
        if empty {
            self.entries.remove(&name);
        }
        self.with(|at| match fs::remove_dir(at(&name)) {
            Ok(()) if empty => Ok(()),
            Ok(()) => Err(Error::other(format!("{name} was empty"))),
            Err(why) if !empty && why.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(why) => Err(why),
        })
    }

    fn flush(&mut self) -> Result<()> {
        let Some((name, _)) = self.file() else { return Ok(()) };
        self.with(|at| File::open(at(&name))?.sync_all())
    }

    /// Compares the folder with the model: just these entries, with these contents.
    fn compare(&self) -> Result<()> {
        let mut seen = 0;
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.base.join(&folder))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                seen += 1;
                let path = self.base.join(&name);
                match self.entries.get(&name) {
                    Some(Entry::Folder) if path.is_dir() => folders.push(name),
                    Some(Entry::File(number)) => {
                        same(&fs::read(&path)?, &self.contents[*number], 0, &name)?;
                    }
                    Some(Entry::Link(target)) if fs::read_link(&path)? == Path::new(target) => {}
                    other => {
                        let path = path.display();
                        return Err(Error::other(format!("{path} is to be {other:?}")));
                    }
                }
            }
        }
        if seen != self.entries.len() {
            let (base, count) = (self.base.display(), self.entries.len());
            return Err(Error::other(format!("{base}: {seen} entries in place of {count}")));
        }
        Ok(())
    }
}
