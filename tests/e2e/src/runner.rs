//! Runs stories one at a time, each on nodes of its own, and prints at the end which passed.

use std::ops::Deref;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::platforms::Platforms;
use crate::provoked::Provoked;
use crate::scene::{ObservedNode, Scene};
use crate::stories::Story;
use crate::support::control_plane::ControlPlane;
use crate::support::guest::Guest;
use crate::support::{kinds, say};

/// How a story ended.
struct Outcome {
    name: &'static str,
    seconds: u64,
    passed: bool,
}

/// Runs the stories; the exit code is 0 if each of them ran and passed.
/// `table` is the file of [`Provoked`].
pub fn run(stories: &[&Story], table: Option<&Path>, mut platforms: Option<Platforms>) -> Result<ExitCode> {
    ensure!(!stories.is_empty(), "no story has such a name; `e2e --list` lists them");
    let plane = Arc::new(ControlPlane::start().context("starting the control plane")?);
    let mut provoked = table.map(Provoked::read).transpose()?;
    let mut outcomes = Vec::new();
    for story in stories {
        let begun = Instant::now();
        let result = play(story, &plane, provoked.as_mut(), platforms.as_mut());
        let outcome = Outcome { name: story.name, seconds: begun.elapsed().as_secs(), passed: result.is_ok() };
        match result {
            Ok(()) => say(&format!("{}: passed, {} s", outcome.name, outcome.seconds)),
            Err(error) => say(&format!("{}: FAILED after {} s: {error:#}\n", outcome.name, outcome.seconds)),
        }
        outcomes.push(outcome);
    }
    Ok(summarize(stories, &outcomes))
}

/// Plays a story in a thread of its own; if it fails, prints what there is to see of its nodes.
fn play(
    story: &Story,
    plane: &Arc<ControlPlane>,
    provoked: Option<&mut Provoked>,
    platforms: Option<&mut Platforms>,
) -> Result<()> {
    let scene = Arc::new(Scene::new(plane, story.name));
    let (sender, receiver) = channel();
    let (run, its_scene) = (story.run, Arc::clone(&scene));
    let thread = spawn(move || sender.send(run(&its_scene)));
    let limit = story.limit * kinds::current().patience();
    let result = match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(_) if thread.is_finished() => Err(anyhow!("it panicked")),
        Err(_) => Err(anyhow!("it was ended after {} s", limit.as_secs())),
    };
    let result = result.and_then(|()| provoked.map_or(Ok(()), |provoked| provoked.add(story.name, &scene)));
    if result.is_err() {
        scene.nodes().iter().for_each(|node| describe(node, plane));
    }
    if let Some(platforms) = platforms {
        platforms.add(story, result.is_ok(), scene.nodes().first().map(Deref::deref))?;
    }
    // A story that hangs waits for something of its nodes, which end now.
    let ended = scene.end();
    for _ in 0..100 {
        if thread.is_finished() {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    if !thread.is_finished() {
        say(&format!("{}: its thread has not ended, and goes on during the next story", story.name));
    }
    result.and(ended)
}

/// Prints the journals, the Node's conditions and the kernel's log.
pub fn describe(node: &ObservedNode, plane: &ControlPlane) {
    let journal = |matches: &str| {
        let lines = node.run(&format!("journalctl --no-pager -o short-precise -n 60 {matches}"));
        lines.map(|(_, lines)| lines)
    };
    let conditions = plane.node(node.name()).and_then(|node| {
        let Some(node) = node else { bail!("no Node of that name") };
        Ok(format!("{:#}", node["status"]["conditions"]))
    });
    let status = node.run("nodevigil status -o json").map(|(_, output)| output);
    let kernel = node.run("dmesg | tail -n 50").map(|(_, lines)| lines);
    for (what, text) in [
        ("journal of nodevigil", journal("-u nodevigil")),
        ("journal of kubelet", journal("-u kubelet")),
        ("journal of systemd", journal("_PID=1")), // the kubelet fills its unit's journal
        ("nodevigil status", status),
        ("conditions of the Node", conditions),
        ("kernel's log", kernel),
        ("console of the guest", node.guest().map(Guest::console)),
    ] {
        say(&format!("--- node {}: {what}", node.name()));
        say(&text.unwrap_or_else(|error| format!("{error:#}")));
    }
}

/// Prints the table; the run is good if exactly the stories that were to run have passed.
fn summarize(wanted: &[&Story], outcomes: &[Outcome]) -> ExitCode {
    say("\nseconds  story");
    for outcome in outcomes {
        let failed = if outcome.passed { "" } else { "  FAILED" };
        say(&format!("{:7}  {}{failed}", outcome.seconds, outcome.name));
    }
    let passed = outcomes.iter().filter(|outcome| outcome.passed).map(|outcome| outcome.name);
    let is_good = passed.clone().eq(wanted.iter().map(|story| story.name));
    let (word, passed) = (if is_good { "ok" } else { "FAILED" }, passed.count());
    // In cargo's words, so that tests/step.sh counts them too.
    say(&format!("test result: {word}. {passed} passed; {} failed", outcomes.len() - passed));
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
