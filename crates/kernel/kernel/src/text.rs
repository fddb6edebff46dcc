//! Lines for the console, without the machinery that formats anything: it would be a tenth of the kernel.

use core::num::NonZeroU64;

/// A line. Text beyond its room is cut off.
#[derive(Clone, Debug)]
pub struct Line {
    bytes: [u8; 240],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self { bytes: [0; 240], len: 0 }
    }
}

impl Line {
    /// Returns the text so far, and the end of the line.
    pub fn end(&mut self) -> &[u8] {
        // The last place is left for it.
        self.len = self.len.min(self.bytes.len() - 1);
        self.byte(b'\n');
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Text.
    #[inline(never)]
    pub fn text(&mut self, text: &str) -> &mut Self {
        for byte in text.bytes() {
            self.byte(byte);
        }
        self
    }

    /// Text and a decimal number.
    pub fn decimal(&mut self, text: &str, number: u64) -> &mut Self {
        self.text(text).number(number, 10)
    }

    /// Text and a hexadecimal number, behind 0x.
    pub fn hex(&mut self, text: &str, number: u64) -> &mut Self {
        self.text(text).text("0x").number(number, 16)
    }

    #[inline(never)]
    fn number(&mut self, number: u64, base: u8) -> &mut Self {
        let Some(base) = NonZeroU64::new(base.into()) else { return self };
        let rest = number / base;
        if rest != 0 {
            // As deep as there are digits, 20 at most.
            self.number(rest, base.get() as u8);
        }
        self.byte(b"0123456789abcdef"[(number % base) as usize % 16]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Line;
    use std::format;
    use std::string::String;

    fn shown(line: &mut Line) -> String {
        String::from_utf8(line.end().into()).unwrap()
    }

    #[test]
    fn numbers_are_as_others_write_them() {
        for n in [0, 9, 10, 15, 16, 255, 1 << 32, u64::MAX] {
            let line = shown(Line::default().decimal("", n).hex(" ", n));
            assert_eq!(line, format!("{n} {n:#x}\n"));
        }
    }

    #[test]
    fn what_is_too_long_is_cut_off_before_the_end_of_the_line() {
        let long = "x".repeat(300);
        assert_eq!(shown(Line::default().text(&long)), format!("{}\n", "x".repeat(239)));
    }
}
