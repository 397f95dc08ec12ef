//! Names whose values are secrets.

/// How such names end, without dashes and the like, in lower case.
const ENDS: &[&str] = &[
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "accesskey",
    "accountkey",
    "authkey",
    "encryptionkey",
    "secretkey",
    "sharedkey",
    "privatekey",
    "keydata",
];
/// Parts of a variable's name, beside [`KEYS`] as whole words of it.
const PARTS: &[&str] = &["token", "secret", "password", "passwd", "passphrase", "credential"];
const KEYS: &[&str] = &["key", "keys", "apikey"];
/// A variable of such a name tells where a secret is, or something about it, or holds flags, whose own names tell.
const ABOUT: &[&str] = &[
    "args", "opts", "flags", "options", "file", "files", "path", "dir", "folder", "name", "url", "ttl", "timeout",
    "mode", "type", "enabled",
];
/// In a URL's query these are secrets, and elsewhere mostly not.
const OF_QUERIES: &[&str] = &["key", "pass", "pwd", "auth", "awsaccesskeyid"];
/// Signatures and what stands beside them, in a presigned URL or a header; in prose these are words as any other.
const OF_SIGNATURES: &[&str] = &["sig", "signature", "credential"];

/// Whether a flag or a key of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = plain(name);
    ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a variable of this name, as an environment file sets it, holds a secret.
pub fn is_secret_variable(name: &str) -> bool {
    if is_secret_name(name) {
        return true;
    }
    let name = name.to_ascii_lowercase();
    let last = name.rsplit('_').next().unwrap_or_default();
    !ABOUT.contains(&last)
        && (PARTS.iter().any(|part| name.contains(part)) || name.split('_').any(|word| KEYS.contains(&word)))
}

/// Whether a parameter of a URL's query holds a secret.
pub(super) fn is_secret_parameter(name: &str) -> bool {
    OF_QUERIES.contains(&plain(name).as_str()) || is_of_signature(name)
}

/// Whether it names a signature, which is as good as a password while it lasts.
pub(super) fn is_of_signature(name: &str) -> bool {
    let name = plain(name);
    OF_SIGNATURES.iter().any(|end| name.ends_with(end))
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}
