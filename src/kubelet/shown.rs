//! Text that may be shown: it steers no terminal, and secrets in it are stars.

/// What a word of a certificate or key in base64 has at least; a container's id and a digest have no capitals.
const OPAQUE_CHARS: usize = 40;
/// A signed token (JWT) begins so: `{"` in base64.
const SIGNED_TOKEN: &str = "eyJ";
/// A bootstrap token is `ID.SECRET`, so many characters each.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);

/// The text without what steers a terminal; the same number of characters.
pub fn harmless(text: &str) -> String {
    text.chars().map(harmless_char).collect()
}

fn harmless_char(c: char) -> char {
    match c {
        '\t' => ' ',
        // The pictures of the control characters: ␊, ␍, ␛, ….
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{FFFD}'),
        '\x7f' => '\u{2421}',
        // C1; soft hyphen; zero width and direction marks; line and paragraph separators; byte order mark.
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => '\u{FFFD}',
        c => c,
    }
}

/// The text with secrets as stars, as many as they had characters: the values of passwords, tokens and keys, what stands
/// behind `Bearer` and `Basic`, PEM blocks, tokens and keys that are known by their looks.
pub fn hide_secrets(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut hidden = chars.clone();
    let mut hide = |range: std::ops::Range<usize>| {
        for star in hidden.get_mut(range).into_iter().flatten() {
            *star = '*';
        }
    };
    let mut start = 0;
    while start < chars.len() {
        if !is_name(chars[start]) {
            start += 1;
            continue;
        }
        let end = run(&chars, start, is_name);
        let name: String = chars[start..end].iter().collect();
        start = end;
        hide(value_after(&chars, end, &name));
    }
    for range in by_looks(&chars) {
        hide(range);
    }
    hide_pem(&chars, hide);
    hidden.into_iter().collect()
}

/// Where the secret value stands that follows `name`, if it names one.
fn value_after(chars: &[char], end: usize, name: &str) -> std::ops::Range<usize> {
    // http://user:password@host, http://token@host
    if chars.get(end..end + 3) == Some(&[':', '/', '/']) {
        let from = end + 3;
        let to = run(chars, from, |c| !c.is_whitespace() && !"/@'\"".contains(c));
        return if chars.get(to) == Some(&'@') {
            from..to
        } else {
            0..0
        };
    }
    // Authorization: Bearer abc
    if ["bearer", "basic"].contains(&name.to_ascii_lowercase().as_str()) {
        return value_at(chars, run(chars, end, |c| c == ' '));
    }
    if !is_secret_name(name) {
        return 0..0;
    }
    let after_name = run(chars, end, |c| " '\"\\".contains(c));
    match chars.get(after_name) {
        Some('=' | ':') => value_at(chars, run(chars, after_name + 1, |c| c == ' ')),
        _ if name.starts_with("--") => value_at(chars, next_word(chars, end)),
        _ => 0..0,
    }
}

/// Where the word begins that follows a flag: `--token abc`, and over the end of a line `'--token' \` and `'abc'`. The end of
/// the text if it is a flag itself.
fn next_word(chars: &[char], end: usize) -> usize {
    let quotes = run(chars, end, |c| "'\"".contains(c));
    let from = run(chars, quotes, |c| " \t\r\n\\".contains(c));
    let first = run(chars, from, |c| "'\"".contains(c));
    if from == quotes || chars.get(first) == Some(&'-') {
        chars.len()
    } else {
        from
    }
}

/// The words of a command line, each with its secrets as stars: [`hide_secrets`], and the word that follows `--token`.
pub fn hide_in_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut is_value = false;
    let hide = |word: &'a str| {
        let hidden = if is_value && !word.starts_with('-') {
            "*".repeat(word.chars().count())
        } else {
            hide_secrets(word)
        };
        is_value = word.starts_with("--") && !word.contains('=') && is_secret_name(word);
        hidden
    };
    words.into_iter().map(hide).collect()
}

/// Stars tell that a secret was there; how long it was is nobody's business.
pub fn few_stars(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut stars = 0;
    for c in text.chars() {
        stars = if c == '*' { stars + 1 } else { 0 };
        if stars <= 3 {
            out.push(c);
        }
    }
    out
}

/// The value that begins there: what the quotes hold, or a word.
fn value_at(chars: &[char], start: usize) -> std::ops::Range<usize> {
    let from = run(chars, start, |c| c == '\\');
    match chars.get(from) {
        Some(quote @ ('"' | '\'')) => {
            let from = run(chars, from, |c| c == '"' || c == '\'');
            from..run(chars, from, |c| c != *quote && c != '\\' && c != '\n')
        }
        _ => from..run(chars, from, |c| !c.is_whitespace() && !"\"'".contains(c)),
    }
}

/// Words that are secrets whatever stands before them.
fn by_looks(chars: &[char]) -> Vec<std::ops::Range<usize>> {
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
    let plain = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    word.split_once('.').is_some_and(|(id, secret)| {
        (id.len(), secret.len()) == BOOTSTRAP_TOKEN && plain(id) && plain(secret)
    })
}

/// Long runs of base64 within a word.
fn opaque(chars: &[char], start: usize, end: usize) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut from = start;
    while from < end {
        let to = run(&chars[..end], from, |c| {
            c.is_ascii_alphanumeric() || "+/=".contains(c)
        });
        let part = &chars[from..to];
        let has = |is: fn(&char) -> bool| part.iter().any(is);
        if part.len() >= OPAQUE_CHARS
            && has(char::is_ascii_lowercase)
            && has(char::is_ascii_uppercase)
            && has(char::is_ascii_digit)
        {
            found.push(from..to);
        }
        from = to + 1;
    }
    found
}

