//! What the agent and the helper say to each other: one request and one answer a connection, each a line of JSON; after a
//! question about the container runtime another may follow, and what is followed is answered again and again.
//!
//! No request names a process, a path or a socket: which ones are meant the helper finds out by itself ([`super::process`],
//! [`super::configured`]), so that whoever has the agent chooses no file for it to read.
//!
//! ```text
//! → {"version":2,"verb":"kubelet"}
//! ← {"version":2,"answer":{"pid":812,"healthz":{"url":"http://127.0.0.1:10248/healthz"},…}}
//! ← {"version":2,"error":{"code":"no_such_process","message":"…"}}
//! ```

mod cri;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::cri::{Heard, Listener, RuntimeAnswer, RuntimeRequest, RuntimeStatus};
use super::{
    boot::{self, BootRequest},
    bootstrap::{self, BootstrapRequest},
    certificate, clock, config, credential, fork, journal, kubelet, pods, runtime, storage,
};
use crate::{
    kubeconfig::Access,
    kubelet::{
        healthz::Healthz,
        snapshot::{ClusterFacts, Intent, Loaded},
    },
};

/// The protocol's version; both sides come in one package, so any other is refused.
pub const VERSION: u32 = 2;

/// The longest request, its newline included.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// The longest answer, its newline included.
pub const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// One thing that the helper does.
#[derive(Debug, PartialEq, Eq)]
pub struct Verb {
    /// Its name in a request.
    pub name: &'static str,
    /// What it does, for the help text.
    pub sentence: &'static str,
    /// How long the agent waits: connecting, asking and reading the answer together.
    pub deadline: Duration,
}

/// Every verb.
pub const VERBS: &[&Verb] = &[
    &boot::VERB,
    &bootstrap::VERB,
    &certificate::VERB,
    &clock::VERB,
    &config::VERB,
    &credential::VERB,
    &fork::VERB,
    &journal::VERB,
    &kubelet::VERB,
    &pods::VERB,
    &runtime::VERB,
    &storage::VERB,
];

/// What the agent asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// Which process the kubelet is, where it answers, and where its files lie: [`KubeletFacts`].
    Kubelet,
    /// What the kubelet speaks to the API server with: [`Credential`].
    Credential {
        /// Whether it is the agent's own that is wanted, where [`OWN_KUBECONFIG`](super::OWN_KUBECONFIG) says.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        own: bool,
        /// The [`Credential::mark`] of the one that is known already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<String>,
    },
    /// What the rules say of the kubelet's configuration: a [`ConfigAnswer`] at once, and another each time that a file
    /// changes which was read, until the connection is closed.
    Config(Box<ConfigRequest>),
    /// Whether the kernel's clock is synchronised: [`ClockState`].
    Clock,
    /// Whether a process can be started: [`Forked`](fork::Forked).
    Fork,
    /// The file systems of kubelet and runtime: [`StorageAnswer`](storage::StorageAnswer).
    Storage,
    /// How the last boot ended, or something to keep of this one: [`LastBoot`](boot::LastBoot).
    Boot(BootRequest),
    /// What the kubelet said last: [`LastWords`](journal::LastWords).
    Journal {
        /// The run of its unit, by systemd's `InvocationID`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        invocation: Option<String>,
        /// Whether it is RKE2's, which has a log of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rke2: bool,
    },
    /// Which pods there are: a [`PodName`](pods::PodName) each.
    Pods,
    /// How long the client certificate is good that the kubelet shows to the API server: a [`ClientCertificate`].
    Certificate,
    /// Whether the container runtime answers, and what it says: [`RuntimeAnswer`].
    Runtime(RuntimeRequest),
    /// How far the host is on its way to being of use: [`HostSeen`](crate::bootstrap::HostSeen).
    Bootstrap(Box<BootstrapRequest>),
}

/// What the agent knows and the helper does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigRequest {
    /// The kubelet's version, as the Node shows it.
    pub kubelet_version: Option<String>,
    /// What the operator wants.
    pub intent: Intent,
    /// What systemd has loaded: compared with what the files say, and no path to open.
    pub loaded: Option<Loaded>,
    /// What the API says of the Node.
    pub cluster: Option<ClusterFacts>,
    /// The host's network: the helper has one of its own, with nothing in it.
    pub network: Option<Network>,
}

