//! Slips of the hand in each field of a configuration and in each flag, from the crate's own tables: another case or spelling of the name, a
//! value of another type or notation, the same thing twice.

use kubelet_config::kubelet::flags::table::find;

use super::kubelet::OLDEST;

const FIELDS: &str = include_str!("../../../crates/kubelet-config/src/kubelet/config/fields.txt");
const FLAGS: &str = include_str!("../../../crates/kubelet-config/src/kubelet/flags/flags.txt");

/// Name and form of each line of a table.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut columns = line.split_whitespace();
        Some((columns.next()?, columns.next()?))
    })
}

/// Lines of a configuration, each with a slip in one field. The fields of structures in lists are not tried.
pub(crate) fn in_fields() -> impl Iterator<Item = String> {
    rows(FIELDS).filter(|(path, _)| !path.contains('[')).flat_map(|(path, form)| of_field(path, form))
}

fn of_field(path: &str, form: &str) -> Vec<String> {
    let (above, name) = path.rsplit_once('.').unwrap_or(("", path));
    let written = |name: &str, value: &str| {
        let line = format!("{name}: {value}");
        above.rsplit('.').filter(|above| !above.is_empty()).fold(line, |line, above| format!("{above}: {{{line}}}"))
    };
    let values = other_values(form);
    // With a value of another type the kubelet shows whether it takes the name.
    let wrong = values[0];
    let names = [capitalized(name), name.to_lowercase(), name[..name.len() - 1].to_owned(), format!("{name}s")];
    let mut slips: Vec<String> = names.iter().filter(|slip| *slip != name).map(|name| written(name, wrong)).collect();
    slips.extend(values.iter().map(|value| written(name, value)));
    if above.is_empty() {
        slips.push(format!("{name}: null\\n{name}: null"));
        slips.push(format!("{name}: null\\n{}: {wrong}", capitalized(name)));
    }
    slips
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Values of another type than that of the field, the first for certain, and odd notations of its own.
fn other_values(form: &str) -> Vec<&'static str> {
    let values = match form {
        "Bool" => r#"[a]; "true"; yes; Off; 1; {}; ~"#,
        "Int32" | "Int64" | "Uint32" | "Float" => {
            r#"[a]; "5"; true; {}; 0x10; 0b11; 010; 1_000; 1e3; +5; -0; 5.0; .5; 1e30"#
        }
        "Duration" | "Flexible" => r#"[a]; null; true; {}; "5"; "1 s"; "1S"; 1m; "+1m"; ".5h"; "1.5.5h"; "9999999h""#,
        "Quantity" => r#"[a]; true; {}; "1K"; "1 Gi"; 1e3"#,
        "Object" => "[a]; true; 5; {x: 1}",
        form if form.starts_with("list") => "{a: b}; x; 5; [[]]; [null]; [{a: b}]; [true]",
        form if form.starts_with("map") => r#"[a]; x; 5; {a: []}; {a: null}; {a: true}; {a: 1.5}; {"": "1"}"#,
        _ => r#"[a]; true; 1.5; {}; yes; " "; |\n  a\n  b"#,
    };
    values.split("; ").collect()
}

/// Flags with a slip in one of them, without those that no kubelet has which is asked.
pub(crate) fn in_flags() -> impl Iterator<Item = String> {
    let is_tried = |name: &str| {
        !matches!(name, "help" | "version" | "container-runtime-endpoint")
            && find(name).is_some_and(|spec| spec.known_in(OLDEST))
    };
    rows(FLAGS).filter(move |(name, _)| is_tried(name)).flat_map(|(name, form)| of_flag(name, form))
}

fn of_flag(name: &str, form: &str) -> Vec<String> {
    let value = match form {
        "Bool" => "true",
        "Int32" | "Int" | "Uint" => "110",
        "Duration" => "10s",
        "Ip" => "10.0.0.7",
        "Quantity" => "64Ki",
        "Map" => "memory=100Mi",
        "OnePair" => "full-pcpus-only=true",
        "Headers" => "X-Token:value",
        "Thresholds" => "memory.available<100Mi",
        "Gates" => "NodeSwap=true",
        "Taints" => "example.com/dedicated=gpu:NoSchedule",
        "ReservedMemory" => "0:memory=1Gi",
        "VModule" => "kubelet=4",
        _ => "a=b",
    };
    vec![
        format!("--{name}={value}"),
        format!("--{name}={value} --{name}={value}"),
        format!("--{name} {value}"),
        format!("--{name} = {value}"),
        format!("--{name}={value},"),
        format!("--{name}= {value}"),
        format!("-{name}={value}"),
        format!("--{}={value}", capitalized(name)),
        format!("--{}={value}", name.replace('-', "_")),
        format!("--{}={value}", &name[..name.len() - 1]),
    ]
}
