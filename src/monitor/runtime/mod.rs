//! The container runtime: its answers over CRI, the process that listens, and its unit.
//!
//! This file waits and reads. [`Runtime`] records what was observed and decides what to report.

mod state;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use self::state::{Listener, Runtime};
use super::service::follow::Follower;
use super::{Inputs, Reporter, set_hung};
use crate::condition::{ConditionType, Reason, Uptime};
use crate::facts::{ApiFacts, Reach};
use crate::host::blocking;
use crate::host::clock::{Timer, uptime};
use crate::host::cri::{Probe, Prober};
use crate::host::endpoint::Endpoint;
use crate::host::kubelet::KubeletFacts;
use crate::host::process::{ProcessId, Sample, cgroup, sample_off_loop};
use crate::settings::RuntimeSettings;

const KIND: ConditionType = ConditionType::ContainerRuntimeHealthy;
/// Finding its socket or its unit takes longer only if a disk does not answer.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);
/// What is quoted of the kubelet's message.
const MAX_MESSAGE_BYTES: usize = 300;
/// What the kubelet writes into the Node's condition `Ready` of a runtime that it finds not ready (k8s.io/kubernetes/pkg/kubelet,
/// `runtimeState.runtimeErrors`).
const NOT_READY_MESSAGES: [&str; 3] =
    ["container runtime is down", "container runtime not ready", "PLEG is not healthy"];
/// From here on the message changes each time that the kubelet writes it.
const CHANGING: &str = ": pleg was last seen active ";

#[derive(Debug)]
struct Probed {
    began: Uptime,
    endpoint: Option<Endpoint>,
    /// None if there is no socket to probe.
    prober: Option<Prober>,
    probe: Probe,
    listener: Option<Listener>,
    sample: Option<Sample>,
}

/// Monitors until the channel of reports is closed. `directories`: where the runtime keeps its files, for the storage's monitor.
pub async fn run(mut inputs: Inputs, directories: watch::Sender<Vec<PathBuf>>) {
    let mut runtime = Runtime::new(inputs.settings.kubelet.start_grace_secs.duration());
    let mut follower = Follower::new(KIND, Vec::new(), &inputs);
    let (mut reporter, timer) = (Reporter::new(KIND, inputs.reports.clone()), Timer::new());
    // The connection, unless a probe has it; the probe that is under way; when the last one began.
    let (mut prober, mut probes, mut probed_at) = (None, JoinSet::new(), None::<Uptime>);
    loop {
        let now = uptime();
        let next_probe = probed_at.map_or(now, |at| runtime.probe_after(at, now));
        if now >= next_probe && probes.is_empty() {
            probed_at = Some(now);
            let (settings, kubelet) = (inputs.settings.runtime.clone(), inputs.kubelet.borrow().clone());
            let (known, main_process) = (runtime.endpoint.clone(), runtime.service.process());
            probes.spawn(probe(settings, kubelet, known, prober.take(), main_process, now));
        }
        let open = follower.open_again_at(runtime.service.process_to_open());
        let due = [probes.is_empty().then_some(next_probe), open, runtime.service.deadline(now)];
        let due = due.into_iter().flatten().fold(reporter.due_at(now), Ord::min);
        tokio::select! {
            biased;
            event = follower.next() => runtime.service_event(event, uptime()),
            Some(Ok(probed)) = probes.join_next() => {
                prober = probed.prober;
                let is_other = runtime.set_endpoint(probed.endpoint);
                runtime.set_listener(probed.listener, probed.began);
                // The listener's unit is watched.
                if runtime.choose_units(inputs.settings.runtime.unit.as_ref()) || is_other {
                    follower = Follower::new(KIND, runtime.units.clone(), &inputs);
                }
                inputs.timeline.note("probe of the container runtime", &probed.probe.to_string(), uptime());
                runtime.probed(probed.began, probed.probe, probed.sample, uptime());
                if let Some(found) = runtime.directories() {
                    directories.send_replace(found);
                }
            }
            Ok(()) = inputs.api.changed() => {
                let since = runtime.kubelet_agrees.take().map_or_else(uptime, |(_, since)| since);
                runtime.kubelet_agrees = kubelets_message(&inputs.api.borrow_and_update()).map(|text| (text, since));
            }
            () = timer.at(due) => {}
        }
        let now = uptime();
        runtime.service.settle(now);
        if let Some(event) = follower.open(runtime.service.process_to_open(), now) {
            runtime.service_event(event, now);
        }
        follower.read_upgrade(&runtime.service, now);
        let is_taken = reporter.report(runtime.view(now), now).await;
        let is_hung = reporter.has_reported(&[Reason::ContainerRuntimeHung]);
        set_hung(&inputs.hung, "container runtime", runtime.process().filter(|_| is_hung), now);
        if !is_taken {
            return;
        }
    }
}

/// Finds the socket, probes it and finds its listener; samples the process if it does not answer.
async fn probe(
    settings: RuntimeSettings,
    kubelet: Option<KubeletFacts>,
    known: Option<Endpoint>,
    prober: Option<Prober>,
    main_process: Option<ProcessId>,
    began: Uptime,
) -> Probed {
    let before = known.clone();
    let find = move || Endpoint::find(&settings, kubelet.as_ref(), before.as_ref(), Path::exists);
    // On a dead disk what is known still holds.
    let endpoint = blocking::run("finding the container runtime", FIND_TIMEOUT, find).await.unwrap_or(known);
    let Some(Endpoint { socket, .. }) = &endpoint else {
        let why = "the container runtime's socket is not known: no kubelet configuration names it, and no default socket exists";
        let probe = Probe::Impossible(why.into());
        return Probed { began, endpoint, prober: None, probe, listener: None, sample: None };
    };
    let kept = prober.filter(|prober| prober.socket == *socket);
    let mut prober = kept.unwrap_or_else(|| Prober::new(socket.clone()));
    let probe = prober.probe().await;
    let listener = prober.listener.filter(|_| probe != Probe::NoListener);
    let find_unit = move || {
        let id = ProcessId::of(listener?)?;
        Some(Listener { id, unit: cgroup(id.pid).and_then(|cgroup| cgroup.service().map(str::to_owned)) })
    };
    let listener = blocking::run("finding the container runtime's unit", FIND_TIMEOUT, find_unit).await.ok().flatten();
    let process = listener.as_ref().map(|listener| listener.id).filter(|id| id.pid != 1).or(main_process);
    let sample = match process {
        Some(id) if matches!(probe, Probe::TimedOut | Probe::Unlisted { .. }) => {
            sample_off_loop("container runtime", id, None).await
        }
        _ => None,
    };
    Probed { began, endpoint, prober: Some(prober), probe, listener, sample }
}

/// The message of the Node's condition `Ready`, if the kubelet reports in it that the runtime is not ready.
fn kubelets_message(api: &ApiFacts) -> Option<String> {
    let Reach::Reached { .. } = api.reach else { return None };
    let ready = api.node.as_ref()?.condition("Ready").filter(|ready| ready.status == "False")?;
    let is_for_runtime = NOT_READY_MESSAGES.iter().any(|words| ready.message.contains(words));
    let message = ready.message.split(CHANGING).next().unwrap_or_default();
    is_for_runtime.then(|| redact::bounded(message, MAX_MESSAGE_BYTES))
}
