//! A node with a secret in every place where nodes keep some.

use std::{fs, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

/// A canary for each place. None looks like a secret: no length, no capitals, no form tells it, but where it is said so.
pub(super) const KUBECONFIG_TOKEN: &str = "wombatofthekubeconfig";
pub(super) const KUBECONFIG_EXEC: &str = "gibbonoftheplugin";
pub(super) const KUBECONFIG_KEY: &str =
    "TFMwdExTMUNSVWRKVGlCU1UwRWdVRkpKVmtGVVJTQkxSVmt0TFMwdExRbz0";
pub(super) const OWN_TOKEN: &str = "lemurofournodevigil";
pub(super) const BOOTSTRAP: &str = "abcdef.0123456789abcdef";
pub(super) const USER_DATA: &str = "ocelotoftheuserdata";
pub(super) const ENV_NAMED: &str = "tapiroftheprovider";
pub(super) const ENV_UNNAMED: &str = "badgeroftheenvironment";
pub(super) const ENV_COMMENT: &str = "marmotofthecomment";
pub(super) const ENV_LINES: &str = "pangolinofseverallines";
pub(super) const DROPIN: &str = "quokkaofthedropin";
pub(super) const CREDENTIAL: &str = "numbatofthecredential";
pub(super) const PRE: &str = "civetoftheprogrambefore";
pub(super) const FLAG: &str = "okapioftheflag";
pub(super) const HEADER: &str = "dingooftheheader";
pub(super) const REGISTRY: &str = "jackaloftheregistry";
pub(super) const BEARER: &str = "heronofthebearer";
pub(super) const PROXY: &str = "stoatoftheproxy";
pub(super) const KEY: &str = "narwhalofthekeyfile";
pub(super) const CANARIES: &[&str] = &[
    KUBECONFIG_TOKEN,
    KUBECONFIG_EXEC,
    KUBECONFIG_KEY,
    OWN_TOKEN,
    "0123456789abcdef",
    USER_DATA,
    ENV_NAMED,
    ENV_UNNAMED,
    ENV_COMMENT,
    ENV_LINES,
    DROPIN,
    CREDENTIAL,
    PRE,
    FLAG,
    HEADER,
    REGISTRY,
    BEARER,
    PROXY,
    KEY,
];

pub(super) struct Tree(pub(super) tempfile::TempDir);

impl Tree {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub(super) fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(path), text).unwrap();
        self
    }
}

#[expect(clippy::too_many_lines, reason = "a list of files")]
pub(super) fn node_with_secrets() -> Tree {
    let tree = Tree::new();
    let basic = STANDARD_NO_PAD.encode(format!("node:{KUBECONFIG_TOKEN}"));
    tree.file("/usr/bin/kubelet", "")
        .file(
            "/etc/systemd/system/kubelet.service",
            format!(
                "[Service]\n# the way that worked: {PRE}\nEnvironmentFile=-/etc/default/kubelet\n\
                 ExecStartPre=/usr/bin/curl -u admin:{PRE} http://x/ \\\n  --data {PRE}\n\
                 ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf \\\n\
                 \x20 '--registry-token' \\\n  '{FLAG}' $KUBELET_EXTRA_ARGS\nRestart=always\n"
            ),
        )
        .file(
            "/etc/systemd/system/kubelet.service.d/10-provider.conf",
            format!(
                "[Service]\nEnvironment=\"PROVIDER_THING={DROPIN} and {DROPIN}\" A=b\nEnvironment=PLAIN_THING={DROPIN}\n\
                 Environment=\"KUBELET_MORE_ARGS=--v=2\"\nSetCredential=thing:{CREDENTIAL}\n"
            ),
        )
        .file(
            "/etc/default/kubelet",
            format!(
                "KUBELET_EXTRA_ARGS=\"--node-ip=10.0.0.7 --v=2\"\nHCLOUD_TOKEN={ENV_NAMED}\nOPAQUE={ENV_UNNAMED}\n\
                 # OLD_THING={ENV_COMMENT}\nPEM=\"first\n{ENV_LINES}==\nlast\"\nHTTPS_PROXY=http://me:{PROXY}@proxy:3128/\n"
            ),
        )
        .file(
            "/etc/kubernetes/kubelet.conf",
            format!(
                "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: {KUBECONFIG_TOKEN}\n    client-key-data: \
                 {KUBECONFIG_KEY}=\n    exec:\n      command: /bin/x\n      args:\n      - --client-secret\n      - {KUBECONFIG_EXEC}2\n\
                 \x20     env:\n      - name: PLUGIN\n        value: {KUBECONFIG_EXEC}\n"
            ),
        )
        .file(
            "/etc/nodevigil/kubeconfig",
            format!("kind: Config\nusers:\n- name: a\n  user: {{token: \"{OWN_TOKEN}\"}}\n"),
        )
        .file(
            "/etc/nodevigil/config.d/50-local.toml",
            "[kubelet]\nhealthy_for_secs = 30\n",
        )
        .file(
            "/var/lib/kubelet/config.yaml",
            format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodURL: http://x/\nstaticPodURLHeader:\n\
                 \x20 X-Thing:\n  - {HEADER}\nclusterDomain: cluster.example\n"
            ),
        )
        .file(
            "/var/lib/kubelet/pki/kubelet-client-current.pem",
            format!("-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\n"),
        )
        .file(
            "/etc/containerd/config.toml",
            format!(
                "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"pause:3.9\"\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".registry.configs.\"r.example\".auth]\nusername = \"me\"\npassword = \"{REGISTRY}\"\n\
                 auth = \"{REGISTRY}\"\n"
            ),
        )
        .file(
            "/var/lib/cloud/instance/user-data.txt",
            format!("#cloud-config\nruncmd:\n- kubeadm join --token {BOOTSTRAP} api:6443\npassword: {USER_DATA}\n"),
        )
        .file(
            "/proc/cmdline",
            format!("quiet ds=nocloud;s=http://seed:{PROXY}@10.0.0.1/ root=/dev/vda1\n"),
        );
    // What quotes them.
    let quotes = format!(
        "it said {KUBECONFIG_TOKEN}, {KUBECONFIG_EXEC}, {OWN_TOKEN}, {USER_DATA} and {BOOTSTRAP}; basic {basic}; {ENV_UNNAMED}, \
         {ENV_NAMED}, {HEADER}, {REGISTRY}, {KEY}, {FLAG}, {DROPIN}; dump {KUBECONFIG_KEY}"
    );
    let status = serde_json::json!({
        "version": 1, "written_at": "2026-11-22T00:00:00Z", "node": "worker-1.example", "note": quotes,
        "joinToken": OWN_TOKEN, "list": ["--token", FLAG],
    });
    tree.file("/run/nodevigil/status.json", status.to_string())
        .file(
            "/var/lib/nodevigil-helper/bootstrap.json",
            serde_json::json!({"version": 1, "stuck": quotes}).to_string(),
        )
        .file(
            "/var/lib/rancher/rke2/agent/logs/kubelet.log",
            format!("I1121 a fine line\nE1121 x.go:1] Authorization: Bearer {BEARER}\nE1121 y.go:2] {quotes}\n"),
        );
    tree
}
