//! As much of protocol buffers' encoding as a file for Perfetto takes
//! (<https://protobuf.dev/programming-guides/encoding/>).

use std::vec::Vec;

/// A message in the making.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Returns a field with a number, of an unsigned or enumerated type, or of a signed one that is not negative.
    #[must_use]
    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// Returns a field with 64 bits.
    #[must_use]
    pub fn fixed(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Returns a field with text.
    #[must_use]
    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Returns a field with a message.
    #[must_use]
    pub fn message(self, field: u64, message: Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }
}
