//! Many writers on one Node: whoever else writes there, nothing of theirs and nothing of ours is lost.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use libtest_mimic::Trial;
use serde_json::json;

use crate::scene::{OURS, SHORT_SPELL, SOON, Scene};
use crate::support::audit::CROWD;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::node_builder::NodeBuilder;
use crate::support::say;
use crate::support::watch::NodeWatch;
use crate::trial;
use history::{Acknowledged, Lost, Version};
use writers::{Race, Tally, Way, Writer};

mod history;
mod writers;

/// How many writes; `make bench` sets it to the promise's 10 000.
const WRITES: &str = "RACING_WRITES";
const FEW: usize = 2_000;
const WELL_BEHAVED: &[(&str, Way)] = &[
    ("KubeletLike", Way::KubeletStatus),
    ("LifecycleLike", Way::LifecycleStatus),
    ("TaintByTest", Way::TestedTaint),
    ("TaintByVersion", Way::LifecycleTaint),
    ("OurConditions", Way::OurConditions),
    ("OurTaints", Way::OurTaints),
];
/// With two who read and then write without a precondition.
const BLIND: &[(&str, Way)] = &[
    ("KubeletLike", Way::KubeletStatus),
    ("MergePatch", Way::BlindStatus),
    ("TaintByTest", Way::TestedTaint),
    ("BlindTaint", Way::BlindTaint),
];

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![
        trial("racing::no_lost_update", of_all_writes_none_is_lost),
        trial(
            "racing::losses_are_counted",
            writers_without_precondition_lose_updates,
        ),
    ]
}

/// The kubelet's, the lifecycle controller's and two taint-toggling writers, our own code, and besides the real
/// kubelet, the real lifecycle controller and the real agent, whose kubelet is killed again and again.
fn of_all_writes_none_is_lost() -> Result<()> {
    let writes = match std::env::var(WRITES) {
        Ok(text) => text.parse().with_context(|| format!("{WRITES}={text}"))?,
        Err(_) => FEW,
    };
    let plane = ControlPlane::start(Options::default())?;
    let watch = watch(&plane, "racing")?;
    let node = NodeBuilder::new(&plane, "racing")
        .agent()
        .config("50-test.toml", SHORT_SPELL)
        .restart_sec(Duration::from_millis(100))
        .boot()?;
    node.wait_ready(Duration::from_mins(1))?;
    let scene = Scene { plane, node, watch }.start()?;
    scene.play(|scene| {
        let (raced, crashes) = std::thread::scope(|scope| {
            let race = scope.spawn(|| race(&scene.plane, "racing", WELL_BEHAVED, writes));
            let mut crashes = 0;
            while !race.is_finished() {
                scene.crash_and_recover()?;
                crashes += 1;
            }
            let raced = race.join().map_err(|_| anyhow!("the race panicked"))?;
            anyhow::Ok((raced?, crashes))
        })?;
        let agents = written_by_the_agent(scene)?;
        ensure!(
            agents.len() >= 2 * crashes,
            "{crashes} crashes, and {agents:#?}"
        );
        let by_the_agent = agents.len();
        let taints = taints_by_our_code(&scene.plane)?;
        ensure!(!taints.is_empty(), "nothing of our taints in the audit log");
        let mut done = raced.done.clone();
        done.extend(taints);
        let raced = Raced { done, ..raced };
        let mut done = raced.done.clone();
        done.extend(agents);
        let versions = versions(&scene.watch, &done)?;
        let lost = history::lost(&done, &versions);
        say(&raced.report(&versions, &lost, by_the_agent, crashes));
        ensure!(raced.done.len() >= writes, "{} writes", raced.done.len());
        ensure!(
            lost.is_empty(),
            "{} lost, the first: {:#?}",
            lost.len(),
            &lost[..lost.len().min(3)]
        );
        Ok(())
    })
}

/// Without this the count of lost updates could be 0 whatever happens.
fn writers_without_precondition_lose_updates() -> Result<()> {
    let plane = ControlPlane::shared()?;
    let name = "racing-blindly";
    let watch = watch(&plane, name)?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let (code, answer) = plane.request("POST", "/api/v1/nodes", "application/json", &node)?;
    ensure!(code == 201, "{code}: {answer}");
    let raced = race(&plane, name, BLIND, 400)?;
    plane.delete_node(name)?;
    let versions = versions(&watch, &raced.done)?;
    let lost = history::lost(&raced.done, &versions);
    say(&raced.report(&versions, &lost, 0, 0));
    for victim in ["KubeletLike", "TaintByTest"] {
        ensure!(
            lost.iter().any(|lost| lost.write.writer == victim),
            "nothing of {victim} was lost, of {} writes",
            raced.done.len()
        );
    }
    Ok(())
}

/// What came of a race.
struct Raced {
    done: Vec<Acknowledged>,
    tallies: Vec<Tally>,
    took: Duration,
}

