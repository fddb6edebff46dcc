//! An image that starts under a Linux that runs already, as a file. The Linux is asked for a block of memory, and the
//! address of that is known only then. So a file has the image as it is for one address, and the places of all
//! addresses in it. A helper in that Linux reads it (`linux/enable`).
//!
//! A file is a [`Head`], the image, and its relocations, padded with zeros to a multiple of eight bytes. All numbers
//! are little-endian. A relocation is the 32-bit offset of a field in the image. **The field need not be aligned.** The
//! reader adds the distance of its block from [`Head::base`] to the *eight* bytes at the offset.
//!
//! Some fields of the boot code have four bytes. The sum does not carry out of these while all addresses are below
//! 4 GiB. Some instructions extend the sign of their field, so a block has to end at [`MOST`].
//!
//! The places are found by baking twice, at two addresses: words of the image that differ by the distance of these are
//! addresses. The boot code is not compared: its own relocations name its fields. Last, the first image with its
//! relocations applied has to be the second one. One word is left as it is: the checksum in the image's header.

use crate::build::{Baked, Programs, bake};
use crate::{Error, Part};
use bulkhead_layout::image::{HEADER_WORD, checksum};
use bulkhead_plan::{BLOCK, Misfit, Owner, Refused, System};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `"BHUNDER1"`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"BHUNDER1");
/// Version of this layout.
pub const VERSION: u64 = 2;
/// Address for which the image in a file is made.
pub const BASE: u64 = 0x3000_0000;
/// End of all addresses at which the block can lie.
pub const MOST: u64 = 2 << 30;
/// The other address for which it is baked.
const OTHER: u64 = BASE + BLOCK;

/// First bytes of a file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Head {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u64,
    /// Address for which the image is made.
    pub base: u64,
    /// Bytes of the image, a multiple of a page.
    pub image: u64,
    /// How many relocations follow it.
    pub relocations: u64,
    /// Bytes of the block that the Linux gives away. The block is aligned to 128 MiB.
    pub block: u64,
    /// [`checksum`] of all that follows, by words of eight bytes.
    pub checksum: u64,
    /// 0.
    pub reserved: u64,
}

const _: () = assert!(size_of::<Head>() == 64);

/// A baked image that starts under a Linux.
pub struct Late {
    /// The image, for [`BASE`].
    pub baked: Baked,
    /// Its relocations, ascending.
    pub relocations: Vec<u32>,
    /// Bytes of its block.
    pub block: u64,
}

impl Late {
    /// Bakes a system that starts under a Linux, on the first `cores` cores of its machine.
    ///
    /// # Errors
    /// See [`System::under_linux`] and [`bake`]. Any other difference of the two images is a fault in this program.
    pub fn bake(system: &System, cores: usize, programs: &Programs) -> Result<Self, Error> {
        let at = |base| Self::bake_at(system, cores, programs, base);
        let (first, second) = (at(BASE)?, at(OTHER)?);
        let relocations = relocations(&first, &second)?;
        let block = first.plan.block.map_or(0, |block| block.len);
        Ok(Self { baked: first, relocations, block })
    }

    /// Bakes such a system for one address of its block. The image is the one that a Linux moves there, but for the
    /// checksum in its header.
    ///
    /// # Errors
    /// See [`Self::bake`].
    pub fn bake_at(
        system: &System,
        cores: usize,
        programs: &Programs,
        base: u64,
    ) -> Result<Baked, Error> {
        if base % BLOCK != 0 || base == 0 || base >= MOST {
            return Err(Error::Program(format!("a Linux gives no block at {base:#x}")));
        }
        let system = system.under_linux(base, cores)?;
        match bake(&system, programs) {
            Err(Error::Misfit(misfits)) => Err(misfit(&system, &misfits).into()),
            other => other,
        }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let mut behind = self.baked.bytes.clone();
        behind.extend(self.relocations.iter().flat_map(|offset| offset.to_le_bytes()));
        behind.resize(behind.len().next_multiple_of(8), 0);
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            base: BASE,
            image: self.baked.bytes.len() as u64,
            relocations: self.relocations.len() as u64,
            block: self.block,
            checksum: checksum(behind.chunks_exact(8).map(word)),
            reserved: 0,
        };
        [head.as_bytes(), &behind].concat()
    }
}