/// What the rules judge of the host's network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Kernel settings below `net.`, those that the rules read.
    pub sysctls: BTreeMap<String, String>,
    /// The addresses of the interfaces; `None` where they could not be read.
    pub addresses: Option<Vec<String>>,
}

/// What the rules found; warnings and hints are counted only, `nodevigil check` shows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigAnswer {
    /// The unit.
    pub unit: String,
    /// Why it could not be resolved at all.
    pub not_resolved: Option<String>,
    /// Errors and worse, the worst first; [`MAX_CONFIG_ERRORS`](super::config::MAX_CONFIG_ERRORS) at most.
    pub errors: Vec<ConfigFinding>,
    /// How many warnings there are.
    pub warnings: u32,
    /// Whether there is neither the kubeconfig that the kubelet asks for nor one to bootstrap with.
    pub no_credentials: bool,
}

/// An error in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFinding {
    /// The rule: `SD001`.
    pub rule: String,
    /// `file:line`.
    pub at: String,
    /// What is wrong; quotes no secret.
    pub message: String,
    /// Whether a kubelet runs that was started without it.
    pub at_next_start: bool,
}

impl Request {
    /// The verb that it asks for.
    pub fn verb(&self) -> &'static Verb {
        match self {
            Self::Kubelet => &kubelet::VERB,
            Self::Credential { .. } => &credential::VERB,
            Self::Config(_) => &config::VERB,
            Self::Journal { .. } => &journal::VERB,
            Self::Clock => &clock::VERB,
            Self::Fork => &fork::VERB,
            Self::Storage => &storage::VERB,
            Self::Boot(_) => &boot::VERB,
            Self::Pods => &pods::VERB,
            Self::Certificate => &certificate::VERB,
            Self::Runtime(_) => &runtime::VERB,
            Self::Bootstrap(_) => &bootstrap::VERB,
        }
    }
}

/// What the helper tells of a running kubelet: these fields and no others, so that nothing secret leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletFacts {
    /// Its process id.
    pub pid: i32,
    /// Where it answers `/healthz`.
    pub healthz: Healthz,
    /// `--hostname-override` as it was written (the kubelet makes it lower case).
    pub hostname_override: Option<String>,
    /// The file behind `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// The file behind `--config`.
    pub config: Option<PathBuf>,
    /// `--root-dir`, if it is given.
    #[serde(default)]
    pub root_dir: Option<PathBuf>,
    /// The container runtime's socket; `None` for an endpoint that is none (`tcp://`).
    pub runtime_socket: Option<PathBuf>,
}

#[cfg(test)]
impl KubeletFacts {
    /// What a test needs to know of a kubelet: who it is, and where it answers.
    pub(crate) fn answering(pid: i32) -> Self {
        Self {
            pid,
            healthz: Healthz::Url("http://127.0.0.1:1/healthz".to_owned()),
            hostname_override: None,
            kubeconfig: None,
            config: None,
            root_dir: None,
            runtime_socket: None,
        }
    }
}

/// What the kubelet speaks to the API server with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// What its kubeconfig says, everything in it and no path to any file; `None` if it is the one that is known.
    pub access: Option<Access>,
    /// The file that it was made from.
    pub source: PathBuf,
    /// By which this one is known again.
    pub mark: String,
    /// If an exec plugin gave it: it is made anew by each question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<Plugin>,
}

/// The certificate that the kubelet shows to the API server: its dates and no more of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The file that it is in: of its own, or the kubeconfig.
    pub file: String,
    /// Seconds since 1970.
    pub not_before_secs: i64,
    /// Seconds since 1970.
    pub not_after_secs: i64,
}

/// What an exec plugin says of its credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plugin {
    /// Until when it is good, if that was said.
    pub expires_at: Option<Timestamp>,
}

/// What the kernel says of its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockState {
    /// Whether a program keeps it synchronised, as that program told the kernel.
    pub synchronised: bool,
}

