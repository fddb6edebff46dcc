//! A bare program as another sandbox loads it: a head, then its memory from [`PROGRAM_GPA`] on.

use crate::Error;
use crate::elf::{Program, Segment};
use bulkhead_layout::load::{ARGS, ARGS_MARK, Head, MAGIC, PROGRAM_GPA, sum};
use bulkhead_layout::map::{CHANNELS_END, CHANNELS_GPA};
use zerocopy::IntoBytes;

/// Size of the range for all channels together.
const MOST: usize = (CHANNELS_END - CHANNELS_GPA) as usize;

/// An ELF file as a packed program, for a sandbox that has RAM up to `end`. Zeros at its end are left out: memory is
/// zeroed before.
///
/// # Errors
/// [`Error::Program`]: it is no such file, is linked below [`PROGRAM_GPA`], or needs more memory, its zeros included.
pub fn pack(name: &str, elf: &[u8], end: u64) -> Result<Vec<u8>, Error> {
    pack_with(name, elf, end, "")
}

/// As [`pack`], with arguments in the program's place for them. Without any the program has those of the manifest.
///
/// # Errors
/// [`Error::Program`], also if the program has no such place, or the text does not fit.
pub fn pack_with(name: &str, elf: &[u8], end: u64, args: &str) -> Result<Vec<u8>, Error> {
    let wrong = |what: String| Error::Program(format!("{name}: {what}"));
    let program = Program::parse(name, elf)?;
    let segments = &program.segments;
    let start = segments.iter().map(|s| s.address).min().unwrap_or(PROGRAM_GPA);
    let needed = segments.iter().map(|s| s.address + s.size).max().unwrap_or(start);
    if start < PROGRAM_GPA {
        let why = format!("it is linked at {start:#x}, and would lie from {PROGRAM_GPA:#x} on");
        return Err(wrong(why));
    }
    if needed > end {
        return Err(wrong(format!(
            "it needs memory up to {needed:#x}; there is RAM up to {end:#x}"
        )));
    }
    let at = |s: &Segment| (s.address - PROGRAM_GPA) as usize;
    let len = segments.iter().map(|s| at(s) + s.bytes.len()).max().unwrap_or(0);
    if len > MOST {
        return Err(wrong(format!("its {len:#x} bytes are more than any channel has")));
    }
    let mut all = vec![0; len];
    for s in segments {
        all[at(s)..at(s) + s.bytes.len()].copy_from_slice(&s.bytes);
    }
    if !args.is_empty() {
        let place = place(&all).map_err(wrong)?;
        if args.len() >= ARGS {
            return Err(wrong(format!("it takes {} bytes of arguments at most", ARGS - 1)));
        }
        all[place..place + args.len()].copy_from_slice(args.as_bytes());
    }
    all.truncate(all.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    all.resize(all.len().next_multiple_of(8), 0);
    let words: Vec<u64> = all.chunks_exact(8).map(word).collect();
    let (len, entry) = (all.len() as u64, program.entry);
    let head = Head { magic: MAGIC, len, entry, sum: sum(&words) };
    if !head.fits(u64::MAX) {
        return Err(wrong(format!("its entry {entry:#x} is outside of it")));
    }
    Ok([head.as_bytes(), &all].concat())
}

/// Where a program has its place for arguments.
fn place(all: &[u8]) -> Result<usize, String> {
    let mark: Vec<u8> = ARGS_MARK.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut found = all.windows(mark.len()).enumerate().filter(|(_, bytes)| *bytes == mark);
    match (found.next(), found.next()) {
        (Some((at, _)), None) if at + mark.len() + ARGS <= all.len() => Ok(at + mark.len()),
        (None, _) => Err("it looks at no arguments, so it can have none".into()),
        _ => Err("its place for arguments is not a single one".into()),
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file with one segment of 16 bytes, and so many in memory.
    fn elf(address: u64, size: u64, entry: u64) -> Vec<u8> {
        const LOAD: u32 = 1;
        let (header, segment) = (64u16, 56u16);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let mut put = |bytes: &[u8]| file.extend(bytes);
        // Executable, for any processor, version 1.
        put(&[2, 0, 62, 0, 1, 0, 0, 0]);
        [entry, header.into(), 0].iter().for_each(|word| put(&word.to_le_bytes()));
        put(&[0; 4]);
        [header, segment, 1, 0, 0, 0].iter().for_each(|half| put(&half.to_le_bytes()));
        [LOAD, 7].iter().for_each(|word| put(&word.to_le_bytes()));
        let offset = u64::from(header + segment);
        let words = [offset, address, address, 16, size, 1];
        words.iter().for_each(|word| put(&word.to_le_bytes()));
        put(&[0x90; 16]);
        file
    }

    #[test]
    fn zeros_take_memory_but_no_room() {
        let end = PROGRAM_GPA + 4096;
        let packed = pack("a", &elf(PROGRAM_GPA, 4096, PROGRAM_GPA), end).expect("a program");
        assert_eq!(packed.len(), 32 + 16);
        let lead = pack("a", &elf(PROGRAM_GPA + 64, 16, PROGRAM_GPA + 64), end).expect("one");
        assert_eq!((lead.len(), &lead[32..96]), (32 + 80, &[0; 64][..]));
    }

    /// Whatever a file claims: what is made of it is whole, and lies in the memory that there is.
    #[test]
    fn claims_at_every_boundary() {
        let end = PROGRAM_GPA + 4096;
        let addresses =
            [0, PROGRAM_GPA - 1, PROGRAM_GPA, PROGRAM_GPA + 1, end - 16, end, 1 << 40, u64::MAX];
        let sizes = [0, 1, 15, 16, 17, 4095, 4096, 4097, 1 << 40, u64::MAX];
        let all = addresses.iter().flat_map(|a| sizes.iter().map(move |s| (*a, *s)));
        let all = all.flat_map(|(a, s)| addresses.iter().map(move |entry| (a, s, *entry)));
        let packed =
            all.filter_map(|(a, s, entry)| Some((a, s, pack("a", &elf(a, s, entry), end).ok()?)));
        let mut count = 0;
        for (address, size, packed) in packed {
            let words: Vec<u64> = packed.chunks_exact(8).map(word).collect();
            let head = Head { magic: words[0], len: words[1], entry: words[2], sum: words[3] };
            assert!(head.fits(packed.len() as u64) && head.sum == sum(&words[4..]));
            assert!(address >= PROGRAM_GPA && size >= 16 && address + size <= end);
            count += 1;
        }
        assert!(count > 10, "{count}");
    }

    #[test]
    fn what_does_not_fit_is_told_before_anything_is_made_of_it() {
        let end = PROGRAM_GPA + 4096;
        for (address, size, entry, why) in [
            (
                PROGRAM_GPA,
                4097,
                PROGRAM_GPA,
                "needs memory up to 0x201001; there is RAM up to 0x201000",
            ),
            (1 << 62, 16, 1 << 62, "needs memory up to"),
            (u64::MAX - 8, 16, PROGRAM_GPA, "has no end"),
            (PROGRAM_GPA, 8, PROGRAM_GPA, "smaller than its bytes"),
            (PROGRAM_GPA - 4096, 16, PROGRAM_GPA, "linked at"),
            (PROGRAM_GPA, 16, PROGRAM_GPA + 16, "entry"),
        ] {
            let error = pack("a", &elf(address, size, entry), end).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn arguments_go_to_their_place() {
        let end = PROGRAM_GPA + 4096;
        // The second word of 16 is not a mark yet.
        let plain = elf(PROGRAM_GPA, 16, PROGRAM_GPA);
        let error = pack_with("a", &plain, end, "x").expect_err("no place").to_string();
        assert!(error.contains("looks at no arguments"), "{error}");
        let mark: Vec<u8> = ARGS_MARK.iter().flat_map(|word| word.to_le_bytes()).collect();
        let marked = |more: usize| {
            let len = 16 + mark.len() + ARGS * more;
            let mut file = elf(PROGRAM_GPA, len as u64, PROGRAM_GPA);
            // Bytes in the file: the fifth word of the segment.
            file[64 + 32..64 + 40].copy_from_slice(&(len as u64).to_le_bytes());
            file.extend(&mark);
            file.resize(file.len() + ARGS * more, 0);
            file
        };
        let packed = pack_with("a", &marked(1), end, "rounds=4").expect("a place");
        let at = 32 + 16 + mark.len();
        assert_eq!(&packed[at..at + 8], b"rounds=4");
        assert!(packed.len() == at + 8 && pack("a", &marked(1), end).is_ok());
        let long = "x".repeat(ARGS);
        for (file, args) in [(marked(0), "x"), (marked(1), &long[..])] {
            pack_with("a", &file, end, args).expect_err("no room");
        }
    }

    #[test]
    fn what_no_channel_holds_is_told_before_it_is_made() {
        let far = PROGRAM_GPA + MOST as u64;
        let error = pack("a", &elf(far, 16, far), u64::MAX).expect_err("too long").to_string();
        assert!(error.contains("more than any channel has"), "{error}");
    }
}
