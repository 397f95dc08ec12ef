//! Facts 30 to 36: the words of `ExecStart=`.

use super::*;

const VARIABLES: &str = "Environment=\"A=a b\" E= Q='x \"y z\" \\'w\\''\n";

fn expanded(command: &str) -> Vec<String> {
    words(&format!("{VARIABLES}ExecStart=/bin/x {command}"))
}

#[test]
fn fact_30_a_lone_variable_is_split() {
    assert_eq!(expanded("$A"), ["a", "b"]);
    assert_eq!(expanded("\"$A\" '$A'"), ["a", "b", "a", "b"]);
    assert_eq!(expanded("$Q"), ["x", "y z", "w"]);
    assert!(expanded("$E $UNSET \"$A \" $").is_empty());
    let tree = service("ExecStart=/bin/x $V\nEnvironmentFile=/e").file("/e", "V='a\\\\b \"c d'\n");
    assert_eq!(argv(&load(&tree))[1..], ["a\\b", "c d"]);
}

#[test]
fn fact_31_braces_never_split() {
    assert_eq!(expanded("${A} --f=${E} ${UNSET} x${A}y"), ["a b", "--f=", "", "xa by"]);
}

#[test]
fn fact_32_order_and_odd_names() {
    assert_eq!(words("ExecStart=/bin/x \\x25n"), ["k.service"]);
    assert_eq!(expanded("\\x24A"), ["a", "b"]);
    assert_eq!(words("Environment=A=zero\nExecStart=@/bin/y $A b"), ["b"]);
    assert_eq!(argv(&load(&service("Environment=A=zero\nExecStart=@/bin/y $A b"))), ["zero", "b"]);
    assert_eq!(expanded("${A:-x} ${A x${}y a\\;b"), ["${A:-x}", "${A", "xy", "a\\;b"]);
    assert_eq!(expanded("x$A $A, $A-B $1 $$A $$ ${A}$$"), ["x$A", "$A", "$", "a b$"]);
    assert_eq!(expanded("$(cmd) `cmd` > /f ${A:${E}}"), ["`cmd`", ">", "/f", "${A:}"]);
    // Measured: `A=b=c` is found under the name `A=b` too.
    assert_eq!(words("Environment=A=b=c\nExecStart=/bin/x $A=b ${A=b}"), ["c", "c"]);
}

#[test]
fn fact_33_the_program() {
    let unit = load(&service("ExecStart=//usr/./bin/x a\\x2db \\q"));
    assert_eq!(argv(&unit), ["//usr/./bin/x", "a-b", "\\q"]);
    assert_eq!(unit.exec.as_ref().unwrap().program, "/usr/bin/x");
    assert_eq!(argv(&load(&service("ExecStart=kubelet --x"))), ["kubelet", "--x"]);
    assert_eq!(load(&service("Environment=A=/bin/x\nExecStart=$A")).exec.unwrap().program, "$A");
}

#[test]
fn fact_34_prefixes() {
    let unit = load(&service("Environment=A=1\nExecStart=-:@!!/bin/x zero $A"));
    let exec = unit.exec.as_ref().unwrap();
    assert_eq!((exec.prefixes.as_str(), exec.expands), ("-:@!!", false));
    assert_eq!(argv(&unit), ["zero", "$A"]);
    assert!(exec.references().is_empty());
    assert!(matches!(load(&service("ExecStart=|/bin/x")).load, LoadState::BadSetting { .. }));
    let manager = Manager { version: 258, ..Manager::default() };
    assert_eq!(resolve_unit(&service("ExecStart=|/bin/x"), "k.service", &manager).load, LoadState::Loaded);
}

#[test]
fn fact_35_semicolons() {
    assert_eq!(words("ExecStart=/bin/x a \\; b ';' c;d"), ["a", ";", "b", ";", "c;d"]);
    assert!(matches!(load(&service("ExecStart=/bin/x a ; /bin/y b")).load, LoadState::BadSetting { .. }));
    assert_eq!(words("ExecStart=/bin/x a ;"), ["a"]);
    assert_eq!(words("Type=oneshot\nExecStart=/bin/x a ; /bin/y b"), ["a"]);
}

#[test]
fn fact_36_typography_is_text() {
    assert_eq!(expanded("–v=2 a\u{A0}b “c d”"), ["–v=2", "a\u{A0}b", "“c", "d”"]);
}

#[test]
fn references_name_word_and_kind() {
    let unit = load(&service("ExecStart=/bin/x $A --f=${B}${C} $$D"));
    let found = unit.exec.unwrap().references();
    let short: Vec<_> = found.iter().map(|(name, at, braces)| (name.as_str(), at.column, *braces)).collect();
    assert_eq!(short, [("A", 18, false), ("B", 21, true), ("C", 21, true)]);
}

#[test]
fn words_of_a_continued_line_know_their_line() {
    let unit = load(&service("ExecStart=/bin/x \\\n  --a \\\n  \"--b c\""));
    let places: Vec<_> = unit.argv.iter().map(|word| (word.at().line, word.at().column, word.at().width)).collect();
    assert_eq!(places, [(2, 11, 6), (3, 3, 3), (4, 3, 7)]);
    assert_eq!(unit.exec.unwrap().at.line, 2);
}