/// Moves an image by a distance.
///
/// # Panics
/// A relocation is outside of the image.
pub fn relocate(image: &mut [u8], relocations: &[u32], distance: u64) {
    for &offset in relocations {
        let field = &mut image[offset as usize..][..8];
        let moved = word(field).wrapping_add(distance);
        field.copy_from_slice(&moved.to_le_bytes());
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Finds the relocations of an image, by another one at another address.
fn relocations(first: &Baked, second: &Baked) -> Result<Vec<u32>, Error> {
    let [base, other] = [first, second].map(|baked| baked.plan.image.start);
    let fields = |baked: &Baked, base: u64| -> Vec<u32> {
        baked.map.fields.iter().map(|at| (at - base) as u32).collect()
    };
    let mut all = fields(first, base);
    let same = first.bytes.len() == second.bytes.len()
        && first.plan.image.len == second.plan.image.len
        && all == fields(second, other);
    if !same {
        return Err(Error::Program("the image at another address has another shape".into()));
    }
    // The boot code's word for the header's address is the builder's.
    const HEADER: usize = HEADER_WORD as usize;
    let boot = first.map.boot_bytes as usize;
    let words = first.bytes.chunks_exact(8).zip(second.bytes.chunks_exact(8)).enumerate();
    let words = words.map(|(n, (own, moved))| (8 * n, word(own), word(moved)));
    let compared = words.filter(|(offset, ..)| *offset == HEADER || *offset >= boot);
    let addresses = compared.filter(|(_, own, moved)| moved.wrapping_sub(*own) == other - base);
    all.extend(addresses.map(|(offset, ..)| offset as u32));
    all.sort_unstable();
    let mut moved = first.bytes.clone();
    relocate(&mut moved, &all, other - base);
    let sum = (first.map.header - base) as usize + 8;
    moved[sum..sum + 8].copy_from_slice(&second.bytes[sum..sum + 8]);
    let differs = moved.iter().zip(&second.bytes).position(|(own, moved)| own != moved);
    differs.map_or(Ok(all), |at| {
        let at = base + at as u64;
        let holds = |part: &&Part| part.start <= at && at < part.start + part.len;
        let part = first.map.parts.iter().find(holds).map_or("nothing", |part| part.what);
        Err(Error::Program(format!(
            "the word at {at:#x} ({part}) depends on the image's address in a way that is not known"
        )))
    })
}

/// Says what does not fit in the block.
fn misfit(system: &System, misfits: &[Misfit]) -> Refused {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let block = system.block.map_or(0, |block| block.len);
    let said: Vec<String> = { misfits.iter() }
        .map(|misfit| match *misfit {
            Misfit::Image { len, .. } => format!("the image of {} MiB", mib(len)),
            Misfit::Memory { owner, len, .. } => {
                let whose = match owner {
                    Owner::Sandbox(n) => format!("sandbox `{}`", system.sandboxes[n].sandbox.name),
                    Owner::Channel(n) => format!("channel `{}`", system.channels[n].name),
                    Owner::Link(_) => "a link".into(),
                };
                format!("{} MiB of {whose}", mib(len))
            }
        })
        .collect();
    let place = system.under_linux.as_ref().map(|under| under.place.clone());
    Refused {
        place: place.unwrap_or_default(),
        message: format!(
            "the block of {} MiB that the Linux gives away has no room for {}",
            mib(block),
            said.join(", ")
        ),
        help: "raise `under_linux.memory`, and leave `memory.at` away".into(),
    }
}
