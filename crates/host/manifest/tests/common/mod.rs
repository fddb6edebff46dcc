//! Guests' files for tests: as little as the checker looks at.

use std::path::{Path, PathBuf};

/// A bzImage's header: protocol, 64-bit entry, 48 MiB from 16 MiB on.
fn kernel(protocol: u16) -> Vec<u8> {
    let mut bytes = vec![0; 0x2000];
    bytes[0x1F1] = 4;
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&protocol.to_le_bytes());
    bytes[0x236] = 1;
    bytes[0x238..0x23C].copy_from_slice(&2047u32.to_le_bytes());
    bytes[0x258..0x260].copy_from_slice(&(16u64 << 20).to_le_bytes());
    bytes[0x260..0x264].copy_from_slice(&(64u32 << 20).to_le_bytes());
    bytes
}

/// An ELF64 file of a type, with an entry and segments (address, length, flags).
fn elf(kind: u16, entry: u64, segments: &[(u64, u64, u32)]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(64, 0);
    bytes[16..18].copy_from_slice(&kind.to_le_bytes());
    bytes[18..20].copy_from_slice(&62u16.to_le_bytes());
    bytes[24..32].copy_from_slice(&entry.to_le_bytes());
    bytes[32..40].copy_from_slice(&64u64.to_le_bytes());
    bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
    bytes[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for (start, len, flags) in segments {
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        for field in [0, *start, *start, 0, *len, 0x1000] {
            bytes.extend(u64::to_le_bytes(field));
        }
    }
    bytes
}

/// Adds symbols to an ELF file: one that it defines, and one that it does not. They take a string table, a symbol
/// table, and a section for each.
fn with_symbol(elf: &[u8], name: &str, address: u64) -> Vec<u8> {
    let mut bytes = elf.to_vec();
    let strings = bytes.len() as u64;
    bytes.extend([&[0], name.as_bytes(), b"\0elsewhere\0"].concat());
    let table = bytes.len() as u64;
    // Name, kind, section, address, size.
    bytes.extend([&1u32.to_le_bytes()[..], &[0x12, 0], &1u16.to_le_bytes()].concat());
    bytes.extend([address.to_le_bytes(), 0u64.to_le_bytes()].concat());
    bytes.extend([&(name.len() as u32 + 2).to_le_bytes()[..], &[0x10, 0, 0, 0]].concat());
    bytes.extend([0; 16]);
    let sections = bytes.len() as u64;
    for (kind, offset, len, link) in [(3u32, strings, table - strings, 0u32), (2, table, 48, 0)] {
        let mut header = [0; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&offset.to_le_bytes());
        header[32..40].copy_from_slice(&len.to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        bytes.extend(header);
    }
    bytes[40..48].copy_from_slice(&sections.to_le_bytes());
    bytes[60..62].copy_from_slice(&2u16.to_le_bytes());
    bytes
}

/// 2 MiB above the start of the kernel's half.
const KERNEL: u64 = 0xFFFF_FFFF_8020_0000;
const R: u32 = 4;
const W: u32 = 2;
const X: u32 = 1;

/// Makes a folder of artifacts.
pub fn artifacts(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("artifacts-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let text = (0x20_0000, 0x1000, R | X);
    let good = elf(2, 0x20_0000, &[text, (0x20_1000, 0x3000, R | W)]);
    let user = elf(2, 0x40_0000, &[(0x40_0000, 0x1000, R | X), (0x40_1000, 0x1000, R | W)]);
    let mut cut = good.clone();
    cut.truncate(100);
    let files = [
        ("linux", kernel(0x20F)),
        ("old-kernel", kernel(0x206)),
        ("cut", cut),
        ("vacant", good.clone()),
        ("program", good),
        ("kernel", elf(2, KERNEL, &[(KERNEL, 0x1000, R | X), (KERNEL + 0x1000, 0x1000, R | W)])),
        ("user", with_symbol(&user, "handler", 0x40_0100)),
        ("app", with_symbol(&user, "bulkhead_needs_fpu", 0x40_0100)),
        ("stripped", user),
        ("pie", elf(3, 0, &[text])),
        ("low", elf(2, 0x1000, &[(0x1000, 0x1000, R | X)])),
        ("wx", elf(2, 0x20_0000, &[(0x20_0000, 0x1000, R | W | X)])),
        ("close", elf(2, 0x20_0000, &[text, (0x20_0800, 0x3000, R | W)])),
        ("entry", elf(2, 0x20_1000, &[text, (0x20_1000, 0x3000, R | W)])),
        ("empty", Vec::new()),
        ("small.cpio", vec![0; 512]),
    ];
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    // Only their sizes matter: files of holes.
    for (name, len) in [("large.cpio", 48 << 20), ("huge.cpio", 2600 << 20)] {
        std::fs::File::create(folder.join(name)).unwrap().set_len(len).unwrap();
    }
    folder
}
