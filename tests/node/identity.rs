//! As whom the agent speaks: as itself, as the kubelet, as nobody. Each is said once.

mod not_lent;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libtest_mimic::Trial;
use nodevigil::host::journal::Kind;
use serde_json::{Value, json};

use crate::audit::under_our_name;
use crate::scene::Scene;
use crate::support::control_plane::ControlPlane;
use crate::support::enter;
use crate::support::node_builder::NodeBuilder;
use crate::trial;

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("identity::own", its_own_kubeconfig_comes_first),
        trial("identity::kubelet", the_kubelets_rotated_certificate_serves),
        trial("identity::none", without_one_it_stands_alone),
        trial(
            "identity::not_lent",
            not_lent::the_kubelets_is_refused_by_configuration,
        ),
        trial("identity::token_rotated", a_rotated_token_is_used),
        trial("identity::token_revoked", a_revoked_token_is_read_anew_once),
        trial(
            "identity::certificate_rotated",
            a_rotated_certificate_is_used,
        ),
        trial("identity::exec_plugin", the_kubelets_exec_plugin_serves),
        trial(
            "identity::own_exec_plugin",
            an_exec_plugin_of_its_own_serves,
        ),
    ]
}

fn its_own_kubeconfig_comes_first() -> Result<()> {
    Scene::healthy("own-identity")?.play(|scene| {
        scene.crash_and_recover()?;
        ensure!(
            !writes_of(scene, "nodevigil:own-identity")?.is_empty(),
            "no write"
        );
        ensure!(
            writes_of(scene, "system:node:own-identity")?.is_empty(),
            "written as the kubelet"
        );
        said_once(scene, "own")
    })
}

/// Born by `kubeadm join`: the certificate is one that the cluster signed, in a file that only root may read.
fn the_kubelets_rotated_certificate_serves() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "kubelets-identity", NodeBuilder::joining)?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig")?;
        let reference = scene.node.read("/etc/kubernetes/kubelet.conf")?;
        ensure!(
            reference.contains("kubelet-client-current.pem"),
            "{reference}"
        );
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.crash_and_recover()?;
        let told = scene.kill_for_good()?;
        scene.ensure_still(&told)?;
        scene.revive()?;
        let user = "system:node:kubelets-identity";
        let writes = writes_of(scene, user)?;
        ensure!(writes.len() >= 5, "{writes:#?}"); // well, crash, well, crash, well
        ensure!(scene.requests()?.is_empty(), "as its own user");
        said_once(scene, "kubelet")
    })
}

fn a_rotated_token_is_used() -> Result<()> {
    a_rotated_secret_is_used("token-rotated", Secret::Token)
}

fn a_rotated_certificate_is_used() -> Result<()> {
    a_rotated_secret_is_used("certificate-rotated", Secret::Certificate)
}

/// Nobody says that the file changed: it is looked at each minute.
fn a_rotated_secret_is_used(node: &str, secret: Secret) -> Result<()> {
    with_files(node, secret)?.play(|scene| {
        let next = secret.of(scene, "second")?;
        let from = Instant::now();
        scene.write_secrets(&next)?;
        scene.wait_for_user(from, &next.user)?;
        scene.crash_and_recover()?;
        ensure!(!writes_of(scene, &next.user)?.is_empty(), "no write");
        said_once(scene, "own")
    })
}

/// A 401 is worth one look at the file. When that holds the next token already, nothing is lost; when it does not, the
/// agent slows down.
fn a_revoked_token_is_read_anew_once() -> Result<()> {
    with_files("token-revoked", Secret::Token)?.play(|scene| {
        let next = Secret::Token.of(scene, "second")?;
        scene.write_secrets(&next)?;
        let path = format!("{ACCOUNTS}/{}", account(scene, "first"));
        let (code, answer) =
            scene
                .plane
                .request("DELETE", &path, "application/json", &json!({}))?;
        ensure!(code == 200, "{code}: {answer}");
        std::thread::sleep(TOKENS_ARE_REMEMBERED); // the API server remembers for so long that a token was good
        scene.crash_and_recover()?;
        ensure!(!writes_of(scene, &next.user)?.is_empty(), "no write");
        // That account may tell no Events, which is said as well.
        let mut lines = scene.lines(Kind::PublishFailed)?;
        lines.retain(|line| {
            line["ERROR"]
                .as_str()
                .is_some_and(|why| why.starts_with("401"))
        });
        ensure!(lines.len() == 1, "{lines:#?}");
        Ok(())
    })
}

