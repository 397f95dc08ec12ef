//! Compiles the rules' texts into the library: to read them at each start took a third of the time of `nodevigil check`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// As `Rule` of the library. What `Debug` prints of it is an expression of Rust.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "`Debug` reads the fields")]
struct Rule {
    id: String,
    name: String,
    severity: String,
    summary: String,
    /// Empty where the summary says it all.
    #[serde(default)]
    explanation: String,
    fix: String,
    seen: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    const SOURCE: &str = "src/rules/rules.toml";
    println!("cargo::rerun-if-changed={SOURCE}");
    let tables: BTreeMap<String, Vec<Rule>> = toml::from_str(&fs::read_to_string(SOURCE)?)?;
    let out = Path::new(&env::var("OUT_DIR")?).join("rules.rs");
    Ok(fs::write(out, format!("&{:?}", tables["rule"]))?)
}
