//! JSON Schemas of both file formats, generated from the types.

use crate::raw::{Manifest, PartFile};
use crate::raw_machine::MachineFile;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Schema of a manifest.
#[must_use]
pub fn manifest() -> Value {
    generate::<Manifest>()
}

/// Schema of a part.
#[must_use]
pub fn part() -> Value {
    generate::<PartFile>()
}

/// Schema of a machine description.
#[must_use]
pub fn machine() -> Value {
    generate::<MachineFile>()
}

fn generate<T: JsonSchema>() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let mut value = schema.to_value();
    strip_null(&mut value);
    value
}

/// Removes `null` from all types. TOML has no null: an optional key is left out.
fn strip_null(value: &mut Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(strip_null),
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(branches)) = object.get_mut("anyOf") {
                branches.retain(|branch| branch["type"] != "null");
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(Value::Array(branches)) = object.get("anyOf")
                && let [Value::Object(only)] = branches.as_slice()
            {
                let only = only.clone();
                object.remove("anyOf");
                object.extend(only);
            }
            object.values_mut().for_each(strip_null);
        }
        _ => {}
    }
}