/// As on EKS: the kubeconfig names a program. The kubelet runs it, and nodevigil-plugin.service does for the helper.
fn the_kubelets_exec_plugin_serves() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let name = "exec-plugin";
    let user = format!("system:node:{name}");
    let with_certificate = plane.kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?;
    let (kubeconfig, plugin) = with_plugin(&with_certificate)?;
    let scene = Scene::booted(&plane, name, |node| {
        let conf = "/etc/kubernetes/kubelet.conf";
        // As on EKS, there is nothing to bootstrap and no certificate to rotate.
        let flags = format!("[Service]\nEnvironment=KUBELET_KUBECONFIG_ARGS=--kubeconfig={conf}\n");
        let drop_in = "/etc/systemd/system/kubelet.service.d/60-cloud.conf";
        node.file(conf, &kubeconfig.to_string(), 0o600)
            .file(PLUGIN, &plugin, 0o755)
            .file(drop_in, &flags, 0o644)
            .kubelet_argument("--rotate-certificates=false")
    })?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig")?;
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.crash_and_recover()?;
        ensure!(writes_of(scene, &user)?.len() >= 3, "as its own user");
        said_once(scene, "kubelet")
    })
}

fn an_exec_plugin_of_its_own_serves() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let name = "own-exec-plugin";
    let (kubeconfig, plugin) = with_plugin(&plane.agent_kubeconfig(name)?)?;
    let scene = Scene::booted(&plane, name, |node| node.file(PLUGIN, &plugin, 0o755))?;
    scene.play(|scene| {
        scene.node.sh(&format!(
            "cat >/etc/nodevigil/kubeconfig <<'END'\n{kubeconfig}\nEND"
        ))?;
        let from = Instant::now();
        scene.node.start_agent()?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.crash_and_recover()?;
        let writes = writes_of(scene, &format!("nodevigil:{name}"))?;
        ensure!(!writes.is_empty(), "no write");
        said_once(scene, "own")?;
        // Who else could have put the program there is not obeyed.
        scene
            .node
            .sh(&format!("chmod o+w {PLUGIN}; systemctl restart nodevigil"))?;
        scene.status_file("the plugin to be refused", |file| {
            let detail = file["identity"]["detail"].to_string();
            detail.contains(PLUGIN) && detail.contains("written by others")
        })?;
        Ok(())
    })
}

pub(crate) const PLUGIN: &str = "/opt/cloud/bin/credential";

/// The kubeconfig with a program in place of the certificate, and that program.
pub(crate) fn with_plugin(kubeconfig: &Value) -> Result<(Value, String)> {
    let mut kubeconfig = kubeconfig.clone();
    let user = &mut kubeconfig["users"][0]["user"];
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {
            "clientCertificateData": pem(user, "client-certificate-data")?,
            "clientKeyData": pem(user, "client-key-data")?,
        },
    });
    *user = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": PLUGIN,
        "args": ["get-token", "$HOME"],
        "env": [{"name": "CLOUD", "value": "a b"}],
        "interactiveMode": "Never",
    }});
    let plugin = format!(
        r#"#!/bin/sh
[ "$CLOUD" = "a b" ] && [ "$1 $2" = 'get-token $HOME' ] || exit 1
case $KUBERNETES_EXEC_INFO in *'"kind":"ExecCredential"'*) ;; *) exit 1 ;; esac
cat <<'END'
{credential}
END
"#
    );
    Ok((kubeconfig, plugin))
}

fn pem(user: &Value, field: &str) -> Result<String> {
    let data = user[field].as_str().context("no data")?;
    Ok(String::from_utf8(STANDARD.decode(data)?)?)
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
/// How long the API server remembers that a token was good.
const TOKENS_ARE_REMEMBERED: Duration = Duration::from_secs(12);
/// The agent looks at its files each minute.
const LOOKED_AT: Duration = Duration::from_secs(75);

/// What a kubeconfig may name by file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    Token,
    Certificate,
}

/// Files beside the kubeconfig, and as whom the API server knows their bearer.
struct Secrets {
    user: String,
    files: Vec<(&'static str, String)>,
}

impl Secret {
    /// Of a user that may do what an agent may.
    fn of(self, scene: &Scene, which: &str) -> Result<Secrets> {
        self.made(&scene.plane, scene.node.name(), which)
    }

