//! As much of JSON Schema as check.schema.json uses. A validator from the registry would bring some forty crates for one
//! file of ours; a keyword that this one does not know is an error, so that nothing passes unread.

use serde_json::{Map, Value};

/// What in `value` is not as `schema` wants it, each with its path.
pub(crate) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    walk(schema, schema, value, "$", &mut problems);
    problems
}

fn walk(root: &Value, schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    let rules = match schema {
        Value::Bool(true) => return,
        Value::Object(rules) => rules,
        other => panic!("no schema: {other}"),
    };
    for (keyword, wanted) in rules {
        match keyword.as_str() {
            "$ref" => {
                let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                let target = root.pointer(pointer).unwrap_or_else(|| panic!("{wanted}"));
                walk(root, target, value, path, problems);
            }
            "type" if !has_type(wanted, value) => {
                problems.push(format!("{path} is {value}, wants {wanted}"));
            }
            "const" if wanted != value => problems.push(format!("{path} is {value}, not {wanted}")),
            "enum" if !wanted.as_array().unwrap().contains(value) => {
                problems.push(format!("{path} is {value}, none of {wanted}"));
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    walk(root, wanted, item, &format!("{path}[{index}]"), problems);
                }
            }
            "required" => {
                for name in wanted.as_array().unwrap() {
                    let name = name.as_str().unwrap();
                    if value.as_object().is_some_and(|o| !o.contains_key(name)) {
                        problems.push(format!("{path} lacks {name}"));
                    }
                }
            }
            "additionalProperties" => object(root, rules, value, path, problems),
            // Read with others, or held and found good above.
            "$schema" | "title" | "$defs" | "properties" | "type" | "const" | "enum" => {}
            other => panic!("keyword {other} is not known here: teach it"),
        }
    }
}

fn object(
    root: &Value,
    rules: &Map<String, Value>,
    value: &Value,
    path: &str,
    problems: &mut Vec<String>,
) {
    for (name, item) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let known = rules.get("properties").and_then(|known| known.get(name));
        match known.unwrap_or(&rules["additionalProperties"]) {
            Value::Bool(false) => problems.push(format!("{path} is not in the schema")),
            schema => walk(root, schema, item, &path, problems),
        }
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("type {other} is not known here: teach it"),
    };
    match wanted {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    }
}

#[test]
fn the_validator_finds_what_is_wrong() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {"a": {"type": ["integer", "null"]}, "b": {"items": {"enum": ["x"]}}},
    });
    let found = |text: &str| problems(&schema, &serde_json::from_str(text).unwrap()).len();
    assert_eq!(found(r#"{"a": 1, "b": ["x"]}"#), 0);
    assert_eq!(found(r#"{"a": null}"#), 0);
    for bad in [
        "{}",
        r#"{"a": "1"}"#,
        r#"{"a": 1, "c": 1}"#,
        r#"{"a": 1, "b": ["y"]}"#,
        "[]",
    ] {
        assert_eq!(found(bad), 1, "{bad}");
    }
}
