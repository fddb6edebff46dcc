//! The server against a model. Another implementation of the file system makes the disk, and reads it afterwards.

use crate::{Backing, Call, END, Mode, OPEN, Server, Status, Storage, packed};
use bulkhead_random::SplitMix64;
use embedded_sdmmc::{Block, BlockCount, BlockDevice, BlockIdx};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

const BLOCK: usize = 512;
/// First block of the partition.
const FIRST: usize = 64;
const BLOCKS: usize = 20_000;

/// A disk in memory.
#[derive(Clone, Default)]
struct Disk {
    bytes: Rc<RefCell<Vec<u8>>>,
    flushes: Rc<Cell<usize>>,
    /// Writes that it still takes; then it fails.
    lasts: Rc<Cell<usize>>,
    read_only: Rc<Cell<bool>>,
}

#[derive(Debug)]
enum Broken {
    Worn,
    ReadOnly,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Broken {}

impl Disk {
    /// With an empty file system in its first partition.
    fn formatted() -> Self {
        let mut bytes = vec![0; BLOCK * BLOCKS];
        // One entry of the partition table: FAT16 with LBA, first block, number of blocks.
        let entry = &mut bytes[446..462];
        entry[4] = 0x0E;
        entry[8..12].copy_from_slice(&(FIRST as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((BLOCKS - FIRST) as u32).to_le_bytes());
        bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
        let volume = Cursor::new(&mut bytes[BLOCK * FIRST..]);
        let options = fatfs::FormatVolumeOptions::new().fat_type(fatfs::FatType::Fat16);
        fatfs::format_volume(volume, options).expect("a file system");
        let disk = Self { bytes: Rc::new(RefCell::new(bytes)), ..Self::default() };
        disk.lasts.set(usize::MAX);
        disk
    }

    /// Files that the other implementation finds.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let bytes = self.bytes.borrow();
        let mut volume = bytes[BLOCK * FIRST..].to_vec();
        let system = fatfs::FileSystem::new(Cursor::new(&mut volume), fatfs::FsOptions::new());
        let system = system.expect("a file system");
        let mut all = BTreeMap::new();
        for entry in system.root_dir().iter() {
            let entry = entry.expect("an entry");
            let mut content = Vec::new();
            entry.to_file().read_to_end(&mut content).expect("its bytes");
            all.insert(entry.file_name(), content);
        }
        all
    }

    fn at(blocks: usize, first: BlockIdx) -> std::ops::Range<usize> {
        let first = BLOCK * first.0 as usize;
        first..first + BLOCK * blocks
    }
}

impl BlockDevice for Disk {
    type Error = Broken;

    fn read(&self, blocks: &mut [Block], first: BlockIdx) -> Result<(), Broken> {
        let bytes = self.bytes.borrow();
        let from = bytes.get(Self::at(blocks.len(), first)).ok_or(Broken::Worn)?;
        for (block, from) in blocks.iter_mut().zip(from.chunks(BLOCK)) {
            block.contents.copy_from_slice(from);
        }
        Ok(())
    }

    fn write(&self, blocks: &[Block], first: BlockIdx) -> Result<(), Broken> {
        if self.read_only.get() {
            return Err(Broken::ReadOnly);
        }
        self.lasts.set(self.lasts.get().checked_sub(1).ok_or(Broken::Worn)?);
        let mut bytes = self.bytes.borrow_mut();
        let to = bytes.get_mut(Self::at(blocks.len(), first)).ok_or(Broken::Worn)?;
        for (block, to) in blocks.iter().zip(to.chunks_mut(BLOCK)) {
            to.copy_from_slice(&block.contents);
        }
        Ok(())
    }

    fn num_blocks(&self) -> Result<BlockCount, Broken> {
        Ok(BlockCount(BLOCKS as u32))
    }
}

impl Storage for Disk {
    fn flush(&self) -> Result<(), Broken> {
        self.flushes.set(self.flushes.get() + 1);
        Ok(())
    }

    fn is_read_only(error: &Broken) -> bool {
        matches!(error, Broken::ReadOnly)
    }
}

/// A client's memory.
struct Common(RefCell<Vec<u8>>);

impl Backing for Common {
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let bytes = self.0.borrow();
        bytes.get(at..at + to.len()).map(|from| to.copy_from_slice(from)).is_some()
    }

