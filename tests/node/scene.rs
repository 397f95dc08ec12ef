//! A node with its agent, and what the tests do to them and read from them: so that each test reads as its story.
//!
//! Settings that are not those of production: a healthy spell of a second and a kubelet that systemd starts anew after
//! 100 ms, to save time; a hundred ends within 30 s until it is a crash loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use nodevigil::host::journal::Kind;
use serde_json::Value;

use crate::support::api::condition;
use crate::support::audit::Request;
use crate::support::control_plane::ControlPlane;
use crate::support::node::Node;
use crate::support::node_builder::NodeBuilder;
use crate::support::process::ending;
use crate::support::wait_until;
use crate::support::watch::NodeWatch;

pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub(crate) const KUBELET: &str = "kubelet.service";
pub(crate) const AGENT: &str = "nodevigil.service";
pub(crate) const HELPER: &str = "nodevigil-helper.service";
pub(crate) const OURS: &str = "KubeletHealthy";

/// Far longer than anything should take: the tests ask what happens, the bench asks how fast.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How long a test looks on before it believes that something does not happen: longer than the healthy spell and
/// each of the agent's own periods of a second.
const LOOK_ON: Duration = Duration::from_secs(4);

/// The tests kill more often than any crash loop.
pub(crate) const SHORT_SPELL: &str =
    "[kubelet]\nhealthy_for_secs = 1\ncrash_loop_ends = 100\ncrash_loop_within_secs = 30\n";

/// A node, its control plane, and a watch on its Node from before it booted.
pub(crate) struct Scene {
    pub(crate) plane: Arc<ControlPlane>,
    pub(crate) node: Node,
    pub(crate) watch: NodeWatch,
}

/// What the Node's condition said, and when a watch heard it.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) at: Instant,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// `lastTransitionTime`.
    pub(crate) since: String,
    pub(crate) uid: String,
}

/// The end of a kubelet.
#[derive(Debug)]
pub(crate) struct Death {
    /// Its pid on the node.
    pub(crate) pid: i32,
    /// When the signal went out.
    pub(crate) killed: Instant,
    /// When the process was gone.
    pub(crate) gone: Instant,
}

impl Scene {
    /// A node of the shared control plane whose agent says that all is well.
    pub(crate) fn healthy(name: &str) -> Result<Self> {
        Self::healthy_with(name, |node| node)
    }

    /// The same, changed by `change`.
    pub(crate) fn healthy_with(
        name: &str,
        change: impl FnOnce(NodeBuilder) -> NodeBuilder,
    ) -> Result<Self> {
        Self::booted(&ControlPlane::shared()?, name, change)?.start()
    }

    /// The same, on a control plane that the test may break.
    pub(crate) fn healthy_on(plane: &Arc<ControlPlane>, name: &str) -> Result<Self> {
        Self::booted(plane, name, |node| node)?.start()
    }

    /// A node with a kubelet that is Ready, and the agent installed but not started.
    pub(crate) fn booted(
        plane: &Arc<ControlPlane>,
        name: &str,
        change: impl FnOnce(NodeBuilder) -> NodeBuilder,
    ) -> Result<Self> {
        let scene = Self::bare(plane, name, change)?;
        scene.node.wait_ready(Duration::from_mins(1))?;
        Ok(scene)
    }

    /// The same, and nobody has waited for the kubelet, if there is one.
    pub(crate) fn bare(
        plane: &Arc<ControlPlane>,
        name: &str,
        change: impl FnOnce(NodeBuilder) -> NodeBuilder,
    ) -> Result<Self> {
        let watch = plane.watch_node(name)?;
        let builder = NodeBuilder::new(plane, name)
            .agent()
            .config("50-test.toml", SHORT_SPELL)
            .restart_sec(Duration::from_millis(100));
        let node = change(builder).boot()?;
        Ok(Self {
            plane: Arc::clone(plane),
            node,
            watch,
        })
    }

    /// Starts the agent and waits until it has said that all is well.
    pub(crate) fn start(self) -> Result<Self> {
        let from = Instant::now();
        let healthy = self
            .node
            .start_agent()
            .and_then(|()| self.wait_for(from, "True", "KubeletIsHealthy"));
        healthy.with_context(|| self.log())?;
        Ok(self)
    }

    /// Runs a test's story; if it fails, the agent's journal is told too.
    pub(crate) fn play(self, story: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        story(&self).with_context(|| self.log())
    }

    /// What is on the Node now, before whatever comes next.
    pub(crate) fn now(&self) -> Result<Told> {
        let events = self.watch.all();
        events
            .iter()
            .rev()
            .find_map(Told::read)
            .context("the Node has no condition of ours")
    }

    /// Waits for an event after `from` that says so.
    pub(crate) fn wait_for(&self, from: Instant, status: &str, reason: &str) -> Result<Told> {
        let says = |told: &Told| told.status == status && told.reason == reason;
        self.wait_until_told(from, says)
            .with_context(|| format!("waiting for {status}/{reason}"))
    }

    /// Waits for an event after `from` for whose condition `wanted` holds.
    pub(crate) fn wait_until_told(
        &self,
        from: Instant,
        wanted: impl Fn(&Told) -> bool,
    ) -> Result<Told> {
        let read = |event: &Value| Told::read(&(from, event.clone()));
        let arrival = self.watch.wait_since(from, SOON, |event| {
            read(event).is_some_and(|told| wanted(&told))
        })?;
        Told::read(&arrival).context("an event has our condition")
    }