/// Has the writers write to a Node at the same time.
fn race(
    plane: &ControlPlane,
    node: &str,
    ways: &[(&'static str, Way)],
    writes: usize,
) -> Result<Raced> {
    let object = plane.node(node)?.context("no Node to race on")?;
    let race = Race::new(&object, writes, ways.len())?;
    let mut writers = Vec::new();
    for (name, way) in ways {
        writers.push(Writer::new(plane, &race, name, *way)?);
    }
    let started = Instant::now();
    let tallies: Result<Vec<Tally>> = std::thread::scope(|scope| {
        let running: Vec<_> = writers
            .into_iter()
            .map(|writer| scope.spawn(|| writer.run()))
            .collect();
        running
            .into_iter()
            .map(|writer| {
                writer
                    .join()
                    .map_err(|_| anyhow!("a writer panicked"))
                    .flatten()
            })
            .collect()
    });
    let (tallies, took) = (tallies?, started.elapsed());
    Ok(Raced {
        done: race.into_done(),
        tallies,
        took,
    })
}

/// What the agent's own applies were acknowledged as, by the API server's audit log.
fn written_by_the_agent(scene: &Scene) -> Result<Vec<Acknowledged>> {
    let mut done = Vec::new();
    for request in scene
        .requests()?
        .iter()
        .filter(|one| one.verb == "patch" && one.uri.contains("/status?"))
    {
        ensure!(request.code == 200, "the agent was refused: {request:#?}");
        let conditions = request.body["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten();
        let ours = conditions
            .into_iter()
            .find(|condition| condition["type"] == OURS);
        let Some(ours) = ours else {
            // Another check may have run first; from this one's first word on it is in every apply, which is the whole set.
            ensure!(done.is_empty(), "an apply without our condition");
            continue;
        };
        let text = |name: &str| ours[name].as_str().unwrap_or_default();
        done.push(Acknowledged {
            writer: "the agent",
            key: OURS.to_owned(),
            value: Some(format!("{} {}", text("status"), text("message"))),
            version: request
                .version
                .parse()
                .context("the version in the answer")?,
        });
    }
    Ok(done)
}

/// The same for our code's taints: whether the list that it wrote has one with `OurTaints`' key, and its value.
fn taints_by_our_code(plane: &ControlPlane) -> Result<Vec<Acknowledged>> {
    let key = "racing.test/nodevigil-kubelet-unhealthy";
    let requests = plane.audit()?;
    let written = requests
        .iter()
        .filter(|one| one.user == "racing:OurTaints" && one.verb == "patch" && one.code == 200);
    written
        .map(|request| {
            let operations = request.body.as_array().context("no JSON Patch")?;
            let list = operations.last().context("an empty patch")?;
            let taints = list["value"].as_array().into_iter().flatten();
            let mut ours = taints.filter(|taint| taint["key"] == key);
            Ok(Acknowledged {
                writer: "OurTaints",
                key: key.to_owned(),
                value: ours
                    .next()
                    .and_then(|taint| taint["value"].as_str())
                    .map(str::to_owned),
                version: request
                    .version
                    .parse()
                    .context("the version in the answer")?,
            })
        })
        .collect()
}

/// Watches a Node, and keeps of each event what the writers write.
fn watch(plane: &ControlPlane, node: &str) -> Result<NodeWatch> {
    let kubeconfig = plane.kubeconfig("racing:witness", &["system:masters", CROWD], "127.0.0.1")?;
    NodeWatch::start_keeping(kubeconfig, node, |event| {
        let object = &event["object"];
        let metadata = &object["metadata"];
        json!({
            "type": event["type"],
            "object": {
                "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
                "spec": {"taints": object["spec"]["taints"]},
                "status": {"conditions": object["status"]["conditions"]},
            },
        })
    })
}

/// All versions of the Node, once the watch has seen the last write; none of the writes' may be missing.
fn versions(watch: &NodeWatch, done: &[Acknowledged]) -> Result<Vec<Version>> {
    let last = done
        .iter()
        .map(|write| write.version)
        .max()
        .context("no write")?;
    watch.wait_for(SOON, |event| {
        history::number(&event["object"]).is_ok_and(|number| number >= last)
    })?;
    let events = watch.all();
    let there = events
        .iter()
        .filter(|(_, event)| event["type"] != "DELETED");
    let versions = there
        .map(|(_, event)| Version::read(&event["object"]))
        .collect::<Result<Vec<_>>>()?;
    ensure!(
        versions.is_sorted_by_key(|version| version.number),
        "the watch went back in time"
    );
    let unseen = history::unseen(done, &versions);
    ensure!(unseen == 0, "the watch did not see {unseen} writes");
    Ok(versions)
}

impl Raced {
    fn report(
        &self,
        versions: &[Version],
        lost: &[Lost],
        by_the_agent: usize,
        crashes: usize,
    ) -> String {
        let mut text = format!(
            "\n{} acknowledged writes in {:.1?}, {} versions of the Node, {} lost; besides {by_the_agent} of the agent at {crashes} crashes\n\
             {:<16}{:>8}{:>10}{:>11}{:>12}{:>6}\n",
            self.done.len(),
            self.took,
            versions.len(),
            lost.len(),
            "writer",
            "writes",
            "requests",
            "conflicts",
            "most tries",
            "lost",
        );
        for tally in &self.tallies {
            let lost = lost
                .iter()
                .filter(|lost| lost.write.writer == tally.writer)
                .count();
            let _ = writeln!(
                text,
                "{:<16}{:>8}{:>10}{:>11}{:>12}{lost:>6}",
                tally.writer, tally.acknowledged, tally.requests, tally.conflicts, tally.tries,
            );
        }
        text
    }
}
