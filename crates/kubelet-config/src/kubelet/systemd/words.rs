//! Words as systemd splits them: quotes are removed wherever they stand, a backslash escapes, blanks separate;
//! systemd.syntax(7), "QUOTING". One routine serves `ExecStart=`, `Environment=` and the value of a lone `$X`.

use std::ops::Range;

use super::source::{Mapped, is_blank, is_noncharacter};

/// How a backslash and an unclosed quote are taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    /// `\n`, `\x2d` and their like are decoded; else a backslash only protects the next character.
    pub(super) c_escapes: bool,
    /// An escape that is none keeps its backslash, instead of being an error.
    pub(super) keep_unknown_escapes: bool,
    /// An unclosed quote ends with the text, instead of being an error.
    pub(super) relaxed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Split {
    /// The word without quotes and escapes; `at` counts in the input's own source.
    pub(super) text: Mapped,
    /// Where it is in the input, with its quotes.
    pub(super) place: Range<usize>,
}

/// An unclosed quote, or an escape that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadWord;

/// Takes the next word of `input` at `position`, and moves it to the start of what follows.
pub(super) fn next_word(input: &Mapped, position: &mut usize, flags: Flags) -> Result<Option<Split>, BadWord> {
    let bytes = &input.bytes;
    let after_blanks = |from: usize| bytes.iter().skip(from).take_while(|byte| is_blank(**byte)).count() + from;
    let start = after_blanks(*position);
    *position = start;
    if start >= bytes.len() {
        return Ok(None);
    }
    let mut here = start;
    let mut text = Mapped::default();
    let mut quote = None;
    while let Some(byte) = bytes.get(here).copied() {
        if byte == b'\\' {
            let taken = escape(input, here, quote.is_some(), flags, &mut text).ok_or(BadWord)?;
            here += taken;
        } else if quote == Some(byte) {
            quote = None;
            here += 1;
        } else if quote.is_none() && matches!(byte, b'"' | b'\'') {
            quote = Some(byte);
            here += 1;
        } else if quote.is_none() && is_blank(byte) {
            break;
        } else {
            text.push(byte, at(input, here));
            here += 1;
        }
    }
    if quote.is_some() && !flags.relaxed {
        return Err(BadWord);
    }
    *position = after_blanks(here);
    Ok(Some(Split { text, place: start..here }))
}

/// As [`next_word`]; a word with unknown escapes is taken once more, with them as they are written.
pub(super) fn next_word_lenient(input: &Mapped, position: &mut usize, flags: Flags) -> Result<Option<Split>, BadWord> {
    let lenient = Flags { keep_unknown_escapes: true, ..flags };
    next_word(input, position, flags).or_else(|_| next_word(input, position, lenient))
}

fn at(input: &Mapped, index: usize) -> u32 {
    input.at.get(index).copied().unwrap_or_default()
}

/// Decodes the escape at `here` into `text`; how many bytes it takes, or `None` if it is none.
fn escape(input: &Mapped, here: usize, quoted: bool, flags: Flags, text: &mut Mapped) -> Option<usize> {
    let place = at(input, here);
    let Some(next) = input.bytes.get(here + 1).copied() else {
        // A backslash at the very end.
        if flags.keep_unknown_escapes && (!quoted || flags.relaxed) {
            text.push(b'\\', place);
            return Some(1);
        }
        return flags.relaxed.then_some(1);
    };
    if !flags.c_escapes {
        text.push(next, at(input, here + 1));
        return Some(2);
    }
    if let Some((decoded, taken)) = c_escape(&input.bytes[here + 1..]) {
        for byte in decoded {
            text.push(byte, place);
        }
        return Some(1 + taken);
    }
    if flags.keep_unknown_escapes {
        text.push(b'\\', place);
        text.push(next, at(input, here + 1));
        return Some(2);
    }
    None
}

