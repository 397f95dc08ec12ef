//! What keeps a kubelet from the API server, or from running at all, though its process lives: its certificate, its
//! connection, a host that leaves it no time.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{KUBELET, Scene, Told};
use crate::support::api::condition_status;
use crate::support::control_plane::ControlPlane;
use crate::support::rows::row;
use crate::support::{enter, say};
use crate::trial;

const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// Beyond what any of these takes: the slowest waits for a certificate's end.
const LONG: Duration = Duration::from_mins(3);

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("reach::certificate", a_certificate_expires_as_announced),
        trial(
            "reach::certificate_early",
            a_certificate_of_tomorrow_is_told,
        ),
        trial("reach::stall", a_stalled_connection_is_told),
        trial("reach::outage", an_outage_for_both_is_no_stall),
        trial("reach::starved", a_starved_kubelet_is_not_called_hung),
    ]
}

/// The mark of packets that get lost.
const LOST: u32 = 0x9e11;

/// Seconds since 1970.
fn now_secs() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

/// The kubelet's kubeconfig with a certificate that is good between two moments.
fn kubeconfig(plane: &ControlPlane, node: &str, good: (u64, u64)) -> Result<Value> {
    let (user, authority) = (format!("system:node:{node}"), plane.authority());
    let pair = authority.sign_between(&user, &["system:nodes"], good)?;
    Ok(authority.kubeconfig_with(&user, &pair, &plane.url()))
}

/// What must not have happened to the kubelet meanwhile.
struct Untouched(i32, String);

impl Untouched {
    fn now(scene: &Scene) -> Result<Self> {
        let starts = scene.property(KUBELET, "NRestarts")?;
        Ok(Self(scene.node.main_pid(KUBELET)?, starts))
    }

    fn ensure(&self, scene: &Scene) -> Result<()> {
        let now = Self::now(scene)?;
        let same = (now.0, &now.1) == (self.0, &self.1);
        ensure!(same, "somebody acted: pid {} became {}", self.0, now.0);
        Ok(())
    }
}

/// Waits longer than other tests do.
fn wait_long(scene: &Scene, from: Instant, status: &str, reason: &str) -> Result<Told> {
    let says = |told: &Told| told.status == status && told.reason == reason;
    let read = |event: &Value| Told::read(&(from, event.clone()));
    let told = scene
        .watch
        .wait_since(from, LONG, |event| read(event).is_some_and(|t| says(&t)))
        .with_context(|| format!("waiting for {status}/{reason}"))?;
    Told::read(&told).context("an event has our condition")
}

fn a_certificate_expires_as_announced() -> Result<()> {
    const LIFE: u64 = 75;
    let (plane, name) = (ControlPlane::shared()?, "certificate");
    let (born, begun) = (Instant::now(), now_secs());
    let ends = begun + LIFE;
    let given = kubeconfig(&plane, name, (ends - 365 * 86_400, ends))?;
    let scene = Scene::booted(&plane, name, |node| {
        // Whether anybody signs a new one is not the question here.
        node.file(KUBECONFIG, &given.to_string(), 0o600)
            .kubelet_argument("--rotate-certificates=false")
    })?;
    scene.play(|scene| {
        let from = Instant::now();
        scene.node.start_agent()?;
        let hint = wait_long(scene, from, "True", "KubeletClientCertExpiring")?;
        ensure!(hint.message.contains(KUBECONFIG), "{hint:?}");
        row(
            "client certificate about to expire",
            "one of a year whose last minute has begun",
            "KubeletClientCertExpiring (True)",
            hint.at - from,
        );
        let untouched = Untouched::now(scene)?;
        let told = wait_long(scene, from, "False", "KubeletClientCertExpired")?;
        // It is good through the second that it names.
        let end = born + Duration::from_secs(LIFE);
        ensure!(told.at > end, "told before its end");
        untouched.ensure(scene)?;
        row(
            "client certificate expired",
            "it reaches its end while the kubelet runs",
            "KubeletClientCertExpired",
            told.at - end,
        );
        // Such a kubelet does not start any more, and the message says why.
        scene.node.sh("systemctl restart kubelet")?;
        scene.wait_until_told(told.at, |told| {
            told.status == "False"
                && told.message.contains("KubeletClientCertExpired")
                    != (told.reason == "KubeletClientCertExpired")
                && told.message.contains("exited with code 1")
        })?;
        let renewed = kubeconfig(&plane, name, (begun - 60, begun + 365 * 86_400))?;
        let from = Instant::now();
        scene.node.sh(&format!(
            "cat >{KUBECONFIG} <<'END'\n{renewed}\nEND\nsystemctl restart kubelet"
        ))?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        Ok(())
    })
}

