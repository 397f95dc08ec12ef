//! An argument list, read as pflag reads it (spf13/pflag 1.0.9, `parseArgs`). pflag stops at the first error; this goes
//! on, so that one run names all of them.

use super::{CommandLine, FlagSpec, FlagUse, PositionalArg, table};
use crate::kubelet::location::Location;
use crate::kubelet::systemd::Arg;

/// Reads the arguments after the program's name.
pub fn parse_flags(words: &[Arg]) -> CommandLine {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    read(&texts, |index| words[index].at().clone())
}

/// Reads an argument list that is in no file, its first word the program's name; every place is `at`.
pub fn parse_argv<S: AsRef<str>>(argv: &[S], at: &Location) -> CommandLine {
    let texts: Vec<&str> = argv.iter().skip(1).map(AsRef::as_ref).collect();
    read(&texts, |_| at.clone())
}

fn read(texts: &[&str], place: impl Fn(usize) -> Location) -> CommandLine {
    let mut reader = Reader { texts, place, next: 0, line: CommandLine::default() };
    while let Some(text) = reader.take() {
        reader.word(text);
    }
    reader.line
}

struct Reader<'a, P> {
    texts: &'a [&'a str],
    place: P,
    /// The word after the one that is read.
    next: usize,
    line: CommandLine,
}

impl<'a, P: Fn(usize) -> Location> Reader<'a, P> {
    fn take(&mut self) -> Option<&'a str> {
        let text = self.texts.get(self.next)?;
        self.next += 1;
        Some(text)
    }

    fn word(&mut self, text: &str) {
        if text == "--" {
            while let Some(text) = self.take() {
                self.stray(text);
            }
        } else if let Some(name) = text.strip_prefix("--") {
            self.long(text, name);
        } else if let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            self.letters(letters);
        } else {
            self.stray(text);
        }
    }

    fn stray(&mut self, text: &str) {
        let word = self.next - 1;
        self.line.strays.push(PositionalArg { text: text.to_owned(), word, at: (self.place)(word) });
    }

    /// `--name`, `--name=value`, `--name value`.
    fn long(&mut self, text: &str, rest: &str) {
        let (name, value) = name_and_value(rest);
        if name.is_empty() || name.starts_with('-') {
            // "bad flag syntax"
            let used = self.used(format!("--{name}"), None);
            self.line.uses.push(FlagUse { name: text.to_owned(), ..used });
            return;
        }
        let mut used = self.used(format!("--{name}"), value);
        used.name = name.replace('_', "-");
        used.spec = table::find(&used.name);
        match (value, used.spec) {
            (None, Some(spec)) => self.value_of_known(used, spec),
            (None, None) => self.value_of_unknown(used),
            (Some(_), _) => self.line.uses.push(used),
        }
    }

    /// `-v=2`, `-v2`, `-v 2`, `-hv2`.
    fn letters(&mut self, whole: &str) {
        let mut letters = whole;
        while let Some(letter) = letters.chars().next() {
            let rest = letters.get(letter.len_utf8()..).unwrap_or_default();
            let Some(spec) = table::find_short(letter) else { return self.unknown_letters(letters) };
            let value = rest.strip_prefix('=').filter(|value| !value.is_empty());
            let mut used = self.used(format!("-{letter}"), value.or(Some(rest)));
            spec.name.clone_into(&mut used.name);
            used.spec = Some(spec);
            if value.is_none() && (rest.is_empty() || spec.value.stands_alone()) {
                letters = rest;
                self.value_of_known(used, spec);
            } else {
                letters = "";
                self.line.uses.push(used);
            }
        }
    }

    /// "unknown shorthand flag": usually a long flag with one dash.
    fn unknown_letters(&mut self, letters: &str) {
        let (name, value) = name_and_value(letters);
        let mut used = self.used(format!("-{name}"), value);
        used.name.clone_from(&used.written);
        let alone = table::find(&name.replace('_', "-")).is_some_and(|spec| spec.value.stands_alone());
        if value.is_some() || alone {
            self.line.uses.push(used);
        } else {
            self.value_of_unknown(used);
        }
    }

    /// The value of a known flag that has none in its own word: pflag takes the next word whatever it looks like.
    fn value_of_known(&mut self, mut used: FlagUse, spec: &FlagSpec) {
        if spec.value.stands_alone() {
            "true".clone_into(&mut used.value);
        } else if let Some(value) = self.take() {
            value.clone_into(&mut used.value);
            used.value_in_next_word = true;
        } else {
            self.line.lacks_value = Some(used);
            return;
        }
        self.line.uses.push(used);
    }

    /// Nobody knows whether an unknown flag takes a value: the next word is one if it looks like one.
    fn value_of_unknown(&mut self, mut used: FlagUse) {
        let first = self.texts.get(self.next).and_then(|next| next.chars().next());
        let looks_like_a_value = |letter: char| letter.is_alphanumeric() || "/.~{[:\"'".contains(letter);
        if first.is_some_and(looks_like_a_value)
            && let Some(value) = self.take()
        {
            value.clone_into(&mut used.value);
            used.value_in_next_word = true;
        }
        self.line.uses.push(used);
    }

    fn used(&self, written: String, value: Option<&str>) -> FlagUse {
        let word = self.next - 1;
        FlagUse {
            name: String::new(),
            written,
            spec: None,
            value: value.unwrap_or_default().to_owned(),
            value_in_next_word: false,
            word,
            at: (self.place)(word),
        }
    }
}

