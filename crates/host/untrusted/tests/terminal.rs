//! A terminal prints a guest's text and does nothing else, and no line begins as another's does.

mod screen;

use bulkhead_untrusted::Untrusted;
use proptest::prelude::*;
use screen::Terminal;

const MARK: &str = "[rogue] ";

/// Shows text as a run does, on terminals of several widths.
fn harmless(bytes: &[u8]) {
    let text = Untrusted::new(bytes);
    for columns in [20, 80, 132] {
        let rows = text.rows(MARK, Some(columns));
        let shown = rows.iter().map(|row| format!("{row}\n")).collect::<String>();
        let terminal = Terminal::show(columns, shown.as_bytes());
        assert_eq!(terminal.other, Vec::<String>::new(), "{bytes:?}");
        // An empty row for the end of the last line, and `next`.
        let rows = &terminal.rows[..terminal.rows.len() - 2];
        assert!(rows.iter().all(|row| row.starts_with(MARK)), "{bytes:?} in {columns}: {rows:#?}");
    }
    // The text in one piece: newlines and nothing else, in JSON not even these.
    for whole in [text.text(), format!("{text:?}")] {
        let terminal = Terminal::show(usize::MAX, whole.as_bytes());
        assert_eq!(terminal.other, Vec::<String>::new(), "{bytes:?}");
    }
    assert!(!format!("{text:?}").contains('\n'));
}

/// Undoes the escapes of a shown text.
fn undone(shown: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), shown);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        if letter != '\\' {
            out.extend(letter.to_string().bytes());
            continue;
        }
        let kind = rest.chars().next().unwrap();
        rest = &rest[1..];
        let code = match kind {
            'x' => {
                out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
                continue;
            }
            'u' => {
                let (code, behind) = rest[1..].split_once('}').unwrap();
                rest = behind;
                char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap()
            }
            '0' => '\0',
            'r' => '\r',
            same => same,
        };
        out.extend(code.to_string().bytes());
    }
    out
}

#[test]
fn every_byte_and_every_pair_only_prints() {
    for first in 0..=255u8 {
        harmless(&[first]);
        let pairs = (0..=255).flat_map(|second| [first, second, b'm', b'\n']);
        harmless(&pairs.collect::<Vec<u8>>());
    }
}

#[test]
fn every_character_only_prints() {
    // The planes between have no letters; tags and variations are in plane 14.
    let last = u32::from(char::MAX) >> 8;
    for page in (0..0x340).chain(0xE00..0xE04).chain([0x400, 0xF00, 0x1000, last]) {
        let letters = (page << 8..(page + 1) << 8).filter_map(char::from_u32);
        harmless(letters.map(|letter| format!("a{letter}b\n")).collect::<String>().as_bytes());
    }
}

#[test]
fn what_forges_does_not() {
    for piece in forger::PIECES {
        harmless(piece);
        let text = Untrusted::new(*piece);
        for columns in [None, Some(80)] {
            let rows = text.rows(MARK, columns);
            assert!(rows.iter().all(|row| row.starts_with(MARK)), "{rows:?}");
        }
    }
    harmless(&forger::PIECES.concat());
}

#[test]
fn the_parser_sees_what_is_not_escaped() {
    let raw = Terminal::show(80, b"a\r\x1b[2Kb\x1b]0;c\x07");
    assert_eq!(raw.other, ["CSI K", "CR without LF", "OSC"]);
}

#[test]
fn letters_arrive_whole_however_they_are_cut() {
    let text = "a漢é😀\r\n\\b".as_bytes();
    for cut in 0..text.len() {
        let mut waiting = Untrusted::new(&text[..cut]);
        let first = waiting.take_settled();
        waiting.push(&text[cut..]);
        assert_eq!(format!("{first}{}", waiting.take_settled()), "a漢é😀\n\\\\b", "cut at {cut}");
    }
    let mut endless = Untrusted::new(vec![b'x'; 100]);
    assert!(endless.take_lines(100).is_empty());
    assert_eq!(endless.take_lines(99).text().len(), 100);
}

#[test]
fn lines_are_those_of_the_text() {
    let text = Untrusted::new("a\r\nb\n\nc");
    assert_eq!(text.lines().collect::<Vec<_>>(), ["a", "b", "", "c"]);
    assert_eq!(text.last(2), ["", "c"]);
    assert_eq!(text.text(), "a\nb\n\nc");
    assert_eq!(Untrusted::new("a\tb\n\tc").text(), "a       b\n        c");
    assert_eq!(Untrusted::default().lines().count(), 0);
    let mut text = Untrusted::new("abc");
    assert_eq!((text.keep_last(2), text.text()), (1, "bc".into()));
}

proptest! {
    #[test]
    fn whatever_it_is_it_only_prints_and_can_be_undone(bytes in prop::collection::vec(any::<u8>().prop_filter("a tab", |byte| *byte != 9), 0..200)) {
        harmless(&bytes);
        let shown = Untrusted::new(bytes.as_slice()).text();
        let plain: Vec<u8> = bytes.iter().copied().enumerate().filter(|(n, byte)| {
            *byte != b'\r' || bytes.get(n + 1).is_some_and(|next| *next != b'\n')
        }).map(|(_, byte)| byte).collect();
        prop_assert_eq!(undone(&shown), plain);
    }
}
