//! What leaves the helper: every text of every answer and refusal, without secrets, on one line, bounded.
//!
//! Many of these texts were written by others (logs, programs, files that are wrong), and the agent shows them to the cluster. So
//! they are not made harmless where each is made, of which one would be forgotten, but here, in the line that is sent.

use std::any::type_name;

use serde::{Serialize, de::DeserializeOwned};

use super::protocol::{Credential, VERSION};
use crate::kubelet::shown::told;

/// The longest text; no path of Linux is longer.
const MAX_TEXT_BYTES: usize = 4096;

/// The encoded answer of type `T` as it may leave: all texts masked. Only a credential leaves as it is; it is one.
pub(super) fn line<T>(line: Vec<u8>) -> Vec<u8> {
    let is_credential = type_name::<T>().trim_start_matches('&') == type_name::<Credential>();
    let answer = format!("{{\"version\":{VERSION},\"answer\":");
    if is_credential && line.starts_with(answer.as_bytes()) {
        return line;
    }
    texts(&line)
}

/// What was seen, with all texts masked: for the command that does what the helper does. `None` if it cannot be written as JSON.
pub(super) fn seen<T: Serialize + DeserializeOwned>(seen: &T) -> Option<T> {
    serde_json::from_slice(&texts(&serde_json::to_vec(seen).ok()?)).ok()
}

/// JSON with each text in it masked.
fn texts(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(quote) = rest.iter().position(|byte| *byte == b'"') {
        let (before, literal) = rest.split_at(quote);
        let (literal, after) = literal.split_at(literal_bytes(literal));
        out.extend_from_slice(before);
        out.extend(masked(literal));
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The length of the text that begins there, with its quotes.
fn literal_bytes(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json.iter().skip(1).position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(json.len(), |end| end + 2)
}

fn masked(literal: &[u8]) -> Vec<u8> {
    // What cannot be read cannot be judged; our own encoder writes nothing of the kind.
    let text: String = serde_json::from_slice(literal).unwrap_or_default();
    let told = told(&text, MAX_TEXT_BYTES);
    if told == text {
        literal.to_vec()
    } else {
        serde_json::to_vec(&told).unwrap_or_else(|_| b"\"\"".to_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        helper::{
            journal::LastWords,
            protocol::{
                Code, ConfigAnswer, ConfigFinding, Heard, Refusal, RuntimeStatus, decode_answer,
                encode_answer,
            },
        },
        kubeconfig::Access,
    };

    const SECRET: &str = "5aVeWombat07xyz";

    fn hostile() -> String {
        format!(
            "see https://b.s3/k?sv=1&sig={SECRET} \u{1b}[2J\nand {}",
            "x".repeat(MAX_TEXT_BYTES)
        )
    }

    /// Every text below becomes a hostile one.
    fn poison(value: &mut Value) {
        match value {
            Value::String(text) => *text = hostile(),
            Value::Array(items) => items.iter_mut().for_each(poison),
            Value::Object(fields) => fields.values_mut().for_each(poison),
            _ => {}
        }
    }

    fn is_harmless(text: &str) -> bool {
        !text.contains(SECRET) && !text.contains(char::is_control) && text.len() <= MAX_TEXT_BYTES
    }

    fn assert_harmless(value: &Value) {
        match value {
            Value::String(text) => assert!(is_harmless(text), "{text}"),
            Value::Array(items) => items.iter().for_each(assert_harmless),
            Value::Object(fields) => fields.values().for_each(assert_harmless),
            _ => {}
        }
    }

    fn finding() -> ConfigFinding {
        ConfigFinding {
            rule: "SD016".to_owned(),
            at: hostile(),
            message: hostile(),
            at_next_start: false,
        }
    }

    #[test]
    fn every_text_of_an_answer_is_masked() {
        let answer = ConfigAnswer {
            unit: hostile(),
            not_resolved: Some(hostile()),
            errors: vec![finding(), finding()],
            ..ConfigAnswer::default()
        };
        let words = LastWords {
            line: Some(hostile()),
            ..LastWords::default()
        };
        let heard = Heard::Error {
            code: "Unknown".to_owned(),
            message: hostile(),
        };
        let status = Heard::Status(RuntimeStatus {
            not_ready: Some(hostile()),
            ..RuntimeStatus::default()
        });
        let refusal = || Refusal::new(Code::Unreadable, hostile());
        for line in [
            encode_answer(Ok(&answer)),
            encode_answer(Ok(words)),
            encode_answer(Ok(heard)),
            encode_answer(Ok(status)),
            encode_answer::<()>(Err(refusal())),
            encode_answer::<Credential>(Err(refusal())),
        ] {
            assert_eq!(
                line.iter().position(|byte| *byte == b'\n'),
                Some(line.len() - 1)
            );
            let value: Value = serde_json::from_slice(&line).unwrap();
            assert_harmless(&value);
        }
        let line = encode_answer(Ok(&answer));
        let told = decode_answer::<ConfigAnswer>(&line).unwrap().unwrap();
        let message = &told.errors[1].message;
        assert!(message.starts_with("see https://b.s3/k?sv=1&sig=*** \u{241b}[2J\u{240a}and x"));
        assert_eq!(told.errors[0].rule, "SD016");
    }

    /// It is what is asked for, and of no use without its secrets.
    #[test]
    fn a_credential_leaves_as_it_is() {
        let credential = Credential {
            access: Some(Access {
                token: Some(SECRET.to_owned()),
                certificate: Some("-----BEGIN X-----\nab\n-----END X-----".to_owned()),
                ..Access::default()
            }),
            source: "/etc/kubernetes/kubelet.conf".into(),
            mark: "m".to_owned(),
            plugin: None,
        };
        for line in [
            encode_answer(Ok(&credential)),
            encode_answer(Ok(credential.clone())),
        ] {
            let told = decode_answer::<Credential>(&line).unwrap().unwrap();
            assert_eq!(told, credential);
        }
    }

    #[test]
    fn what_is_no_text_stays() {
        let value =
            json!({"a": [1, -2.5, true, null, "plain", "\"quoted\\", ""], "b": {"c": "/a/b.sock"}});
        assert_eq!(seen(&value), Some(value));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_document_keeps_its_shape(
            keys in proptest::collection::vec("[a-z_]{2,9}", 4),
            texts in proptest::collection::vec(".*", 4),
            number in any::<i64>(),
        ) {
            let mut document = json!({"n": number, "list": texts});
            for (key, text) in keys.iter().zip(&texts) {
                document[key] = json!({"text": text, "none": null});
            }
            let masked = seen(&document).unwrap();
            for (key, text) in keys.iter().zip(&texts).rev().take(1) {
                let told = told(text, MAX_TEXT_BYTES);
                prop_assert_eq!(masked[key]["text"].as_str(), Some(told.as_str()));
            }
            let mut poisoned = document.clone();
            poison(&mut poisoned);
            assert_harmless(&seen(&poisoned).unwrap());
            prop_assert_eq!(&masked["n"], &document["n"]);
        }
    }
}
