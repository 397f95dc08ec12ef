use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Node, BadDocument> {
    parse(&Location::file("/c.yaml"), text)
}

fn json_of(text: &str) -> serde_json::Value {
    read(text).unwrap().to_json()
}

fn reason(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn every_key_and_value_knows_its_place() {
    let text =
        "# a comment\nmaxPods: 110\nevictionHard:\n  memory.available: \"100Mi\"\nclusterDNS:\n- 10.0.0.10\n- ü: x\n";
    let root = read(text).unwrap();
    let place = |place: &Location| (place.line, place.column, place.width);
    let entry = root.entry("maxPods").unwrap();
    assert_eq!(place(&entry.at), (2, 1, 7));
    assert_eq!(place(&entry.node.at), (2, 10, 3));
    let hard = root.get("evictionHard").unwrap();
    assert_eq!(hard.at.line, 4);
    assert_eq!(place(&hard.get("memory.available").unwrap().at), (4, 21, 7));
    let dns = root.get("clusterDNS").unwrap().items();
    assert_eq!(place(&dns[0].at), (6, 3, 9));
    assert_eq!(place(&dns[1].get("ü").unwrap().at), (7, 6, 1));

    let root = read("{\n\t\"a\": {\"b\": [1, \"two\"]}\n}").unwrap();
    let list = root.get("a").and_then(|a| a.get("b")).unwrap().items();
    assert_eq!(place(&list[1].at), (2, 17, 5));
}

#[test]
fn scalars_mean_what_they_mean_to_the_kubelet() {
    for (text, value) in [
        ("yes", json!(true)),
        ("Off", json!(false)),
        ("n", json!(false)),
        ("'yes'", json!("yes")),
        ("\"1\"", json!("1")),
        ("!!str 1", json!("1")),
        ("!!int '12'", json!(12)),
        ("~", json!(null)),
        ("", json!(null)),
        ("NULL", json!(null)),
        ("0x10", json!(16)),
        ("010", json!(8)),
        ("0o10", json!(8)),
        ("08", json!(8)),
        ("0b11", json!(3)),
        ("1_000", json!(1000)),
        ("+5", json!(5)),
        ("-5", json!(-5)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("1e3", json!(1000)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1e400", json!("1e400")),
        (".inf", json!(".inf")),
        ("10s", json!("10s")),
        ("100Mi", json!("100Mi")),
        ("2001-01-01", json!("2001-01-01")),
        ("1:30", json!("1:30")),
        ("- 1\n- a", json!([1, "a"])),
        ("|\n a\n b\n", json!("a\nb\n")),
    ] {
        assert_eq!(json_of(text), value, "{text}");
    }
    assert_eq!(json_of("1: a\non: b\n1.0: c\n"), json!({"1": "c", "true": "b"}));
}

#[test]
fn the_last_of_two_equal_keys_counts_and_both_are_there() {
    let root = read("a: 1\na: 2\n").unwrap();
    assert_eq!(root.entries().len(), 2);
    assert_eq!(root.get("a").unwrap().to_json(), json!(2));
    assert_eq!(root.to_json(), json!({"a": 2}));
}

#[test]
fn anchors_and_aliases_are_resolved() {
    let text = "base: &b {x: 1, w: 2}\nsame: *b\nlist: [*b, &c z, *c]\n";
    let base = json!({"x": 1, "w": 2});
    assert_eq!(json_of(text), json!({"base": base, "same": base, "list": [base, "z", "z"]}));
    assert_eq!(read(text).unwrap().get("same").unwrap().entry("x").unwrap().at.line, 1);
}

#[test]
fn the_first_document_counts() {
    assert_eq!(json_of("---\na: 1\n---\nb: ]\n"), json!({"a": 1}));
    assert_eq!(json_of("a: 1\n...\n"), json!({"a": 1}));
    assert_eq!(json_of("\u{feff}a: 1\n"), json!({"a": 1}));
    assert_eq!(json_of("# nothing\n"), json!(null));
}

#[test]
fn what_cannot_be_read_names_a_place_and_quotes_nothing() {
    for (text, line) in [
        ("a: [s3cret", 1),
        ("a: 1\n\tb: s3cret\n", 2),
        ("a: 1\n b: s3cret\n", 2),
        ("a: *s3cret\n", 1),
        ("a: &s3cret [*s3cret]\n", 1),
        ("? [s3cret]\n: 1\n", 1),
        ("~: s3cret\n", 1),
        ("a: 'x' s3cret\n", 1),
        ("%YAML 1.2\n---\na: 1\n", 2),
    ] {
        let error = read(text).expect_err(text);
        assert_eq!(error.at.line, line, "{text}: {error}");
        assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
    }
}

#[test]
fn nesting_and_aliases_are_bounded() {
    let deep =
        |open: &str, close: &str, levels: usize| format!("x: {}1{}\n", open.repeat(levels), close.repeat(levels));
    assert!(read(&deep("[", "]", MAX_DEPTH - 1)).is_ok());
    assert!(reason(&deep("[", "]", MAX_DEPTH + 1)).contains("nested deeper"));
    assert!(reason(&deep("{a: ", "}", 20_000)).contains("nested deeper"));
    assert!(reason(&"- ".repeat(20_000)).contains("nested deeper"));

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let previous = format!("*a{},", level - 1).repeat(10);
        bomb = format!("{bomb}a{level}: &a{level} [{previous}]\n");
    }
    assert!(reason(&bomb).contains("more values"));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1000));
    assert!(reason(&long).contains("more values"));
    let mut ladder = "a0: &a0 [x]\n".to_owned();
    for level in 1..100 {
        ladder = format!("{ladder}a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert!(reason(&ladder).contains("nested deeper"));
    assert!(reason(&format!("[{}]", "1,".repeat(200_000))).contains("more values"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "([a-z0-9.]{1,3}|[:\\-#&*!|>'\"%@`,?{}\\[\\]<~ \n\t\r]|: |- |<<: |\u{feff}|\u{85}|é){0,60}") {
        let _ = read(&text);
    }

    #[test]
    fn what_json_writes_is_read_back(map in proptest::collection::hash_map("[a-zA-Z./\\-\"\\\\\n\u{e9}\u{1f600} ]{1,12}", "\\PC{0,20}", 0..8)) {
        let written = serde_json::to_string_pretty(&map).unwrap();
        prop_assert_eq!(json_of(&written), json!(map));
    }
}
