//! One look at the node, through the same doors as the daemon and its helper: systemd, root's files, the kubelet's
//! healthz, the API server as the kubelet itself. Each has its deadline.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use tokio::runtime::Runtime;

use crate::{
    bootstrap::{
        CredentialSeen, Evidence, HealthzSeen, HostSeen, KubeletRun, MAX_TEXT_BYTES, NodeSeen,
        RuntimeSeen, ServerSeen, UnitSeen,
    },
    checks::kubelet::{Found, Probe},
    clock::Clock,
    cluster::{
        api::{Api, ApiError, NodeView},
        connection::Connection,
    },
    config::Settings,
    health::bounded,
    helper::{self, configured::Wanted, protocol::ConfigRequest},
    host::{
        files::Root,
        kubelet::Healthz,
        loaded::{self, Told},
        network,
        process::{self, Where},
        tree::HostTree,
    },
    kubeconfig::{self, Access, MAX_KUBECONFIG_BYTES},
    kubelet::{healthz, layers, snapshot::ClusterFacts},
};

/// A healthz that takes longer does not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The API server may take so long, name and handshake included.
const SERVER_TIMEOUT: Duration = Duration::from_secs(4);

/// Looks, again and again.
pub(super) struct Gatherer {
    root: Root,
    settings: Settings,
    hostname: String,
    runtime: Runtime,
    connection: Option<Connection>,
    /// The Node, as it was seen last: the rules judge it too.
    node: Option<NodeView>,
}

impl Gatherer {
    /// Nothing has been looked at yet.
    pub(super) fn new(root: Root, settings: Settings, hostname: &str) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the runtime for the network")?;
        Ok(Self {
            root,
            settings,
            hostname: hostname.to_ascii_lowercase(),
            runtime,
            connection: None,
            node: None,
        })
    }

    /// Looks at everything.
    pub(super) fn look(&mut self) -> Evidence {
        let unit = self.unit();
        let told = loaded::ask(&unit);
        let run = self.run(&unit, &told);
        let pid = match run {
            KubeletRun::Runs { pid } => Some(pid),
            _ => None,
        };
        let host = self.host(&unit, told.as_ref().ok());
        let healthz = pid.map_or(HealthzSeen::Unknown, |_| self.healthz());
        let (server, node) = self.ask(&host);
        let is_well = healthz == HealthzSeen::Well && matches!(node, NodeSeen::There(_));
        let invocation = told.ok().and_then(|told| told.invocation);
        Evidence {
            last_words: invocation
                .filter(|_| !is_well)
                .and_then(|id| self.last_words(&id)),
            runtime_unit: runtime_unit(&host.runtime),
            run,
            healthz,
            host,
            server,
            node,
            wall_secs: Clock.now().wall.as_second(),
        }
    }

    /// The operator's unit, or the likeliest one that is there.
    fn unit(&self) -> String {
        let configured = &self.settings.kubelet.unit;
        if *configured != Settings::default().kubelet.unit {
            return configured.clone();
        }
        let tree = HostTree::new(&self.root.join("/"));
        let found = tree
            .map(|tree| layers::candidates(&tree))
            .unwrap_or_default();
        found
            .into_iter()
            .next()
            .unwrap_or_else(|| configured.clone())
    }

    fn run(&self, unit: &str, told: &Result<Told, String>) -> KubeletRun {
        let group = match told {
            Ok(told) => told.control_group.clone(),
            // Without a bus the kubelet is where systemd puts every service.
            Err(_) => format!("/system.slice/{unit}"),
        };
        let place = match &self.settings.kubelet.pid_file {
            Some(path) => Where::PidFile(path.clone()),
            None => Where::ControlGroup(group),
        };
        match (process::find_kubelet(&self.root, &place), told) {
            (Found::One(process), _) => KubeletRun::Runs { pid: process.pid },
            (Found::Many(pids), _) => KubeletRun::Unknown {
                why: format!("{} processes could be the kubelet", pids.len()),
            },
            (Found::None(_), Ok(told)) => KubeletRun::Down(unit_seen(unit, told)),
            (Found::None(why), Err(error)) => KubeletRun::Unknown {
                why: format!("{why}; systemd cannot be asked: {error}"),
            },
        }
    }

    fn host(&self, unit: &str, told: Option<&Told>) -> HostSeen {
        let facts = self.node.as_ref().map(|node| &node.facts);
        let mut wanted = Wanted::from(self.settings.clone());
        unit.clone_into(&mut wanted.kubelet.unit);
        let request = ConfigRequest {
            kubelet_version: facts.and_then(|facts| facts.kubelet_version.clone()),
            intent: self.settings.intent.clone(),
            loaded: told.map(|told| told.loaded.clone()),
            cluster: facts.map(|facts| ClusterFacts {
                node_exists: Some(true),
                provider_id: facts.provider_id.clone(),
                taints: Some(facts.taints.clone()),
                ..ClusterFacts::default()
            }),
            network: Some(network::read(&self.root)),
        };
        helper::bootstrap::look(&self.root, &wanted, &request).unwrap_or_else(|refusal| HostSeen {
            runtime: RuntimeSeen::Unknown {
                why: refusal.message.clone(),
            },
            credential: CredentialSeen::Unknown {
                why: refusal.message,
            },
            ..HostSeen::default()
        })
    }

    fn healthz(&self) -> HealthzSeen {
        let configured = self.settings.kubelet.healthz_url.clone();
        let url = match (
            configured,
            helper::kubelet::answer(&self.root, &self.settings.kubelet),
        ) {
            (Some(url), _) => url,
            (None, Ok(facts)) => match facts.healthz {
                healthz::Healthz::Url(url) => url,
                healthz::Healthz::Disabled => return HealthzSeen::Well,
            },
            (None, Err(_)) => format!("http://127.0.0.1:{}/healthz", healthz::DEFAULT_PORT),
        };
        let probe = self.runtime.block_on(async {
            let mut healthz = Healthz::default();
            healthz.start(&url);
            tokio::time::timeout(PROBE_TIMEOUT, healthz.probe()).await
        });
        HealthzSeen::Bad(match probe {
            Ok(Probe::Ok) => return HealthzSeen::Well,
            Ok(Probe::Status(code)) => format!("answers {code}"),
            Err(_) | Ok(Probe::Timeout) => "does not answer in time".to_owned(),
            Ok(_) => format!("does not answer at {url}"),
        })
    }

    fn last_words(&self, invocation: &str) -> Option<String> {
        let words = helper::journal::answer(&self.root, Some(invocation), false).ok()?;
        words.line.filter(|_| words.is_error)
    }

    /// Asks the API server for our Node, as the kubelet itself.
    fn ask(&mut self, host: &HostSeen) -> (ServerSeen, NodeSeen) {
        let access = match self.access(host) {
            Ok(access) => access,
            Err(why) => return (ServerSeen::NotAsked { why }, NodeSeen::Unknown),
        };
        let server = access.server.clone();
        let made = match self.connection.take() {
            Some(known) if *known.access() == access => Ok(known),
            _ => Connection::new(access, None),
        };
        let connection = match made {
            Ok(connection) => connection,
            Err(error) => {
                let why = error.to_string();
                return (ServerSeen::Trouble { server, why }, NodeSeen::Unknown);
            }
        };
        let name = self.node_name(host);
        let api = Api::new(connection.clone(), &name);
        let asked = self
            .runtime
            .block_on(async { tokio::time::timeout(SERVER_TIMEOUT, api.list()).await });
        let answer = asked.unwrap_or(Err(ApiError::Timeout));
        if answer.is_ok() {
            self.connection = Some(connection);
        } else {
            // The next look begins with a handshake of its own.
            connection.abort();
        }
        let is_bootstrap = matches!(host.credential, CredentialSeen::Bootstrap { .. });
        match answer {
            Ok((Some(view), _)) => {
                let words = view.words(&name);
                self.node = Some(view);
                (ServerSeen::Answers, NodeSeen::There(Box::new(words)))
            }
            Ok((None, _)) => {
                self.node = None;
                (ServerSeen::Answers, NodeSeen::Absent { name })
            }
            // A bootstrap token is good for one thing.
            Err(ApiError::Forbidden(_)) if is_bootstrap => (ServerSeen::Answers, NodeSeen::Unknown),
            Err(error) => (failed(server, &error), NodeSeen::Unknown),
        }
    }

    fn access(&self, host: &HostSeen) -> Result<Access, String> {
        if let CredentialSeen::Bootstrap { file } = &host.credential {
            let path = Path::new(file);
            let text = self.root.read_text(path, MAX_KUBECONFIG_BYTES);
            let text = text.map_err(|error| error.to_string())?;
            return kubeconfig::read(&self.root, path, &text).map_err(|fault| fault.message);
        }
        // Root asks, who can read it anyway: nothing is lent.
        let wanted = Wanted {
            lends_identity: true,
            ..Wanted::from(self.settings.clone())
        };
        let given = helper::credential::answer(&self.root, &wanted, false, None);
        let given = given.map_err(|refusal| refusal.message)?;
        Ok(given.access.unwrap_or_default())
    }

    fn node_name(&self, host: &HostSeen) -> String {
        let configured = self.settings.node.name.clone();
        configured
            .or_else(|| host.node_name.clone())
            .unwrap_or_else(|| self.hostname.clone())
    }
}

