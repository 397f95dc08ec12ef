//! How the last boot ended, told in the first Event of the next: a node that is shut down, one that is cut off, and each
//! boots again with what the helper had kept on its disk.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use crate::scene::{HELPER, SOON, Scene};
use crate::support::control_plane::ControlPlane;
use crate::support::rows::row;
use crate::support::{say, wait_until};
use crate::trial;

const NAME: &str = "boots";
const RECORD: &str = "/var/lib/nodevigil-helper/boot.json";

/// The tests of this topic.
pub(crate) fn tests() -> Vec<Trial> {
    vec![trial(
        "boot::ends",
        the_end_of_a_boot_is_told_once_in_the_next,
    )]
}

fn the_end_of_a_boot_is_told_once_in_the_next() -> Result<()> {
    let first = boot("first", None)?;
    let record = first.play_on(|scene| {
        scene.ensure_no_news()?;
        // The whole way down but for the last step, which is the machine's own. Nothing delays it.
        scene.0.node.sh("systemctl poweroff --no-block")?;
        wait_until("the helper's end", SOON, || {
            let (code, _) = scene.0.node.run(&format!("systemctl is-active {HELPER}"))?;
            Ok((code != 0).then_some(()))
        })?;
        scene.record()
    })?;
    ensure!(record.contains("going_down\":\"2"), "{record}");

    let from = Instant::now();
    let second = boot("second", Some(&record))?;
    let record = second.play_on(|scene| {
        let (event, at) = scene.news(1)?;
        ensure!(event["type"] == "Normal", "{event:#}");
        ensure!(note(&event).contains("was shut down"), "{event:#}");
        row("the last boot was shut down", "systemctl poweroff, boot", "LastBootEnded (Normal)", at - from);
        say(note(&event));
        // Neither another agent nor another helper tells it again.
        scene.0.node.sh("systemctl kill --signal=KILL nodevigil nodevigil-helper; rm -f /run/nodevigil/ledger.json")?;
        std::thread::sleep(Duration::from_secs(6)); // that nothing comes shows in nothing but time
        scene.news(1)?;
        scene.record()
    })?;
    ensure!(record.contains("going_down\":null"), "{record}");
    // Here the node has ended as by a power cut.

    let from = Instant::now();
    let third = boot("third", Some(&record))?;
    let record = third.play_on(|scene| {
        let (event, at) = scene.news(2)?;
        ensure!(event["type"] == "Warning", "{event:#}");
        ensure!(note(&event).contains("left no trace"), "{event:#}");
        row(
            "the last boot ended without a shutdown",
            "kill -9 of PID 1, boot",
            "LastBootEnded (Warning)",
            at - from,
        );
        say(note(&event));
        scene.record()
    })?;

    // As after a write that a power cut tore: it is said, and no panic.
    let torn = &record[..record.len() / 2];
    boot("fourth", Some(torn))?.play_on(|scene| {
        let (event, _) = scene.news(3)?;
        ensure!(note(&event).contains("is not known"), "{event:#}");
        say(note(&event));
        Ok(())
    })
}

/// A boot of the node.
struct Boot(Scene);

/// The node boots with that record on its disk. Its kernel is the machine's, so its boot has a name by a bind mount
/// in the helper's sandbox.
fn boot(id: &str, record: Option<&str>) -> Result<Boot> {
    let last_step = "[Unit]\nSuccessAction=none\n[Service]\nExecStart=/bin/true\n";
    let scene = Scene::booted(&ControlPlane::shared()?, NAME, |node| {
        let node = node.file(
            "/etc/systemd/system/systemd-poweroff.service.d/50-test.conf",
            last_step,
            0o644,
        );
        let node = node.file(
            &format!("/etc/systemd/system/{HELPER}.d/60-boot.conf"),
            "[Service]\nBindReadOnlyPaths=/run/boot_id:/proc/sys/kernel/random/boot_id\n",
            0o644,
        );
        match record {
            Some(record) => node.file(RECORD, record, 0o600),
            None => node,
        }
    })?;
    scene.node.sh(&format!("echo {id} >/run/boot_id"))?;
    Ok(Boot(scene.start()?))
}

impl Boot {
    fn play_on<T>(self, story: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let log = |boot: &Self| {
            let (_, log) = boot
                .0
                .node
                .run("journalctl --no-pager -o short-precise -n 40 -u 'nodevigil*'; cat /var/lib/nodevigil-helper/boot.json")
                .unwrap_or_default();
            log
        };
        let told = story(&self).with_context(|| log(&self));
        self.0.node.power_off()?;
        told
    }

    fn events(&self) -> Result<Vec<Value>> {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let (code, list) = self.0.plane.get(path)?;
        ensure!(code == 200, "{code}: {list}");
        let all = list["items"].as_array().context("no items")?;
        let ours = all.iter().filter(|event| {
            event["reason"] == "LastBootEnded" && event["regarding"]["name"] == NAME
        });
        let mut ours: Vec<Value> = ours.cloned().collect();
        ours.sort_by_key(|event| event["eventTime"].to_string());
        Ok(ours)
    }

    /// The newest of exactly so many Events about the ends of this node's boots, and when it was seen.
    fn news(&self, count: usize) -> Result<(Value, Instant)> {
        let events = wait_until("the Event", SOON, || {
            let events = self.events()?;
            Ok((events.len() >= count).then_some(events))
        })?;
        ensure!(events.len() == count, "{events:#?}");
        let newest = events.last().context("an Event")?;
        ensure!(newest["series"].is_null(), "told again: {newest:#}");
        Ok((newest.clone(), Instant::now()))
    }

    /// Once the helper was asked, nothing is told of a boot that nobody knows.
    fn ensure_no_news(&self) -> Result<()> {
        wait_until("the record", SOON, || {
            Ok(self
                .record()
                .ok()
                .filter(|text| text.contains("\"asked\":true")))
        })?;
        std::thread::sleep(Duration::from_secs(2));
        self.news_of(0)
    }

    fn news_of(&self, count: usize) -> Result<()> {
        let events = self.events()?;
        ensure!(events.len() == count, "{events:#?}");
        Ok(())
    }

    fn record(&self) -> Result<String> {
        self.0.node.read(RECORD)
    }
}

fn note(event: &Value) -> &str {
    event["note"].as_str().unwrap_or_default()
}