    fn write(&self, at: usize, from: &[u8]) -> bool {
        let mut bytes = self.0.borrow_mut();
        bytes.get_mut(at..at + from.len()).map(|to| to.copy_from_slice(from)).is_some()
    }

    fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

struct Bench {
    server: Server<Disk>,
    memory: Common,
    disk: Disk,
}

impl Bench {
    fn new() -> Self {
        let disk = Disk::formatted();
        let server = Server::mount(disk.clone()).unwrap_or_else(|e| panic!("{e:?}"));
        Self { server, memory: Common(RefCell::new(vec![0; 8192])), disk }
    }

    fn call(&mut self, client: u64, call: Call, words: &[u64]) -> Result<u64, Status> {
        let mut all = [0; 4];
        all[..words.len()].copy_from_slice(words);
        let [status, value] = self.server.serve(client, &self.memory, call as u64, all);
        match Status::of(status) {
            Status::Done => Ok(value),
            other => Err(other),
        }
    }

    fn open(&mut self, client: u64, mode: Mode, name: &str) -> Result<u64, Status> {
        let [first, second] = packed(name).expect("a short name");
        self.call(client, Call::Open, &[mode as u64, first, second])
    }
}

/// A model's write: into a file's bytes at an offset.
fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let mut cursor = Cursor::new(file);
    cursor.seek(SeekFrom::Start(at as u64)).expect("an offset");
    cursor.write_all(bytes).expect("memory");
}

#[test]
fn files_are_as_a_model_has_them_and_another_implementation_reads_them() {
    let mut bench = Bench::new();
    let mut random = SplitMix64(4);
    let names = ["A.LOG", "B.LOG", "LONGNAME.TXT", "X"];
    let mut model: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
    let (mut written, mut read, mut removed) = (0, 0, 0);
    for _ in 0..3_000 {
        let name = names[random.below(4) as usize];
        if random.below(60) == 0 {
            let [first, second] = packed(name).expect("a short name");
            let done = bench.call(1, Call::Remove, &[0, first, second]);
            assert_eq!(done.is_ok(), model.remove(name).is_some(), "{done:?}");
            removed += usize::from(done.is_ok());
            continue;
        }
        let mode = match random.below(20) {
            0 => Mode::Create,
            1..12 => Mode::Write,
            _ => Mode::Read,
        };
        let opened = bench.open(1, mode, name);
        if mode == Mode::Read && !model.contains_key(name) {
            assert_eq!(opened, Err(Status::Absent));
            continue;
        }
        let handle = opened.expect("a file");
        let file = model.entry(name).or_default();
        if mode == Mode::Create {
            file.clear();
        }
        for _ in 0..random.below(4) {
            let len = 1 + random.below(3_000) as usize;
            let at = random.below(1_000) as usize;
            let offset = random.below(file.len() as u64 + 1) as usize;
            if mode == Mode::Read || random.below(3) == 0 {
                let got =
                    bench.call(1, Call::Read, &[handle, offset as u64, at as u64, len as u64]);
                let wanted = &file[offset..file.len().min(offset + len)];
                assert_eq!(got, Ok(wanted.len() as u64));
                assert_eq!(&bench.memory.0.borrow()[at..at + wanted.len()], wanted);
                read += wanted.len();
            } else if file.len() < 100_000 {
                let bytes: Vec<u8> = (0..len).map(|_| random.any() as u8).collect();
                bench.memory.0.borrow_mut()[at..at + len].copy_from_slice(&bytes);
                let (offset, place) = match random.below(2) {
                    0 => (file.len(), END),
                    _ => (offset, offset as u64),
                };
                let got = bench.call(1, Call::Write, &[handle, place, at as u64, len as u64]);
                assert_eq!(got, Ok(len as u64));
                put(file, offset, &bytes);
                written += len;
            }
        }
        assert_eq!(bench.call(1, Call::Length, &[handle]), Ok(file.len() as u64));
        if random.below(4) == 0 {
            assert_eq!(bench.call(1, Call::Flush, &[handle]), Ok(0));
            // Others see the flushed bytes, while the file is open.
            assert_eq!(bench.disk.files().get(name), Some(&*file), "{name}");
        }
        assert_eq!(bench.call(1, Call::Close, &[handle]), Ok(0));
    }
    let found = bench.disk.files();
    let wanted = model.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    assert_eq!(found, wanted);
    let flushes = bench.disk.flushes.get();
    assert!(written > 1_000_000 && read > 500_000 && removed > 10 && flushes > 100);
}

