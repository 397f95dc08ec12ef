//! What takes secrets out of a text. It must find the one that is planted, and cost no more than the text is long.

use nodevigil::{cli::bundle::redacted, kubelet::shown};

/// A secret that is put into the input.
const PLANTED: &str = "Wombat7inTheYard";
/// Of an input that begins with this, the text is repeated: what costs more than the text is long does so then.
const REPEATED: u8 = b'*';
const TIMES: usize = 64;

/// A file with credentials, and a text for a bundle (a NUL NUL parts them).
pub fn redactor(bytes: &[u8]) {
    let (times, bytes) = match bytes {
        [REPEATED, rest @ ..] => (TIMES, rest),
        bytes => (1, bytes),
    };
    let middle = bytes.windows(2).position(|pair| pair == [0, 0]);
    let (credentials, text) = bytes.split_at(middle.unwrap_or(0));
    let credentials = String::from_utf8_lossy(credentials);
    let text = String::from_utf8_lossy(text).repeat(times);
    let text = format!("{text}{PLANTED}{text}");
    let shown = redacted(PLANTED, &credentials, &text);
    assert!(!shown.contains(PLANTED), "{shown:?}");
    // A control character's picture has three bytes, as the stars of the shortest secret have.
    assert!(
        shown.len() <= 3 * text.len(),
        "{} of {}",
        shown.len(),
        text.len()
    );
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!shown.contains(steers), "{shown:?}");
}

/// A text that is to be shown.
pub fn hide_secrets(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // libFuzzer makes inputs of what it sees compared: in such a one it may stand where nothing tells that it is secret.
    if text.contains(PLANTED) {
        return;
    }
    let shown = shown::hide_secrets(&text);
    assert_eq!(shown.chars().count(), text.chars().count());
    let is_kept_or_star = |(before, after): (char, char)| after == before || after == '*';
    assert!(text.chars().zip(shown.chars()).all(is_kept_or_star));
    for planted in [
        format!("{text}\n--token={PLANTED}"),
        format!("{text}\npassword: \"{PLANTED}\""),
        format!("{text}\nAuthorization: Bearer {PLANTED}"),
        format!("{text}\nhttps://user:{PLANTED}@example.com/"),
        format!("{text}\nclient-key-data: {PLANTED}\n{text}"),
    ] {
        let shown = shown::hide_secrets(&planted);
        assert!(!shown.contains(PLANTED), "{shown:?}");
    }
    let short = shown::few_stars(&shown::harmless(&shown));
    assert!(short.len() <= 3 * text.len() && !short.contains("****"));
    assert_eq!(
        shown::few_stars(&shown::harmless(&short)),
        short,
        "twice is once"
    );
}