fn name_and_value(text: &str) -> (&str, Option<&str>) {
    text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(words: &str) -> CommandLine {
        let argv: Vec<&str> = std::iter::once("kubelet").chain(words.split(' ')).collect();
        parse_argv(&argv, &Location::file("argv"))
    }

    /// `name=value` of each flag, `?name` where it is unknown, then the strays.
    fn shown(words: &str) -> String {
        let line = line(words);
        let uses = line.uses.iter().map(|used| {
            let unknown = if used.spec.is_none() { "?" } else { "" };
            format!("{unknown}{}={}", used.name, used.value)
        });
        let strays = line.strays.iter().map(|stray| format!("[{}]", stray.text));
        uses.chain(strays).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn long_flags_have_three_forms() {
        assert_eq!(shown("--node-ip=1 --node-ip 2"), "node-ip=1 node-ip=2");
        assert_eq!(shown("--node_ip=a_b"), "node-ip=a_b");
        assert_eq!(shown("--node-ip="), "node-ip=");
        assert_eq!(shown("--node-ip --v=2"), "node-ip=--v=2");
        assert_eq!(shown("--node-ip -- --v=2"), "node-ip=-- v=2");
        assert_eq!(shown("--node-labels=a=b,c=d"), "node-labels=a=b,c=d");
    }

    #[test]
    fn a_bool_never_takes_the_next_word() {
        assert_eq!(shown("--fail-swap-on false"), "fail-swap-on=true [false]");
        assert_eq!(shown("--fail-swap-on=false"), "fail-swap-on=false");
        assert_eq!(shown("--version raw"), "version=true [raw]");
    }

    #[test]
    fn letters_can_be_grouped() {
        assert_eq!(shown("-v 2 -v=3 -v4"), "v=2 v=3 v=4");
        assert_eq!(shown("-hv2"), "help=true v=2");
        assert_eq!(shown("-h=false"), "help=false");
        assert_eq!(shown("-v="), "v==");
        assert_eq!(shown("-version"), "v=ersion");
        assert_eq!(shown("--v 2"), "v=2");
    }

    #[test]
    fn two_dashes_end_the_flags() {
        assert_eq!(shown("--v=1 -- --v=2 x"), "v=1 [--v=2] [x]");
    }

    #[test]
    fn what_is_no_flag_is_a_stray_and_the_reading_goes_on() {
        assert_eq!(shown("\\ --v=2 # note"), "v=2 [\\] [#] [note]");
        assert_eq!(shown("- --v=1  --v=2"), "v=1 v=2 [-] []");
        assert_eq!(shown("–cloud-provider=external"), "[–cloud-provider=external]");
    }

    #[test]
    fn an_unknown_flag_takes_a_word_that_looks_like_a_value() {
        assert_eq!(shown("--foo bar --v=1"), "?foo=bar v=1");
        assert_eq!(shown("--foo --v=1"), "?foo= v=1");
        assert_eq!(shown("--foo=x y"), "?foo=x [y]");
        assert_eq!(shown("--foo \\ --v=1"), "?foo= v=1 [\\]");
        assert_eq!(shown("--foo # note"), "?foo= [#] [note]");
    }

    #[test]
    fn one_dash_is_no_long_flag() {
        let line = line("-cloud-provider=external -node-ip 10.0.0.1 -fail-swap-on x");
        assert_eq!(line.value("cloud-provider"), None);
        let written: Vec<_> = line.uses.iter().map(|used| used.written.as_str()).collect();
        assert_eq!(written, ["-cloud-provider", "-node-ip", "-fail-swap-on"]);
        assert_eq!(line.uses[1].value, "10.0.0.1");
        assert_eq!(line.strays[0].text, "x");
        assert_eq!(shown("---x --=y"), "?---x= ?--=y=");
    }

    #[test]
    fn a_last_flag_may_lack_its_value() {
        let line = line("--v=1 --node-ip");
        assert_eq!(line.lacks_value.unwrap().name, "node-ip");
        assert_eq!(line.uses.len(), 1);
    }

    #[test]
    fn uses_know_their_words() {
        let line = line("--node-ip 1 --v=2 x");
        assert_eq!((line.uses[0].word, line.uses[0].value_in_next_word), (0, true));
        assert_eq!((line.uses[1].word, line.uses[1].value_in_next_word), (2, false));
        assert_eq!(line.strays[0].word, 3);
        assert_eq!(line.value("v"), Some("2"));
    }

    proptest! {
        #[test]
        fn every_word_is_a_flag_a_value_or_a_stray(
            words in proptest::collection::vec("(--?[a-z=]{0,4}|--(v|node-ip|help|foo)(=x)?|-[hvx=]{1,3}|[a-z\\\\#]{0,2})", 0..12),
        ) {
            let argv: Vec<&str> = std::iter::once("kubelet").chain(words.iter().map(String::as_str)).collect();
            let line = parse_argv(&argv, &Location::file("argv"));
            let mut owned: Vec<usize> = line.strays.iter().map(|stray| stray.word).collect();
            for used in line.uses.iter().chain(&line.lacks_value) {
                owned.push(used.word);
                owned.extend(used.value_in_next_word.then_some(used.word + 1));
            }
            owned.sort_unstable();
            owned.dedup();
            // The first `--` that is not a value is the end of the flags, and nothing else is.
            let end = (0..words.len()).find(|index| words[*index] == "--" && !owned.contains(index));
            let expected: Vec<usize> = (0..words.len()).filter(|index| Some(*index) != end).collect();
            prop_assert_eq!(owned, expected);
        }
    }
}
