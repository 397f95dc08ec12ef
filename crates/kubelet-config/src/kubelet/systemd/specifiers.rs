//! `%n`, `%H` and the others; systemd.unit(5), "SPECIFIERS".

use std::collections::BTreeMap;

use super::source::Mapped;

/// What each letter stands for in this unit; a letter that is known and cannot be expanded has `None`.
#[derive(Debug, Default)]
pub(super) struct Specifiers(pub(super) BTreeMap<char, Option<Vec<u8>>>);

/// The longest text that comes of expanding, as long as systemd's longest line.
const MAX_EXPANDED_BYTES: usize = 1 << 20;

impl Specifiers {
    /// The text with its specifiers expanded, and whether it had any; the letter that systemd does not know, if any.
    pub(super) fn expand(&self, text: &Mapped) -> Result<(Mapped, bool), char> {
        let mut expanded = Mapped::default();
        let mut has_specifiers = false;
        let mut bytes = text.bytes.iter().copied().zip(text.at.iter().copied());
        while let Some((byte, at)) = bytes.next() {
            if byte != b'%' {
                expanded.push(byte, at);
                continue;
            }
            let Some((letter, letter_at)) = bytes.next() else {
                expanded.push(b'%', at);
                break;
            };
            if letter == b'%' {
                expanded.push(b'%', at);
            } else if let Some(value) = self.0.get(&char::from(letter)) {
                let value = value.as_ref().ok_or(char::from(letter))?;
                if expanded.len() + value.len() > MAX_EXPANDED_BYTES {
                    return Err(char::from(letter));
                }
                for byte in value {
                    expanded.push(*byte, at);
                }
                has_specifiers = true;
            } else if letter.is_ascii_alphanumeric() {
                return Err(char::from(letter));
            } else {
                expanded.push(b'%', at);
                expanded.push(letter, letter_at);
            }
        }
        Ok((expanded, has_specifiers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specifiers() -> Specifiers {
        Specifiers(BTreeMap::from([('n', Some(b"kubelet.service".to_vec())), ('i', Some(Vec::new())), ('f', None)]))
    }

    fn expand(text: &str) -> Result<String, char> {
        specifiers().expand(&Mapped::plain(text.as_bytes())).map(|(text, _)| text.text())
    }

    #[test]
    fn letters_are_expanded_and_other_signs_stay() {
        assert_eq!(expand("a%nb%i.").unwrap(), "akubelet.serviceb.");
        assert_eq!(expand("100%% %, % %").unwrap(), "100% %, % %");
    }

    #[test]
    fn an_unknown_letter_spoils_the_text() {
        assert_eq!(expand("%5"), Err('5'));
        assert_eq!(expand("%n%z"), Err('z'));
        assert_eq!(expand("%f"), Err('f'));
    }

    #[test]
    fn what_was_inserted_stands_at_the_percent_sign() {
        let (text, has_specifiers) = specifiers().expand(&Mapped::plain(b"a%ib%%c")).unwrap();
        assert_eq!(text.bytes, b"ab%c");
        assert_eq!(text.at, [0, 3, 4, 6]);
        assert!(has_specifiers && !specifiers().expand(&Mapped::plain(b"%%")).unwrap().1);
    }
}