/// The bytes that the C escape at the start of `rest` (after the backslash) stands for, and how many it takes there.
fn c_escape(rest: &[u8]) -> Option<(Vec<u8>, usize)> {
    let code = |digits: Range<usize>, radix: u32| digits_of(rest.get(digits)?, radix).filter(|code| *code != 0);
    let simple = match *rest.first()? {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0B,
        b's' => b' ',
        quoted @ (b'\\' | b'"' | b'\'') => quoted,
        b'x' => return Some((vec![u8::try_from(code(1..3, 16)?).ok()?], 3)),
        b'0'..=b'7' => return Some((vec![u8::try_from(code(0..3, 8)?).ok()?], 3)),
        b'u' => return Some((short_unicode(code(1..5, 16)?), 5)),
        b'U' => {
            let c = char::from_u32(code(1..9, 16)?).filter(|c| !is_noncharacter(*c))?;
            return Some((c.to_string().into_bytes(), 9));
        }
        _ => return None,
    };
    Some((vec![simple], 1))
}

fn digits_of(text: &[u8], radix: u32) -> Option<u32> {
    text.iter().try_fold(0u32, |value, byte| {
        let digit = char::from(*byte).to_digit(radix)?;
        value.checked_mul(radix)?.checked_add(digit)
    })
}

/// What four digits stand for: systemd also takes halves of characters, which are not UTF-8.
fn short_unicode(code: u32) -> Vec<u8> {
    if let Some(c) = char::from_u32(code) {
        return c.to_string().into_bytes();
    }
    let six_bits = |shift: u32| 0x80 | u8::try_from(code >> shift & 0x3F).unwrap_or_default();
    let first = 0xE0 | u8::try_from(code >> 12 & 0x0F).unwrap_or_default();
    vec![first, six_bits(6), six_bits(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: Flags = Flags { c_escapes: true, keep_unknown_escapes: false, relaxed: false };
    const VALUE: Flags = Flags { c_escapes: false, keep_unknown_escapes: false, relaxed: true };

    fn split(text: &str, flags: Flags) -> Result<Vec<String>, BadWord> {
        let input = Mapped::plain(text.as_bytes());
        let mut position = 0;
        let mut words = Vec::new();
        while let Some(word) = next_word(&input, &mut position, flags)? {
            words.push(word.text.text());
        }
        Ok(words)
    }

    #[test]
    fn quotes_are_removed_wherever_they_stand() {
        assert_eq!(split(r#"a "b c" 'd e' f"g h"i "" ''"#, EXEC).unwrap(), ["a", "b c", "d e", "fg hi", "", ""]);
        assert_eq!(split("a 'b", EXEC), Err(BadWord));
        assert_eq!(split("a 'b c", VALUE).unwrap(), ["a", "b c"]);
    }

    #[test]
    fn escapes_are_those_of_c() {
        assert_eq!(split(r"\x2d\055\s\u00e9\U0001F600 \\ \t", EXEC).unwrap(), ["-- é😀", "\\", "\t"]);
        for bad in
            [r"\x00", r"\x4", r"\400", r"\000", r"\q", r"\u0000", r"\U0000d800", r"\U0000fffe", r"\", r"\U00110000"]
        {
            assert!(split(bad, EXEC).is_err(), "{bad}");
        }
    }

    #[test]
    fn four_digits_may_be_half_a_character() {
        let input = Mapped::plain(br"\ud800\ufffe");
        let word = next_word(&input, &mut 0, EXEC).unwrap().unwrap();
        assert_eq!(word.text.bytes, b"\xed\xa0\x80\xef\xbf\xbe");
    }

    #[test]
    fn a_value_loses_its_backslashes() {
        assert_eq!(split(r#"a\b "c\"d" '\'' e\"#, VALUE).unwrap(), ["ab", "c\"d", "'", "e"]);
    }

    #[test]
    fn an_unknown_escape_is_kept_the_second_time() {
        let input = Mapped::plain(br"a\d\n b");
        let mut position = 0;
        let word = next_word_lenient(&input, &mut position, EXEC).unwrap();
        assert_eq!(word.unwrap().text.bytes, b"a\\d\n");
        assert_eq!(position, 6);
    }

    #[test]
    fn each_byte_knows_where_it_was() {
        let input = Mapped::plain(br#"  "a\x62c"d e"#);
        let mut position = 0;
        let word = next_word(&input, &mut position, EXEC).unwrap().unwrap();
        assert_eq!(word.text.bytes, b"abcd");
        assert_eq!(word.text.at, [3, 4, 8, 10]);
        assert_eq!(word.place, 2..11);
    }
}
