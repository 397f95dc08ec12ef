use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Environment, Location, Oddity, Split, bash, kubelite};

fn environment() -> Environment {
    BTreeMap::from([
        ("SNAP_COMMON".to_owned(), "/c".to_owned()),
        ("EMPTY".to_owned(), String::new()),
        ("TWO".to_owned(), "a  b".to_owned()),
    ])
}

fn texts(split: &Split) -> Vec<&str> {
    split.args.iter().map(|arg| arg.text.as_str()).collect()
}

fn places(split: &Split) -> Vec<(u32, u32, u32)> {
    split.args.iter().map(|arg| (arg.declared.line, arg.declared.column, arg.declared.width)).collect()
}

fn oddities(split: &Split) -> Vec<(u32, Oddity)> {
    split.oddities.iter().map(|odd| (odd.at.line, odd.value)).collect()
}

fn by_kubelite(text: &str) -> Split {
    kubelite(&Location::file("/args"), text, &environment())
}

fn by_bash(text: &str) -> Split {
    bash(&Location::file("/args"), text, &environment())
}

#[test]
fn kubelite_deletes_quotes_and_splits_at_every_blank() {
    let split = by_kubelite("  # a comment\n\n--a=\"x,y\"\n  --b 1 \r\n--c=2  --d=3\n");
    assert_eq!(texts(&split), ["--a=x,y", "--b", "1", "--c=2", "", "--d=3"]);
    assert_eq!(places(&split), [(3, 1, 9), (4, 3, 3), (4, 7, 1), (5, 1, 5), (5, 7, 1), (5, 8, 5)]);
    assert_eq!(oddities(&split), [(5, Oddity::EmptyArgument)]);
}

#[test]
fn kubelite_loses_the_quotes_around_a_blank() {
    let split = by_kubelite("--node-labels=\"a=b c=d\" --v=2\n--x='a b'\n--y=\"ab\"\n");
    assert_eq!(texts(&split), ["--node-labels=a=b", "c=d", "--v=2", "--x=a", "b", "--y=ab"]);
    assert_eq!(oddities(&split), [(1, Oddity::QuoteDeleted), (2, Oddity::QuoteDeleted)]);
    // The caret is under the word with the quote.
    assert_eq!(split.oddities[0].at.column, 1);
}

#[test]
fn kubelite_expands_as_go_does() {
    let split = by_kubelite("--a=${SNAP_COMMON}/x$EMPTY-$SNAP_COMMON.y\n--b=${UNSET}z$$-$ --c=${open\n--d=$é");
    assert_eq!(texts(&split), ["--a=/c/x-/c.y", "--b=z$$-$", "--c=${open", "--d=$é"]);
    assert_eq!(oddities(&split), []);
    let split = by_kubelite("$UNSET\n''\n--a=1");
    assert_eq!(texts(&split), ["", "", "--a=1"]);
    assert_eq!(oddities(&split), [(1, Oddity::EmptyArgument), (2, Oddity::EmptyArgument)]);
}

// Each tried with bash 5.2, in the words of the snap's wrapper.
#[test]
fn bash_reads_words_quotes_and_comments() {
    for (text, expected) in [
        ("--a=1  --b=2\n\n--c=\"x y\"\n", &["--a=1", "--b=2", "--c=x y"][..]),
        ("# no --x\n--a=1 # more\n--b#no", &["--a=1", "--b#no"]),
        ("--a=${SNAP_COMMON}/x --b=$EMPTY $EMPTY $TWO \"$TWO\" ${UNSET}", &["--a=/c/x", "--b=", "a", "b", "a  b"]),
        ("--a='m<1,n<2' --b=\"m<1\" --c=a\\ b", &["--a=m<1,n<2", "--b=m<1", "--c=a b"]),
        ("--a=1 \\\n--b=2", &["--a=1", "--b=2"]),
        ("--a=\"x\\d\\\"y\\\\\" $ --b=$", &["--a=x\\d\"y\\", "$", "--b=$"]),
    ] {
        let split = by_bash(text);
        assert_eq!(texts(&split), expected, "{text}");
        assert_eq!(oddities(&split), [], "{text}");
        assert_eq!(split.unknown, None, "{text}");
    }
}

#[test]
fn bash_stops_at_what_is_syntax_to_it() {
    let split = by_bash("--v=2\n--eviction-hard=memory.available<1Gi,nodefs.available<5%\n");
    assert_eq!(oddities(&split), [(2, Oddity::ShellSyntax('<'))]);
    assert_eq!(split.oddities[0].at.column, 33);
    // The rest is read all the same, so that the other rules have something to judge.
    assert_eq!(texts(&split)[1], "--eviction-hard=memory.available<1Gi,nodefs.available<5%");
    let split = by_bash("--a=\"x\n--b=1\n");
    assert_eq!(oddities(&split), [(1, Oddity::QuoteNotClosed)]);
    let split = by_bash("--a={x,y} --b={z} --c='' \"$EMPTY\"");
    assert_eq!(oddities(&split), [(1, Oddity::ShellSyntax('{')), (1, Oddity::EmptyArgument)]);
}

#[test]
fn bash_is_not_guessed_at_where_it_runs_something() {
    for text in ["--a=$(hostname)", "--a=`hostname`", "--a=\"$(hostname)\"", "--a=${X:-y}", "--a=$1", "--a=$'x'"] {
        let split = by_bash(text);
        assert!(split.args.is_empty(), "{text}");
        assert!(split.unknown.is_some(), "{text}");
    }
}

#[test]
fn a_large_variable_named_often_does_not_fill_the_memory() {
    let environment = BTreeMap::from([("X".to_owned(), "x".repeat(1 << 20))]);
    let text = "--a=$X\n".repeat(10_000);
    for split in
        [kubelite(&Location::file("/args"), &text, &environment), bash(&Location::file("/args"), &text, &environment)]
    {
        assert!(split.args.is_empty());
        assert!(split.unknown.is_some());
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "([-a=$ {}\"'\\\\\n\t#<X]|\\PC){0,64}") {
        by_kubelite(&text);
        by_bash(&text);
    }
}
