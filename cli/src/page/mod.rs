//! A run as one page of HTML, from its report. Everything is in the file: no script, and nothing from a network.
//!
//! Texts of a report come from guests in part. Each one is escaped, and none becomes a link or an attribute's name.

mod timeline;

use crate::saved::list;
use crate::svg::escape;
use serde_json::Value;
use std::fmt::Write;

/// Pictures and tables that the manifest adds to a report.
#[derive(Default)]
pub struct Planned {
    /// The partition as a picture, in SVG.
    pub picture: String,
    /// The partition as a text.
    pub table: String,
    /// Kernels' simulated schedules as a picture, if there are kernels.
    pub schedule: Option<String>,
    /// Their shares and response times as a text.
    pub times: String,
}

/// The page of a report. `planned` says why there is nothing of the manifest, if it is an error.
#[must_use]
pub fn page(report: &Value, planned: &Result<Planned, String>) -> String {
    let mut out = Page(String::new());
    let system = text(&report["system"]);
    let all = list(&report["promises"]);
    let held = all.iter().filter(|promise| promise["held"] == true).count();
    let verdict = match (all.len(), held == all.len()) {
        (0, _) => "A live run: nothing was judged".to_owned(),
        (1, true) => "The promise held".to_owned(),
        (count, true) => format!("All {count} promises held"),
        (count, false) => format!("{} of {count} promises broken", count - held),
    };
    out.0 += &head(&format!("{system}: {verdict}"));
    let class = if held == all.len() { "good" } else { "bad" };
    let _ = writeln!(
        out.0,
        "<header><h1>{}</h1><p class=\"verdict {class}\">{}</p><p class=\"dim\">{}</p></header>",
        escape(&system),
        escape(&verdict),
        escape(&about(report))
    );
    out.promises(all);
    out.section("timeline", "Timeline");
    out.0 += &timeline::svg(report);
    out.planned(planned);
    out.sandboxes(report);
    out.exits(report);
    out.denials(report);
    out.deeds(report);
    out.doorbells(report);
    out.telemetry(report);
    out.audit(&report["audit"]);
    out.0 + "</main>\n</body>\n</html>\n"
}

/// The page of two runs: the figures that differ.
#[must_use]
pub fn compared(names: &[String; 2], heads: &[&str], rows: &[Vec<String>], same: &str) -> String {
    let mut out = Page(head("Two runs"));
    let _ = writeln!(
        out.0,
        "<header><h1>Two runs</h1><p>{}, and then {}</p></header>",
        escape(&names[0]),
        escape(&names[1])
    );
    out.section("changes", "Figures that differ");
    match rows.is_empty() {
        true => out.note("None."),
        false => out.table(heads, rows),
    }
    out.note(same);
    out.0 + "</main>\n</body>\n</html>\n"
}

/// A short text about the run.
fn about(report: &Value) -> String {
    let monitor = &report["monitor"];
    let number = |value: &Value| grouped(value.as_u64().unwrap_or(0));
    let mut about = format!(
        "{}, {} of the machine's time",
        text(&report["arch"]),
        microseconds(report["end_us"].as_u64().unwrap_or(0))
    );
    if let Some(launched) = report["boot"]["to_launch_us"].as_u64() {
        let _ = write!(about, "; launched after {}", microseconds(launched));
    }
    let _ = write!(
        about,
        "; a monitor has {} bytes of text and {} in all, boot code {}",
        number(&monitor["resident_text_bytes"]),
        number(&monitor["resident_bytes"]),
        number(&monitor["boot_bytes"])
    );
    about
}

fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:\">\n<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        escape(title),
        include_str!("page.css")
    )
}

/// A page under construction.
struct Page(String);