fn a_certificate_of_tomorrow_is_told() -> Result<()> {
    let name = "certificate-early";
    let scene = Scene::healthy_with(name, |node| {
        node.kubelet_argument("--rotate-certificates=false")
    })?;
    scene.play(|scene| {
        let now = now_secs();
        let early = kubeconfig(&scene.plane, name, (now + 86_400, now + 30 * 86_400))?;
        let from = Instant::now();
        scene.node.sh(&format!(
            "cp -p {KUBECONFIG} /run/good; cat >{KUBECONFIG} <<'END'\n{early}\nEND\nsystemctl restart kubelet"
        ))?;
        let told = scene.wait_for(from, "False", "KubeletClientCertNotYetValid")?;
        row(
            "client certificate not valid yet",
            "one of tomorrow, and a restart",
            "KubeletClientCertNotYetValid",
            told.at - from,
        );
        let from = Instant::now();
        scene
            .node
            .sh(&format!("cp -p /run/good {KUBECONFIG}; systemctl restart kubelet"))?;
        scene.wait_for(from, "True", "KubeletIsHealthy")?;
        Ok(())
    })
}

/// A node whose kubelet and agent reach the API server at an address of loopback that nobody else uses, so that what is
/// dropped there is theirs.
fn at_own_address(name: &str, address: &str) -> Result<Scene> {
    let plane = ControlPlane::shared()?;
    let of = |mut kubeconfig: Value| {
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = format!("https://{address}:{}", plane.port()).into();
        cluster["tls-server-name"] = enter::ADDRESS.into();
        kubeconfig.to_string()
    };
    let user = format!("system:node:{name}");
    let kubelet = of(plane.kubeconfig(&user, &["system:nodes"], enter::ADDRESS)?);
    let agent = of(plane.agent_kubeconfig(name)?);
    Scene::booted(&plane, name, |node| {
        node.file(KUBECONFIG, &kubelet, 0o600)
            .file("/etc/nodevigil/here", &agent, 0o644)
            .config(
                "60-here.toml",
                "[kubernetes]\nkubeconfig = \"/etc/nodevigil/here\"\n",
            )
    })?
    .start()
}

/// Has what goes there get lost on the way, of root's or of everybody's. It is dropped where it arrives: what is dropped where
/// it leaves counts as never sent, and the sender does not send it again as it does when a network loses it.
fn cut(scene: &Scene, address: &str, whose: &str) -> Result<Instant> {
    let (table, port) = (scene.node.name().replace('-', "_"), scene.plane.port());
    let from = Instant::now();
    scene.node.sh(&format!(
        "nft -f - <<'END'
table inet {table} {{
  chain out {{
    type filter hook output priority 0;
    ip daddr {address} tcp dport {port} {whose} meta mark set {LOST}
  }}
  chain in {{
    type filter hook input priority 0;
    meta mark {LOST} drop
  }}
}}
END"
    ))?;
    Ok(from)
}

fn mend(scene: &Scene) -> Result<Instant> {
    let table = scene.node.name().replace('-', "_");
    let from = Instant::now();
    scene.node.sh(&format!("nft delete table inet {table}"))?;
    Ok(from)
}

