//! Limits of a file, checked before anything looks at its meaning: a regular file, of so many bytes, with so
//! many entries. All that follows may then take time that grows with the square of a list, and is over soon.

use crate::diagnostic::Diagnostic;
use crate::source::{Document, Location, Source};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeValue;

/// Bytes of a manifest or of a machine description.
pub const FILE: u64 = 1 << 20;
/// Entries of one list or table.
pub const LIST: usize = 1_024;
/// Values of a file, lists and tables included.
pub const VALUES: usize = 32_768;
/// Tables and lists in each other.
pub const DEPTH: usize = 16;

/// Reads a file as text.
///
/// # Errors
/// Kind of a file that is no text of at most [`FILE`] bytes.
pub fn read(path: &Path) -> Result<Arc<Source>, Box<Diagnostic>> {
    let wrong = |rule, text: String, message: String, at: usize, help: &str| {
        let source = Arc::new(Source::new(path.to_owned(), text));
        let at = Location { source, range: at..at };
        Box::new(Diagnostic::new(rule, at, message).help(help))
    };
    let bytes = bytes(path, FILE).map_err(|why| {
        let message = format!("cannot read {}: {why}", path.display());
        wrong("file-unreadable", String::new(), message, 0, "give the path of a TOML file")
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Arc::new(Source::new(path.to_owned(), text))),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let message = format!("byte {at} is not UTF-8");
            Err(wrong("file-not-text", text, message, at, "save the file as UTF-8 text"))
        }
    }
}

/// Bytes of a regular file that has so many at most.
///
/// # Errors
/// Its kind, in words.
pub fn bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let text = |error: std::io::Error| error.to_string();
    // Before it is opened: a FIFO would keep the checker waiting, and `/dev/zero` has no end.
    if !std::fs::metadata(path).map_err(text)?.is_file() {
        return Err("it is no regular file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(text)?;
    // The bytes read count: the length of a file below /proc says nothing.
    file.take(most + 1).read_to_end(&mut bytes).map_err(text)?;
    match bytes.len() as u64 > most {
        true => Err(format!("it has more than {most} bytes, which is the most there may be")),
        false => Ok(bytes),
    }
}

/// Finds lists that are too long, too deep in each other, or too many in all. A document with such a list is not
/// checked further.
#[must_use]
pub fn check(document: &Document<'_>) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut values = 0;
    let mut waiting = vec![(document.root(), 0)];
    while let Some((node, depth)) = waiting.pop() {
        values += 1;
        let (entries, more): (usize, Vec<&Spanned<DeValue<'_>>>) = match node.get_ref() {
            DeValue::Array(array) => (array.len(), array.iter().take(LIST).collect()),
            DeValue::Table(table) => (table.len(), table.values().take(LIST).collect()),
            _ => continue,
        };
        let (message, help) = if entries > LIST {
            let help = format!("a list or a table has at most {LIST} entries");
            (format!("{entries} entries are too many"), help)
        } else if depth > DEPTH {
            (format!("this lies in more than {DEPTH} others"), "no key lies that deep".into())
        } else if values > VALUES {
            (format!("more than {VALUES} values are too many"), "make two systems of it".into())
        } else {
            waiting.extend(more.into_iter().map(|node| (node, depth + 1)));
            continue;
        };
        let at = document.location(node.span());
        found.push(Diagnostic::new("too-many", at, message).help(help));
        if values > VALUES {
            break;
        }
    }
    found
}
