//! The server's work, over any disk and any memory of clients.

use crate::{Call, END, Mode, NAME, OPEN, Status, unpacked};
use core::str::from_utf8;
use embedded_sdmmc::{
    BlockDevice, Error, RawDirectory, RawFile, TimeSource, Timestamp, VolumeIdx, VolumeManager,
};

/// A disk with a cache.
pub trait Storage: BlockDevice {
    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The disk failed, or did not answer in time.
    fn flush(&self) -> Result<(), Self::Error>;
    /// Tells if an error means that the disk cannot be written.
    fn is_read_only(error: &Self::Error) -> bool;
}

/// Memory that a client has in common with the server. The client can change it at any time.
pub trait Backing {
    /// Copies out. `false`: it has not that many bytes there.
    fn read(&self, at: usize, to: &mut [u8]) -> bool;
    /// Copies in.
    fn write(&self, at: usize, from: &[u8]) -> bool;
    /// Bytes of it.
    fn len(&self) -> usize;
    /// Tells if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// No clock tells the date: all files are of FAT's first day.
struct FirstDay;

impl TimeSource for FirstDay {
    fn get_timestamp(&self) -> Timestamp {
        Timestamp {
            year_since_1970: 10,
            zero_indexed_month: 0,
            zero_indexed_day: 0,
            hours: 0,
            minutes: 0,
            seconds: 0,
        }
    }
}

/// A file that a client has open.
#[derive(Clone, Copy)]
struct Open {
    client: u64,
    file: RawFile,
}

/// Bytes that are copied at a time.
const PIECE: usize = 512;

type Volumes<D> = VolumeManager<D, FirstDay, 1, OPEN, 1>;

/// A file system that is served.
pub struct Server<D: Storage> {
    volumes: Volumes<D>,
    root: RawDirectory,
    open: [Option<Open>; OPEN],
}

impl<D: Storage> Server<D> {
    /// Opens the file system on a disk's first partition.
    ///
    /// # Errors
    /// [`Status::Disk`]: there is none.
    pub fn mount(disk: D) -> Result<Self, Status> {
        let volumes = Volumes::new_with_limits(disk, FirstDay, 1);
        let volume = volumes.open_raw_volume(VolumeIdx(0)).map_err(|e| status::<D>(&e))?;
        let root = volumes.open_root_dir(volume).map_err(|e| status::<D>(&e))?;
        Ok(Self { volumes, root, open: [None; OPEN] })
    }

    /// Carries out a call: the client's badge and memory, the label and the words of its message. Returns the answer's
    /// words.
    pub fn serve(
        &mut self,
        client: u64,
        memory: &impl Backing,
        label: u64,
        words: [u64; 4],
    ) -> [u64; 2] {
        match self.call(client, memory, label, words) {
            Ok(value) => [Status::Done as u64, value],
            Err(status) => [status as u64, 0],
        }
    }

    fn call(
        &mut self,
        client: u64,
        memory: &impl Backing,
        label: u64,
        words: [u64; 4],
    ) -> Result<u64, Status> {
        let [first, ..] = words;
        match Call::of(label).ok_or(Status::Invalid)? {
            Call::Open => self.open(client, first, [words[1], words[2]]),
            Call::Remove => {
                let (bytes, len) = name([words[1], words[2]])?;
                let name = from_utf8(&bytes[..len]).map_err(|_| Status::Invalid)?;
                let removed = self.volumes.delete_entry_in_dir(self.root, name);
                removed.map(|()| 0).map_err(|e| status::<D>(&e))
            }
            Call::Close => {
                let (place, open) = self.find(client, first)?;
                self.open[place] = None;
                self.volumes.close_file(open.file).map(|()| 0).map_err(|e| status::<D>(&e))
            }
            Call::Read => self.read(client, memory, words),
            Call::Write => self.write(client, memory, words),
            Call::Flush => {
                let (_, open) = self.find(client, first)?;
                self.volumes.flush_file(open.file).map_err(|e| status::<D>(&e))?;
                let flushed = self.volumes.device(|disk| disk.flush());
                flushed.map(|()| 0).map_err(|_| Status::Disk)
            }
            Call::Length => {
                let (_, open) = self.find(client, first)?;
                self.volumes.file_length(open.file).map(u64::from).map_err(|e| status::<D>(&e))
            }
        }
    }

