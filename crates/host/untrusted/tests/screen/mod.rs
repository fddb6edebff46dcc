//! A terminal's parser, for tests of tools' output. The harness uses it, too.

use vte::{Params, Parser, Perform};

/// A terminal that wraps. It knows letters and the end of a line; whatever else comes is noted.
pub struct Terminal {
    columns: usize,
    /// Text in its rows.
    pub rows: Vec<String>,
    used: usize,
    /// Bytes that were no letter and no end of a line.
    pub other: Vec<String>,
    returned: bool,
}

impl Terminal {
    fn new(columns: usize) -> Self {
        Self { columns, rows: vec![String::new()], used: 0, other: Vec::new(), returned: false }
    }

    /// One that has been shown bytes.
    pub fn show(columns: usize, bytes: &[u8]) -> Self {
        let (mut terminal, mut parser) = (Self::new(columns), Parser::new());
        parser.advance(&mut terminal, bytes);
        // The text behind has to arrive: nothing waits for the end of a sequence.
        parser.advance(&mut terminal, b"\nnext");
        assert_eq!(terminal.rows.last().map(String::as_str), Some("next"), "{bytes:?}");
        terminal
    }

    fn next(&mut self) {
        self.rows.push(String::new());
        self.used = 0;
    }
}

impl Perform for Terminal {
    fn print(&mut self, letter: char) {
        if std::mem::take(&mut self.returned) {
            self.other.push("CR without LF".into());
        }
        // Some letters are as wide as two.
        let wide = if letter.is_ascii() { 1 } else { 2 };
        if self.used + wide > self.columns {
            self.next();
        }
        self.used += wide;
        let formats =
            ['\u{200b}', '\u{200e}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}'];
        if letter.is_control() || formats.contains(&letter) {
            self.other.push(format!("{letter:?}"));
        }
        self.rows.last_mut().unwrap().push(letter);
    }

    fn execute(&mut self, byte: u8) {
        // A terminal's driver sends CR LF for LF.
        match (byte, std::mem::replace(&mut self.returned, byte == b'\r')) {
            (b'\n', _) => self.next(),
            (b'\r', false) => {}
            (other, _) => self.other.push(format!("control {other:#x}")),
        }
    }

    fn csi_dispatch(&mut self, _: &Params, _: &[u8], _: bool, action: char) {
        self.other.push(format!("CSI {action}"));
    }

    fn esc_dispatch(&mut self, _: &[u8], _: bool, byte: u8) {
        self.other.push(format!("ESC {byte:#x}"));
    }

    fn osc_dispatch(&mut self, _: &[&[u8]], _: bool) {
        self.other.push("OSC".into());
    }

    fn hook(&mut self, _: &Params, _: &[u8], _: bool, _: char) {
        self.other.push("DCS".into());
    }
}