impl Page {
    fn section(&mut self, id: &str, title: &str) {
        let _ = writeln!(self.0, "<h2 id=\"{id}\">{}</h2>", escape(title));
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p class=\"dim\">{}</p>", escape(text));
    }

    /// A table. A column of numbers is set to the right.
    fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) {
        let digits =
            |cell: &String| cell.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'.'));
        let numbers = |at: usize| rows.iter().all(|row| row.get(at).is_none_or(digits));
        let class = |at: usize| if numbers(at) { " class=\"number\"" } else { "" };
        self.0 += "<div class=\"wide\"><table>\n<tr>";
        for (at, head) in heads.iter().enumerate() {
            let _ = write!(self.0, "<th{}>{}</th>", class(at), escape(head));
        }
        self.0 += "</tr>\n";
        for row in rows {
            self.0 += "<tr>";
            for (at, cell) in row.iter().enumerate() {
                let _ = write!(self.0, "<td{}>{}</td>", class(at), escape(cell));
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table></div>\n";
    }

    fn promises(&mut self, all: &[Value]) {
        if all.is_empty() {
            return;
        }
        self.section("promises", "Promised and seen");
        self.0 += "<table class=\"promises\">\n";
        // The broken ones are what a reader looks for.
        let (held, broken): (Vec<_>, Vec<_>) = all.iter().partition(|one| one["held"] == true);
        for promise in broken.iter().chain(&held) {
            let (class, word) =
                if promise["held"] == true { ("good", "held") } else { ("bad", "broken") };
            let _ = writeln!(
                self.0,
                "<tr><td class=\"{class}\">{word}</td><td>{}<div class=\"dim\">{}</div></td></tr>",
                escape(&text(&promise["name"])),
                escape(&text(&promise["detail"]))
            );
        }
        self.0 += "</table>\n";
    }

    fn sandboxes(&mut self, report: &Value) {
        self.section("sandboxes", "Sandboxes");
        let row = |sandbox: &Value| {
            let cores: Vec<String> = list(&sandbox["cores"]).iter().map(text).collect();
            let state = match sandbox["exit_code"].as_u64() {
                Some(code) => format!("{} {code}", text(&sandbox["state"])),
                None => text(&sandbox["state"]),
            };
            let steady = sandbox["exits"]["steady_seconds"].as_f64().unwrap_or(0.0);
            let mut row = vec![text(&sandbox["name"]), format!("core {}", cores.join(", ")), state];
            row.extend(["restarts", "deeds", "denials"].map(|key| number(&sandbox[key])));
            row.push(format!("{steady:.3}"));
            row
        };
        let rows: Vec<_> = list(&report["sandboxes"]).iter().map(row).collect();
        let heads =
            ["sandbox", "cores", "state", "restarts", "answers", "denied", "seconds steady"];
        self.table(&heads, &rows);
    }

    /// A row for each sandbox, a column for each cause that any has: steady exits, and below them those of the boot.
    fn exits(&mut self, report: &Value) {
        self.section("exits", "Exits by cause");
        let sandboxes = list(&report["sandboxes"]);
        let count = |sandbox: &Value, phase: &str, cause: &str| {
            sandbox["exits"][phase][cause].as_u64().unwrap_or(0)
        };
        let all =
            |one: &Value, cause: &str| count(one, "boot", cause) + count(one, "steady", cause);
        let causes: Vec<&str> = bulkhead_layout::report::CAUSE_NAMES
            .into_iter()
            .filter(|cause| sandboxes.iter().any(|sandbox| all(sandbox, cause) > 0))
            .collect();
        if causes.is_empty() {
            return self.note("None.");
        }
        self.note("Steady ones, and below them those until the guest had booted.");
        self.0 += "<div class=\"wide\"><table class=\"exits\">\n<tr><th>sandbox</th>";
        for cause in &causes {
            let _ = write!(self.0, "<th class=\"number\">{}</th>", escape(cause));
        }
        self.0 += "</tr>\n";
        for sandbox in sandboxes {
            let _ = write!(self.0, "<tr><td>{}</td>", escape(&text(&sandbox["name"])));
            for cause in &causes {
                let [boot, steady] = ["boot", "steady"].map(|phase| count(sandbox, phase, cause));
                let class = if steady == 0 { "number dim" } else { "number" };
                let below = if boot == 0 { String::new() } else { grouped(boot) };
                let _ = write!(
                    self.0,
                    "<td class=\"{class}\">{}<div class=\"dim\">{below}</div></td>",
                    grouped(steady)
                );
            }
            self.0 += "</tr>\n";
        }
        self.0 += "</table></div>\n";
    }

    fn denials(&mut self, report: &Value) {
        self.section("denials", "Denied accesses");
        let mut rows = Vec::new();
        for sandbox in list(&report["sandboxes"]) {
            for refused in list(&sandbox["by_condition"]) {
                let first = &refused["first"];
                rows.push(vec![
                    text(&sandbox["name"]),
                    text(&refused["condition"]),
                    number(&refused["count"]),
                    at(first),
                    text(&first["access"]),
                    text(&first["owner"]),
                    text(&first["guarantee"]),
                    text(&first["allow"]),
                ]);
            }
        }
        for blocked in list(&report["blocked_dma"]) {
            rows.push(vec![
                text(&blocked["sandbox"]),
                "DMA".into(),
                "1".into(),
                String::new(),
                format!("{}: {}", text(&blocked["function"]), text(&blocked["access"])),
                text(&blocked["owner"]),
                text(&blocked["guarantee"]),
                text(&blocked["allow"]),
            ]);
        }
        if rows.is_empty() {
            return self.note("None.");
        }
        self.note(
            "For each condition, how often it refused, and the first access that it refused.",
        );
        let heads = [
            "sandbox",
            "condition",
            "count",
            "first at",
            "access",
            "owner",
            "guarantee",
            "to allow",
        ];
        self.table(&heads, &rows);
    }

    fn deeds(&mut self, report: &Value) {
        let mut rows = Vec::new();
        for sandbox in list(&report["sandboxes"]) {
            for deed in list(&sandbox["newest_deeds"]) {
                rows.push(vec![
                    text(&sandbox["name"]),
                    number(&deed["number"]),
                    deed["found_us"].as_u64().map_or(String::new(), microseconds),
                    text(&deed["condition"]),
                    text(&deed["action"]),
                    number(&deed["rung"]),
                    deed["took_us"].as_u64().map_or("-".into(), microseconds),
                    text(&deed["party"]),
                ]);
            }
        }
        if rows.is_empty() {
            return;
        }
        self.section("answers", "Answers to failures");
        self.note("The last 16 of each sandbox.");
        let heads =
            ["sandbox", "number", "found at", "condition", "action", "rung", "took", "other side"];
        self.table(&heads, &rows);
    }

    fn doorbells(&mut self, report: &Value) {
        let mut rows = Vec::new();
        for sandbox in list(&report["sandboxes"]) {
            for (sender, rung) in sandbox["doorbells"].as_object().into_iter().flatten() {
                rows.push(vec![
                    sender.clone(),
                    text(&sandbox["name"]),
                    number(&rung["rings"]),
                    number(&rung["most"]),
                ]);
            }
        }
        if !rows.is_empty() {
            self.section("doorbells", "Doorbells between monitors");
            self.table(&["from", "to", "rings", "at most, by the manifest"], &rows);
        }
    }

    fn telemetry(&mut self, report: &Value) {
        let row = |told: &Value| {
            let mut row = vec![text(&told["channel"])];
            row.extend(
                ["period_ns", "releases", "missed", "latest_ns"].map(|key| number(&told[key])),
            );
            row
        };
        let rows: Vec<_> = list(&report["telemetry"]).iter().map(row).collect();
        if !rows.is_empty() {
            self.section("telemetry", "Releases, as their senders tell");
            let heads = ["channel", "period, ns", "releases", "missed", "late by at most, ns"];
            self.table(&heads, &rows);
        }
    }

    fn audit(&mut self, audit: &Value) {
        self.section("audit", "Audit of the running machine");
        let Some(rules) = audit["rules"].as_array() else {
            return self.note("None was made in this run.");
        };
        let findings = list(&audit["findings"]);
        let tables = number(&audit["tables"]);
        self.note(&format!(
            "{} rules, {} findings; {tables} page tables were read.",
            rules.len(),
            findings.len()
        ));
        for finding in findings {
            let _ = writeln!(self.0, "<p class=\"bad\">{}</p>", escape(&text(finding)));
        }
        let row = |rule: &Value| {
            vec![text(&rule["name"]), text(&rule["sentence"]), number(&rule["findings"])]
        };
        self.0 += "<details><summary>All rules</summary>\n";
        let rows: Vec<_> = rules.iter().map(row).collect();
        self.table(&["guarantee", "sentence", "findings"], &rows);
        self.0 += "</details>\n";
    }

    fn planned(&mut self, planned: &Result<Planned, String>) {
        self.section("partition", "Partition");
        let planned = match planned {
            Ok(planned) => planned,
            Err(why) => return self.note(&format!("No picture: {why}")),
        };
        self.note("By the manifest as it is now.");
        self.picture(&planned.picture, "the partition");
        self.text("As a table", &planned.table);
        if let Some(schedule) = &planned.schedule {
            self.section("schedule", "Schedule of the kernels, by the manifest");
            self.picture(schedule, "the simulated schedule");
            self.text("Shares and response times", &planned.times);
        }
    }

    fn text(&mut self, summary: &str, text: &str) {
        let _ = writeln!(
            self.0,
            "<details><summary>{}</summary>\n<pre>{}</pre></details>",
            escape(summary),
            escape(text)
        );
    }

    /// An SVG file as an image of its own: its styles are not the page's.
    fn picture(&mut self, svg: &str, of: &str) {
        self.0 += "<div class=\"wide\"><img class=\"picture\" alt=\"";
        self.0 += &escape(of);
        self.0 += "\" src=\"data:image/svg+xml,";
        for byte in svg.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => self.0.push(char::from(byte)),
                b' ' | b'-' | b'.' | b',' | b'/' | b':' | b';' | b'=' | b'(' | b')' => {
                    self.0.push(char::from(byte));
                }
                _ => {
                    let _ = write!(self.0, "%{byte:02X}");
                }
            }
        }
        self.0 += "\"></div>\n";
    }
}

