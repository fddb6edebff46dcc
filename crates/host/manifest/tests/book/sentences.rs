//! Prose as sentences: of Markdown, and of the comments of Rust. Code, diagrams and headings are left out.

/// A line of prose, where it stands.
#[derive(Debug, PartialEq)]
pub struct Line {
    pub number: usize,
    pub text: String,
}

/// A sentence, and the line where it begins.
#[derive(Debug, PartialEq)]
pub struct Sentence {
    pub line: usize,
    pub text: String,
    /// A cell of a table is a fragment: its length is not judged.
    pub cell: bool,
}

impl Sentence {
    pub fn words(&self) -> usize {
        let words = self.text.split_whitespace();
        words.filter(|word| word.contains(|c: char| c.is_alphanumeric())).count()
    }
}

/// The sentences of a page. A part that a test writes (`<!-- NAME -->` to `<!-- end of NAME -->`) is judged at its
/// source.
pub fn of_page(text: &str) -> Vec<Sentence> {
    let mut lines = Vec::new();
    let mut written: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let marker = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(name) = marker.filter(|name| text.contains(&format!("<!-- end of {name} -->")))
        {
            written = Some(format!("<!-- end of {name} -->"));
        } else if written.as_deref() == Some(line) {
            written = None;
        }
        let shown = if written.is_some() || marker.is_some() { "" } else { line };
        lines.push(Line { number, text: shown.to_owned() });
    }
    of_lines(&lines)
}

/// The sentences of a file's comments: of each run of comment lines, and of each comment behind code.
pub fn of_comments(text: &str) -> Vec<Sentence> {
    let (mut run, mut found): (Vec<Line>, _) = (Vec::new(), Vec::new());
    let mut kind = "";
    for (number, line) in (1..).zip(text.lines()) {
        let comment = comment(line);
        let joins = comment.is_some_and(|(marker, _)| marker == kind)
            && line.trim_start().starts_with("//");
        if !joins {
            found.append(&mut of_lines(&std::mem::take(&mut run)));
        }
        kind = "";
        if let Some((marker, words)) = comment {
            run.push(Line { number, text: words.to_owned() });
            // A comment behind code is one of its own.
            if line.trim_start().starts_with("//") {
                kind = marker;
            }
        }
    }
    found.append(&mut of_lines(&run));
    found
}

/// The kind of a line's comment, and its words.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let start = line.trim_start();
    let at = if start.starts_with("//") { Some(start) } else { behind(line) };
    let words = at?;
    let kind = ["///", "//!", "//"].into_iter().find(|kind| words.starts_with(kind))?;
    Some((kind, words[kind.len()..].strip_prefix(' ').unwrap_or(&words[kind.len()..])))
}

/// A comment behind code: the last `// `, unless it stands in a string.
fn behind(line: &str) -> Option<&str> {
    let at = line.rfind(" // ")?;
    let quotes = line[..at].matches('"').count();
    quotes.is_multiple_of(2).then_some(&line[at + 1..])
}

/// Splits lines into paragraphs, items and cells, and these into sentences.
fn of_lines(lines: &[Line]) -> Vec<Sentence> {
    let (mut found, mut block): (Vec<Sentence>, Vec<&Line>) = Default::default();
    let mut fenced = false;
    for line in lines {
        let text = line.text.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        // `#DB` is an exception, `# Kernel` a heading.
        let heading = text.starts_with('#') && text.trim_start_matches('#').starts_with(' ');
        let apart = text.is_empty() || heading || text.starts_with(['|', '<', '!']);
        // Four blanks and no open paragraph: code, or a diagram.
        let drawn = block.is_empty() && line.text.starts_with("    ");
        if fence || fenced || apart || drawn || item(text).is_some() {
            split(&std::mem::take(&mut block), &mut found);
        }
        if text.starts_with('|') && !fenced {
            let cells = text.split('|').filter(|cell| cell.split_whitespace().count() > 3);
            found.extend(cells.map(|cell| Sentence {
                line: line.number,
                text: plain(cell).trim().to_owned(),
                cell: true,
            }));
        } else if !(fence || fenced || apart || drawn) {
            block.push(line);
        }
    }
    split(&block, &mut found);
    found
}

