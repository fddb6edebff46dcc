//! The committed schemas are those of the types. `BLESS=1 cargo test -p
//! bulkhead-manifest` writes them anew.

use bulkhead_manifest::schema;
use serde_json::Value;
use std::path::Path;

fn current(name: &str, schema: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema").join(name);
    let text = format!("{schema:#}\n");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/schema/{name} is not that of the types: run this test with BLESS=1"
    );
}

#[test]
fn the_manifest_schema_is_current() {
    current("manifest.schema.json", &schema::manifest());
}

#[test]
fn the_machine_schema_is_current() {
    current("machine.schema.json", &schema::machine());
}

#[test]
fn the_part_schema_is_current() {
    current("part.schema.json", &schema::part());
}

/// TOML has no null, and nothing unknown is let through anywhere.
#[test]
fn schemas_are_strict() {
    fn visit(value: &Value) {
        if let Some(object) = value.as_object() {
            assert_ne!(object.get("type"), Some(&Value::from("null")));
            if object.contains_key("properties") && object.get("type") == Some(&"object".into()) {
                assert_eq!(
                    object.get("additionalProperties"),
                    Some(&Value::from(false)),
                    "{value}"
                );
            }
            object.values().for_each(visit);
        }
        if let Some(array) = value.as_array() {
            array.iter().for_each(visit);
        }
    }
    visit(&schema::manifest());
    visit(&schema::part());
    visit(&schema::machine());
}
