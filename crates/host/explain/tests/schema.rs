//! The committed schema of a report is that of its types. `BLESS=1 cargo test -p
//! bulkhead-explain` writes it anew.

use schemars::generate::SchemaSettings;
use std::path::Path;

#[test]
fn the_report_schema_is_current() {
    let settings = SchemaSettings::draft2020_12();
    let generator = settings.into_generator();
    let schema = generator.into_root_schema_for::<bulkhead_explain::Report>();
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/report.schema.json");
    let text = format!("{:#}\n", schema.to_value());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == text,
        "docs/schema/report.schema.json is not that of the types: run this test with BLESS=1"
    );
}
