//! A real control plane: etcd, kube-apiserver and kube-controller-manager. kubeadm makes its certificates, and kubectl
//! asks it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::namespaces::{self, ADDRESS};
use super::{output, programs, repository, wait_until};

/// The user whose requests the audit log has, besides the agents': node-problem-detector.
pub const PEER: &str = "node-problem-detector";

/// A control plane that the stories share. It ends when it is dropped, and with the run.
#[derive(Debug)]
pub struct ControlPlane {
    directory: PathBuf,
    port: u16,
    etcd_port: u16,
    /// In the order in which they must end; the API server is none while a story has stopped it.
    daemons: Mutex<Daemons>,
}

#[derive(Debug, Default)]
struct Daemons {
    controller_manager: Option<Daemon>,
    apiserver: Option<Daemon>,
    etcd: Option<Daemon>,
}

impl ControlPlane {
    /// Starts it; returns when the API server is ready and has the agents' roles and policies.
    pub fn start() -> Result<Self> {
        Self::start_in("control-plane")
    }

    /// Starts one of several, each with a directory of its own.
    pub fn start_in(directory: &str) -> Result<Self> {
        let directory = namespaces::work().join(directory);
        fs::create_dir_all(&directory)?;
        let plane =
            Self { directory, port: namespaces::port(), etcd_port: namespaces::port(), daemons: Mutex::default() };
        plane.make_certificates()?;
        let etcd = plane.spawn("etcd", &plane.etcd_arguments())?;
        plane.daemons().etcd = Some(etcd);
        plane.start_apiserver()?;
        let controller_manager = plane.start_controllers("node-lifecycle-controller,taint-eviction-controller", &[])?;
        plane.daemons().controller_manager = Some(controller_manager);
        // The API server makes its own namespaces in its first seconds.
        let is_there = |name: &str| plane.kubectl(&["get", "namespace", name]).is_ok();
        wait_until("the namespace kube-node-lease", Duration::from_mins(1), || {
            Ok(is_there("kube-node-lease").then_some(()))
        })?;
        plane.apply_manifests()?;
        Ok(plane)
    }

    /// Creates the agents' roles and policies.
    pub fn apply_manifests(&self) -> Result<()> {
        self.kubectl(&["apply", "--server-side", "-f", &manifests()]).map(drop)
    }

    /// Deletes them, for a story that installs the Helm chart.
    pub fn delete_manifests(&self) -> Result<()> {
        self.kubectl(&["delete", "-f", &manifests()]).map(drop)
    }

    /// Starts the scheduler and the controllers that pods, a `DaemonSet` and Jobs need. They end when they are dropped.
    pub fn start_workload_controllers(&self) -> Result<[Daemon; 2]> {
        let kubeconfig = self.file("scheduler.conf");
        fs::write(&kubeconfig, self.kubeconfig("system:kube-scheduler", "system:authenticated")?)?;
        let scheduler =
            Daemon::start(&self.directory, &programs::scheduler()?, &self.component_arguments("scheduler"))?;
        let controllers = "daemonset-controller,job-controller,garbage-collector-controller,\
            root-ca-certificate-publisher-controller";
        Ok([scheduler, self.start_controllers(controllers, &[])?])
    }