/// Why the helper did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind, for the program.
    pub code: Code,
    /// The sentence, for the operator; quotes no file.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// The kinds of [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The request is no request: no JSON, an unknown verb, too long, too late.
    BadRequest,
    /// The other side speaks another [`VERSION`].
    BadVersion,
    /// The peer's user may not ask.
    Forbidden,
    /// All threads are busy, or stuck in the kernel.
    Busy,
    /// No thread could be had for the answer: the host can start no process and no thread.
    ForkRefused,
    /// No process has this id, or it has ended.
    NoSuchProcess,
    /// There is no one process that is the kubelet.
    NotAKubelet,
    /// A file could not be read.
    Unreadable,
    /// A file was read, and is not what it should be.
    BadFile,
    /// There is no credential: no kubeconfig yet, or a user without certificate and token.
    NoCredential,
    /// The kubeconfig asks for a program to be run.
    ExecPlugin,
    /// The answer would be longer than [`MAX_ANSWER_BYTES`].
    TooLarge,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Body<T> {
    Answer(T),
    Error(Refusal),
}

/// The request as a line.
///
/// # Errors
/// A sentence, if it is no JSON or longer than [`MAX_REQUEST_BYTES`].
pub fn encode_request(request: &Request) -> Result<Vec<u8>, String> {
    let line = encode(request).map_err(|error| format!("the question is no JSON: {error}"))?;
    if line.len() > MAX_REQUEST_BYTES {
        return Err(format!(
            "the question has {} bytes; {MAX_REQUEST_BYTES} are allowed",
            line.len()
        ));
    }
    Ok(line)
}

/// Reads a request's line; whatever it is, the refusal can be sent back.
pub fn decode_request(line: &[u8]) -> Result<Request, Refusal> {
    let bad = |error: serde_json::Error| {
        let message = format!("request: {error}; wanted one line of JSON with version and verb");
        Refusal::new(Code::BadRequest, message)
    };
    let Versioned { version } = serde_json::from_slice(line).map_err(bad)?;
    if version != VERSION {
        let message = format!(
            "request: version {version}, the helper speaks {VERSION}; restart the older of agent and helper"
        );
        return Err(Refusal::new(Code::BadVersion, message));
    }
    serde_json::from_slice(line).map_err(bad)
}

/// The answer as a line; one that is too long becomes a refusal.
pub fn encode_answer<T: Serialize>(answer: Result<T, Refusal>) -> Vec<u8> {
    let line = encode(&match answer {
        Ok(answer) => Body::Answer(answer),
        Err(refusal) => Body::Error(refusal),
    });
    match line.map(super::mask::line::<T>) {
        Ok(line) if line.len() <= MAX_ANSWER_BYTES => line,
        _ => {
            let message =
                format!("answer: longer than the {MAX_ANSWER_BYTES} bytes that are allowed");
            // Two short texts are always JSON; a peer that reads an empty line says that it is no answer.
            encode(&Body::<()>::Error(Refusal::new(Code::TooLarge, message)))
                .unwrap_or_else(|_| b"\n".to_vec())
        }
    }
}

/// Reads an answer's line.
///
/// # Errors
/// A sentence, if it is no answer of this version: the content is not quoted.
pub fn decode_answer<T: DeserializeOwned>(line: &[u8]) -> Result<Result<T, Refusal>, String> {
    let bad = |error: serde_json::Error| {
        format!("no answer of version {VERSION} (column {})", error.column())
    };
    let Versioned { version } = serde_json::from_slice(line).map_err(bad)?;
    if version != VERSION {
        return Err(format!("version {version}, wanted {VERSION}"));
    }
    let Line { body, .. } = serde_json::from_slice(line).map_err(bad)?;
    Ok(match body {
        Body::Answer(answer) => Ok(answer),
        Body::Error(refusal) => Err(refusal),
    })
}