/// From `-----BEGIN …` to the end of `-----END …-----`, or of the text.
fn hide_pem(chars: &[char], mut hide: impl FnMut(std::ops::Range<usize>)) {
    let find = |what: &str, from: usize| {
        let what: Vec<char> = what.chars().collect();
        let found = chars
            .get(from..)?
            .windows(what.len())
            .position(|w| w == what);
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

/// The end of the run of such characters that starts at `from`.
fn run(chars: &[char], from: usize, is: impl Fn(char) -> bool) -> usize {
    let rest = chars.get(from..).unwrap_or_default();
    from.min(chars.len()) + rest.iter().take_while(|c| is(**c)).count()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Whether a variable or a key of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    const ENDS: &[&str] = &[
        "token",
        "password",
        "passwd",
        "passphrase",
        "secret",
        "apikey",
        "accesskey",
        "secretkey",
        "privatekey",
        "keydata",
    ];
    let name: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_become_stars_of_the_same_width() {
        for (text, wanted) in [
            ("K3S_TOKEN=K10ab::c", "K3S_TOKEN=********"),
            ("token: \"abc\"", "token: \"***\""),
            (
                "Environment=\"A=1\" \"K3S_TOKEN=x y\"",
                "Environment=\"A=1\" \"K3S_TOKEN=* y\"",
            ),
            (
                "http_proxy=http://me:pw@proxy:3128/",
                "http_proxy=http://*****@proxy:3128/",
            ),
            ("\"password\": \"abc\",", "\"password\": \"***\","),
            ("password='two words' x", "password='*********' x"),
            (
                "--authentication-token-webhook=true --token-file=/x",
                "--authentication-token-webhook=true --token-file=/x",
            ),
            ("--token=abc --v=2", "--token=*** --v=2"),
            ("--token abc --v=2", "--token *** --v=2"),
            ("--token --v=2", "--token --v=2"),
            (
                "k3s \\\n\tagent \\\n\t'--token' \\\n\t'abc' \\\n\t'--v=2'",
                "k3s \\\n\tagent \\\n\t'--token' \\\n\t'***' \\\n\t'--v=2'",
            ),
            ("\"--token\" \"--v=2\"", "\"--token\" \"--v=2\""),
            ("https://ghp@github.com/a", "https://***@github.com/a"),
            ("the token is good", "the token is good"),
            ("see http://example.org:80/a", "see http://example.org:80/a"),
            ("TOKEN", "TOKEN"),
            ("é token=ü", "é token=*"),
            ("Authorization: Bearer abc.d", "Authorization: Bearer *****"),
            (
                r#"err="body {\"token\":\"abc\"}""#,
                r#"err="body {\"token\":\"***\"}""#,
            ),
            ("client-key-data: abc", "client-key-data: ***"),
            ("x eyJhbGciOi.eyJz y", "x *************** y"),
            (
                "join abcdef.0123456789abcdef",
                "join abcdef.****************",
            ),
            (
                "a -----BEGIN K-----\nab\n-----END K----- b",
                "a ************************************ b",
            ),
            ("a -----BEGIN K-----ab", "a *******************"),
        ] {
            assert_eq!(hide_secrets(text), wanted);
        }
    }

    #[test]
    fn the_word_after_a_flag_of_a_secret_is_one() {
        let words = [
            "k3s",
            "--token",
            "K10ab",
            "--token-file",
            "/x",
            "--password=ab",
        ];
        let hidden = [
            "k3s",
            "--token",
            "*****",
            "--token-file",
            "/x",
            "--password=**",
        ];
        assert_eq!(hide_in_words(words), hidden);
        assert_eq!(hide_in_words(["--token", "--v=2"]), ["--token", "--v=2"]);
        let words = ["--token=my-token", "agent"];
        assert_eq!(hide_in_words(words), ["--token=********", "agent"]);
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            r#"run.go:74] "command failed" err="failed to parse kubelet flag: unknown flag: --no-such-flag""#,
            "open /var/lib/kubelet/config.yaml: no such file or directory",
            "container 5f2c8d1e9a7b4c3d2e1f0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b0c9d",
            "pod \"coredns-5d78c9869d-abcde\" node.kubernetes.io/not-ready:NoSchedule",
        ] {
            assert_eq!(hide_secrets(text), text);
        }
    }

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(
            harmless("a\x1b[31mb\tc\u{202e}d\r\0é"),
            "a\u{241b}[31mb c\u{fffd}d\u{240d}\u{2400}é"
        );
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_columns(text in ".*") {
            let shown = harmless(&hide_secrets(&text));
            prop_assert_eq!(shown.chars().count(), text.chars().count());
        }

        #[test]
        fn no_secret_is_shown_wherever_it_stands(
            before in "[ -~]{0,40}",
            secret in "[A-Z][a-z][0-9][A-Za-z0-9]{9,40}",
            after in "( [ -~]{0,40})?",
            place in 0_usize..9,
        ) {
            let (open, close) = [
                ("token=", ""),
                ("--token ", ""),
                ("password: \"", "\""),
                ("K3S_TOKEN='", "'"),
                ("Authorization: Bearer ", ""),
                ("https://user:", "@host/"),
                ("-----BEGIN RSA PRIVATE KEY-----\n", "\n-----END RSA PRIVATE KEY-----"),
                ("eyJ", ".abc"),
                ("{\\\"clientSecret\\\":\\\"", "\\\"}"),
            ][place];
            let text = format!("{before} {open}{secret}{close}{after}");
            let shown = hide_secrets(&text);
            prop_assert!(!shown.contains(&secret), "{} in {}", secret, shown);
        }
    }
}
