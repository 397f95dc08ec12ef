//! What is secret on a node appears neither in the cluster nor in what nodevigil prints, logs and keeps.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::scene::{Condition, ObservedNode, Scene};
use crate::support::control_plane::ControlPlane;

/// Is in every secret that these stories put on a node.
const CANARY: &str = "canary";
const KUBECONFIG: &str = "/etc/nodevigil/kubeconfig";
const PLUGIN: &str = "/usr/local/bin/login";
const TOKEN_FILE: &str = "/etc/nodevigil/token";
/// All that nodevigil prints, serves, logs and keeps.
const OUTPUTS: &[&str] = &[
    "nodevigil status",
    "nodevigil status -o json",
    "nodevigil diagnose",
    "nodevigil diagnose -o json",
    "nodevigil bootstrap",
    "nodevigil bootstrap -o json",
    "nodevigil check --severity info",
    "nodevigil check --severity info -o json",
    "nodevigil check --severity info -o sarif",
    "find /run/nodevigil /var/lib/nodevigil -type f -exec cat {} +",
    "curl --silent --show-error http://127.0.0.1:20258/metrics",
    "systemctl start nodevigil-preflight; journalctl --sync; journalctl -o export -u nodevigil -u nodevigil-preflight",
];

/// Where the kubelet's configuration may hold a secret, each in its own way.
const PLACE: &str = r#"
    pods='--manifest-url=https://ann:canary-of-the-flag@127.0.0.1:9/pods?X-Amz-Signature=canary-of-the-signature'
    sed -i "s|$| $pods|" /etc/default/kubelet
    echo REGISTRY_PASSWORD=canary-of-the-file >>/etc/default/kubelet
    printf '[Service]\nEnvironment=CLOUD_TOKEN=canary-of-the-unit "KUBELET_EXTRA_ARGS=%s --v=4"\n' "$pods" \
        >/etc/systemd/system/kubelet.service.d/60-secrets.conf
    sed -i '1s|^{|{"staticPodURLHeader":{"Authorization":["Bearer canary-of-the-header"]},|' /var/lib/kubelet/config.yaml
    systemctl daemon-reload
    systemctl restart kubelet"#;

/// The kubelet ends with an error that quotes this value, and nodevigil's check finds the same error.
const BREAK: &str = r#"
    url='https://ann:canary-of-the-error@bucket.example.com/kubelet?X-Amz-Signature=canary-of-the-presigned-url'
    sed -i "1s|^{|{\"httpCheckFrequency\":\"$url\",|" /var/lib/kubelet/config.yaml
    systemctl restart kubelet || true"#;

pub fn of_the_kubelet_stay_on_the_node(scene: &Scene) -> Result<()> {
    let node = scene.ready_with(|node| node)?;
    node.sh(PLACE)?;
    let from = Instant::now();
    node.start_agent()?;
    node.kubelet().wait_for(from, "True", "KubeletIsHealthy")?;
    let broken = Instant::now();
    node.sh(BREAK)?;
    let crashed = |shown: &Condition| shown.status == "False" && shown.message.contains("bucket.example.com");
    let crashed = node.kubelet().wait_until_shown(broken, crashed).context("the kubelet's last error on the Node")?;
    ensure!(crashed.message.contains("***"), "{crashed:?}");
    node.restart_agent("systemctl restart nodevigil")?; // it checks the configuration when it starts
    let config = node.condition("KubeletConfigValid");
    config
        .wait_until_shown(broken, |shown| shown.message.contains("httpCheckFrequency"))
        .context("the error of the check")?;
    let (_, report) = node.run("nodevigil check --severity info -o json")?;
    ensure!(report.contains("--manifest-url=https://***"), "the report does not quote the flag: {report}");
    let recorded = node.sh("nodevigil records; nodevigil records show; nodevigil records show -o json")?;
    ensure!(recorded.contains("bucket.example.com") && !recorded.contains(CANARY), "{recorded}");
    ensure_no_secret(&node, scene.plane())
}