#[test]
fn a_bad_call_harms_nobody() {
    let mut bench = Bench::new();
    let handle = bench.open(1, Mode::Create, "A.LOG").expect("a file");
    assert_eq!(bench.call(1, Call::Write, &[handle, 0, 0, 100]), Ok(100));
    // Another client's handle, and no handle at all.
    for (client, handle) in [(2, handle), (1, handle + 1), (1, u64::MAX)] {
        for call in [Call::Read, Call::Write, Call::Flush, Call::Length, Call::Close] {
            assert_eq!(bench.call(client, call, &[handle, 0, 0, 1]), Err(Status::Invalid));
        }
    }
    // Ranges outside of the client's memory, offsets behind the file's end.
    let wrong = [
        [handle, 0, 0, 8193],
        [handle, 0, 8192, 1],
        [handle, 0, u64::MAX, 1],
        [handle, 0, 1, u64::MAX],
        [handle, 101, 0, 1],
        [handle, u64::MAX - 1, 0, 1],
    ];
    for words in wrong {
        assert_eq!(bench.call(1, Call::Read, &words), Err(Status::Invalid), "{words:?}");
        assert_eq!(bench.call(1, Call::Write, &words), Err(Status::Invalid), "{words:?}");
    }
    // Names and modes.
    for name in ["", "TOOLONGNAME", "A.LONG", "A/B", "..", "\u{FFFD}"] {
        let status = bench.open(1, Mode::Write, name);
        assert_eq!(status, Err(Status::Invalid), "{name}");
    }
    let [first, second] = packed("A.LOG").expect("a short name");
    assert_eq!(bench.call(1, Call::Open, &[3, first, second]), Err(Status::Invalid));
    assert_eq!(bench.server.serve(1, &bench.memory, 8, [0; 4]), [Status::Invalid as u64, 0]);
    // A file that is open is neither opened again nor removed.
    assert_eq!(bench.open(2, Mode::Read, "A.LOG"), Err(Status::Busy));
    assert_eq!(bench.call(1, Call::Remove, &[0, first, second]), Err(Status::Busy));
    assert_eq!(bench.call(1, Call::Close, &[handle]), Ok(0));
    assert_eq!(bench.call(1, Call::Close, &[handle]), Err(Status::Invalid));
    let handles: Vec<_> =
        (0..OPEN).map(|n| bench.open(1, Mode::Write, &format!("F{n}")).expect("a file")).collect();
    assert_eq!(bench.open(1, Mode::Write, "MORE"), Err(Status::Busy));
    for handle in handles {
        assert_eq!(bench.call(1, Call::Close, &[handle]), Ok(0));
    }
    assert_eq!(bench.disk.files().get("A.LOG").map(Vec::len), Some(100));
}

#[test]
fn a_disk_that_fails_is_said_to() {
    let mut bench = Bench::new();
    let handle = bench.open(1, Mode::Create, "A.LOG").expect("a file");
    assert_eq!(bench.call(1, Call::Write, &[handle, 0, 0, 1000]), Ok(1000));
    assert_eq!(bench.call(1, Call::Flush, &[handle]), Ok(0));
    bench.disk.lasts.set(0);
    assert_eq!(bench.call(1, Call::Write, &[handle, 0, 0, 1000]), Err(Status::Disk));
    // The library does not tell a disk that fails from a full one where a file needs another cluster.
    let grown = bench.call(1, Call::Write, &[handle, END, 0, 8192]);
    assert!(matches!(grown, Err(Status::Disk | Status::Full)), "{grown:?}");
    assert_eq!(bench.disk.files().get("A.LOG").map(Vec::len), Some(1000));
    bench.disk.lasts.set(usize::MAX);
    bench.disk.read_only.set(true);
    assert_eq!(bench.call(1, Call::Write, &[handle, 0, 0, 10]), Err(Status::ReadOnly));
    bench.disk.read_only.set(false);
    // A full disk: what fits is there.
    loop {
        match bench.call(1, Call::Write, &[handle, END, 0, 8192]) {
            Ok(8192) => {}
            other => break assert_eq!(other, Err(Status::Full)),
        }
    }
    assert!(bench.call(1, Call::Length, &[handle]).expect("a file") > 9_000_000);
    // No file system at all.
    let empty = Disk { bytes: Rc::new(RefCell::new(vec![0; BLOCK * 100])), ..Disk::default() };
    assert_eq!(Server::mount(empty).err(), Some(Status::Disk));
}
