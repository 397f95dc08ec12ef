//! Secrets in text: regular expressions for what comes before them, and four kinds that are recognised by their form.
//!
//! Expressions are run on the text's bytes, for which they need no tables of Unicode. They are compiled at the first text that
//! may hold a secret: to compile them takes longer than all else that `nodevigil check` does.

use std::ops::Range;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Where a secret may be. `<name>`, `<value>` and the like are replaced by the expressions in [`PARTS`].
pub(super) struct Place {
    /// What comes before the secret, in upper or lower case.
    before: &'static str,
    /// What follows it. The group that matches is the secret; an alternative without a group is for what is no secret.
    then: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the reader, and for the tests"))]
    pub(super) example: &'static str,
}

/// Of several that match from the same character, the first one counts.
pub(super) const PLACES: &[Place] = &[
    Place {
        before: r"[\w-]+://",
        then: r"(?x)
            [^@<end>/?\#]* @sha256:[0-9a-f]{64}  # the digest of an image
            | ([^<end>/?\#]*) @                  # a user, and a password
            # A slash in the password, though none should be: what follows the last colon is no port, and the host no IPv6 address.
            | ([^<end>/?\#\[]* : [^<end>/?\#\[:]* [^<end>/?\#\[:0-9] [^<end>/?\#\[:]* [/?\#] [^<end>]{0,255}) @",
        example: "https://user:S3cretS3cretS3cret@host:6443/path",
    },
    Place {
        before: r#"authorization[ '"\\]*[=:][ '"\\\[]*(?:basic|bearer|digest|negotiate|ntlm|token) +\\*"#,
        then: "<value>",
        example: "Authorization: Negotiate S3cretS3cretS3cret",
    },
    Place {
        before: r#"authorization[ '"\\]*[=:][ '"\\\[]*"#,
        then: "<random>",
        example: r#"{"authorization": "S3cretS3cretS3cret"}"#,
    },
    Place { before: r"basic +\\*", then: "<random>", example: "sent Basic S3cretS3cretS3cret" },
    // Not the next word of a sentence, nor punctuation.
    Place {
        before: r"bearer +\\*",
        then: r#"["']*[^\s\w"']{0,3}(?i:<ordinary>)[^\s\w]{0,3}(?:\s|$)|["']*(?i:realm)=|[^\s\w"']{1,3}(?:\s|$)|<value>"#,
        example: "sent Bearer S3cretS3cretS3cret",
    },
    // A parameter of a URL, which may be in JSON or within another URL.
    Place {
        before: r"(?:[?&;]|\\u0026|\\u003f|%26|%3f)(?:key|pass|pwd|auth|awsaccesskeyid|<name>|<signature>)(?:=|%3d)",
        then: r"([^<end>&\\#]*)",
        example: "https://host/?sv=1&sig=S3cretS3cretS3cret&se=2",
    },
    Place {
        before: r#"<name>[ '"\\]*[=:] *\\*"#,
        then: "<placeholder>|<value>",
        example: r#""password": "S3cretS3cretS3cret""#,
    },
    // The value of a flag, also on the next line; not the next flag.
    Place {
        before: r#"\b{start-half}-<name>['"]*[ \t\r\n\\]+"#,
        then: r#"["']*-|<placeholder>|<value>"#,
        example: "--token S3cretS3cretS3cret",
    },
    // A variable that holds no secret, whatever the rest of its name says.
    Place { before: r"\b{start-half}(?-i:(?:[A-Z0-9_]*_)?(?:<about>)=)", then: "", example: "TOKEN_FILE=/run/token" },
    Place {
        before: r"\b{start-half}(?-i:[A-Z0-9_]*(?:<part>)[A-Z0-9_]*|(?:[A-Z0-9_]*_)?(?:API)?KEYS?(?:_[A-Z0-9_]*)?)=\\*",
        then: "<placeholder>|<value>",
        example: "SSH_KEY=S3cretS3cretS3cret",
    },
    // The same names have other values too, but a signature has at least 16 characters.
    Place {
        before: r"<signature>=\\*",
        then: r#"["']*[^\s"']{1,15}(?:[\s"']|$)|<value>"#,
        example: "Credential=S3cretS3cretS3cret/2026",
    },
];

/// What [`PLACES`] have in common, or what is too long to be read there. One that has another in it comes before that one.
const PARTS: &[(&str, &str)] = &[
    // The name of a flag, a key or a variable.
    ("<name>", r"[\w-]*(?:token|secret|pass[_-]*(?:word|wd|phrase)|key[_-]*data|<keys>[_-]*key)[_-]*"),
    ("<keys>", "(?:api|access|account|auth|encryption|secret|shared|private)"),
    ("<signature>", r"[\w-]*(?:sig|signature|credential)[_-]*"),
    // Anywhere in the name of a variable.
    ("<part>", "TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL"),
    // The last word in the name of a variable that says where a secret is, or something about it, or holds flags. The flags
    // have names of their own.
    ("<about>", "ARGS|OPTS|FLAGS|OPTIONS|FILES?|PATH|DIR|FOLDER|NAME|URL|TTL|TIMEOUT|MODE|TYPE|ENABLED"),
    // What is in quotes, or a word.
    ("<value>", r#"(?:"["']*([^"\\\n]*)|'["']*([^'\\\n]*)|([^\s"']*))"#),
    // A word that is long, or has what base64 has and words have not: digits, capitals after the first letter, signs. Or a star,
    // which is what a secret was replaced by before.
    ("<random>", r#"["']*([\w+/=~*.-](?:[\w+/=~*.-]{19}|[\w+/=~*.-]*[A-Z0-9+/=_~*])[^\s"']*)"#),
    // What follows `Bearer` in sentences.
    ("<ordinary>", "auth|authentication|authenticator|authorization|credentials?|header|is|scheme|tokens?|was"),
    // What a sentence has in place of a value: `KEY=VALUE`.
    ("<placeholder>", r#"["']*VALUE[^\s\w]*(?:\s|$)"#),
    // Within brackets: what ends a URL.
    ("<end>", r#"\s"'<>`"#),
];

struct Compiled {
    /// One pattern for each of [`PLACES`].
    before: DFA,
    cache: Mutex<dfa::Cache>,
    /// One expression for each of [`PLACES`], compiled when its pattern first matches.
    then: Vec<OnceLock<PikeVM>>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let befores: Vec<String> = PLACES.iter().map(|place| whole(&format!("(?i){}", place.before))).collect();
    let before = DFA::builder().syntax(syntax()).build_many(&befores).expect(CONSTANT);
    let cache = Mutex::new(before.create_cache());
    Compiled { before, cache, then: PLACES.iter().map(|_| OnceLock::new()).collect() }
});

const CONSTANT: &str = "the patterns are constants, which the tests compile";

/// The pattern with its [`PARTS`].
fn whole(pattern: &str) -> String {
    PARTS.iter().fold(pattern.to_owned(), |all, (part, is)| all.replace(part, is))
}

fn syntax() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

/// The text with secrets as stars, as many as they had characters: the values of passwords, tokens and keys, what follows
/// `Bearer` and `Basic`, users in URLs, signatures of presigned URLs, PEM blocks, tokens and keys that are recognised by
/// their form.
pub fn hide_secrets(text: &str) -> String {
    let mut secrets = secrets_by_looks(text);
    if may_have_places(text) {
        secrets.extend(secrets_in_places(text.as_bytes()));
    }
    if secrets.is_empty() {
        return text.to_owned();
    }
    let mut is_hidden = vec![false; text.len()];
    for secret in secrets {
        is_hidden[secret].fill(true);
    }
    text.char_indices().map(|(at, c)| if is_hidden[at] { '*' } else { c }).collect()
}

/// Whether one of [`PLACES`] may be in the text. This needs no expression, and most texts have none.
pub(super) fn may_have_places(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_place = |run: Range<usize>| {
        let (word, rest) = (&lower[run.clone()], &lower[run.end..]);
        let has = |parts: &[&str]| parts.iter().any(|part| word.contains(part));
        let is_assigned = |by: &[char]| {
            let value = rest.trim_start_matches([' ', '\'', '"', '\\']).strip_prefix(by);
            let value = value.map(|value| value.trim_start_matches([' ', '\'', '"', '\\']));
            value.is_some_and(|value| !value.is_empty() && !value.starts_with('\n'))
        };
        let is_flag = word.starts_with('-') || word.contains("--");
        let is_header = word.ends_with("auth") || word.ends_with("authorization");
        (word.ends_with("basic") || word.ends_with("bearer")) && rest.starts_with(' ')
            || has(&["token", "secret", "pass", "pwd", "key"]) && (is_flag || is_assigned(&[':', '=', '%']))
            || is_header && is_assigned(&[':', '=', '%'])
            || has(&["sig", "credential"]) && is_assigned(&['=', '%'])
    };
    let words = runs(lower.as_bytes(), |byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    lower.contains("://") && lower.contains('@') || words.filter(|run| !run.is_empty()).any(is_place)
}

pub(super) fn secrets_in_places(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut secrets = Vec::new();
    let mut cache = COMPILED.cache.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = |from| {
        let found = COMPILED.before.try_search_fwd(&mut cache, &Input::new(bytes).range(from..));
        found.expect("only a DFA with quit bytes or a limit on its cache gives up, and this one has neither")
    };
    let mut from = 0;
    // Where the last word ends that was hidden in such a place. In `token=token=…` each value ends where the first one does:
    // without this the time would grow with the square of the length.
    let mut ends = vec![0; PLACES.len()];
    while let Some(before) = next(from) {
        from = before.offset();
        let place = before.pattern().as_usize();
        if from < ends[place] {
            continue;
        }
        let then = COMPILED.then[place]
            .get_or_init(|| PikeVM::builder().syntax(syntax()).build(&whole(PLACES[place].then)).expect(CONSTANT));
        let mut groups = then.create_captures();
        let input = Input::new(bytes).range(from..).anchored(Anchored::Yes);
        then.captures(&mut then.create_cache(), input, &mut groups);
        let Some(secret) = groups.iter().skip(1).flatten().next() else { continue };
        if secret.start == from {
            ends[place] = secret.end;
        }
        secrets.push(secret.range());
    }
    secrets
}

/// The second halves of bootstrap tokens (`abcdef.0123456789abcdef`), signed tokens (JWT), PEM blocks, and base64 of a
/// certificate or a key: 40 characters or more, and neither a path, whose directories have shorter names, nor a container's
/// id or digest, which has no capitals.
fn secrets_by_looks(text: &str) -> Vec<Range<usize>> {
    const BETWEEN_SLASHES: usize = 20;
    /// Base64 of `{"`.
    const SIGNED: &[u8] = b"eyJ";
    let bytes = text.as_bytes();
    let is_random = |part: &[u8]| {
        let has = |is: fn(&u8) -> bool| part.iter().any(is);
        part.len() >= BETWEEN_SLASHES
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_digit)
    };
    let is_base64 = |run: &Range<usize>| run.len() >= 40 && bytes[run.clone()].split(|b| *b == b'/').any(is_random);
    let words = || runs(bytes, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_token = |(id, secret): &(Range<usize>, Range<usize>)| {
        id.len() == 6 && secret.len() == 16 && bytes[id.end..secret.start] == *b"."
    };
    let tokens = words().zip(words().skip(1)).filter(is_token).map(|(_, secret)| secret);
    let base64 = runs(bytes, |byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)).filter(is_base64);
    let dotted = runs(bytes, |byte| byte.is_ascii_alphanumeric() || b"+/=_.-".contains(&byte));
    let signed = dotted.filter_map(|run| {
        let start = run.start + bytes[run.clone()].windows(SIGNED.len()).position(|part| part == SIGNED)?;
        (run.end - start >= 7).then_some(start..run.end)
    });
    base64.chain(tokens).chain(signed).chain(pem_blocks(text)).collect()
}

/// From `-----BEGIN` to the dashes after `-----END`, or to the end of the text.
fn pem_blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some(begin) = text[from..].find("-----BEGIN") {
        let start = from + begin;
        let end_of = |at: usize, part: &str| text[at..].find(part).map(|found| at + found + part.len());
        from = end_of(start, "-----END").and_then(|end| end_of(end, "-----")).unwrap_or(text.len());
        blocks.push(start..from);
    }
    blocks
}

/// Where such bytes follow one another.
fn runs(bytes: &[u8], is: fn(u8) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut next = 0;
    bytes.split(move |byte| !is(*byte)).map(move |run| {
        let start = next;
        next += run.len() + 1;
        start..start + run.len()
    })
}

/// Whether a flag or a key of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    hide_secrets(&format!("{name}:x")).ends_with('*')
}

/// Whether a variable of this name, as an environment file sets it, holds a secret.
pub fn is_secret_variable(name: &str) -> bool {
    hide_secrets(&format!("{}=x", name.to_ascii_uppercase())).ends_with('*')
}
