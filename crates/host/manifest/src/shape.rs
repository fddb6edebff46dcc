//! The shape check: a document has the keys, types and words of its schema. The schema is the generated one, so
//! editors and the checker cannot drift apart. The check walks the schema itself: it finds every error in one run,
//! each with its place, while a decoder stops at the first.
//!
//! It understands no more than the generator emits for our types: `$ref`, `type`, `properties`, `required`, `items`,
//! `enum`, `const` and numeric limits. Alternatives must differ by a tag or a type.

use crate::diagnostic::{Diagnostic, list, nearest};
use crate::source::Document;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::DeValue;

/// All shape errors of a document.
#[must_use]
pub fn check(document: &Document<'_>, schema: &Value) -> Vec<Diagnostic> {
    let mut shape = Shape { document, schema, found: Vec::new() };
    shape.node(document.root(), schema, "");
    shape.found
}

struct Shape<'a, 't> {
    document: &'a Document<'t>,
    schema: &'a Value,
    found: Vec<Diagnostic>,
}

impl<'a> Shape<'a, '_> {
    fn report(
        &mut self,
        rule: &'static str,
        node: &Spanned<DeValue<'_>>,
        message: String,
    ) -> &mut Diagnostic {
        let at = self.document.location(node.span());
        self.found.push(Diagnostic::new(rule, at, message));
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// Follows references to the definitions.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        while let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let Some(target) = self.schema.pointer(reference.trim_start_matches('#')) else {
                break;
            };
            schema = target;
        }
        schema
    }

    fn node(&mut self, node: &Spanned<DeValue<'_>>, schema: &'a Value, name: &str) {
        let schema = self.resolve(schema);
        if let Some(words) = self.words(schema) {
            return self.word(node, &words, name);
        }
        if let Some(branches) = alternatives(schema) {
            return self.alternative(node, branches, name);
        }
        let Some(expected) = schema.get("type").and_then(Value::as_str) else {
            return;
        };
        match (expected, node.get_ref()) {
            ("object", DeValue::Table(_)) => self.table(node, schema, name),
            ("array", DeValue::Array(_)) => self.array(node, schema, name),
            ("integer", DeValue::Integer(_)) => self.integer(node, schema, name),
            ("string", DeValue::String(_)) | ("boolean", DeValue::Boolean(_)) => {}
            _ => self.wrong_type(node, &[expected], name),
        }
    }

    /// The words that a schema allows, if it is a list of words.
    fn words(&self, schema: &'a Value) -> Option<Vec<&'a str>> {
        if let Some(words) = schema.get("enum").and_then(Value::as_array) {
            return words.iter().map(Value::as_str).collect();
        }
        if let Some(word) = schema.get("const").and_then(Value::as_str) {
            return Some(vec![word]);
        }
        let branches = alternatives(schema)?;
        let nested: Option<Vec<Vec<&str>>> =
            branches.iter().map(|branch| self.words(self.resolve(branch))).collect();
        nested.map(|words| words.concat())
    }

    fn word(&mut self, node: &Spanned<DeValue<'_>>, words: &[&str], name: &str) {
        let Some(text) = node.get_ref().as_str() else {
            return self.wrong_type(node, &["string"], name);
        };
        if words.contains(&text) {
            return;
        }
        let help = match nearest(text, words.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? Possible are {}", list(words)),
            None => format!("possible are {}", list(words)),
        };
        let message = format!("`{name}` cannot be `{}`", brief(text));
        self.report("unknown-value", node, message).help.push(help);
    }

    /// Alternatives that differ by a tag or by their type.
    fn alternative(&mut self, node: &Spanned<DeValue<'_>>, branches: &'a [Value], name: &str) {
        let branches: Vec<&Value> = branches.iter().map(|branch| self.resolve(branch)).collect();
        if let Some(tag) = tag(&branches) {
            return self.tagged(node, &branches, tag, name);
        }
        let given = kind(node.get_ref());
        let types: Vec<&str> =
            branches.iter().filter_map(|branch| branch.get("type")?.as_str()).collect();
        let fits = |branch: &&&Value| {
            branch["type"] == given || given == "string" && self.words(branch).is_some()
        };
        match branches.iter().find(fits) {
            Some(branch) => self.node(node, branch, name),
            None => self.wrong_type(node, &types, name),
        }
    }

    fn tagged(
        &mut self,
        node: &Spanned<DeValue<'_>>,
        branches: &[&'a Value],
        tag: &str,
        name: &str,
    ) {
        if !node.get_ref().is_table() {
            return self.wrong_type(node, &["object"], name);
        }
        let words: Vec<&str> = branches.iter().filter_map(|branch| tag_word(branch, tag)).collect();
        let Some(given) = node.get_ref().get(tag) else {
            let message = format!("`{name}` has no `{tag}`");
            let help = format!("add `{tag}`: one of {}", list(&words));
            return self.report("missing-key", node, message).help.push(help);
        };
        let chosen = branches.iter().find(|branch| {
            given.get_ref().as_str().is_some_and(|word| tag_word(branch, tag) == Some(word))
        });
        match chosen {
            Some(branch) => self.table(node, branch, name),
            None => self.word(given, &words, &join(name, tag)),
        }
    }

    fn table(&mut self, node: &Spanned<DeValue<'_>>, schema: &'a Value, name: &str) {
        let DeValue::Table(table) = node.get_ref() else {
            return;
        };
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in table {
            match properties.and_then(|properties| properties.get(key.get_ref().as_ref())) {
                Some(schema) => self.node(value, schema, &join(name, key.get_ref())),
                None => {
                    self.unknown_key(key.get_ref(), key.span(), properties.unwrap_or(&none), name)
                }
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if node.get_ref().get(key).is_none() {
                let meaning = properties.and_then(|properties| properties.get(key));
                self.missing_key(node, key, meaning, name);
            }
        }
    }

    fn unknown_key(
        &mut self,
        key: &str,
        span: std::ops::Range<usize>,
        properties: &Map<String, Value>,
        name: &str,
    ) {
        let names: Vec<&String> = properties.keys().collect();
        let whose = place_name(name);
        if let Some((_, now)) = FORMER.iter().find(|(old, _)| *old == join(name, key)) {
            let at = self.document.location(span);
            let message = format!("`{}` is no key any more", brief(key));
            self.found.push(Diagnostic::new("unknown-key", at, message).help(*now));
            return;
        }
        let help = match nearest(key, names.iter().map(|name| name.as_str())) {
            Some(near) => format!("did you mean `{near}`? Known in {whose}: {}", list(&names)),
            None => format!("known in {whose}: {}", list(&names)),
        };
        let at = self.document.location(span);
        let message = format!("unknown key `{}` in {whose}", brief(key));
        self.found.push(Diagnostic::new("unknown-key", at, message).help(help));
    }

    fn missing_key(
        &mut self,
        node: &Spanned<DeValue<'_>>,
        key: &str,
        meaning: Option<&'a Value>,
        name: &str,
    ) {
        let message = format!("{} has no `{key}`", place_name(name));
        let meaning = meaning.and_then(|schema| schema.get("description")).and_then(Value::as_str);
        let help = match meaning {
            Some(text) => format!("add `{key}`: {}", sentence(text)),
            None => format!("add `{key}`"),
        };
        self.report("missing-key", node, message).help.push(help);
    }

    fn array(&mut self, node: &Spanned<DeValue<'_>>, schema: &'a Value, name: &str) {
        let DeValue::Array(array) = node.get_ref() else {
            return;
        };
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        let len = array.len() as u64;
        if limit("minItems").is_some_and(|min| len < min)
            || limit("maxItems").is_some_and(|max| len > max)
        {
            let wanted = limit("minItems").or(limit("maxItems")).unwrap_or(0);
            let message = format!("`{name}` has {len} elements here");
            let help = format!("write {wanted} elements");
            self.report("out-of-range", node, message).help.push(help);
            return;
        }
        let Some(items) = schema.get("items") else {
            return;
        };
        for element in array.iter() {
            self.node(element, items, name);
        }
    }

    fn integer(&mut self, node: &Spanned<DeValue<'_>>, schema: &'a Value, name: &str) {
        let max = match schema.get("format").and_then(Value::as_str) {
            Some("uint8") => u64::from(u8::MAX),
            Some("uint16") => u64::from(u16::MAX),
            Some("uint32") => u64::from(u32::MAX),
            // TOML's integers have 64 bits and a sign.
            _ => i64::MAX as u64,
        };
        let value = node.get_ref().as_integer().and_then(|integer| {
            i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
        });
        if !value.is_some_and(|value| (0..=i128::from(max)).contains(&value)) {
            let message = format!("`{name}` cannot be this number");
            let help = format!("write a whole number from 0 to {max}");
            self.report("out-of-range", node, message).help.push(help);
        }
    }

    fn wrong_type(&mut self, node: &Spanned<DeValue<'_>>, expected: &[&str], name: &str) {
        let given = kind(node.get_ref());
        let wanted: Vec<&str> = expected.iter().map(|name| a_type(name)).collect();
        let message =
            format!("{} must be {}, not {}", place_name(name), wanted.join(" or "), a_type(given));
        let help = match (expected, given) {
            (["array"], "object") => Some(format!("write `[[{name}]]`, with two brackets")),
            (["array"], _) => Some("put it in brackets: `[…]`".into()),
            (["string", ..], "integer" | "number") if is_size(name) => {
                Some("write a size in quotes, with its unit, such as `\"16 MiB\"`".into())
            }
            (["string", ..], "integer" | "number") if is_time(name) => {
                Some("write a time in quotes, with its unit, such as `\"200 us\"`".into())
            }
            (["string", ..], "integer" | "number" | "boolean") => Some("put it in quotes".into()),
            (["integer"], "string") => Some("write a whole number, without quotes".into()),
            (["integer"], "number") => Some("write a whole number".into()),
            (["boolean"], "string") => Some("write it without quotes".into()),
            _ => None,
        };
        self.report("wrong-type", node, message).help.extend(help);
    }
}

/// Keys of former versions, and their replacements.
const FORMER: [(&str, &str); 5] = [
    (
        "sandbox.control",
        "it is three rights now: write those that are needed of `stop = [...]`, `start = [...]` and `restart = [...]`, each with the names that stood here",
    ),
    (
        "sandbox.may_connect",
        "it is now `links`: write `links = { to = [...], count = 1, size = \"16 KiB\" }`, with `count` for `slots`",
    ),
    ("sandbox.links.slots", "it is now `count`"),
    (
        "program.connects",
        "it is now `links`; in its tables `numbers` stands for `slots`, as in `links = [{ sandbox = \"one\", numbers = [0] }]`",
    ),
    ("program.links.slots", "it is now `numbers`"),
];

/// Tells by a key's name if it holds a size: the schema only says text.
fn is_size(name: &str) -> bool {
    ["memory", "size", "heap", "stack"].iter().any(|key| name.ends_with(key))
}

/// Tells by a key's name if it holds a time.
fn is_time(name: &str) -> bool {
    ["budget", "period", "longest", "every"].iter().any(|key| name.ends_with(key))
}

fn alternatives(schema: &Value) -> Option<&[Value]> {
    let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
    branches.as_array().map(Vec::as_slice)
}

/// Finds the key that tells all branches apart: it is a constant in each.
fn tag<'a>(branches: &[&'a Value]) -> Option<&'a str> {
    let properties = branches.first()?.get("properties")?.as_object()?;
    properties
        .keys()
        .find(|key| branches.iter().all(|branch| tag_word(branch, key).is_some()))
        .map(String::as_str)
}

fn tag_word<'a>(branch: &'a Value, tag: &str) -> Option<&'a str> {
    branch.get("properties")?.get(tag)?.get("const")?.as_str()
}

/// JSON Schema's name of a value's type.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "string",
        DeValue::Integer(_) => "integer",
        DeValue::Float(_) => "number",
        DeValue::Boolean(_) => "boolean",
        DeValue::Datetime(_) => "date",
        DeValue::Array(_) => "array",
        DeValue::Table(_) => "object",
    }
}

fn a_type(name: &str) -> &'static str {
    match name {
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a fraction",
        "boolean" => "`true` or `false`",
        "date" => "a date",
        "array" => "an array",
        _ => "a table",
    }
}

fn join(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }
}

fn place_name(name: &str) -> String {
    if name.is_empty() { "the file".into() } else { format!("`{name}`") }
}

/// A description as part of a sentence.
fn sentence(text: &str) -> String {
    text.replace('\n', " ").trim_end_matches('.').to_owned()
}

/// A text short enough for a message.
#[must_use]
pub fn brief(text: &str) -> String {
    let mut short: String =
        text.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        short.push('…');
    }
    short
}
