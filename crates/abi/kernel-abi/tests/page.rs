//! The book's page of calls holds what the source says (`BLESS=1` writes it there).

use bulkhead_kernel_abi::{Code, Described, Kind, METHODS, Op, Policy};
use std::fmt::Write as _;
use std::path::Path;

fn table(heads: [&str; 2], rows: &[Described]) -> String {
    let mut text = format!("| {} | {} | meaning |\n|---|---|---|\n", heads[0], heads[1]);
    for Described { name, number, text: meaning } in rows {
        let meaning: Vec<_> = meaning.lines().map(str::trim).collect();
        let meaning = meaning.join(" ").replace("[`crate::", "[`").replace('|', "\\|");
        let _ = writeln!(text, "| {number} | `{name}` | {} |", plain(&meaning));
    }
    text
}

/// Without the links of the source's documentation.
fn plain(text: &str) -> String {
    let text = text.replace("[`super::", "[`");
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace("Op::", "").trim().to_string()
}

fn generated() -> Vec<(&'static str, String)> {
    let mut methods = String::new();
    for (kind, rows) in METHODS {
        let _ = writeln!(methods, "### {kind}\n\n{}", table(["label", "method"], rows));
    }
    vec![
        ("calls", table(["operation", "call"], Op::DESCRIBED)),
        ("kinds", table(["number", "kind"], Kind::DESCRIBED)),
        ("methods", methods.trim_end().to_string() + "\n"),
        ("policies", table(["number", "policy"], Policy::DESCRIBED)),
        ("errors", table(["number", "code"], Code::DESCRIBED)),
    ]
}

#[test]
fn the_page_holds_what_the_source_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/kernel-calls.md");
    let mut page = std::fs::read_to_string(&path).expect("docs/kernel-calls.md");
    for (name, text) in generated() {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = page.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = page.find(&end).unwrap_or_else(|| panic!("no {end}"));
        if std::env::var("BLESS").is_ok() {
            page.replace_range(from..to, &text);
        } else {
            assert_eq!(page[from..to], text, "{name}: BLESS=1 writes it");
        }
    }
    if std::env::var("BLESS").is_ok() {
        std::fs::write(&path, page).expect("it can be written");
    }
}

#[test]
fn numbers_and_names_are_unique() {
    let methods = METHODS.iter().flat_map(|(_, rows)| rows.iter());
    for rows in [methods.copied().collect::<Vec<_>>(), Code::DESCRIBED.to_vec()] {
        for (n, one) in rows.iter().enumerate() {
            let same = |other: &Described| other.number == one.number || other.name == one.name;
            assert!(!rows[..n].iter().any(same), "{one:?}");
            assert!(!one.text.trim().is_empty(), "{one:?}");
        }
    }
}
