//! The book's page of events holds what the source says (`BLESS=1` writes it there).

use bulkhead_trace::EVENTS;
use std::path::Path;

fn generated() -> String {
    let mut text = "| event | means |\n|---|---|\n".to_owned();
    for event in EVENTS {
        let meaning: Vec<_> = event.text.lines().map(str::trim).collect();
        text += &format!("| `{}` | {} |\n", event.name, meaning.join(" "));
    }
    text
}

#[test]
fn the_page_holds_what_the_source_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/tracing.md");
    let mut page = std::fs::read_to_string(&path).expect("docs/tracing.md");
    let begin = "<!-- events -->\n";
    let from = page.find(begin).expect("its beginning") + begin.len();
    let to = page.find("<!-- end of events -->").expect("its end");
    if std::env::var("BLESS").is_ok() {
        page.replace_range(from..to, &generated());
        std::fs::write(&path, page).expect("it can be written");
    } else {
        assert_eq!(page[from..to], generated(), "BLESS=1 writes it");
    }
}
