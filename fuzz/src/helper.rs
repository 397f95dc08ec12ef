//! What the helper reads with root's rights, and what agent and helper say to each other.

use std::{
    cell::Cell,
    fmt::Debug,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use nodevigil::{
    bootstrap::{CloudInit, HostSeen, MAX_TEXT_BYTES},
    helper::{
        boot::LastBoot,
        bootstrap::{join_words_in, progress_of},
        fork::Forked,
        journal::{self, LastWords},
        pods::PodName,
        protocol::{
            self, ClientCertificate, ClockState, ConfigAnswer, Credential, KubeletFacts,
            RuntimeAnswer,
        },
        storage::{StorageAnswer, mounts_in},
    },
    host::files::Root,
    kubeconfig,
    kubelet::yaml,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// What one question may read of a journal's file, its header aside.
const MAX_JOURNAL_BYTES: usize = 1024 * 1024 + 4096;
/// The longest line that is told.
const MAX_WORDS_BYTES: usize = 400;
/// A secret that is put into the input. One that has it already, which libFuzzer makes of what it sees compared, says nothing.
const PLANTED: &str = "Wombat7inTheYard";

/// A file of the journal's; the same as a log in plain text.
pub fn journal(bytes: &[u8]) {
    if has_it(bytes) {
        return;
    }
    let read = Cell::new(0);
    let file = Memory { bytes, read: &read };
    let field = b"_SYSTEMD_INVOCATION_ID=0123456789abcdef0123456789abcdef";
    if let Ok(Some(words)) = journal::words_of(file, field) {
        is_one_line(&words);
    }
    assert!(read.get() <= MAX_JOURNAL_BYTES, "{} bytes", read.get());
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    is_one_line(&journal::words_in(&text));
    text += " token=";
    text += PLANTED;
    is_one_line(&journal::words_in(&text));
}

fn is_one_line(words: &LastWords) {
    assert!(!words.is_error || words.line.is_some());
    if let Some(line) = &words.line {
        assert!(line.len() <= MAX_WORDS_BYTES, "{} bytes", line.len());
        is_harmless(line);
    }
}

fn has_it(bytes: &[u8]) -> bool {
    bytes
        .windows(PLANTED.len())
        .any(|part| part == PLANTED.as_bytes())
}

/// It steers no terminal and tells no secret.
fn is_harmless(text: &str) {
    assert!(!text.contains(char::is_control), "{text:?}");
    assert!(!text.contains(PLANTED), "{text:?}");
}

/// A file that is no file; it counts what is read of it.
struct Memory<'a> {
    bytes: &'a [u8],
    read: &'a Cell<usize>,
}

impl FileExt for Memory<'_> {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let rest = self.bytes.get(at..).unwrap_or_default();
        let length = rest.len().min(into.len());
        into[..length].copy_from_slice(&rest[..length]);
        self.read.set(self.read.get() + length);
        Ok(length)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// A line from the other side: as a question, and as the answer to each question.
pub fn protocol(bytes: &[u8]) {
    match protocol::decode_request(bytes) {
        Ok(request) => {
            // With its escapes it may be longer than a question may be.
            if let Ok(line) = protocol::encode_request(&request) {
                assert_eq!(protocol::decode_request(&line).as_ref(), Ok(&request));
            }
        }
        Err(refusal) => {
            let line = protocol::encode_answer::<()>(Err(refusal));
            assert!(line.len() <= protocol::MAX_ANSWER_BYTES);
            let answer = protocol::decode_answer::<Value>(&line);
            assert!(matches!(answer, Ok(Err(_))), "{answer:?}");
        }
    }
    answer::<KubeletFacts>(bytes);
    answer::<Credential>(bytes);
    answer::<ConfigAnswer>(bytes);
    answer::<ClockState>(bytes);
    answer::<Forked>(bytes);
    answer::<StorageAnswer>(bytes);
    answer::<LastBoot>(bytes);
    answer::<LastWords>(bytes);
    answer::<Vec<PodName>>(bytes);
    answer::<ClientCertificate>(bytes);
    answer::<RuntimeAnswer>(bytes);
    answer::<HostSeen>(bytes);
}

/// What was read comes out as the same line again, and an error quotes nothing.
fn answer<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let read = match protocol::decode_answer::<T>(bytes) {
        Ok(read) => read,
        Err(why) => {
            assert!(why.len() < 100 && why.is_ascii(), "{why}");
            return;
        }
    };
    let said = format!("{read:?}");
    let line = protocol::encode_answer(read);
    assert!(line.len() <= protocol::MAX_ANSWER_BYTES);
    assert_eq!(
        line.iter().position(|byte| *byte == b'\n'),
        Some(line.len() - 1)
    );
    let again = protocol::decode_answer::<T>(&line).expect("our own answer is one");
    let is_too_long = matches!(&again, Err(refusal) if refusal.code == protocol::Code::TooLarge);
    assert!(is_too_long || format!("{again:?}") == said, "{said}");
}

