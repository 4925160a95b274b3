//! Validates JSON against the keywords of JSON Schema that the schemas in docs/ use; any other keyword is an error.

use serde_json::Value;

/// What does not fit, each with its place.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "$", &mut found);
    found
}

fn check(root: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let keywords = schema.as_object().expect("a schema is an object");
    for (keyword, argument) in keywords {
        let fits = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" => true,
            "$ref" => {
                let pointer = argument.as_str().and_then(|target| target.strip_prefix('#')).expect("a local reference");
                check(root, root.pointer(pointer).expect("a definition"), value, place, found);
                true
            }
            "anyOf" => array(argument).iter().any(|schema| {
                let mut inner = Vec::new();
                check(root, schema, value, place, &mut inner);
                inner.is_empty()
            }),
            "const" => value == argument,
            "enum" => array(argument).contains(value),
            "type" => match argument {
                Value::Array(kinds) => kinds.iter().any(|kind| is_a(value, kind)),
                kind => is_a(value, kind),
            },
            "minimum" => value.as_f64().is_none_or(|number| Some(number) >= argument.as_f64()),
            "pattern" => value.as_str().is_none_or(|text| matches(argument.as_str().expect("a pattern"), text)),
            "required" => {
                let missing = |key: &&Value| value.get(key.as_str().expect("a key")).is_none();
                !value.is_object() || array(argument).iter().find(missing).is_none()
            }
            "properties" => {
                for (key, schema) in argument.as_object().expect("properties") {
                    if let Some(inner) = value.get(key) {
                        check(root, schema, inner, &format!("{place}.{key}"), found);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = keywords.get("properties").and_then(Value::as_object);
                let is_known = |key: &String| known.is_some_and(|known| known.contains_key(key));
                let others = value.as_object().into_iter().flatten().filter(|(key, _)| !is_known(key));
                match argument {
                    Value::Bool(allowed) => *allowed || others.count() == 0,
                    schema => {
                        others.for_each(|(key, inner)| check(root, schema, inner, &format!("{place}.{key}"), found));
                        true
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, argument, item, &format!("{place}[{index}]"), found);
                }
                true
            }
            other => panic!("docs/schema.json uses `{other}`, which this test does not know"),
        };
        if !fits {
            found.push(format!("{place}: {value} does not fit {keyword}: {argument}"));
        }
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type `{other}` is not used"),
    }
}

/// The five patterns of the schema, by hand: a regular expression engine for them would be a dependency.
fn matches(pattern: &str, text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match pattern {
        r"^[0-9]+\.[0-9]+$" => text.split_once('.').is_some_and(|(major, minor)| digits(major) && digits(minor)),
        "^sm_[0-9]+$" => text.strip_prefix("sm_").is_some_and(digits),
        "^FA[0-9]{3}$" => text.strip_prefix("FA").is_some_and(|rest| rest.len() == 3 && digits(rest)),
        "^[a-z0-9-]+$" => {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }
        r"^[^/\\]" => text.starts_with(|c| c != '/' && c != '\\'),
        other => panic!("docs/schema.json uses the pattern `{other}`, which this test does not know"),
    }
}
