//! Secrets in text: regular expressions for what stands before them, and for those that are known by their looks.
//!
//! The text is bytes to them, so that they need no Unicode tables; all that they match ends before an ASCII character.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// A place where secrets stand. `<name>`, `<value>` and the like are the expressions of [`PARTS`].
pub(super) struct Place {
    /// What stands before the secret, in whatever case.
    before: &'static str,
    /// What follows: the group that matches is the secret. An alternative without a group is for what is none.
    then: &'static str,
    /// The secret in it is `S3cretS3cretS3cret`.
    pub(super) example: &'static str,
}

/// The first one that matches counts, where several begin at the same character.
pub(super) const PLACES: &[Place] = &[
    // The digest of an image; a user in a URL; one whose password has a slash in it, though none should.
    Place {
        before: r"[\w-]+://",
        then: r#"^(?:[^@<end>/?#]*@sha256:[0-9a-f]{64}|([^<end>/?#]*)@|([^<end>/?#\[]*:[^<end>/?#\[:]*[^<end>/?#\[:0-9][^<end>/?#\[:]*[/?#][^<end>]{0,255})@)"#,
        example: "https://user:S3cretS3cretS3cret@host:6443/path",
    },
    Place {
        before: r#"authorization[ '"\\]*[=:][ '"\\\[]*(?:basic|bearer|digest|negotiate|ntlm|token) +\\*"#,
        then: "^<value>",
        example: "Authorization: Negotiate S3cretS3cretS3cret",
    },
    Place {
        before: r#"authorization[ '"\\]*[=:][ '"\\\[]*"#,
        then: "^<random>",
        example: r#"{"authorization": "S3cretS3cretS3cret"}"#,
    },
    Place { before: r"basic +\\*", then: "^<random>", example: "sent Basic S3cretS3cretS3cret" },
    // Not the next word of a sentence.
    Place {
        before: r"bearer +\\*",
        then: r#"(?i)^(?:[^\s\w]*(?:auth|authentication|authenticator|authorization|credentials?|header|is|scheme|tokens?|was)?[^\s\w]*(?:\s|$)|["']*realm=|<value>)"#,
        example: "sent Bearer S3cretS3cretS3cret",
    },
    // A parameter of a URL, also of one in JSON or within another URL.
    Place {
        before: r"(?:[?&;]|\\u0026|\\u003f|%26|%3f)(?:key|pass|pwd|auth|awsaccesskeyid|<name>|<signature>)(?:=|%3d)",
        then: r"^([^<end>&\\#]*)",
        example: "https://host/?sv=1&sig=S3cretS3cretS3cret&se=2",
    },
    Place {
        before: r#"<name>[ '"\\]*[=:] *\\*"#,
        then: "^(?:<placeholder>|<value>)",
        example: r#""password": "S3cretS3cretS3cret""#,
    },
    // A flag's value, also on the next line; not the next flag.
    Place {
        before: r#"\b{start-half}-<name>['"]*[ \t\r\n\\]+"#,
        then: r#"^(?:["']*-|<placeholder>|<value>)"#,
        example: "--token S3cretS3cretS3cret",
    },
    // A variable that has where a secret is, or something about it, or flags, whose own names are looked at.
    Place {
        before: r"\b{start-half}(?-i:(?:[A-Z0-9_]*_)?(?:ARGS|OPTS|FLAGS|OPTIONS|FILES?|PATH|DIR|FOLDER|NAME|URL|TTL|TIMEOUT|MODE|TYPE|ENABLED)=)",
        then: "^",
        example: "TOKEN_FILE=/run/token",
    },
    Place {
        before: r"\b{start-half}(?-i:[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)[A-Z0-9_]*|(?:[A-Z0-9_]*_)?(?:API)?KEYS?(?:_[A-Z0-9_]*)?)=\\*",
        then: "^(?:<placeholder>|<value>)",
        example: "SSH_KEY=S3cretS3cretS3cret",
    },
    // In prose these are words as any other; a signature has 16 characters at least.
    Place { before: "<signature>=", then: r#"^(?:["']*[^\s"']{0,15}(?:[\s"']|$)|<value>)"#, example: "Credential=S3cretS3cretS3cret/2026" },
    // A bootstrap token.
    Place { before: r"\b[a-z0-9]{6}\.", then: r"^([a-z0-9]{16})\b", example: "abcdef.0123456789abcdef" },
];

/// What stands in [`PLACES`] for an expression.
const PARTS: &[(&str, &str)] = &[
    (
        "<name>",
        r"[\w-]*(?:token|pass[_-]*(?:word|wd|phrase)|secret|key[_-]*data|(?:api|access|account|auth|encryption|secret|shared|private)[_-]*key)[_-]*",
    ),
    ("<signature>", r"[\w-]*(?:sig|signature|credential)[_-]*"),
    // What quotes hold, or a word.
    ("<value>", r#"(?:"["']*([^"\\\n]*)|'["']*([^'\\\n]*)|([^\s"']*))"#),
    // A word that begins as if a machine made it: with digits or capitals within, or what base64 has beside letters. Or a star,
    // which stands for what was hidden before.
    ("<random>", r#"["']*([\w+/=~*.-](?:[\w+/=~*.-]{19}|[\w+/=~*.-]*[A-Z0-9+/=_~*])[^\s"']*)"#),
    // What a sentence says in place of a value: `KEY=VALUE`.
    ("<placeholder>", r#"["']*VALUE[^\s\w]*(?:\s|$)"#),
    // Within brackets: what ends a URL.
    ("<end>", r#"\s"'<>`"#),
];

/// Secrets that are known by their looks: a signed token (JWT, base64 of `{"`), a PEM block, base64 of a certificate or a key.
const LOOKS: &[&str] =
    &[r"eyJ[\w+/=.-]{4,}", r"(?s)-----BEGIN.*?(?:-----END.*?-----|\z)", "[A-Za-z0-9+/=]{40,}"];

struct Compiled {
    /// All of [`PLACES`]: a group for each.
    before: Regex,
    then: Vec<Regex>,
    looks: Vec<Regex>,
}

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let befores: Vec<String> = PLACES.iter().map(|place| format!("({})", place.before)).collect();
    Compiled {
        before: compile(&format!("(?i){}", befores.join("|"))),
        then: PLACES.iter().map(|place| compile(place.then)).collect(),
        looks: LOOKS.iter().map(|look| compile(look)).collect(),
    }
});

fn compile(pattern: &str) -> Regex {
    let pattern = PARTS.iter().fold(pattern.to_owned(), |pattern, (part, is)| pattern.replace(part, is));
    RegexBuilder::new(&pattern).unicode(false).build().expect("the patterns are constants, which the tests compile")
}

/// The text with secrets as stars, as many as they had characters: the values of passwords, tokens and keys, what stands
/// behind `Bearer` and `Basic`, users in URLs, signatures of presigned URLs, PEM blocks, tokens and keys that are known by
/// their looks.
pub fn hide_secrets(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut is_hidden = vec![false; bytes.len()];
    // In `token=token=…` each value lies in the one before it: none is looked at again and again.
    let mut ends = vec![0; PLACES.len()];
    for found in COMPILED.before.captures_iter(bytes) {
        let Some((place, before)) = found.iter().skip(1).enumerate().find_map(|(at, group)| Some((at, group?))) else {
            continue;
        };
        let from = before.end();
        if from < ends[place] {
            continue;
        }
        let then = COMPILED.then[place].captures(&bytes[from..]);
        let Some(secret) = then.as_ref().and_then(|then| then.iter().skip(1).flatten().next()) else { continue };
        if secret.start() == 0 {
            ends[place] = from + secret.end();
        }
        is_hidden[from..][secret.range()].fill(true);
    }
    for look in &COMPILED.looks {
        for found in look.find_iter(bytes).filter(|found| is_secret(found.as_bytes())) {
            is_hidden[found.range()].fill(true);
        }
    }
    text.char_indices().map(|(at, c)| if is_hidden[at] { '*' } else { c }).collect()
}

/// Whether it is no long path: of those the folders may be in capitals and have numbers, and are shorter. A container's id and
/// a digest have no capitals.
fn is_secret(look: &[u8]) -> bool {
    const BETWEEN_SLASHES: usize = 20;
    let is_random = |part: &[u8]| {
        let has = |is: fn(&u8) -> bool| part.iter().any(is);
        part.len() >= BETWEEN_SLASHES
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_digit)
    };
    look.starts_with(b"eyJ") || look.starts_with(b"-----") || look.split(|byte| *byte == b'/').any(is_random)
}

/// Whether a flag or a key of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    hide_secrets(&format!("{name}:x")).ends_with('*')
}

/// Whether a variable of this name, as an environment file sets it, holds a secret.
pub fn is_secret_variable(name: &str) -> bool {
    hide_secrets(&format!("{}=x", name.to_ascii_uppercase())).ends_with('*')
}
