//! Runs a real control plane: etcd, kube-apiserver and kube-controller-manager.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::api::{self, Api};
use super::audit::{self, Request};
use super::pki::{self, Authority};
use super::process::Daemon;
use super::watch::NodeWatch;
use super::{enter, manifests, repository, tools, wait_until};

/// What a test may want otherwise; the defaults are Kubernetes' own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// After how much silence of a kubelet the lifecycle controller calls its node `Unknown`.
    pub(crate) grace: Duration,
    /// How often the lifecycle controller looks.
    pub(crate) period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(40),
            period: Duration::from_secs(5),
        }
    }
}

/// A control plane. It ends when the last owner drops it, and with the run.
pub(crate) struct ControlPlane {
    folder: PathBuf,
    port: u16,
    etcd_port: u16,
    authority: Authority,
    admin: Api,
    daemons: Mutex<Daemons>,
    joining: OnceLock<Result<(), String>>,
    took: Duration,
}

/// In the order in which they must end.
#[derive(Default)]
struct Daemons {
    controller_manager: Option<Daemon>,
    apiserver: Option<Daemon>,
    etcd: Option<Daemon>,
}

impl Daemons {
    fn check(&mut self) -> Result<()> {
        [
            &mut self.controller_manager,
            &mut self.apiserver,
            &mut self.etcd,
        ]
        .into_iter()
        .flatten()
        .try_for_each(Daemon::check)
    }
}