/// A kubeconfig; the files that it may name are in `files`, beside the corpus.
pub fn kubeconfig(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = kubeconfig::is_kubeconfig(&text);
    let document: Value = yaml::read(&text).unwrap_or_default();
    let mut strings = Vec::new();
    collect(&document, "", &mut strings);
    // Such a path leaves the folder, and what it finds is the machine's that fuzzes.
    if strings.iter().any(|(_, value)| value.contains("..")) {
        return;
    }
    let path = Path::new("/kubelet.conf");
    match kubeconfig::read(&Root::new(files()), path, &text) {
        Ok(access) => {
            let json = serde_json::to_string(&access).expect("it goes to the agent as JSON");
            let again = serde_json::from_str(&json).expect("the agent reads it");
            assert!(access == again);
            let shown = format!("{access:?}");
            for name in ["token", "key", "certificate"] {
                let json: Value = serde_json::from_str(&json).unwrap_or_default();
                let secret = json[name].as_str().unwrap_or_default();
                assert!(
                    secret.len() < 8 || access.server.contains(secret) || !shown.contains(secret)
                );
            }
        }
        Err(fault) => {
            let is_secret = |name: &str| {
                [
                    "token",
                    "password",
                    "client-key-data",
                    "client-certificate-data",
                ]
                .contains(&name)
            };
            for (name, secret) in strings.iter().filter(|(name, _)| is_secret(name)) {
                let elsewhere = strings
                    .iter()
                    .any(|(other, value)| !is_secret(other) && value.contains(secret));
                let known = "/kubelet.conf its user has neither certificate nor token";
                let is_quoted = secret.len() >= 8 && fault.message.contains(secret);
                assert!(
                    !is_quoted || elsewhere || known.contains(secret),
                    "{name}: {fault}"
                );
            }
        }
    }
}

/// Every text in a document, with the key that it stands below.
fn collect<'a>(value: &'a Value, key: &'a str, strings: &mut Vec<(&'a str, &'a str)>) {
    match value {
        Value::String(text) => strings.push((key, text)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, strings)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| collect(value, key, strings)),
        _ => {}
    }
}

/// `fuzz/files`, wherever this is compiled.
fn files() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = package.join("fuzz/files");
    if folder.exists() {
        folder
    } else {
        package.join("files")
    }
}

/// `/proc/PID/mountinfo`.
pub fn mountinfo(bytes: &[u8]) {
    let paths = [
        Path::new("/"),
        Path::new("/var/lib/kubelet"),
        Path::new("/var/lib/a folder"),
    ];
    let found = mounts_in(bytes, &paths).expect("memory is always read");
    assert_eq!(found.len(), paths.len());
    for (path, found) in paths.iter().zip(&found) {
        if let Some((point, _)) = found {
            assert!(
                path.starts_with(point),
                "{} on {}",
                path.display(),
                point.display()
            );
        }
    }
    // Whatever stands before it, a line that is whole is read: each path lies at least on `/`.
    let table = [bytes, b"\n9 1 0:1 / / ro,relatime - ext4 /dev/x rw\n"].concat();
    let found = mounts_in(&table, &paths).expect("memory is always read");
    assert!(found.iter().all(Option::is_some));
}

/// cloud-init's status, or the end of its output.
pub fn cloud_init(bytes: &[u8]) {
    if has_it(bytes) {
        return;
    }
    for is_marked in [false, true] {
        let progress = progress_of(bytes, is_marked);
        let (texts, most) = match &progress {
            CloudInit::Running { stage, errors, .. } => {
                assert!(stage.len() <= 64);
                is_harmless(stage);
                (errors.as_slice(), 80)
            }
            CloudInit::Finished { errors } => (errors.as_slice(), 80),
            CloudInit::Unknown { why } => (std::slice::from_ref(why), 200),
            CloudInit::Absent => (&[][..], 0),
        };
        assert!(texts.len() <= 4);
        for text in texts {
            assert!(text.len() <= most, "{text:?}");
            is_harmless(text);
        }
    }
    let text = String::from_utf8_lossy(bytes);
    for text in [text.to_string(), format!("{text} --token {PLANTED}")] {
        if let Some(words) = join_words_in(&text) {
            assert!(words.len() <= MAX_TEXT_BYTES + 2, "{} bytes", words.len());
            is_harmless(&words);
        }
    }
}
