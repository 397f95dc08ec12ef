//! Compiles the table of rules into the library: to read it at each start took a third of the time of `nodevigil check`.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use toml::Value;

fn main() -> Result<(), Box<dyn Error>> {
    const SOURCE: &str = "src/rules/rules.toml";
    println!("cargo::rerun-if-changed={SOURCE}");
    let table: toml::Table = fs::read_to_string(SOURCE)?.parse()?;
    let rules = table.get("rule").and_then(Value::as_array).ok_or("no rules")?;
    let mut code = "&[".to_owned();
    for rule in rules {
        code.push_str("Rule {");
        for (column, value) in rule.as_table().ok_or("a rule is a table")? {
            let value = match value {
                Value::String(path) if column == "check" => path.clone(),
                Value::String(kind) if column == "kind" => format!("Kind::{kind}"),
                Value::Array(items) if column == "needs" => format!("Some(&{:?})", texts(items)),
                Value::Array(items) => format!("&{:?}", texts(items)),
                Value::String(text) => format!("{text:?}"),
                other => other.to_string(),
            };
            write!(code, "{column}: {value},")?;
        }
        code.push_str("..Rule::NONE },");
    }
    let out = Path::new(&env::var("OUT_DIR")?).join("rules.rs");
    Ok(fs::write(out, code + "]")?)
}

fn texts(items: &[Value]) -> Vec<&str> {
    items.iter().filter_map(Value::as_str).collect()
}
