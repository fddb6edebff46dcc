//! The manifest's loader: any text is refused with a finding, or can be planned.

use crate::Seen;
use bulkhead_manifest::source::Source;
use bulkhead_manifest::{Options, load_text, render};
use std::sync::Arc;

/// Words of it.
pub const PIECES: &[&str] = &[
    "[[sandbox]]\n",
    "[[channel]]\n",
    "cores = [0]\n",
    "= ",
    "\"",
    "[",
    "}",
    "-1",
    "0xFFFFFFFFFFFFFFFF",
    "9223372036854775807",
    "\"16777216 TiB\"",
    "at = \"4 GiB\"",
    "true",
    "\u{0}",
    "\u{1F980}",
    "memory = { size = \"0 B\" }\n",
];

/// One text, as if it lay beside the tests' manifests.
pub fn run(bytes: &[u8]) -> Result<Seen, String> {
    let path = crate::root().join("tests/manifests/fuzzed.toml");
    let source = Source::new(path, String::from_utf8_lossy(bytes).into_owned());
    let options =
        Options { artifacts: Some(crate::artifacts()), skip_files: true, ..Options::default() };
    let mut seen = Seen::default();
    match load_text(&Arc::new(source), &options) {
        Ok(checked) => {
            let _ = checked.plan(checked.image_estimate);
            seen.add(true);
        }
        Err(findings) => {
            let _ =
                (render::human(&findings, true), render::json(&findings), render::sarif(&findings));
            seen.add(false);
        }
    }
    Ok(seen)
}
