//! Serves the file system of a disk in another sandbox to other programs of this one (`files_programs`).
//!
//! Arguments:
//!
//! * `channel=NAME` (default `disk`): the channel of kind `virtio` to the disk;
//! * `patience=MILLISECONDS` (default 5000): longest time that a request may take before the call fails;
//! * `client=BADGE:MEMORY`, one for each client: the shared memory that it has in common with the server.
//!
//! It needs the channel, the endpoint `files`, and the notification `disk` where the channel has doorbells.
#![cfg_attr(target_os = "none", no_std, no_main)]

use bulkhead_program::bell::Port;
use bulkhead_program::channel::Bytes;
use bulkhead_program::channel::bell::{Arm, Caller};
use bulkhead_program::typed::Mapping;
use bulkhead_program::{
    Guest, Memory, Message, Notification, Program, now, println, ready, wait_until,
};
use bulkhead_virtio::block::SECTOR;
use bulkhead_virtio::disk::{Disk, Failed, Info, News, Operation};
use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::Ordering;
use embedded_sdmmc::{Block, BlockCount, BlockDevice, BlockIdx};
use files_programs::{Backing, Server, Storage};

bulkhead_program::entry!(serve);

/// Bytes of a request to the disk, at most.
const MOST: usize = 4096;
/// Blocks of a request.
const BLOCKS: usize = MOST / SECTOR as usize;

/// The disk gives no answer that helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// It took longer than the program's patience.
    Late,
    /// It cannot be written.
    ReadOnly,
    Failed(Failed),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Wrong {}

/// A disk in another sandbox. One request is under way at a time, as the file system asks.
struct Remote {
    disk: Disk<Mapping<'static>>,
    caller: Option<Caller<Mapping<'static>, Port>>,
    sleep: Option<(Arm<Mapping<'static>>, Notification)>,
    /// Nanoseconds.
    patience: u64,
    lost: u32,
}

impl Remote {
    fn new(program: Program) -> Option<Self> {
        let pair = program.pair(program.arg("channel").unwrap_or("disk"));
        let section = pair.shape().tx_bytes()?;
        let disk = Disk::open(*pair.tx(), *pair.rx(), section, MOST).ok()?;
        let [_, woken] = pair.doorbells();
        let sleep = match woken {
            Some(_) => Some((pair.arm().ok()?, program.waits("disk"))),
            None => None,
        };
        let patience = program.number("patience").unwrap_or(5000) * 1_000_000;
        Some(Self { disk, caller: program.caller(&pair), sleep, patience, lost: 0 })
    }

