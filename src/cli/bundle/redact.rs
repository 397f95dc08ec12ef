//! What may leave the machine: every text of a bundle goes through here.
//!
//! Twice: what looks like a secret by its name or its form becomes stars wherever it stands (`kubelet::shown`), and so does
//! whatever the machine is known to keep secret. That is learnt from the files where secrets lie, none of which is in a
//! bundle itself, and found in any text: plain, in base64, as JSON writes it.

use std::{cell::OnceCell, collections::BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde_json::Value;

use super::find::Finder;
use crate::kubelet::shown::{
    few_stars, harmless_lines, hide_in_words, hide_secrets, is_secret_name,
};

/// What stands for a secret.
pub(super) const STARS: &str = "***";
/// Shorter ones would be found in half of all words; where they stand they are still known by their names.
const MIN_SECRET_BYTES: usize = 6;
/// The same, where nothing tells that it is one.
const MIN_VALUE_BYTES: usize = 10;
/// Longer ones are looked for in pieces.
const MAX_SECRET_BYTES: usize = 512;
/// So many forms are kept in mind, and so many bytes of them. A secret has five forms, and [`Finder`] takes 15 bytes for
/// each byte of theirs: 12 MiB. A control plane with its keys and kubeconfigs has some 300 KiB.
const MAX_SECRETS: usize = 16 * 1024;
const MAX_FORMS_BYTES: usize = 768 << 10;
/// Longer ones are not read as JSON: it takes many times as much memory meanwhile.
const MAX_JSON_BYTES: usize = 128 << 10;
/// Below these keys every value is a secret, whatever its name: a registry's credentials, the headers of a request.
const SECRET_BRANCHES: &[&str] = &["auth", "auths", "header", "headers", "staticPodURLHeader"];

/// Takes secrets out of texts.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    secrets: BTreeSet<String>,
    /// All of them together.
    bytes: usize,
    /// Made of them when it is first needed.
    finder: OnceCell<Finder>,
    /// Whether there were more than are kept in mind.
    is_full: bool,
}

impl Redactor {
    /// How many forms of secrets are known.
    pub(super) fn known(&self) -> usize {
        self.secrets.len()
    }

    /// Whether there were more than are kept in mind.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Learns what a text keeps secret by names and forms.
    pub(super) fn learn_text(&mut self, text: &str) {
        let hidden = hide_secrets(text);
        let mut run = String::new();
        for (plain, shown) in text.chars().zip(hidden.chars().chain(['\0'])) {
            if shown == '*' && plain != '\n' {
                run.push(plain);
            } else if !run.is_empty() {
                self.learn(&std::mem::take(&mut run));
            }
        }
        self.learn(&run);
    }

