//! The node that is well: as cloud images have it, with the deb installed, pods that run, and a disk of its own for the kubelet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::packages::kit::{DEB, Kit};
use crate::scene::{HELPER, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::enter;
use crate::support::node_builder::NodeBuilder;
use crate::support::proxy::Proxy;

pub(super) const NAME: &str = "well";
/// Where the kubelet's control group is, below the node's own.
pub(super) const GROUP: &str = "starving.slice/kubelet.service";
/// The kubelet's own way to the API server; nobody else on the machine uses this address.
const ADDRESS: &str = "127.0.0.11";
const SYSTEM: &str = "/etc/systemd/system";
const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// What systemd starts before the kubelet: its disk, which may be frozen and filled.
const DISK: &str = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -ec 'mkdir -p /srv/kubelet; truncate -s 192M /run/disk.img; mkfs.ext4 -q -F /run/disk.img; \
    mount -o loop /run/disk.img /srv/kubelet; mkdir -p -m 700 /srv/kubelet/.nodevigil'\n";
const AFTER_DISK: &str = "[Unit]\nRequires=disk.service\nAfter=disk.service\n";
const SANDBOX: &str = "[Service]\nReadWritePaths=-/srv/kubelet/.nodevigil\n";
/// Where it can be starved without anybody else on this machine.
const SLICE: &str = "[Service]\nSlice=starving.slice\nCPUShares=2\nCPUWeight=1\n";
/// The rest is as shipped. A short spell hides less: each flip shows.
const SETTINGS: &str =
    "[kubelet]\nhealthy_for_secs = 10\n[kubernetes]\nkubeconfig = \"/etc/nodevigil/here\"\n";

/// runc may not write a lower `oom_score_adj` in a container of the test machines.
const CONTAINERD: &str = "version = 2
[plugins.\"io.containerd.grpc.v1.cri\"]
restrict_oom_score_adj = true
sandbox_image = \"localhost/pod:1\"
[plugins.\"io.containerd.grpc.v1.cri\".containerd]
snapshotter = \"native\"
";

/// An image that holds busybox and waits; it serves as the sandbox's too.
const IMAGE: &str = r#"set -e
mkdir -p /root/image/root/bin; cd /root/image
cp "$(command -v busybox)" root/bin/busybox; ln -s busybox root/bin/sleep
tar -C root -cf layer.tar .
printf '{"architecture":"amd64","os":"linux","config":{"Cmd":["/bin/sleep","1000000"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
  "$(sha256sum layer.tar | cut -d' ' -f1)" >config.json
printf '[{"Config":"config.json","RepoTags":["localhost/pod:1"],"Layers":["layer.tar"]}]' >manifest.json
tar -cf image.tar layer.tar config.json manifest.json
ctr -n k8s.io images import image.tar
"#;

/// A package as of the kubelet's: it stops the kubelet, takes its time, and starts it.
const UPGRADE: [(&str, &str, u32); 2] = [
    (
        "/root/deb/DEBIAN/control",
        "Package: upgrade-test\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: none\n",
        0o644,
    ),
    (
        "/root/deb/DEBIAN/postinst",
        "#!/bin/sh\nsystemctl stop kubelet\nsleep 4\nsystemctl start kubelet\n",
        0o755,
    ),
];

/// The node, and what stands between it and the API server.
pub(super) struct Stage<'a> {
    pub(super) scene: &'a Scene,
    /// The agent's way there.
    pub(super) proxy: Proxy,
    kit: &'static Kit,
    upgrades: AtomicUsize,
    /// The most containers that were seen to run.
    pub(super) containers: AtomicUsize,
}

/// Boots it; the agent is not started yet.
pub(super) fn boot(plane: &Arc<ControlPlane>) -> Result<(Scene, Proxy)> {
    let kit = Kit::made()?;
    let watch = plane.watch_node(NAME)?;
    let identity = plane.agent_kubeconfig(NAME)?;
    let proxy = Proxy::start(plane, &identity, enter::ADDRESS)?;
    let mut kubelet = plane.kubeconfig(
        &format!("system:node:{NAME}"),
        &["system:nodes"],
        enter::ADDRESS,
    )?;
    let cluster = &mut kubelet["clusters"][0]["cluster"];
    cluster["server"] = format!("https://{ADDRESS}:{}", plane.port()).into();
    cluster["tls-server-name"] = enter::ADDRESS.into();
    let mut builder = NodeBuilder::new(plane, NAME)
        .file("/etc/kubernetes/kubelet.conf", &kubelet.to_string(), 0o600)
        .file(
            "/etc/nodevigil/here",
            &proxy.kubeconfig(&identity)?.to_string(),
            0o644,
        )
        .file("/etc/containerd/config.toml", CONTAINERD, 0o644)
        .file(&format!("{SYSTEM}/disk.service"), DISK, 0o644)
        .file(
            &format!("{SYSTEM}/kubelet.service.d/60-disk.conf"),
            AFTER_DISK,
            0o644,
        )
        .file(
            &format!("{SYSTEM}/kubelet.service.d/60-slice.conf"),
            SLICE,
            0o644,
        )
        .file(&format!("{SYSTEM}/{HELPER}.d/60-disk.conf"), SANDBOX, 0o644)
        .file(&format!("{MANIFESTS}/.keep"), "", 0o644)
        .config("60-well.toml", SETTINGS)
        .kubelet_argument("--root-dir=/srv/kubelet")
        .kubelet_argument(&format!("--pod-manifest-path={MANIFESTS}"));
    for (path, content, mode) in UPGRADE {
        builder = builder.file(path, content, mode);
    }
    for package in kit.both(&DEB) {
        builder = builder.program(package.clone());
    }
    let node = builder.boot()?;
    node.wait_ready(Duration::from_mins(1))?;
    let plane = Arc::clone(plane);
    Ok((Scene { plane, node, watch }, proxy))
}

impl<'a> Stage<'a> {
    /// Installs the agent and starts it; returns when the Node says that all is well.
    pub(super) fn set(scene: &'a Scene, proxy: Proxy) -> Result<Self> {
        let kit = Kit::made()?;
        scene.node.sh(IMAGE)?;
        scene.node.sh("dpkg-deb --build /root/deb /root/test.deb")?;
        scene.node.sh(&kit.install(&DEB))?;
        let from = Instant::now();
        scene.node.sh("systemctl enable --now nodevigil")?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        scene.wait_for_lease()?;
        Ok(Self {
            scene,
            proxy,
            kit,
            upgrades: AtomicUsize::new(0),
            containers: AtomicUsize::new(0),
        })
    }

    /// Runs a command on the node.
    pub(super) fn sh(&self, command: &str) -> Result<()> {
        self.scene.node.sh(command).map(drop)
    }

    /// By turns the next version's deb, and the first one's again.
    pub(super) fn upgrade(&self) -> Result<()> {
        let command = match self.upgrades.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.kit.upgrade(&DEB),
            _ => self.kit.install(&DEB),
        };
        self.sh(&command)
    }

    /// The kubelet's way to the API server loses every packet from now on.
    pub(super) fn cut(&self) -> Result<()> {
        let port = self.scene.plane.port();
        let rule = format!("input ip daddr {ADDRESS} tcp dport {port} drop");
        self.firewall("way", &rule)
    }

    /// Adds a rule to a table of its own.
    pub(super) fn firewall(&self, table: &str, rule: &str) -> Result<()> {
        let table = format!("ip {NAME}_{table}");
        self.sh(&format!(
            "nft add table {table} && nft add chain {table} input '{{ type filter hook input priority 0; }}' && nft add rule {table} {rule}"
        ))
    }

    /// Takes that table away.
    pub(super) fn no_firewall(&self, table: &str) -> Result<()> {
        self.sh(&format!("nft delete table ip {NAME}_{table}"))
    }

    /// Pods that stay, and one whose container ends and is started again.
    pub(super) fn pods_come(&self, count: usize) -> Result<()> {
        for number in 0..count {
            let lasts = if number == 0 { "3" } else { "1000" };
            self.sh(&format!(
                "cat >{MANIFESTS}/comes-{number}.json <<'END'\n{}\nEND",
                pod(number, lasts)
            ))?;
        }
        Ok(())
    }

    /// They are gone with their files.
    pub(super) fn pods_go(&self) -> Result<()> {
        let (_, tasks) = self
            .scene
            .node
            .run("timeout 10 ctr -n k8s.io tasks ls -q | wc -l")?;
        let running = tasks.trim().parse().context("a count of containers");
        self.containers
            .fetch_max(running.unwrap_or_default(), Ordering::Relaxed);
        self.sh(&format!("rm -f {MANIFESTS}/comes-*"))
    }
}

fn pod(number: usize, lasts: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("comes-{number}"), "namespace": "default"},
        "spec": {
            "hostNetwork": true,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "waits",
                "image": "localhost/pod:1",
                "imagePullPolicy": "Never",
                "command": ["/bin/sleep", lasts],
            }],
        },
    })
}