fn encode<T: Serialize>(body: &T) -> serde_json::Result<Vec<u8>> {
    let version = VERSION;
    let mut line = serde_json::to_vec(&Line { version, body })?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_verb_is_listed_once_and_can_be_asked_for() {
        let names: BTreeSet<_> = VERBS.iter().map(|verb| verb.name).collect();
        assert_eq!(names.len(), VERBS.len());
        for verb in VERBS {
            assert!(verb.sentence.ends_with('.'), "{}", verb.name);
            assert!(verb.deadline <= Duration::from_secs(12), "{}", verb.name);
            let line = format!(r#"{{"version":2,"verb":"{}"}}"#, verb.name);
            let request = decode_request(line.as_bytes()).unwrap();
            assert_eq!(request.verb(), *verb);
            let line = encode_request(&request).unwrap();
            assert_eq!(decode_request(&line).unwrap(), request);
        }
    }

    #[test]
    fn the_wire_looks_as_documented() {
        let request = Request::Credential {
            own: false,
            known: None,
        };
        let line = encode_request(&request).unwrap();
        assert_eq!(line, b"{\"version\":2,\"verb\":\"credential\"}\n");
        let facts = KubeletFacts {
            pid: 812,
            healthz: Healthz::Url("u".into()),
            hostname_override: None,
            kubeconfig: Some("/k".into()),
            config: None,
            runtime_socket: Some("/s".into()),
            root_dir: None,
        };
        let line = encode_answer(Ok(&facts));
        assert_eq!(
            String::from_utf8_lossy(&line),
            "{\"version\":2,\"answer\":{\"pid\":812,\"healthz\":{\"url\":\"u\"},\"hostname_override\":null,\
             \"kubeconfig\":\"/k\",\"config\":null,\"root_dir\":null,\"runtime_socket\":\"/s\"}}\n"
        );
        assert_eq!(
            decode_answer::<KubeletFacts>(&line).unwrap().unwrap(),
            facts
        );
        let refusal = Refusal::new(Code::Busy, "later");
        let line = encode_answer::<()>(Err(refusal.clone()));
        assert_eq!(
            line,
            b"{\"version\":2,\"error\":{\"code\":\"busy\",\"message\":\"later\"}}\n"
        );
        assert_eq!(decode_answer::<()>(&line).unwrap().unwrap_err(), refusal);
    }

    #[test]
    fn no_request_says_what_to_open() {
        let loaded = Loaded {
            unit_path: vec!["/tmp/units".to_owned()],
            ..Loaded::default()
        };
        let config = ConfigRequest {
            loaded: Some(loaded),
            network: Some(Network::default()),
            cluster: Some(ClusterFacts::default()),
            ..ConfigRequest::default()
        };
        let requests = [
            Request::Config(Box::new(config.clone())),
            Request::Bootstrap(Box::new(BootstrapRequest { config, keep: None })),
            Request::Runtime(RuntimeRequest::default()),
            Request::Credential {
                own: true,
                known: Some(String::new()),
            },
            Request::Journal {
                invocation: Some(String::new()),
                rke2: true,
            },
        ];
        for request in requests {
            let line = String::from_utf8(encode_request(&request).unwrap()).unwrap();
            for name in ["pid", "unit", "unit_path", "socket", "root_dir", "path"] {
                assert!(!line.contains(&format!("\"{name}\":")), "{name}: {line}");
            }
        }
    }

    #[test]
    fn a_question_that_is_too_long_is_not_sent() {
        let known = Some("x".repeat(MAX_REQUEST_BYTES));
        let request = Request::Credential { own: false, known };
        assert!(encode_request(&request).unwrap_err().contains("allowed"));
    }

    #[test]
    fn other_versions_and_unknown_codes_are_told_apart() {
        let refused = decode_request(br#"{"version":1,"verb":"new"}"#).unwrap_err();
        assert_eq!(refused.code, Code::BadVersion);
        let refused = decode_request(br#"{"version":2,"verb":"shell"}"#).unwrap_err();
        assert_eq!(refused.code, Code::BadRequest);
        assert!(decode_answer::<()>(br#"{"version":1,"answer":null}"#).is_err());
        let line = br#"{"version":2,"error":{"code":"new_one","message":"m"}}"#;
        assert_eq!(
            decode_answer::<()>(line).unwrap().unwrap_err().code,
            Code::Unknown
        );
    }

    #[test]
    fn an_answer_that_is_too_long_becomes_a_refusal() {
        let line = encode_answer(Ok(vec!["x".repeat(1000); MAX_ANSWER_BYTES / 1000]));
        assert!(line.len() < 200);
        assert_eq!(
            decode_answer::<Vec<String>>(&line)
                .unwrap()
                .unwrap_err()
                .code,
            Code::TooLarge
        );
    }

    #[test]
    fn a_credential_is_not_shown() {
        let credential = Credential {
            access: Some(Access {
                token: Some("s3cret".to_owned()),
                ..Access::default()
            }),
            source: "/etc/kubernetes/kubelet.conf".into(),
            mark: String::new(),
            plugin: None,
        };
        assert!(!format!("{credential:?}").contains("s3cret"));
        let broken = decode_answer::<Credential>(br#"{"version":2,"answer":"s3cret"}"#);
        assert!(!broken.unwrap_err().contains("s3cret"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = decode_request(&bytes);
            let _ = decode_answer::<KubeletFacts>(&bytes);
        }
    }
}
