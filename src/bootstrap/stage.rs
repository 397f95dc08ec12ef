//! The stages, in the order in which a node goes through them.

/// A stage of the way from boot to a node that is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The machine runs.
    Instance,
    /// cloud-init has come to the commands of the user data.
    CloudInit,
    /// The container runtime answers at the kubelet's endpoint.
    Runtime,
    /// The kubelet runs and its healthz answers.
    Kubelet,
    /// The kubelet has a client certificate, or another credential, that is good now.
    Tls,
    /// The Node is there.
    Registered,
    /// The cloud controller has initialised the Node.
    CloudController,
    /// The network of pods is there.
    Network,
    /// The drivers of volumes have registered.
    Csi,
    /// The Node is Ready, and nobody's start-up taint is left.
    Ready,
    /// The kubelet has a serving certificate, where it asks for one.
    Serving,
}

/// How long a stage may be waited for until it is said to be stuck: a key of `[bootstrap]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// The key's name.
    pub key: &'static str,
    /// Its default.
    pub default_secs: &'static str,
    /// What it is for, in a sentence.
    pub doc: &'static str,
}

macro_rules! wait {
    ($key:literal, $default_secs:literal, $what:literal) => {
        Some(Wait {
            key: $key,
            default_secs: $default_secs,
            doc: concat!(
                "How long ",
                $what,
                " may be waited for, once all before is reached, until the stage is said to be stuck, and why; nothing ends by it."
            ),
        })
    };
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 11] = [
        Self::Instance,
        Self::CloudInit,
        Self::Runtime,
        Self::Kubelet,
        Self::Tls,
        Self::Registered,
        Self::CloudController,
        Self::Network,
        Self::Csi,
        Self::Ready,
        Self::Serving,
    ];

    /// Its name: in the table, in the record, in the documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::CloudInit => "cloud-init",
            Self::Runtime => "runtime",
            Self::Kubelet => "kubelet",
            Self::Tls => "credential",
            Self::Registered => "registered",
            Self::CloudController => "cloud-controller",
            Self::Network => "network",
            Self::Csi => "volumes",
            Self::Ready => "ready",
            Self::Serving => "serving-certificate",
        }
    }

    /// What is seen when it is reached.
    pub fn doc(self) -> &'static str {
        match self {
            Self::Instance => "The machine runs: the kernel counts its uptime.",
            Self::CloudInit => {
                "cloud-init has come to its last stage, which runs the commands of the user data (/run/cloud-init/status.json). Not needed on a host without it."
            }
            Self::Runtime => {
                "The container runtime answers over CRI at the endpoint that the kubelet is given."
            }
            Self::Kubelet => "The kubelet's process runs and its healthz answers.",
            Self::Tls => {
                "The kubelet has a client certificate (pki/kubelet-client-current.pem) or another credential, and it is good now."
            }
            Self::Registered => "The API server has the Node.",
            Self::CloudController => {
                "The taint node.cloudprovider.kubernetes.io/uninitialized is gone and spec.providerID is set. Not needed where nobody expects a cloud controller."
            }
            Self::Network => {
                "There is a CNI configuration, and the runtime or the Node says that its network is ready."
            }
            Self::Csi => {
                "Drivers have registered in /var/lib/kubelet/plugins_registry. Not needed unless a taint waits for one."
            }
            Self::Ready => {
                "The Node is Ready, and no taint is left that somebody takes away when it has started."
            }
            Self::Serving => {
                "The kubelet has a serving certificate. Not needed unless serverTLSBootstrap is set, and not waited for."
            }
        }
    }

    /// How long it takes on most nodes, after the stage before it.
    pub fn usual(self) -> &'static str {
        match self {
            Self::Instance => "0 to 60 s",
            Self::CloudInit => "20 to 180 s",
            Self::Runtime | Self::Tls => "1 to 10 s",
            Self::Kubelet => "1 to 5 s",
            Self::Registered => "0 to 2 s",
            Self::CloudController => "1 to 30 s",
            Self::Network => "10 to 90 s",
            Self::Csi => "10 to 60 s",
            Self::Ready => "60 to 240 s in all",
            Self::Serving => "any time",
        }
    }

    /// How long it may be waited for; `None` if nobody waits for it. Some three times what is usual.
    pub const fn wait(self) -> Option<Wait> {
        match self {
            Self::Instance | Self::Serving => None,
            Self::CloudInit => wait!("cloud_init_secs", "300", "cloud-init"),
            Self::Runtime => wait!("runtime_secs", "60", "the container runtime"),
            Self::Kubelet => wait!("kubelet_secs", "60", "the kubelet"),
            Self::Tls => wait!("credential_secs", "60", "the kubelet's certificate"),
            Self::Registered => wait!("registered_secs", "30", "the Node"),
            Self::CloudController => wait!("cloud_controller_secs", "120", "the cloud controller"),
            Self::Network => wait!("network_secs", "180", "the network of pods"),
            Self::Csi => wait!("volumes_secs", "120", "the drivers of volumes"),
            Self::Ready => wait!(
                "ready_secs",
                "120",
                "the Node to be Ready and without start-up taints"
            ),
        }
    }

    /// Its place among [`Stage::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}