    /// Learns every line of a file that holds nothing else: a token, a key.
    pub(super) fn learn_lines(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with("-----")) {
            self.learn(line);
        }
    }

    /// Learns what a file with credentials has beside what names tell: the environment of an exec plugin, an argument below
    /// the one that names it, a user's name and a registry's `auth`.
    ///
    /// # Errors
    /// When it was too long for that: then what is secret in it is not known.
    pub(super) fn learn_credentials(&mut self, text: &str) -> Result<(), String> {
        self.learn_text(text);
        // JSON on one line has no lines to go by.
        let is_json = text.trim_start().starts_with(['{', '[']);
        let is_too_long = is_json && text.len() > MAX_JSON_BYTES;
        let json = (is_json && !is_too_long).then(|| serde_json::from_str(text).ok());
        let json: Option<Value> = json.flatten();
        let json = json.and_then(|json| serde_json::to_string_pretty(&json).ok());
        let text = json.as_deref().unwrap_or(text);
        let mut is_next = false; // what follows an item `--token`
        for line in text.lines() {
            let item = line.trim().strip_prefix("- ");
            let line = item.unwrap_or(line.trim()).trim_end_matches(',');
            let unquoted = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
            if std::mem::take(&mut is_next) {
                self.learn(&unquoted(line));
            }
            let word = unquoted(line);
            is_next = (item.is_some() || line.starts_with('"'))
                && word.starts_with("--")
                && is_secret_name(&word);
            let pair = line.split_once(':').or_else(|| line.split_once('='));
            if let Some((key, value)) = pair
                && ["value", "auth", "username"].contains(&unquoted(key).as_str())
            {
                self.learn(&unquoted(value));
            }
        }
        if is_too_long {
            return Err(format!("is longer than {MAX_JSON_BYTES} bytes, for JSON"));
        }
        Ok(())
    }

    /// Learns a value of which nothing tells that it is secret: the whole, and where it has several words each of them. Not
    /// what says much and hides little: short words, paths, flags, addresses.
    pub(super) fn learn_value(&mut self, value: &str) {
        let is_address = |word: &str| {
            let is_url = word.contains("://") && !word.contains('@');
            is_url
                || word
                    .chars()
                    .all(|c| c.is_ascii_digit() || ".:/,".contains(c))
        };
        for line in value.lines() {
            for word in line.split_whitespace().chain([line]) {
                let is_plain = word.starts_with(['-', '/']) || is_address(word);
                if word.len() >= MIN_VALUE_BYTES && !is_plain {
                    self.learn(word);
                }
            }
        }
    }

    /// Learns a secret, and how it looks in base64 and in JSON; a long one piece by piece.
    pub(super) fn learn(&mut self, secret: &str) {
        let mut rest = secret.trim().trim_end_matches('=');
        while rest.len() > MAX_SECRET_BYTES + MIN_SECRET_BYTES {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_SECRET_BYTES));
            self.learn_piece(piece);
            rest = after;
        }
        self.learn_piece(rest);
    }

    fn learn_piece(&mut self, secret: &str) {
        if secret.len() < MIN_SECRET_BYTES || secret.chars().all(|c| c == '*') {
            return;
        }
        // Within a longer text it may begin at any of three places of a group; its own characters are those in the middle.
        for before in 0..3 {
            let mut bytes = vec![0; before];
            bytes.extend_from_slice(secret.as_bytes());
            let whole = bytes.len() / 3 * 4;
            let from = if before == 0 { 0 } else { 4 };
            let encoded = STANDARD_NO_PAD.encode(bytes);
            self.keep(encoded.get(from..whole).unwrap_or_default());
        }
        let quoted = Value::from(secret).to_string();
        self.keep(quoted.trim_matches('"'));
        self.keep(secret);
    }

    fn keep(&mut self, form: &str) {
        if form.len() < MIN_SECRET_BYTES || self.secrets.contains(form) {
            return;
        }
        if self.secrets.len() >= MAX_SECRETS || self.bytes + form.len() > MAX_FORMS_BYTES {
            self.is_full = true;
        } else {
            self.bytes += form.len();
            self.secrets.insert(form.to_owned());
            self.finder.take();
        }
    }

    /// A text that may be shown: it steers no terminal either.
    pub(super) fn text(&self, text: &str) -> String {
        let hidden = hide_secrets(&self.without_known(text));
        few_stars(&harmless_lines(&hidden))
    }

    /// Every occurrence is looked for in the text as it is: where two overlap, both are hidden whole.
    fn without_known(&self, text: &str) -> String {
        let secrets = self.secrets.iter().map(String::as_str);
        let finder = self.finder.get_or_init(|| Finder::new(secrets));
        let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
        for found in finder.find(text) {
            shown += &text[end..found.start];
            shown += STARS;
            end = found.end;
        }
        shown + &text[end..]
    }

    /// A document that may be shown: by its keys, and each text in it as [`Redactor::text`] has it.
    pub(super) fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => {
                let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
                if let Some(words) = words {
                    *items = hide_in_words(words).into_iter().map(Value::from).collect();
                }
                for item in items {
                    self.json(item);
                }
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    let is_branch = key.split('.').any(|part| SECRET_BRANCHES.contains(&part));
                    if is_branch || is_secret_name(key) {
                        hide_below(value);
                    } else {
                        self.json(value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Every value below becomes stars; what has no content stays, and where it comes from.
fn hide_below(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_below),
        Value::Object(fields) => {
            for (key, value) in fields {
                if !["from", "at", "source", "referenced_at"].contains(&key.as_str()) {
                    hide_below(value);
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
        value => *value = STARS.into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn knowing(secret: &str) -> Redactor {
        let mut redactor = Redactor::default();
        redactor.learn(secret);
        redactor
    }

    #[test]
    fn what_is_known_is_found_in_any_text() {
        let redactor = knowing("wombat of\"the yard");
        assert_eq!(redactor.text("a wombat of\"the yard, b"), "a ***, b");
        assert_eq!(
            redactor.text(r#"{"a":"wombat of\"the yard"}"#),
            r#"{"a":"***"}"#
        );
        let mut redactor = Redactor::default();
        let learnt = redactor.learn_credentials(r#"{"users":[{"user":{"exec":{"args":["--secret","wombat of"],"env":[{"name":"A","value":"dingo of"}]}}}]}"#);
        assert_eq!(learnt, Ok(()));
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_JSON_BYTES));
        assert!(redactor.learn_credentials(&long).is_err());
        assert_eq!(redactor.text("dingo of, wombat of"), "***, ***");
        assert_eq!(knowing("short").known(), 0);
    }

    #[test]
    fn that_there_were_more_is_said() {
        let mut redactor = Redactor::default();
        let mut learnt = 0;
        while !redactor.is_full() {
            learnt += 1;
            redactor.learn(&format!("wombat number {learnt:06}"));
        }
        let known = redactor.known();
        assert!(
            known <= MAX_SECRETS && redactor.bytes <= MAX_FORMS_BYTES,
            "{known}"
        );
        let first = redactor.text("wombat number 000001");
        assert_eq!(first, STARS);
        redactor.learn("wombat number 000001");
        assert_eq!(redactor.known(), known);
    }

    #[test]
    fn what_hides_little_is_not_learnt() {
        let mut redactor = Redactor::default();
        redactor.learn_value("external --cloud-provider=external /var/lib/kubelet https://api.example:6443 10.100.200.300");
        let text = "external /var/lib/kubelet https://api.example:6443 10.100.200.300";
        assert_eq!(redactor.text(text), text);
    }

    #[test]
    fn a_document_is_masked_by_its_keys() {
        let mut value = json!({
            "token": "a", "list": ["--password", "b"], "authentication": {"x509": "c"},
            "r": {"auth": {"user": "d", "n": 5, "no": null}}, "staticPodURLHeader.X": {"value": ["e"], "from": "f:1"},
        });
        Redactor::default().json(&mut value);
        assert_eq!(
            value,
            json!({
                "token": "***", "list": ["--password", "*"], "authentication": {"x509": "c"},
                "r": {"auth": {"user": "***", "n": "***", "no": null}}, "staticPodURLHeader.X": {"value": ["***"], "from": "f:1"},
            })
        );
    }

    proptest! {
        #[test]
        fn a_secret_is_found_in_base64_wherever_it_begins(
            secret in "[a-z]{12,40}", before in "[ -~]{0,7}", after in "[ -~]{0,7}",
        ) {
            let redactor = knowing(&secret);
            let plain = STANDARD_NO_PAD.encode(format!("{before}{secret}{after}"));
            let shown = redactor.text(&format!("x {plain} y"));
            prop_assert!(shown.contains(STARS), "{}", shown);
            // Of a secret at least what stands between its first and last two characters is gone.
            for start in 0..3 {
                let inner = STANDARD_NO_PAD.encode(&secret.as_bytes()[start..start + 9]);
                prop_assert!(!shown.contains(&inner), "{} in {}", inner, shown);
            }
        }

        #[test]
        fn a_long_secret_leaves_nothing(length in 500_usize..3000) {
            let secret: String = ('a'..='z').cycle().take(length).collect();
            let shown = knowing(&secret).text(&format!("key {secret} end"));
            prop_assert_eq!(shown, "key *** end");
        }
    }
}