    /// What `kubeadm join` reads from the cluster, and the controllers that sign a kubelet's first certificate and what a host reads
    /// before it trusts the API server. They end when they are dropped.
    pub fn accept_joins(&self, kubelet_config: &Value) -> Result<Daemon> {
        let admin = self.file("admin.conf");
        self.kubeadm(&["init", "phase", "bootstrap-token", "--skip-token-print", "--kubeconfig", &admin])?;
        let cluster = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version()?,
            "controlPlaneEndpoint": format!("{ADDRESS}:{}", self.port),
        });
        let map = |name: &str, key: &str, value: String| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {key: value},
                "metadata": {"namespace": "kube-system", "name": name},
            })
        };
        // kubeadm would write what a control plane node has, and this control plane is no node.
        let read = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
        let tokens = json!({"kind": "Group", "name": "system:bootstrappers:kubeadm:default-node-token"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "kubeadm-join"});
        let metadata = json!({"namespace": "kube-system", "name": "kubeadm-join"});
        let rbac = "rbac.authorization.k8s.io/v1";
        let items = json!({"apiVersion": "v1", "kind": "List", "items": [
            map("kubeadm-config", "ClusterConfiguration", cluster.to_string()),
            map("kubelet-config", "kubelet", kubelet_config.to_string()),
            {"apiVersion": rbac, "kind": "Role", "metadata": metadata, "rules": [read]},
            {"apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [tokens]},
        ]});
        fs::write(self.file("joins.json"), items.to_string())?;
        self.kubectl(&["apply", "--server-side", "-f", &self.file("joins.json")])?;
        let (certificate, key) = (self.file("pki/ca.crt"), self.file("pki/ca.key"));
        self.start_controllers(
            "certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller,\
             bootstrap-signer-controller",
            &[format!("--cluster-signing-cert-file={certificate}"), format!("--cluster-signing-key-file={key}")],
        )
    }

    /// The command that kubeadm prints for a host that is to join, with a new token.
    pub fn join_command(&self) -> Result<String> {
        let mut kubeadm = Command::new(programs::kubernetes("kubeadm")?);
        output(kubeadm.args(["token", "create", "--print-join-command", "--kubeconfig", &self.file("admin.conf")]))
    }

    /// The files with certificate and key of the API server, for another server at the same address.
    pub fn serving_certificate(&self) -> [String; 2] {
        ["pki/apiserver.crt", "pki/apiserver.key"].map(|name| self.file(name))
    }

    /// The certificate of its authority, as PEM.
    pub fn ca(&self) -> Result<String> {
        fs::read_to_string(self.file("pki/ca.crt")).context("reading the certificate authority")
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        format!("https://{ADDRESS}:{}", self.port)
    }

    /// A kubeconfig for a user of a group, with everything in it.
    pub fn kubeconfig(&self, user: &str, group: &str) -> Result<String> {
        self.kubeadm(&["kubeconfig", "user", "--client-name", user, "--org", group])
    }

    /// The same, with a client certificate that expires after `secs`.
    pub fn kubeconfig_that_expires(&self, user: &str, group: &str, secs: u32) -> Result<String> {
        let validity = format!("{secs}s");
        self.kubeadm(&["kubeconfig", "user", "--client-name", user, "--org", group, "--validity-period", &validity])
    }

    /// The API server's audit log: one JSON object a line, without bodies.
    pub fn audit_log(&self) -> Result<String> {
        fs::read_to_string(self.file("audit.log")).context("reading the audit log")
    }

    /// The port of the API server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// kubectl as the administrator, ready to be run.
    pub fn kubectl_command(&self) -> Result<Command> {
        let mut kubectl = Command::new(programs::kubernetes("kubectl")?);
        kubectl.arg("--kubeconfig").arg(self.file("admin.conf")).env("HOME", &self.directory);
        Ok(kubectl)
    }

    /// Runs kubectl as the administrator; returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        output(self.kubectl_command()?.arg("--request-timeout=10s").args(arguments))
    }

    /// A Node object, if there is one.
    pub fn node(&self, name: &str) -> Result<Option<Value>> {
        let text = self.kubectl(&["get", "node", name, "-o", "json", "--ignore-not-found"])?;
        Ok(if text.is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// Deletes a Node object if it exists.
    pub fn delete_node(&self, name: &str) -> Result<()> {
        self.kubectl(&["delete", "node", name, "--ignore-not-found"]).map(drop)
    }

    /// Kills the API server; etcd keeps what it knew.
    pub fn stop_apiserver(&self) {
        self.daemons().apiserver = None;
    }

    /// Has the API server stand still (SIGSTOP): it takes connections and requests, and answers none before it continues (SIGCONT).
    pub fn signal_apiserver(&self, signal: Signal) -> Result<()> {
        self.daemons().apiserver.as_ref().context("the API server does not run")?.signal(signal)
    }

    /// The same for etcd.
    pub fn signal_etcd(&self, signal: Signal) -> Result<()> {
        self.daemons().etcd.as_ref().context("etcd does not run")?.signal(signal)
    }

    /// Ends the controllers.
    pub fn stop_controllers(&self) {
        self.daemons().controller_manager = None;
    }

    /// What etcd counts, in Prometheus' format.
    pub fn etcd_metrics(&self) -> Result<String> {
        output(Command::new("curl").args(["-sS", "--fail", &format!("http://127.0.0.1:{}/metrics", self.etcd_port)]))
    }

    /// Starts the API server on the same port as before, if it does not run; returns when it is ready.
    pub fn start_apiserver(&self) -> Result<()> {
        if self.daemons().apiserver.is_some() {
            return Ok(());
        }
        let apiserver = self.spawn("kube-apiserver", &self.apiserver_arguments())?;
        self.daemons().apiserver = Some(apiserver);
        wait_until("the API server", Duration::from_mins(1), || {
            self.check()?;
            Ok(self.kubectl(&["get", "--raw", "/readyz"]).ok())
        })?;
        Ok(())
    }

    /// Fails if etcd or the API server has ended.
    fn check(&self) -> Result<()> {
        let mut daemons = self.daemons();
        if let Some(etcd) = &mut daemons.etcd {
            etcd.check().context("etcd")?;
        }
        if let Some(apiserver) = &mut daemons.apiserver {
            apiserver.check().context("kube-apiserver")?;
        }
        Ok(())
    }

    fn daemons(&self) -> MutexGuard<'_, Daemons> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, program: &str, arguments: &[String]) -> Result<Daemon> {
        Daemon::start(&self.directory, &programs::control_plane(program)?, arguments)
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn kubeadm(&self, arguments: &[&str]) -> Result<String> {
        output(Command::new(programs::kubernetes("kubeadm")?).args(arguments).args(["--config", &self.file("kubeadm")]))
    }

    /// Everything that the programs read from files.
    fn make_certificates(&self) -> Result<()> {
        let cluster = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": version()?, // else it asks the internet
            "certificatesDir": self.file("pki"),
            "encryptionAlgorithm": "ECDSA-P256", // faster than RSA
            "controlPlaneEndpoint": format!("{ADDRESS}:{}", self.port),
        });
        let init = json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": ADDRESS, "bindPort": self.port},
            "nodeRegistration": {"name": "control-plane", "criSocket": "unix:///run/containerd/containerd.sock"},
        });
        fs::write(self.file("kubeadm"), format!("{cluster}\n---\n{init}\n"))?;
        for certificate in ["ca", "apiserver", "sa"] {
            self.kubeadm(&["init", "phase", "certs", certificate])?;
        }
        fs::write(self.file("admin.conf"), self.kubeconfig("admin", "system:masters")?)?;
        let manager = self.kubeconfig("system:kube-controller-manager", "system:authenticated")?;
        fs::write(self.file("controller-manager.conf"), manager)?;
        let stages = ["RequestReceived", "ResponseStarted", "Panic"];
        let audit = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": stages, "rules": [
            {"level": "Metadata", "userGroups": ["nodevigil-agents"]},
            {"level": "Metadata", "users": [PEER]},
            {"level": "None"},
        ]});
        fs::write(self.file("audit.yaml"), audit.to_string())?;
        Ok(())
    }

    fn etcd_arguments(&self) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", namespaces::port());
        vec![
            format!("--data-dir={}", self.file("etcd")),
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
        ]
    }

    fn apiserver_arguments(&self) -> Vec<String> {
        let pki = |name: &str| self.file(&format!("pki/{name}"));
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={ADDRESS}"),
            format!("--secure-port={}", self.port),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--allow-privileged=true".to_owned(), // as kubeadm has it
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("sa.pub")),
            format!("--service-account-signing-key-file={}", pki("sa.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--audit-policy-file={}", self.file("audit.yaml")),
            format!("--audit-log-path={}", self.file("audit.log")),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
        ]
    }

    fn start_controllers(&self, controllers: &str, further: &[String]) -> Result<Daemon> {
        let mut arguments = self.component_arguments("controller-manager");
        arguments.push(format!("--controllers={controllers}"));
        // Without it RBAC silently refuses the lifecycle controller's writes, and no node ever becomes Unknown.
        arguments.push("--use-service-account-credentials=true".to_owned());
        arguments.extend_from_slice(further);
        self.spawn("kube-controller-manager", &arguments)
    }

    /// What scheduler and controller manager have in common.
    fn component_arguments(&self, name: &str) -> Vec<String> {
        let kubeconfig = self.file(&format!("{name}.conf"));
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", namespaces::port()),
            format!("--cert-dir={}", self.file(name)),
        ]
    }
}

/// The agents' roles and policies.
fn manifests() -> String {
    repository().join("packaging/kubernetes").display().to_string()
}

/// That of the Kubernetes programs.
fn version() -> Result<String> {
    let version = output(Command::new(programs::kubernetes("kubeadm")?).args(["version", "-o", "short"]))?;
    Ok(version.trim().to_owned())
}