impl ControlPlane {
    /// The control plane that the tests of this run share, with Kubernetes' own periods.
    pub(crate) fn shared() -> Result<Arc<Self>> {
        static SHARED: OnceLock<Result<Arc<ControlPlane>, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start(Options::default()).map_err(|error| format!("{error:#}")))
            .clone()
            .map_err(|error| anyhow!("the shared control plane: {error}"))
    }

    /// Starts one of its own.
    pub(crate) fn start(options: Options) -> Result<Arc<Self>> {
        let started = Instant::now();
        let (port, etcd_port) = (enter::port(), enter::port());
        let folder = enter::work().join("control-planes").join(port.to_string());
        fs::create_dir_all(&folder).context("making the control plane's folder")?;
        let authority = Authority::new()?;
        write_files(&folder, &authority, port)?;
        let admin = authority.kubeconfig("admin", &["system:masters"], &local(port))?;
        let mut plane = Self {
            folder,
            port,
            etcd_port,
            authority,
            admin: Api::new(&admin)?,
            daemons: Mutex::default(),
            joining: OnceLock::new(),
            took: Duration::ZERO,
        };
        plane.daemons().etcd = Some(plane.start_etcd()?);
        plane.start_apiserver()?;
        plane.daemons().controller_manager = Some(plane.start_controller_manager(options)?);
        // The controller manager's own work: it dies if it starts while the API server restarts.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        plane.wait("the controllers", |admin| Ok(admin.get(account)?.0 == 200))?;
        manifests::apply_folder(&plane.admin, &repository().join("packaging/kubernetes"))?;
        plane.took = started.elapsed();
        Ok(Arc::new(plane))
    }

    /// How long it took to start.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Its URL for nodes.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", enter::ADDRESS, self.port)
    }

    /// The API server's port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The folder with its logs and files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The certificate of its authority.
    pub(crate) fn ca(&self) -> &str {
        &self.authority.pair.certificate
    }

    /// Its authority.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A kubeconfig for any user, everything inlined, with `address` (127.0.0.1, [`enter::ADDRESS`]) as the server's.
    pub(crate) fn kubeconfig(&self, user: &str, groups: &[&str], address: &str) -> Result<Value> {
        self.authority
            .kubeconfig(user, groups, &format!("https://{address}:{}", self.port))
    }

    /// The agent's kubeconfig on `node`: a user of its own, with the rights and the policy of packaging/kubernetes.
    pub(crate) fn agent_kubeconfig(&self, node: &str) -> Result<Value> {
        self.kubeconfig(
            &format!("nodevigil:{node}"),
            &["nodevigil-agents"],
            enter::ADDRESS,
        )
    }

    /// The administrator.
    pub(crate) fn admin(&self) -> &Api {
        &self.admin
    }

    /// A GET as the administrator: status code and answer.
    pub(crate) fn get(&self, path: &str) -> Result<(u16, Value)> {
        self.admin.get(path)
    }

    /// A request as the administrator.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(u16, Value)> {
        self.admin.request(method, path, content_type, Some(body))
    }

    /// A Node object, if there is one.
    pub(crate) fn node(&self, name: &str) -> Result<Option<Value>> {
        match self.get(&format!("/api/v1/nodes/{name}"))? {
            (200, node) => Ok(Some(node)),
            (404, _) => Ok(None),
            (code, answer) => bail!("GET of node {name} answered {code}: {answer}"),
        }
    }

    /// Deletes a Node object.
    pub(crate) fn delete_node(&self, name: &str) -> Result<()> {
        let path = format!("/api/v1/nodes/{name}");
        let (code, answer) = self.request("DELETE", &path, "application/json", &json!({}))?;
        ensure!(
            code == 200,
            "DELETE of node {name} answered {code}: {answer}"
        );
        Ok(())
    }

    /// A condition of a Node, if there is one.
    pub(crate) fn condition(&self, node: &str, kind: &str) -> Result<Option<Value>> {
        Ok(self
            .node(node)?
            .and_then(|node| api::condition(&node, kind).cloned()))
    }

    /// Watches a Node, as the administrator.
    pub(crate) fn watch_node(&self, name: &str) -> Result<NodeWatch> {
        NodeWatch::start(
            self.kubeconfig("admin", &["system:masters"], "127.0.0.1")?,
            name,
        )
    }

    /// All requests that the API server has answered so far.
    pub(crate) fn audit(&self) -> Result<Vec<Request>> {
        audit::read(&self.folder.join("audit.log"))
    }

    /// Kills the API server; etcd keeps what it knew.
    pub(crate) fn stop_apiserver(&self) {
        self.daemons().apiserver = None;
    }

    /// Starts the API server, on the same port as ever; returns when it is ready.
    pub(crate) fn start_apiserver(&self) -> Result<()> {
        let daemon = self.spawn("kube-apiserver", &self.apiserver_arguments())?;
        self.daemons().apiserver = Some(daemon);
        self.wait("the API server", |admin| Ok(admin.get("/readyz")?.0 == 200))
    }

    /// Freezes the API server: connections stay, answers do not come.
    pub(crate) fn pause_apiserver(&self) -> Result<()> {
        self.signal_apiserver(Signal::SIGSTOP)
    }

    /// Lets a frozen API server go on.
    pub(crate) fn resume_apiserver(&self) -> Result<()> {
        self.signal_apiserver(Signal::SIGCONT)
    }

    /// Does what `kubeadm init` leaves in a cluster, once.
    pub(super) fn prepare_joining(&self, prepare: impl FnOnce() -> Result<()>) -> Result<()> {
        let done = self
            .joining
            .get_or_init(|| prepare().map_err(|error| format!("{error:#}")));
        done.clone()
            .map_err(|error| anyhow!("preparing the cluster for kubeadm join: {error}"))
    }

    fn signal_apiserver(&self, signal: Signal) -> Result<()> {
        self.daemons()
            .apiserver
            .as_ref()
            .context("the API server is stopped")?
            .signal(signal)
    }

    fn daemons(&self) -> MutexGuard<'_, Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, program: &str, arguments: &[String]) -> Result<Daemon> {
        Daemon::start(&self.folder, program, &tools::path(program)?, arguments)
    }

    /// Waits for an answer; no answer yet is no error, but a program that has ended is.
    fn wait(&self, what: &str, ready: impl Fn(&Api) -> Result<bool>) -> Result<()> {
        let waited = wait_until(what, Duration::from_mins(1), || {
            self.daemons().check()?;
            Ok(ready(&self.admin).unwrap_or(false).then_some(()))
        });
        waited.with_context(|| {
            let daemons = self.daemons();
            let logs = [
                &daemons.etcd,
                &daemons.apiserver,
                &daemons.controller_manager,
            ];
            logs.into_iter()
                .flatten()
                .map(Daemon::tail)
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    fn start_etcd(&self) -> Result<Daemon> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", enter::port());
        let arguments = [
            format!("--data-dir={}", self.folder.join("etcd").display()),
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ];
        self.spawn("etcd", &arguments)
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn apiserver_arguments(&self) -> Vec<String> {
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={}", enter::ADDRESS),
            format!("--secure-port={}", self.port),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--enable-bootstrap-token-auth=true".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.file("sa.pub")),
            format!("--service-account-signing-key-file={}", self.file("sa.key")),
            format!("--client-ca-file={}", self.file("ca.crt")),
            format!("--tls-cert-file={}", self.file("apiserver.crt")),
            format!("--tls-private-key-file={}", self.file("apiserver.key")),
            format!("--audit-policy-file={}", self.file("audit-policy.json")),
            format!("--audit-log-path={}", self.file("audit.log")),
        ]
    }

    fn start_controller_manager(&self, options: Options) -> Result<Daemon> {
        // Those that a node's life needs; the last three are what `kubeadm join` needs besides.
        let controllers = [
            "node-lifecycle-controller",
            "taint-eviction-controller",
            "certificatesigningrequest-signing-controller",
            "certificatesigningrequest-approving-controller",
            "serviceaccount-controller",
            "namespace-controller",
            "bootstrap-signer-controller",
            "token-cleaner-controller",
            "root-ca-certificate-publisher-controller",
        ];
        let (grace, period) = (options.grace.as_millis(), options.period.as_millis());
        let kubeconfig = self.file("controller-manager.conf");
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--controllers={}", controllers.join(",")),
            format!("--node-monitor-grace-period={grace}ms"),
            format!("--node-startup-grace-period={grace}ms"),
            format!("--node-monitor-period={period}ms"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", enter::port()),
            format!("--cluster-signing-cert-file={}", self.file("ca.crt")),
            format!("--cluster-signing-key-file={}", self.file("ca.key")),
            format!("--service-account-private-key-file={}", self.file("sa.key")),
            format!("--root-ca-file={}", self.file("ca.crt")),
            format!("--cert-dir={}", self.file("controller-manager")),
            // Without it RBAC silently refuses the lifecycle controller's writes, and no node ever turns Unknown.
            "--use-service-account-credentials=true".to_owned(),
        ];
        self.spawn("kube-controller-manager", &arguments)
    }
}

/// What the programs read from files.
fn write_files(folder: &Path, authority: &Authority, port: u16) -> Result<()> {
    let hosts = ["127.0.0.1", enter::ADDRESS, "localhost"];
    let server = authority.sign("kube-apiserver", &[], &hosts)?;
    let (private, public) = pki::service_account_keys()?;
    let manager = authority.kubeconfig("system:kube-controller-manager", &[], &local(port))?;
    for (name, content) in [
        ("ca.crt", &authority.pair.certificate),
        ("ca.key", &authority.pair.key),
        ("apiserver.crt", &server.certificate),
        ("apiserver.key", &server.key),
        ("sa.key", &private),
        ("sa.pub", &public),
        ("controller-manager.conf", &manager.to_string()),
        ("audit-policy.json", &audit::policy().to_string()),
    ] {
        fs::write(folder.join(name), content).with_context(|| format!("writing {name}"))?;
    }
    Ok(())
}

fn local(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}
