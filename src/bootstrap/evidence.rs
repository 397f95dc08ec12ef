//! What is known at one moment. What could not be looked at is said as such: failing to know is no failure.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What is kept of any text in it.
pub const MAX_TEXT_BYTES: usize = 400;
/// So many findings of the rules are kept, the worst first.
pub const MAX_FINDINGS: usize = 16;
/// So many names of a folder.
pub const MAX_NAMES: usize = 16;

/// Everything that is known at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What root sees on the host.
    pub host: HostSeen,
    /// The kubelet's process.
    pub run: KubeletRun,
    /// What its healthz says.
    pub healthz: HealthzSeen,
    /// Its last words, if it ended or does not get on.
    pub last_words: Option<String>,
    /// The runtime's unit, where systemd was asked.
    pub runtime_unit: Option<UnitSeen>,
    /// What became of asking the API server.
    pub server: ServerSeen,
    /// Our Node.
    pub node: NodeSeen,
    /// Seconds since 1970, for certificates.
    pub wall_secs: i64,
}

/// What root's files and sockets say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSeen {
    /// How far cloud-init is.
    pub cloud_init: CloudInit,
    /// What `kubeadm join` said last, where cloud-init keeps what it runs.
    pub join_words: Option<String>,
    /// The container runtime at the kubelet's endpoint.
    pub runtime: RuntimeSeen,
    /// What the kubelet speaks to the API server with.
    pub credential: CredentialSeen,
    /// The folder of CNI configurations, if it is known.
    pub cni_folder: Option<String>,
    /// The names in it that count; `None` if it is not there.
    pub cni: Option<Vec<String>>,
    /// Drivers and device plugins that have registered.
    pub plugins: Vec<String>,
    /// The kubelet's serving certificate.
    pub serving: ServingSeen,
    /// Whether `--cloud-provider=external` is among the words of the kubelet: of the running one, else of the next.
    pub external: Option<bool>,
    /// Whether the operator wants a cloud controller to initialise the Node.
    pub wants_external: bool,
    /// The name that the kubelet registers, where its arguments say it.
    pub node_name: Option<String>,
    /// What the rules find in the kubelet's configuration.
    pub findings: Vec<RuleSeen>,
    /// Whether there is neither a kubeconfig nor one to bootstrap with: nobody has joined the host yet.
    pub awaits_join: bool,
}

/// How far cloud-init is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloudInit {
    /// It could not be looked at.
    Unknown {
        /// Why.
        why: String,
    },
    /// There is none, or it is switched off.
    #[default]
    Absent,
    /// It is at work.
    Running {
        /// Its stage: `init`, `modules-final`; empty between two.
        stage: String,
        /// Whether that is the last stage, in which the commands of the user data run.
        is_last: bool,
        /// What has failed so far.
        errors: Vec<String>,
    },
    /// It is through.
    Finished {
        /// What has failed.
        errors: Vec<String>,
    },
}

/// The container runtime at the kubelet's endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeSeen {
    /// It could not be asked.
    Unknown {
        /// Why.
        why: String,
    },
    /// It answers.
    Answers {
        /// Name and version.
        what: String,
        /// Why it says that it is not ready, if it does.
        not_ready: Option<String>,
        /// Why it says that its network is not ready, if it does.
        network_not_ready: Option<String>,
    },
    /// It does not.
    Silent {
        /// The socket.
        socket: String,
        /// What came of asking there.
        why: String,
        /// Whether something is there that took the connection, or hung.
        hangs: bool,
    },
}

impl Default for RuntimeSeen {
    fn default() -> Self {
        Self::Unknown {
            why: "nobody has asked yet".to_owned(),
        }
    }
}

/// What the kubelet speaks to the API server with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialSeen {
    /// It could not be looked at.
    Unknown {
        /// Why.
        why: String,
    },
    /// There is no kubeconfig, nor one to bootstrap with.
    Missing,
    /// There is one to bootstrap with, and no other.
    Bootstrap {
        /// The file.
        file: String,
    },
    /// A client certificate.
    Certificate {
        /// The file.
        file: String,
        /// Seconds since 1970.
        not_before_secs: i64,
        /// Seconds since 1970.
        not_after_secs: i64,
    },
    /// A token, or what a program gives.
    Other {
        /// What.
        what: String,
    },
    /// It is there and cannot be used.
    Bad {
        /// The sentence.
        why: String,
    },
}

impl Default for CredentialSeen {
    fn default() -> Self {
        Self::Unknown {
            why: "nobody has looked yet".to_owned(),
        }
    }
}

/// The kubelet's serving certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServingSeen {
    /// It asks for none.
    #[default]
    NotWanted,
    /// It waits for one.
    Waits,
    /// It has one.
    Present,
}

/// A finding of the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleSeen {
    /// The rule: `KN001`.
    pub rule: String,
    /// Whether the kubelet does not start with it.
    pub is_fatal: bool,
    /// `file:line`.
    pub at: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

/// A unit of systemd's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSeen {
    /// Its name.
    pub name: String,
    /// `loaded`, `not-found`, `masked`.
    pub load: String,
    /// `active`, `inactive`, `failed`, `activating`.
    pub active: String,
    /// `success`, `exit-code`, ….
    pub result: String,
}

/// The kubelet's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeletRun {
    /// It could not be looked for.
    Unknown {
        /// Why.
        why: String,
    },
    /// It does not run.
    Down(UnitSeen),
    /// It runs.
    Runs {
        /// Its process id.
        pid: i32,
    },
}

impl Default for KubeletRun {
    fn default() -> Self {
        Self::Unknown {
            why: "nobody has looked yet".to_owned(),
        }
    }
}

/// What the kubelet's healthz says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HealthzSeen {
    /// It was not asked.
    #[default]
    Unknown,
    /// It is well, or switched off.
    Well,
    /// It does not answer, or not well.
    Bad(String),
}

/// What became of asking the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerSeen {
    /// It was not asked.
    NotAsked {
        /// Why.
        why: String,
    },
    /// It answers and knows the credential.
    Answers,
    /// It cannot be reached.
    Unreachable {
        /// Its address.
        server: String,
        /// The last word.
        why: String,
    },
    /// Its certificate is of another authority than the kubeconfig believes.
    OtherAuthority {
        /// Its address.
        server: String,
        /// The last word.
        why: String,
    },
    /// It does not accept the credential (401).
    Unauthorized {
        /// Its address.
        server: String,
    },
    /// It answers, and not what was asked for.
    Trouble {
        /// Its address.
        server: String,
        /// The sentence.
        why: String,
    },
}

impl Default for ServerSeen {
    fn default() -> Self {
        Self::NotAsked {
            why: "nobody has asked yet".to_owned(),
        }
    }
}

/// Our Node, as the API server has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NodeSeen {
    /// The API server did not say.
    #[default]
    Unknown,
    /// There is none of that name.
    Absent {
        /// The name that was asked for.
        name: String,
    },
    /// It is there.
    There(Box<NodeWords>),
}

/// What the Node says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeWords {
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`.
    pub uid: String,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// The keys of its taints.
    pub taints: Vec<String>,
    /// Whether its `Ready` is `True`.
    pub ready: bool,
    /// Reason and message of its `Ready`.
    pub ready_words: String,
}
