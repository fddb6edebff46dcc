//! Monitors' configurations, read out of a baked image.

use bulkhead_image::{Baked, Part};
use bulkhead_layout::map::IMAGE_PA;
use bulkhead_layout::monitor::{Config, Slice};
use zerocopy::FromBytes;

/// A configuration, and the bytes from it on.
pub struct Configuration<'a> {
    /// Its fields.
    pub fields: Config,
    bytes: &'a [u8],
}

impl<'a> Configuration<'a> {
    /// Finds a sandbox's, in these bytes of the image.
    pub fn of(bytes: &'a [u8], baked: &Baked, index: usize) -> Option<Self> {
        let own =
            |part: &&Part| part.owner == Some(index) && part.what.starts_with("configuration");
        let part = baked.map.parts.iter().find(own)?;
        let bytes = bytes.get((part.start - IMAGE_PA) as usize..)?;
        Some(Self { fields: Config::read_from_prefix(bytes).ok()?.0, bytes })
    }

    /// Reads one of its tables.
    pub fn table<T: FromBytes>(&self, slice: Slice) -> Vec<T> {
        let at = |n: usize| slice.offset as usize + n * size_of::<T>();
        let read = |n| Some(T::read_from_prefix(self.bytes.get(at(n)..)?).ok()?.0);
        (0..slice.len as usize).filter_map(read).collect()
    }
}