    /// What every event after `from` said of our condition.
    pub(crate) fn told_since(&self, from: Instant) -> Vec<Told> {
        self.watch
            .since(from)
            .iter()
            .filter_map(Told::read)
            .collect()
    }

    /// Fails if any event after `from` had another status than those.
    pub(crate) fn ensure_only(&self, from: Instant, statuses: &[&str]) -> Result<()> {
        let told = self.told_since(from);
        let other = told
            .iter()
            .find(|told| !statuses.contains(&told.status.as_str()));
        ensure!(other.is_none(), "not one of {statuses:?}: {other:?}");
        Ok(())
    }

    /// Fails if any event since `before` had another status or transition time.
    pub(crate) fn ensure_no_flip(&self, before: &Told) -> Result<()> {
        for told in self.told_since(before.at) {
            ensure!(
                (&told.status, &told.since) == (&before.status, &before.since),
                "flipped from {before:?} to {told:?}"
            );
        }
        Ok(())
    }

    /// The same, after some seconds of looking on.
    pub(crate) fn ensure_still(&self, before: &Told) -> Result<()> {
        std::thread::sleep(LOOK_ON); // that nothing happens shows in nothing but time
        self.ensure_no_flip(before)?;
        let now = self.now()?;
        ensure!(now.status == before.status, "{now:?}");
        Ok(())
    }

    /// Kills the kubelet, and waits until it is gone.
    pub(crate) fn kill_kubelet(&self) -> Result<Death> {
        let pid = self.node.main_pid(KUBELET)?;
        let end = ending(self.node.kubelet_pid()?)?;
        let killed = self.node.signal_unit(KUBELET, Signal::SIGKILL)?;
        let gone = end.wait(SOON)?;
        Ok(Death { pid, killed, gone })
    }

    /// Has systemd leave a dead kubelet dead.
    pub(crate) fn keep_dead(&self) -> Result<()> {
        let folder = "/run/systemd/system/kubelet.service.d";
        self.node.sh(&format!(
            "mkdir -p {folder}; printf '[Service]\\nRestart=no\\n' >{folder}/90-dead.conf; systemctl daemon-reload"
        ))?;
        Ok(())
    }

    /// Kills the kubelet for good; returns what the Node then says.
    pub(crate) fn kill_for_good(&self) -> Result<Told> {
        self.keep_dead()?;
        let death = self.kill_kubelet()?;
        self.wait_for(death.killed, "False", "KubeletCrashed")
    }

    /// Starts a kubelet that was killed for good, and waits until the Node says that all is well.
    pub(crate) fn revive(&self) -> Result<Told> {
        let from = Instant::now();
        self.node.sh("systemctl start kubelet")?;
        self.wait_for(from, "True", "KubeletIsHealthy")
    }

    /// Kills the kubelet, which systemd starts anew, and waits until that was told, and its end.
    pub(crate) fn crash_and_recover(&self) -> Result<()> {
        let death = self.kill_kubelet()?;
        let told = self.wait_for(death.killed, "False", "KubeletCrashed")?;
        self.wait_for(told.at, "True", "KubeletIsHealthy")?;
        Ok(())
    }

    /// The status file, once `wanted` holds for it.
    pub(crate) fn status_file(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let found = wait_until(what, SOON, || {
            last = self.node.status_json().unwrap_or_default();
            Ok(wanted(&last).then_some(()))
        });
        found.with_context(|| format!("status.json: {last:#}"))?;
        Ok(last)
    }

    /// The agent's journal lines of a kind.
    pub(crate) fn lines(&self, kind: Kind) -> Result<Vec<Value>> {
        let lines = self.node.journal(AGENT, &[])?;
        Ok(lines
            .into_iter()
            .filter(|line| line["MESSAGE_ID"] == kind.id())
            .collect())
    }

    /// The requests of the agent's own user so far.
    pub(crate) fn requests(&self) -> Result<Vec<Request>> {
        let user = format!("nodevigil:{}", self.node.name());
        let all = self.plane.audit()?;
        Ok(all.into_iter().filter(|one| one.user == user).collect())
    }

    /// One property of a unit.
    pub(crate) fn property(&self, unit: &str, name: &str) -> Result<String> {
        let text = self
            .node
            .sh(&format!("systemctl show --value --property={name} {unit}"))?;
        Ok(text.trim().to_owned())
    }

    /// Waits until the kubelet has made its Lease.
    pub(crate) fn wait_for_lease(&self) -> Result<()> {
        let path = format!("{LEASES}/{}", self.node.name());
        wait_until("the kubelet's Lease", SOON, || {
            let (code, _) = self
                .plane
                .request("GET", &path, "application/json", &Value::Null)?;
            Ok((code == 200).then_some(()))
        })
    }

    fn log(&self) -> String {
        let (_, log) = self
            .node
            .run("journalctl --no-pager -o short-precise -n 60 -u 'nodevigil*'")
            .unwrap_or_default();
        let told: Vec<_> = self.watch.all().iter().filter_map(Told::read).collect();
        let last = &told[told.len().saturating_sub(8)..];
        format!("the node's journal:\n{log}\nthe last conditions: {last:#?}")
    }
}

impl Told {
    /// What an event says of our condition, if the Node has it.
    pub(crate) fn read((at, event): &(Instant, Value)) -> Option<Self> {
        let condition = condition(event, OURS)?;
        let text = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        let uid = event.pointer("/object/metadata/uid")?.as_str()?;
        Some(Self {
            at: *at,
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            since: text("lastTransitionTime"),
            uid: uid.to_owned(),
        })
    }
}