    fn made(self, plane: &ControlPlane, node: &str, which: &str) -> Result<Secrets> {
        let account = format!("{node}-{which}");
        let post = |path: &str, body: Value| -> Result<Value> {
            let (code, answer) = plane.request("POST", path, "application/json", &body)?;
            ensure!(code == 201, "{code}: {answer}");
            Ok(answer)
        };
        let subject = match self {
            Self::Certificate => json!({"kind": "User", "name": account}),
            Self::Token => {
                post(ACCOUNTS, json!({"metadata": {"name": account}}))?;
                json!({"kind": "ServiceAccount", "namespace": "default", "name": account})
            }
        };
        post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            json!({
                "metadata": {"name": account},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "nodevigil",
                },
                "subjects": [subject],
            }),
        )?;
        if self == Self::Certificate {
            let kubeconfig = plane.kubeconfig(&account, &[], enter::ADDRESS)?;
            let of = &kubeconfig["users"][0]["user"];
            let files = vec![
                ("client.crt", pem(of, "client-certificate-data")?),
                ("client.key", pem(of, "client-key-data")?),
            ];
            let user = account;
            return Ok(Secrets { user, files });
        }
        let path = format!("{ACCOUNTS}/{account}/token");
        let answer = post(&path, json!({"spec": {"expirationSeconds": 3600}}))?;
        let token = answer["status"]["token"].as_str().context("no token")?;
        Ok(Secrets {
            user: format!("system:serviceaccount:default:{account}"),
            files: vec![("token", token.to_owned())],
        })
    }
}

fn account(scene: &Scene, which: &str) -> String {
    format!("{}-{which}", scene.node.name())
}

/// A healthy node whose agent has its credential in files beside its kubeconfig.
fn with_files(name: &str, secret: Secret) -> Result<Scene> {
    let plane = ControlPlane::shared()?;
    let first = secret.made(&plane, name, "first")?;
    let mut kubeconfig = plane.agent_kubeconfig(name)?;
    kubeconfig["users"][0]["user"] = match secret {
        Secret::Token => json!({"tokenFile": "token"}),
        Secret::Certificate => {
            json!({"client-certificate": "client.crt", "client-key": "client.key"})
        }
    };
    let scene = Scene::healthy_with(name, |node| {
        let kubeconfig = kubeconfig.to_string();
        let setting = "[kubernetes]\nkubeconfig = \"/etc/nodevigil/other\"\n";
        let node = node
            .file("/etc/nodevigil/other", &kubeconfig, 0o644)
            .config("60-kubeconfig.toml", setting);
        first.files.iter().fold(node, |node, (file, text)| {
            node.file(&format!("/etc/nodevigil/{file}"), text, 0o644)
        })
    })?;
    ensure!(!writes_of(&scene, &first.user)?.is_empty(), "no write");
    Ok(scene)
}

impl Scene {
    fn write_secrets(&self, secrets: &Secrets) -> Result<()> {
        for (file, text) in &secrets.files {
            let path = format!("/etc/nodevigil/{file}");
            self.node.sh(&format!(
                "cat >{path}.new <<'END'\n{text}\nEND\nmv {path}.new {path}"
            ))?;
        }
        Ok(())
    }

    /// Until the API server hears that user.
    fn wait_for_user(&self, from: Instant, user: &str) -> Result<()> {
        loop {
            let requests = self.plane.audit()?;
            if requests.iter().any(|one| one.user == user) {
                return Ok(());
            }
            ensure!(from.elapsed() < LOOKED_AT, "{user} was not heard of");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

fn without_one_it_stands_alone() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let scene = Scene::booted(&plane, "standalone", |node| node)?;
    scene.play(|scene| {
        scene.node.sh("rm /etc/nodevigil/kubeconfig
             systemctl mask nodevigil-helper.socket nodevigil-helper.service
             systemctl start nodevigil")?;
        let is = |file: &Value, reason: &str| {
            file["identity"]["kind"] == "none" && file["conditions"][0]["reason"] == reason
        };
        // Without the helper nobody can say where this kubelet's healthz is: it is none of the usual places.
        let file = scene.status_file("a verdict", |file| is(file, "KubeletStarting"))?;
        ensure!(file["api"]["state"] == "none", "{file:#}");
        scene.keep_dead()?;
        scene.kill_kubelet()?;
        scene.status_file("the crash", |file| is(file, "KubeletCrashed"))?;
        ensure!(scene.requests()?.is_empty(), "it asked the API");
        said_once(scene, "none")
    })
}

fn said_once(scene: &Scene, kind: &str) -> Result<()> {
    let file = scene.node.status_json()?;
    ensure!(file["identity"]["kind"] == kind, "{file:#}");
    let lines = scene.lines(Kind::Identity)?;
    ensure!(lines.len() == 1, "said {} times: {lines:#?}", lines.len());
    ensure!(lines[0]["IDENTITY"] == kind, "{:#}", lines[0]);
    Ok(())
}

/// What was applied under our name as that user.
fn writes_of(scene: &Scene, user: &str) -> Result<Vec<Value>> {
    let requests = scene.plane.audit()?;
    let ours = requests
        .into_iter()
        .filter(|one| one.user == user && one.verb == "patch" && under_our_name(one));
    Ok(ours.map(|one| one.body).collect())
}