/// The words of an item of a list.
fn item(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = digits.len() < text.len();
    let marks: &[&str] = if numbered { &[". "] } else { &["* ", "- "] };
    marks.iter().find_map(|mark| digits.strip_prefix(mark))
}

/// Splits a paragraph where a sentence ends and another begins.
fn split(block: &[&Line], found: &mut Vec<Sentence>) {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut text = String::new();
    for line in block {
        // A span of code or a link may end on another line: all lines are made plain at once.
        let own = item(line.text.trim()).unwrap_or(line.text.trim());
        text += &format!("\u{1}{} {own} ", line.number);
    }
    let mut at = 0;
    for word in plain(&text).split_whitespace() {
        match word.strip_prefix('\u{1}') {
            Some(number) => at = number.parse().unwrap_or(at),
            None => words.push((at, word.to_owned())),
        }
    }
    let mut from = 0;
    for n in 0..words.len() {
        let next = words.get(n + 1).map(|(_, word)| word.as_str());
        if next.is_none_or(|next| ends(&words[n].1, next)) {
            let text: Vec<_> = words[from..=n].iter().map(|(_, word)| word.as_str()).collect();
            found.push(Sentence { line: words[from].0, text: text.join(" "), cell: false });
            from = n + 1;
        }
    }
}

/// Tells whether a word is the last of its sentence.
fn ends(word: &str, next: &str) -> bool {
    const SHORT: [&str; 5] = ["e.g.", "i.e.", "etc.", "vs.", "Vol."];
    let bare = word.trim_end_matches(['"', ')', '*', '_', '”']);
    let first = next.trim_start_matches(['"', '(', '*', '_', '[', '“']).chars().next();
    bare.ends_with(['.', '!', '?'])
        && !bare.ends_with("..")
        && !SHORT.contains(&bare)
        && first.is_some_and(|c| c.is_uppercase() || c.is_ascii_digit() || c == CODE)
}

/// Stands around a span of code, so that no word in it is judged.
const CODE: char = '`';

/// Without the targets of links, and with each span of code as one word.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    for (n, part) in text.split('`').enumerate() {
        if n % 2 == 1 {
            let code: String =
                part.chars().filter(|c| !c.is_whitespace() && *c != '\u{1}').collect();
            out += &format!("{CODE}{code}{CODE}");
            continue;
        }
        let mut rest = part;
        while let Some((before, after)) = rest.split_once("](") {
            out += before;
            rest = after.split_once(')').map_or("", |(_, rest)| rest);
        }
        out += rest;
    }
    out.replace(['[', ']'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(found: &[Sentence]) -> Vec<(usize, &str)> {
        found.iter().map(|s| (s.line, s.text.as_str())).collect()
    }

    #[test]
    fn pages_are_split() {
        let page = "# Of this\n\nOne. Two [a\nlink](b.md), e.g. it. `x y` ends\n* an item\n\n```text\nOf\n```\n\
            | Of what it all is | b |\n<!-- all -->\nOf it.\n<!-- end of all -->\n";
        let expected = [
            (3, "One."),
            (3, "Two a link, e.g. it."),
            (4, "`xy` ends"),
            (5, "an item"),
            (10, "Of what it all is"),
        ];
        assert_eq!(texts(&of_page(page)), expected);
        assert!(of_page(page)[4].cell);
    }

    #[test]
    fn comments_are_split() {
        let code =
            "//! Of a\n//! file. B\n\n/// Does.\nfn a() {} // Whose\n// C.\nlet s = \"a // b\";\n";
        let expected = [(1, "Of a file."), (2, "B"), (4, "Does."), (5, "Whose"), (6, "C.")];
        assert_eq!(texts(&of_comments(code)), expected);
    }
}
