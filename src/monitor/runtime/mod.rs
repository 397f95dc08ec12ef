//! The container runtime: its answers over CRI, the process that listens, and its unit.
//!
//! This file waits and reads. What is seen goes into [`Runtime::observe`], and [`Runtime::view`] says what to report.

mod state;
#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use self::state::{Listener, Runtime};
use super::{Inputs, Reporter, service::follow::Follower, set_hung};
use crate::{
    condition::{ConditionType, Reason, Uptime},
    host::{
        api::{ApiFacts, Reach},
        blocking,
        clock::uptime,
        cri::{Probe, Prober},
        endpoint::Endpoint,
        pressure::{self, Pressure},
        process::{Process, ProcessId, Sample, sample},
    },
};

/// Looking for its socket takes longer only if a disk does not answer.
const FIND_TIMEOUT: Duration = Duration::from_secs(2);
/// Sampling a process takes milliseconds, if a thread is free.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(5);
/// What is quoted of the kubelet's message.
const MAX_MESSAGE_BYTES: usize = 300;
/// What the kubelet writes into the Node's condition `Ready` of a runtime that it finds not ready (k8s.io/kubernetes/pkg/kubelet,
/// `runtimeState.runtimeErrors`).
const NOT_READY_MESSAGES: [&str; 2] = ["container runtime is down", "container runtime not ready"];

#[derive(Debug)]
struct Probed {
    began: Uptime,
    endpoint: Option<Endpoint>,
    /// None if there is no socket to probe.
    prober: Option<Prober>,
    probe: Probe,
    listener: Option<Listener>,
    sample: Option<(Sample, Pressure)>,
}

struct Loop {
    inputs: Inputs,
    runtime: Runtime,
    follower: Follower,
    /// The connection, unless a probe has it.
    prober: Option<Prober>,
    /// The probe that is under way.
    probe: JoinSet<Probed>,
    probe_began: Option<Uptime>,
    reporter: Reporter,
}

/// Watches until nobody takes reports.
pub async fn run(inputs: Inputs) {
    let mut this = Loop {
        runtime: Runtime::new(inputs.settings.kubelet.start_grace_secs.duration()),
        follower: Follower::new(Vec::new(), &inputs),
        prober: None,
        probe: JoinSet::new(),
        probe_began: None,
        reporter: Reporter::new(ConditionType::ContainerRuntimeHealthy, inputs.reports.clone()),
        inputs,
    };
    loop {
        let wake = this.wake_at(uptime()).saturating_sub(uptime());
        tokio::select! {
            biased;
            event = this.follower.next() => this.runtime.service_event(event, uptime()),
            Some(Ok(probed)) = this.probe.join_next() => this.probed(probed),
            Ok(()) = this.inputs.api.changed() => {
                this.runtime.kubelet_agrees = kubelets_message(&this.inputs.api.borrow_and_update());
            }
            () = sleep(wake) => {}
        }
        let now = uptime();
        this.runtime.service.settle(now);
        if let Some(event) = this.follower.open(this.runtime.service.process_to_open(), now) {
            this.runtime.service_event(event, now);
        }
        this.start_probe(now);
        if !this.report(now).await {
            return;
        }
    }
}

impl Loop {
    fn wake_at(&self, now: Uptime) -> Uptime {
        let report = self.reporter.due_at(now);
        let probe = self.probe.is_empty().then(|| self.next_probe(now));
        let open = self.follower.open_again_at(self.runtime.service.process_to_open());
        [probe, open, self.runtime.service.deadline(now)].into_iter().flatten().fold(report, Ord::min)
    }

    fn next_probe(&self, now: Uptime) -> Uptime {
        self.probe_began.map_or(now, |began| began + self.runtime.probe_interval(now))
    }

    /// Takes in a probe, and watches the unit of who listens.
    fn probed(&mut self, probed: Probed) {
        let Probed { began, endpoint, prober, probe, listener, sample } = probed;
        self.prober = prober;
        let is_other = self.runtime.set_endpoint(endpoint);
        self.runtime.set_listener(listener, began);
        if self.runtime.choose_units(self.inputs.settings.runtime.unit.as_ref()) || is_other {
            self.follower = Follower::new(self.runtime.units.clone(), &self.inputs);
        }
        self.runtime.probed(began, probe, sample, uptime());
    }

    fn start_probe(&mut self, now: Uptime) {
        if !self.probe.is_empty() || now < self.next_probe(now) {
            return;
        }
        self.probe_began = Some(now);
        let settings = self.inputs.settings.runtime.clone();
        let kubelet = self.inputs.kubelet.borrow().clone();
        let known = self.runtime.endpoint.clone();
        let (prober, main_process) = (self.prober.take(), self.runtime.service.process());
        self.probe.spawn(async move {
            let before = known.clone();
            let find = move || Endpoint::find(&settings, kubelet.as_ref(), before.as_ref(), Path::exists);
            // On a dead disk what is known still holds.
            let endpoint = blocking::run("finding the container runtime", FIND_TIMEOUT, find).await.unwrap_or(known);
            probe(endpoint, prober, main_process, now).await
        });
    }

    /// Reports the present view if it is new or due; `false` when nobody takes reports.
    async fn report(&mut self, now: Uptime) -> bool {
        let is_taken = self.reporter.report(self.runtime.view(now), now).await;
        let is_hung = self.reporter.has_reported(&[Reason::ContainerRuntimeHung]);
        set_hung(&self.inputs.hung, "container runtime", self.runtime.process().filter(|_| is_hung), now);
        is_taken
    }
}

/// Probes, and looks who listens, and at the process if it does not answer.
async fn probe(
    endpoint: Option<Endpoint>,
    prober: Option<Prober>,
    main_process: Option<ProcessId>,
    began: Uptime,
) -> Probed {
    let Some(Endpoint { socket, .. }) = &endpoint else {
        let why = "no kubelet says where its container runtime listens, and none of the usual sockets exists";
        let probe = Probe::Impossible(why.into());
        return Probed { began, endpoint, prober: None, probe, listener: None, sample: None };
    };
    let kept = prober.filter(|prober| prober.socket == *socket);
    let mut prober = kept.unwrap_or_else(|| Prober::new(socket.clone()));
    let probe = prober.probe().await;
    let listener = prober.listener.filter(|_| probe != Probe::NoListener);
    let listener = listener.and_then(|pid| Process::open(pid).ok()).map(|process| {
        let (_, cgroup) = process.name_and_cgroup();
        Listener { id: process.id, unit: cgroup.and_then(|cgroup| cgroup.service().map(str::to_owned)) }
    });
    let process = listener.as_ref().map(|listener| listener.id).filter(|id| id.pid != 1).or(main_process);
    let sample = match process {
        Some(id) if probe == Probe::TimedOut => {
            let look = move || sample(id, None).map(|sample| (sample, pressure::read()));
            blocking::run("sampling the container runtime", SAMPLE_TIMEOUT, look).await.ok().flatten()
        }
        _ => None,
    };
    Probed { began, endpoint, prober: Some(prober), probe, listener, sample }
}

/// The message of the Node's condition `Ready`, if the kubelet says in it that the runtime is not ready.
fn kubelets_message(api: &ApiFacts) -> Option<String> {
    let Reach::Reached { .. } = api.reach else { return None };
    let ready = api.node.as_ref()?.condition("Ready").filter(|ready| ready.status == "False")?;
    let is_for_runtime = NOT_READY_MESSAGES.iter().any(|words| ready.message.contains(words));
    is_for_runtime.then(|| redact::bounded(&ready.message, MAX_MESSAGE_BYTES))
}