/// When a denied access was made.
fn at(record: &Value) -> String {
    record["at_us"].as_u64().map_or(String::new(), microseconds)
}

/// A value as a text; null as none.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A whole number; null as none.
fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| text(value), grouped)
}

/// A number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in the unit that suits it.
fn microseconds(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}\u{a0}us"),
        1_000..1_000_000 => format!("{:.2}\u{a0}ms", us as f64 / 1e3),
        _ => format!("{:.3}\u{a0}s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        json!({
            "system": "demo", "arch": "x86-64", "end_us": 2_000_000,
            "promises": [
                { "name": "held one", "held": true, "detail": "3 of 3" },
                { "name": "broken one", "held": false, "detail": "2 of 3" },
            ],
            "sandboxes": [{
                "name": "rogue", "cores": [2], "state": "running", "restarts": 274, "deeds": 1,
                "launched_us": 1_000, "denials": 210,
                "exits": { "boot": { "denied": 1_210 }, "steady": {}, "steady_seconds": 0.0 },
                "by_condition": [{ "condition": "memory-write", "count": 40, "first": {
                    "at_us": 1_500, "access": "<script>alert(1)</script>", "owner": "\"own\"" } }],
                "newest_deeds": [{ "number": 1, "found_us": 1_500, "condition": "memory-write",
                    "action": "restart", "rung": 1, "took_us": 20 }],
            }],
        })
    }

    #[test]
    fn a_page_has_what_the_report_has_and_nothing_from_elsewhere() {
        let html = page(&report(), &Err("there is no <manifest>".into()));
        for what in
            ["1 of 2 promises broken", "1,210", "274", "1.50\u{a0}ms", "no &lt;manifest&gt;"]
        {
            assert!(html.contains(what), "{what}: {html}");
        }
        let [broken, held] = ["broken one", "held one"].map(|name| html.find(name));
        assert!(broken < held, "the broken one comes first");
        assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
        for what in ["<script", "http://", "https://", " src=\"h", "url("] {
            assert!(!html.contains(what), "{what}: {html}");
        }
    }

    #[test]
    fn an_empty_report_is_a_page_too() {
        let html = page(&json!({}), &Ok(Planned::default()));
        assert!(html.contains("A live run: nothing was judged"), "{html}");
        assert!(html.ends_with("</html>\n"));
    }

    #[test]
    fn a_picture_is_an_image_of_its_own() {
        let picture = "<svg xmlns=\"http://www.w3.org/2000/svg\">#'</svg>";
        let planned = Planned { picture: picture.into(), ..Planned::default() };
        let html = page(&json!({}), &Ok(planned));
        let image =
            html.split("data:image/svg+xml,").nth(1).and_then(|rest| rest.split('"').next());
        assert!(image.is_some_and(|image| image.starts_with("%3Csvg xmlns=%22http:")), "{html}");
        assert!(image.is_some_and(|image| !image.contains(['<', '#', '\''])), "{html}");
    }

    #[test]
    fn numbers_are_grouped() {
        let all = [0, 999, 1_000, 65_536, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "65,536", "1,234,567"]);
    }
}