/// The runtime's own unit, where the runtime does not answer.
fn runtime_unit(runtime: &RuntimeSeen) -> Option<UnitSeen> {
    let RuntimeSeen::Silent { socket, .. } = runtime else {
        return None;
    };
    let name = match socket.as_str() {
        "/run/crio/crio.sock" => "crio.service",
        "/run/containerd/containerd.sock" => "containerd.service",
        // A distribution's own, or nobody's.
        _ => return None,
    };
    let told = loaded::ask(name).ok()?;
    Some(unit_seen(name, &told))
}

fn unit_seen(name: &str, told: &Told) -> UnitSeen {
    let loaded = &told.loaded;
    UnitSeen {
        name: name.to_owned(),
        load: loaded.load_state.clone(),
        active: loaded.active_state.clone(),
        result: loaded.result.clone(),
    }
}

fn failed(server: String, error: &ApiError) -> ServerSeen {
    match error {
        ApiError::Unauthorized => ServerSeen::Unauthorized { server },
        ApiError::Network(why) if is_of_another_authority(why) => ServerSeen::OtherAuthority {
            server,
            why: why.clone(),
        },
        ApiError::Network(why) => ServerSeen::Unreachable {
            server,
            why: why.clone(),
        },
        ApiError::Timeout => ServerSeen::Unreachable {
            server,
            why: format!("no answer within {} s", SERVER_TIMEOUT.as_secs()),
        },
        other => ServerSeen::Trouble {
            server,
            why: bounded(&other.to_string(), MAX_TEXT_BYTES),
        },
    }
}

/// rustls' words for a certificate that the kubeconfig's authority has not signed.
fn is_of_another_authority(why: &str) -> bool {
    ["UnknownIssuer", "BadSignature", "unknown issuer"]
        .iter()
        .any(|word| why.contains(word))
}