pub fn of_the_agent_stay_on_the_node(scene: &Scene) -> Result<()> {
    let node = scene.healthy()?;
    let server = scene.plane().url();
    let plugin = |script: &str| {
        node.sh(&format!(
            "cat >{PLUGIN} <<'END'\n#!/bin/sh\necho canary-of-stderr >&2\n{script}\nEND\nchmod 755 {PLUGIN}"
        ))
    };
    let exec =
        || kubeconfig(&server, &json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": PLUGIN}}));
    let is_refused = |content: &str, parts: &[&str]| -> Result<()> {
        node.sh(&format!("cat >{KUBECONFIG} <<'END'\n{content}\nEND\nsystemctl restart nodevigil"))?;
        node.wait_for_trouble("IdentityUnusable", parts)
    };

    plugin("echo canary-of-stdout; exit 3")?;
    is_refused(&exec(), &[PLUGIN, "exit status: 3"])?;
    node.sh("nodevigil diagnose >/run/nodevigil/diagnose-without-identity || true")?;
    plugin(r#"echo '{"status": {"token": ["canary-of-no-credential"]}}'"#)?;
    is_refused(&exec(), &[PLUGIN, "no ExecCredential"])?;
    plugin(r#"echo '{"status": {"token": "canary-of-the-plugin"}}'"#)?;
    is_refused(&exec(), &["401 Unauthorized", KUBECONFIG])?;
    is_refused(&kubeconfig(&server, &json!({"token": "canary-of-the-kubeconfig"})), &["401 Unauthorized", KUBECONFIG])?;
    is_refused("users: [{name: u, user: {token: [canary-of-the-syntax]}}]", &[KUBECONFIG, "line 1"])?;

    // Files that others could have written. One that everyone can read is refused for that first.
    node.sh(&format!("echo canary-of-the-token-file >{TOKEN_FILE}; chmod 602 {TOKEN_FILE}"))?;
    is_refused(
        &kubeconfig(&server, &json!({"tokenFile": TOKEN_FILE})),
        &[TOKEN_FILE, "mode 0602", "writable by users other than its owner"],
    )?;
    node.sh(&format!("chmod 660 {KUBECONFIG}"))?;
    is_refused(&kubeconfig(&server, &json!({})), &[KUBECONFIG, "mode 0660", "writable by users other than its owner"])?;
    ensure_no_secret(&node, scene.plane())
}

/// A kubeconfig for this user entry.
fn kubeconfig(server: &str, user: &Value) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, "certificate-authority": "/etc/kubernetes/pki/ca.crt"}}],
        "users": [{"name": "u", "user": user}],
    });
    kubeconfig.to_string()
}

/// Looks for the secrets in everything that nodevigil has written to the cluster and shows on the node.
fn ensure_no_secret(node: &ObservedNode, plane: &ControlPlane) -> Result<()> {
    let keys = node.sh("sed -n 's/.*client-key-data: //p' /etc/kubernetes/kubelet.conf /etc/nodevigil/kubeconfig")?;
    let secrets: Vec<&str> = keys.lines().chain([CANARY]).collect();
    ensure!(secrets.len() > 1, "the kubelet's kubeconfig has no key");
    let states: Vec<String> = node.watch().since(None).iter().map(|(_, node)| node.to_string()).collect();
    let events = plane.kubectl(&["get", "events", "--all-namespaces", "-o", "json"])?;
    let mut shown = vec![("the Node".to_owned(), states.concat()), ("the Events".to_owned(), events)];
    for command in OUTPUTS {
        let (code, text) = node.run(command)?;
        ensure!(code <= 2 && text.len() > 100, "`{command}` ended with {code}: {text}");
        shown.push(((*command).to_owned(), text));
    }
    for (source, text) in &shown {
        let found = secrets.iter().find_map(|secret| text.find(secret));
        let around =
            |at: usize| text[text.floor_char_boundary(at.saturating_sub(200))..].chars().take(400).collect::<String>();
        ensure!(found.is_none(), "a secret is in {source}: {}", found.map(around).unwrap_or_default());
    }
    Ok(())
}