fn a_stalled_connection_is_told() -> Result<()> {
    const ADDRESS: &str = "127.0.0.9";
    at_own_address("stall", ADDRESS)?.play(|scene| {
        let untouched = Untouched::now(scene)?;
        // A kubelet that has just started is let settle.
        std::thread::sleep(Duration::from_secs(35));
        let from = cut(scene, ADDRESS, "meta skuid 0")?;
        let told = wait_long(scene, from, "False", "KubeletAPIConnectionStalled")?;
        let late = told.at - from;
        row(
            "the kubelet's connection to the API server stalls, ours does not",
            "nft drops what root sent there, where it arrives",
            "KubeletAPIConnectionStalled",
            late,
        );
        // The control plane says less, later: that it has not heard of the kubelet.
        let given_up = scene.watch.wait_since(from, LONG, |event| {
            condition_status(event, "Ready") == Some("Unknown")
        })?;
        say(&format!(
            "stall told after {late:?}; Ready=Unknown after {:?}",
            given_up.0 - from
        ));
        ensure!(told.at < given_up.0, "told after the control plane");
        untouched.ensure(scene)?;
        let from = mend(scene)?;
        let well = wait_long(scene, from, "True", "KubeletIsHealthy")?;
        say(&format!("well again {:?} after the mend", well.at - from));
        untouched.ensure(scene)
    })
}

fn an_outage_for_both_is_no_stall() -> Result<()> {
    const ADDRESS: &str = "127.0.0.10";
    at_own_address("outage", ADDRESS)?.play(|scene| {
        let untouched = Untouched::now(scene)?;
        std::thread::sleep(Duration::from_secs(35));
        let from = cut(scene, ADDRESS, "")?;
        std::thread::sleep(Duration::from_secs(40)); // the Lease is old by then
        mend(scene)?;
        std::thread::sleep(Duration::from_secs(75)); // and everybody had time to find back
        scene.ensure_only(from, &["True"])?;
        for told in scene.told_since(from) {
            ensure!(told.reason == "KubeletIsHealthy", "{told:?}");
        }
        untouched.ensure(scene)?;
        row(
            "neither the kubelet nor we reach the API server",
            "nft drops what anybody sent there, where it arrives, for 40 s",
            "none: KubeletIsHealthy stays",
            None,
        );
        Ok(())
    })
}

/// In a slice of its own with a twentieth of a processor, which others use up.
fn a_starved_kubelet_is_not_called_hung() -> Result<()> {
    const SLICE: &str = "[Service]\nSlice=starving.slice\nCPUShares=2\nCPUWeight=1\n";
    let scene = Scene::healthy_with("starved", |node| {
        let drop_in = "/etc/systemd/system/kubelet.service.d/60-slice.conf";
        node.file(drop_in, SLICE, 0o644)
    })?;
    scene.play(|scene| {
        let untouched = Untouched::now(scene)?;
        let from = Instant::now();
        scene.node.sh(
            "systemctl set-property --runtime starving.slice CPUQuota=5%
             for i in 1 2 3 4; do
               systemd-run --quiet --unit=spinner-$i --slice=starving.slice -p CPUShares=262144 -p CPUWeight=10000 \
                 sh -c 'while :; do :; done'
             done",
        )?;
        let told = scene.wait_for(from, "True", "KubeletStarved")?;
        row(
            "the kubelet starves",
            "four spinners beside it in a slice with a twentieth of a processor",
            "KubeletStarved (True)",
            told.at - from,
        );
        say(&told.message);
        std::thread::sleep(Duration::from_secs(15));
        scene.ensure_only(from, &["True"])?;
        untouched.ensure(scene)?;
        scene.node.sh(
            "systemctl stop 'spinner-*'; systemctl set-property --runtime starving.slice CPUQuota=",
        )?;
        let well = |told: &Told| told.reason == "KubeletIsHealthy";
        scene.wait_until_told(told.at, well)?;
        scene.ensure_only(told.at, &["True"])
    })
}
