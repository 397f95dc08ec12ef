//! Numbers that the documents state and that no setting holds are those of the code.

use tidy::read;

/// A row for each: whoever changes the line of code changes the sentence too.
const NUMBERS: &str = include_str!("numbers.txt");

#[test]
fn numbers_in_prose_are_those_of_the_code() {
    let text = |path: &str| {
        let lines = read(path);
        lines.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut wrong = Vec::new();
    for row in NUMBERS.lines().skip(1) {
        let [document, sentence, file, line] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        if !text(document).contains(sentence) {
            wrong.push(format!("{document} does not say: {sentence}"));
        }
        if !text(file).contains(line) {
            wrong.push(format!("{document} says: {sentence}; {file} does not have: {line}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