    fn open(&mut self, client: u64, mode: u64, words: [u64; 2]) -> Result<u64, Status> {
        use embedded_sdmmc::Mode as How;
        let how = match mode {
            _ if mode == Mode::Read as u64 => How::ReadOnly,
            _ if mode == Mode::Write as u64 => How::ReadWriteCreateOrAppend,
            _ if mode == Mode::Create as u64 => How::ReadWriteCreateOrTruncate,
            _ => return Err(Status::Invalid),
        };
        let (bytes, len) = name(words)?;
        let name = from_utf8(&bytes[..len]).map_err(|_| Status::Invalid)?;
        let place = self.open.iter().position(Option::is_none).ok_or(Status::Busy)?;
        let file = self.volumes.open_file_in_dir(self.root, name, how);
        let file = file.map_err(|e| status::<D>(&e))?;
        self.open[place] = Some(Open { client, file });
        Ok(place as u64)
    }

    /// Finds a client's file by its handle.
    fn find(&self, client: u64, handle: u64) -> Result<(usize, Open), Status> {
        let place = usize::try_from(handle).map_err(|_| Status::Invalid)?;
        let open = self.open.get(place).copied().flatten().filter(|open| open.client == client);
        open.map(|open| (place, open)).ok_or(Status::Invalid)
    }

    /// Goes to an offset of a file, and checks the range of the client's memory.
    fn seek(
        &self,
        client: u64,
        memory: &impl Backing,
        [handle, offset, at, len]: [u64; 4],
    ) -> Result<(RawFile, usize, usize), Status> {
        let (_, open) = self.find(client, handle)?;
        let range = |word| usize::try_from(word).map_err(|_| Status::Invalid);
        let (at, len) = (range(at)?, range(len)?);
        let end = at.checked_add(len).filter(|end| *end <= memory.len());
        let _ = end.ok_or(Status::Invalid)?;
        let gone = match offset {
            END => self.volumes.file_seek_from_end(open.file, 0),
            _ => {
                let offset = u32::try_from(offset).map_err(|_| Status::Invalid)?;
                self.volumes.file_seek_from_start(open.file, offset)
            }
        };
        gone.map_err(|e| status::<D>(&e))?;
        Ok((open.file, at, len))
    }

    fn read(&self, client: u64, memory: &impl Backing, words: [u64; 4]) -> Result<u64, Status> {
        let (file, at, len) = self.seek(client, memory, words)?;
        let (mut done, mut piece) = (0, [0; PIECE]);
        while done < len {
            let part = (len - done).min(PIECE);
            let read = self.volumes.read(file, &mut piece[..part]);
            let read = read.map_err(|e| status::<D>(&e))?;
            if read == 0 || !memory.write(at + done, &piece[..read.min(part)]) {
                break;
            }
            done += read;
        }
        Ok(done as u64)
    }

    fn write(&self, client: u64, memory: &impl Backing, words: [u64; 4]) -> Result<u64, Status> {
        let (file, at, len) = self.seek(client, memory, words)?;
        let (mut done, mut piece) = (0, [0; PIECE]);
        while done < len {
            let part = (len - done).min(PIECE);
            if !memory.read(at + done, &mut piece[..part]) {
                break;
            }
            self.volumes.write(file, &piece[..part]).map_err(|e| status::<D>(&e))?;
            done += part;
        }
        Ok(done as u64)
    }
}

/// A name's bytes, and how many there are. The file system checks the rest, but takes a folder's own entries for files.
fn name(words: [u64; 2]) -> Result<([u8; NAME], usize), Status> {
    let (bytes, len) = unpacked(words);
    if len == 0 || bytes[0] == b'.' { Err(Status::Invalid) } else { Ok((bytes, len)) }
}

/// Status of an error, for the client.
fn status<D: Storage>(error: &Error<D::Error>) -> Status {
    match error {
        Error::NotFound => Status::Absent,
        Error::FileAlreadyOpen | Error::TooManyOpenFiles => Status::Busy,
        Error::NotEnoughSpace | Error::DiskFull | Error::AllocationError => Status::Full,
        Error::ReadOnly => Status::ReadOnly,
        Error::DeviceError(error) if D::is_read_only(error) => Status::ReadOnly,
        Error::FilenameError(_)
        | Error::InvalidOffset
        | Error::OpenedDirAsFile
        | Error::DeleteNonEmptyDir => Status::Invalid,
        _ => Status::Disk,
    }
}

#[cfg(test)]
mod tests;
