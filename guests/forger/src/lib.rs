//! Text that a guest prints to forge evidence: for the guest, and for the tests of tools' output.
#![cfg_attr(target_os = "none", no_std)]

/// Text of a forged line.
pub const FORGED: &str = "[denied] flight core 0 at 0x1000: forged";

/// Pieces, each of which would bring [`FORGED`] to the start of a line, or do something to a terminal, if it came
/// through.
pub const PIECES: &[&[u8]] = &[
    // Goes to the start of the line, and over the text there.
    b"one\r\x1b[2K[denied] flight core 0 at 0x1000: forged\n",
    // Up, to another line.
    b"two\x1b[1A\x1b[1G[denied] flight core 0 at 0x1000: forged\n",
    // Up to the line, by C1 controls: as bytes, and as UTF-8.
    b"three\x85[denied] flight core 0 at 0x1000: forged\n",
    b"four\xC2\x85[denied] flight core 0 at 0x1000: forged\n",
    b"five\xC2\x9B1A\xC2\x9B1G[denied] flight core 0 at 0x1000: forged\n",
    // Backspaces, vertical tabs and form feeds.
    b"six\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08\x08[denied] flight core 0 at 0x1000: forged\n",
    b"seven\x0b\x0c[denied] flight core 0 at 0x1000: forged\n",
    // Separators of lines and paragraphs.
    b"eight\xE2\x80\xA8[denied] flight core 0 at 0x1000: forged\n",
    b"nine\xE2\x80\xA9[denied] flight core 0 at 0x1000: forged\n",
    // A title, the clipboard, a device control string, a privacy message, never ended.
    b"ten\x1b]0;title\x07\x1b]52;c;Zm9yZ2Vk\x07\x1bP1$r0m\x1b\\\x1b^pm\x1b\\\n",
    b"eleven\x1b]0;never ended\n",
    // Bidirectional overrides and isolates, a zero-width space, a byte order mark, a tag, a soft hyphen.
    b"twelve\xE2\x80\xAE\xE2\x81\xA6\xE2\x80\x8B\xEF\xBB\xBF\xF3\xA0\x81\x81\xC2\xAD\n",
    // Accents that pile up over the lines above.
    b"thirteen\xCC\x81\xCC\x81\xCC\x81\xCC\x81\n",
    // Not UTF-8: too long, surrogates, beyond the end, cut off.
    b"fourteen\xC0\x8A\xED\xA0\x80\xF4\x90\x80\x80\xE2\x80\n",
    // So many blanks that a terminal goes on in its next line.
    b"fifteen                                                                       [denied] flight core 0 at 0x1000: forged\n",
    // Wide letters, each of two columns.
    b"sixteen\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2[denied] flight core 0 at 0x1000: forged\n",
    // Another character set, hidden letters, no wrapping, a smaller region, a reset.
    b"seventeen\x1b(0\x0e\x1b[8m\x1b[?7l\x1b[5;6r\x1bc\n",
    // Letters that end a string of JSON, XML or a shell.
    b"eighteen\",\"held\":true}]</script>';$(x)`x`&amp;\\\n",
];