    /// Looks for news, and for what is asked; rings the disk's side for whatever was written.
    fn look<T>(&mut self, ask: impl FnOnce(&mut Disk<Mapping<'static>>) -> Option<T>) -> Option<T> {
        match self.disk.attend() {
            Some(News::Lost) => self.lost += 1,
            Some(News::Refused) => println!("files: another disk is there; it is left alone"),
            Some(News::Up(_)) if self.lost > 0 => {
                println!("files: the disk is back, with {} requests", self.disk.waiting());
            }
            Some(News::Up(_)) | None => {}
        }
        let found = ask(&mut self.disk);
        if let Some(caller) = &mut self.caller {
            caller.tell();
        }
        found
    }

    /// Waits until something is there, for as long as its patience lasts.
    fn wait<T>(
        &mut self,
        mut ask: impl FnMut(&mut Disk<Mapping<'static>>) -> Option<T>,
    ) -> Result<T, Wrong> {
        let due = now() + self.patience;
        loop {
            if let Some(found) = self.look(&mut ask) {
                return Ok(found);
            }
            if now() >= due {
                return Err(Wrong::Late);
            }
            let Some((mut arm, notification)) = self.sleep.take() else {
                core::hint::spin_loop();
                continue;
            };
            arm.arm();
            let found = self.look(&mut ask);
            if found.is_none() {
                // A signal or the time: both are looked at above.
                let _ = wait_until(notification, due);
            }
            arm.disarm();
            self.sleep = Some((arm, notification));
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }

    fn info(&mut self) -> Result<Info, Wrong> {
        self.wait(|disk| disk.info())
    }

    /// Carries out one request. `fill` puts what is written into the section, `take` copies what was read out of it.
    fn request(
        &mut self,
        operation: Operation,
        (sector, len): (u64, usize),
        fill: impl FnOnce(&<Mapping<'static> as bulkhead_program::channel::Memory>::Bytes),
        take: impl FnOnce(&<Mapping<'static> as bulkhead_program::channel::Memory>::Bytes),
    ) -> Result<(), Wrong> {
        // Requests that came too late keep their places until they are answered.
        let slot = self.wait(|disk| {
            while let Some((late, _)) = disk.completed() {
                disk.free(late);
            }
            disk.slot()
        })?;
        if let Some(bytes) = self.disk.outgoing(slot) {
            fill(&bytes);
        }
        if let Err(failed) = self.disk.send(slot, operation, sector, len) {
            self.disk.free(slot);
            return Err(Wrong::Failed(failed));
        }
        self.disk.tell();
        let done = self.wait(|disk| {
            let (answered, done) = disk.completed()?;
            if answered != slot {
                disk.free(answered);
                return None;
            }
            Some(done)
        })?;
        if let (Ok(()), Some(bytes)) = (done, self.disk.incoming(slot)) {
            take(&bytes);
        }
        self.disk.free(slot);
        done.map_err(Wrong::Failed)
    }
}

/// As the file system sees it.
struct Shared(RefCell<Remote>);

impl BlockDevice for Shared {
    type Error = Wrong;

    fn read(&self, blocks: &mut [Block], first: BlockIdx) -> Result<(), Wrong> {
        let mut sector = u64::from(first.0);
        for part in blocks.chunks_mut(BLOCKS) {
            let len = part.len() * SECTOR as usize;
            self.0.borrow_mut().request(
                Operation::Read,
                (sector, len),
                |_| {},
                |bytes| {
                    for (n, block) in part.iter_mut().enumerate() {
                        bytes.read(n * SECTOR as usize, &mut block.contents);
                    }
                },
            )?;
            sector += part.len() as u64;
        }
        Ok(())
    }

    fn write(&self, blocks: &[Block], first: BlockIdx) -> Result<(), Wrong> {
        let mut remote = self.0.borrow_mut();
        if remote.info()?.read_only {
            return Err(Wrong::ReadOnly);
        }
        let mut sector = u64::from(first.0);
        for part in blocks.chunks(BLOCKS) {
            let len = part.len() * SECTOR as usize;
            let fill = |bytes: &_| {
                for (n, block) in part.iter().enumerate() {
                    Bytes::write(bytes, n * SECTOR as usize, &block.contents);
                }
            };
            remote.request(Operation::Write, (sector, len), fill, |_| {})?;
            sector += part.len() as u64;
        }
        Ok(())
    }

    fn num_blocks(&self) -> Result<BlockCount, Wrong> {
        let sectors = self.0.borrow_mut().info()?.sectors;
        Ok(BlockCount(u32::try_from(sectors).unwrap_or(u32::MAX)))
    }
}

impl Storage for Shared {
    fn flush(&self) -> Result<(), Wrong> {
        let mut remote = self.0.borrow_mut();
        match remote.info()?.cache {
            true => remote.request(Operation::Flush, (0, 0), |_| {}, |_| {}),
            false => Ok(()),
        }
    }

    fn is_read_only(error: &Wrong) -> bool {
        *error == Wrong::ReadOnly
    }
}

/// Memory in common with a client.
struct Common(Memory);

impl Common {
    /// Words that a range touches; `None` if it leaves the memory.
    fn range(&self, at: usize, len: usize) -> Option<core::ops::Range<usize>> {
        let end = at.checked_add(len).filter(|end| *end <= self.len())?;
        Some(at..end)
    }
}

impl Backing for Common {
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        let Some(range) = self.range(at, to.len()) else { return false };
        let words = self.0.words();
        for (at, byte) in range.zip(to) {
            *byte = words[at / 8].load(Ordering::Relaxed).to_le_bytes()[at % 8];
        }
        true
    }

    fn write(&self, at: usize, from: &[u8]) -> bool {
        let Some(range) = self.range(at, from.len()) else { return false };
        let words = self.0.words();
        for (at, byte) in range.zip(from) {
            let word = &words[at / 8];
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[at % 8] = *byte;
            // The client waits for the answer. If it writes meanwhile, it harms itself.
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        true
    }

    fn len(&self) -> usize {
        self.0.len / 8 * 8
    }
}

/// Finds the memory of a client by its badge.
fn client(program: Program, badge: u64) -> Option<Memory> {
    let arguments = program.args().split_whitespace();
    let mut clients = arguments.filter_map(|one| one.strip_prefix("client=")?.split_once(':'));
    let (_, name) = clients.find(|(number, _)| number.parse() == Ok(badge))?;
    program.find_memory(name)
}

fn serve(program: Program) -> u32 {
    let (files, reply) = (program.serves("files"), program.reply(program.name()));
    let Some(mut remote) = Remote::new(program) else {
        println!("files: the channel is too small for a disk");
        return 1;
    };
    match remote.info() {
        Ok(info) => println!("files: a disk of {} sectors", info.sectors),
        Err(wrong) => {
            println!("files: no disk: {wrong}");
            return 1;
        }
    }
    let mut server = match Server::mount(Shared(RefCell::new(remote))) {
        Ok(server) => server,
        Err(status) => {
            println!("files: no file system in the first partition: {status:?}");
            return 1;
        }
    };
    ready();
    let mut received = files.receive(reply);
    loop {
        let Ok(request) = received else {
            println!("files: no further calls");
            return 1;
        };
        let memory = client(program, request.badge);
        let message = request.message;
        let answer = match memory {
            Some(memory) => {
                server.serve(request.badge, &Common(memory), message.label(), message.words)
            }
            // The manifest gives this client no memory.
            None => [files_programs::Status::Invalid as u64, 0],
        };
        received = files.reply_receive(reply, Message::new(0, &answer));
    }
}
