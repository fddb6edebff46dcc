//! The headers by which loaders know the image: multiboot 1 with address fields (Multiboot 0.6.96, 3.1) and multiboot 2
//! (Multiboot2 2.0, 3.1). QEMU's `-kernel` reads the first, GRUB on BIOS and UEFI the second.

use bulkhead_layout::map::IMAGE_PA;

/// Where the second header lies; the first one is at the image's start.
const SECOND: u32 = 64;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Both headers, for the image's first 256 bytes.
pub fn headers(entry: u64) -> Vec<u8> {
    let (image, entry) = (IMAGE_PA as u32, entry as u32);
    const MAGIC: u32 = 0x1BAD_B002;
    // Memory map wanted; address fields are valid.
    const FLAGS: u32 = 1 << 1 | 1 << 16;
    // Load everything to the file's end; no bss beyond it.
    let first = words(&[MAGIC, FLAGS, 0u32.wrapping_sub(MAGIC + FLAGS), image, image, 0, 0, entry]);

    const MAGIC2: u32 = 0xE852_50D6;
    let tags = words(&[
        2,
        24,
        image + SECOND,
        image,
        0,
        0, // addresses
        3,
        12,
        entry,
        0, // entry, padded to 8 bytes
        0,
        8, // end
    ]);
    let len = 16 + tags.len() as u32;
    let second =
        [words(&[MAGIC2, 0, len, 0u32.wrapping_sub(MAGIC2.wrapping_add(len))]), tags].concat();

    let mut bytes = first;
    bytes.resize(SECOND as usize, 0);
    bytes.extend(second);
    assert!(bytes.len() <= 256, "the boot code leaves 256 bytes");
    bytes
}
