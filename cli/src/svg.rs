//! The parts that our pictures are made of: colours, a canvas, the frame of an SVG file.

use std::fmt::Write;

/// Fill and line of each sandbox or context: Okabe and Ito's palette, which people with
/// any colour vision can tell apart, and tints of it.
pub const COLOURS: [(&str, &str); 8] = [
    ("#cfe3f5", "#0072b2"),
    ("#f9dcc0", "#d55e00"),
    ("#c9ebdf", "#009e73"),
    ("#f3d7e6", "#b0588c"),
    ("#dcf0fb", "#3a9ad0"),
    ("#fbedc4", "#b98400"),
    ("#f8f5bf", "#8f8700"),
    ("#e2e2e2", "#555555"),
];

/// Fill and line of a number.
#[must_use]
pub fn colour(index: usize) -> (&'static str, &'static str) {
    COLOURS[index % COLOURS.len()]
}

/// A text as SVG's.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// An SVG file under construction.
pub struct Canvas(pub String);

impl Canvas {
    /// A rectangle: place, size, fill, more attributes.
    pub fn rect(&mut self, (x, y): (f64, f64), (w, h): (f64, f64), fill: &str, more: &str) {
        let _ = writeln!(
            self.0,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" fill="{fill}" {more}/>"#
        );
    }

    /// A text of a class.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let _ = writeln!(
            self.0,
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}">{}</text>"#,
            escape(text)
        );
    }
}

/// Room around a picture.
pub const MARGIN: f64 = 40.0;

/// A whole file: the title, a heading with a note below it, and the drawing of `body`.
#[must_use]
pub fn document(
    title: &str,
    (heading, note): (&str, &str),
    (width, height): (f64, f64),
    body: &Canvas,
) -> String {
    let mut out = Canvas(head(title, width, height));
    out.rect((0.0, 0.0), (width, height), "#ffffff", "");
    out.text((MARGIN, 46.0), "title", heading);
    out.text((MARGIN, 70.0), "note", note);
    out.0.push_str(&body.0);
    out.0.push_str("</svg>\n");
    out.0
}

fn head(title: &str, width: f64, height: f64) -> String {
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}" role="img">
<title>{}</title>
<style>
text {{ font-family: "DejaVu Sans", "Helvetica Neue", Arial, sans-serif; font-size: 12px; fill: #222; }}
.title {{ font-size: 26px; font-weight: bold; }}
.head {{ font-size: 15px; font-weight: bold; }}
.name {{ font-size: 16px; font-weight: bold; }}
.note {{ fill: #666; }}
.mono {{ font-family: "DejaVu Sans Mono", Menlo, monospace; font-size: 11px; fill: #444; }}
.right {{ text-anchor: end; }}
.mid {{ text-anchor: middle; }}
.dim {{ fill: #888; }}
.badge {{ fill: #fff; font-size: 11px; font-weight: bold; text-anchor: middle; }}
</style>
<defs>
<pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="7" height="7" fill="#f1f1f1"/><line x1="0" y1="0" x2="0" y2="7" stroke="#cccccc" stroke-width="2"/>
</pattern>
"##,
        escape(title)
    );
    for (index, (_, line)) in COLOURS.iter().enumerate() {
        let _ = writeln!(
            out,
            r#"<marker id="arrow{index}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{line}"/></marker>"#
        );
    }
    out.push_str("</defs>\n");
    out
}
