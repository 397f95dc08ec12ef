//! Secrets that are known by their looks: signed tokens, bootstrap tokens, keys and certificates.

use std::ops::Range;

use super::run;

/// What a word of a certificate or key in base64 has at least; a container's id and a digest have no capitals.
const OPAQUE_CHARS: usize = 40;
/// The same between two slashes, of which a path has more than base64.
const OPAQUE_BETWEEN_SLASHES: usize = 20;
/// A signed token (JWT) begins so: `{"` in base64.
const SIGNED_TOKEN: &str = "eyJ";
/// A bootstrap token is `ID.SECRET`, so many characters each.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);

/// Words that are secrets whatever stands before them.
pub(super) fn by_looks(chars: &[char]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let in_word = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    let mut start = 0;
    while start < chars.len() {
        if !in_word(chars[start]) {
            start += 1;
            continue;
        }
        let end = run(chars, start, in_word);
        let word: String = chars[start..end].iter().collect();
        if let Some(at) = word.find(SIGNED_TOKEN)
            && word.len() - at > 2 * SIGNED_TOKEN.len()
        {
            found.push(start + at..end);
        } else if is_bootstrap_token(&word) {
            found.push(start + BOOTSTRAP_TOKEN.0 + 1..end);
        } else {
            found.extend(opaque(chars, start, end));
        }
        start = end;
    }
    found
}

fn is_bootstrap_token(word: &str) -> bool {
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    word.split_once('.')
        .is_some_and(|(id, secret)| (id.len(), secret.len()) == BOOTSTRAP_TOKEN && plain(id) && plain(secret))
}

/// Long runs of base64 within a word.
fn opaque(chars: &[char], start: usize, end: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = start;
    while from < end {
        let to = run(&chars[..end], from, |c| c.is_ascii_alphanumeric() || "+/=".contains(c));
        let part = &chars[from..to];
        if part.len() >= OPAQUE_CHARS && part.split(|c| *c == '/').any(is_random) {
            found.push(from..to);
        }
        from = to + 1;
    }
    found
}

/// Whether it is mixed as base64 is. A path's folders may be in capitals and have numbers, and are shorter.
fn is_random(part: &[char]) -> bool {
    let has = |is: fn(&char) -> bool| part.iter().any(is);
    part.len() >= OPAQUE_BETWEEN_SLASHES
        && has(char::is_ascii_lowercase)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_digit)
}

/// From `-----BEGIN …` to the end of `-----END …-----`, or of the text.
pub(super) fn hide_pem(chars: &[char], mut hide: impl FnMut(Range<usize>)) {
    let find = |what: &str, from: usize| {
        let what: Vec<char> = what.chars().collect();
        let found = chars.get(from..)?.windows(what.len()).position(|w| w == what);
        found.map(|at| from + at)
    };
    let mut from = 0;
    while let Some(begin) = find("-----BEGIN", from) {
        let end = find("-----END", begin).map(|at| at + "-----END".len());
        let end = end.and_then(|at| Some(find("-----", at)? + "-----".len()));
        let end = end.unwrap_or(chars.len());
        hide(begin..end);
        from = end;
    }
}
