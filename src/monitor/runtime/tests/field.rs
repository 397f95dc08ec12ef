//! Failures of container runtimes, and what looks like one, as people have reported them in public.

use super::*;

/// kubernetes/kubernetes#54381, containerd/cri#1018: all calls of the kubelet, too, end with `context deadline exceeded`.
#[test]
fn a_runtime_that_answers_nobody_is_hung_if_the_kubelet_agrees() {
    let agrees = |story: &Story| Some(("container runtime is down, PLEG is not healthy".to_owned(), story.now));
    let mut story = Story::healthy();
    story.fails(&Probe::TimedOut);
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    story.runtime.kubelet_agrees = agrees(&story);
    let message = story.reports(Status::False, Reason::ContainerRuntimeHung);
    let wanted = "does not answer, and the kubelet reports on the Node: container runtime is down, PLEG is not healthy";
    assert!(message.ends_with(wanted), "{message}");
    story.runtime.kubelet_agrees = None;
    story.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);

    // What may explain it for both: load, busy disks for a time, a debugger, and a planned restart.
    let traced = Sample { state: 't', ..Sample::default() };
    let memory = Pressure { memory_full_percent: Some(90.0), ..Pressure::default() };
    let disks = Pressure { io_some_percent: Some(80.0), ..Pressure::default() };
    let sleeps = Sample { state: 'S', ..Sample::default() };
    for (sample, pressure) in [(&sleeps, memory), (&sleeps, disks), (&traced, Pressure::default())] {
        let mut excused = Story::healthy();
        excused.runtime.kubelet_agrees = agrees(&excused);
        excused.fail(&Probe::TimedOut, sample, pressure);
        excused.reports(Status::Unknown, Reason::ContainerRuntimeUnconfirmed);
    }
    let mut restarted = Story::healthy();
    restarted.runtime.kubelet_agrees = agrees(&restarted);
    restarted.restart("active");
    restarted.fails(&Probe::TimedOut);
    restarted.keeps_what_is_shown();
    let mut stopped = Story::healthy();
    stopped.runtime.kubelet_agrees = agrees(&stopped);
    stopped.job(JobKind::Stop);
    stopped.fails(&Probe::TimedOut);
    stopped.reports(Status::Unknown, Reason::ContainerRuntimeNotFound);
}

/// crc-org/crc#2775, openshift/installer#2104: crio-wipe.service fails at boot, and CRI-O requires it.
#[test]
fn an_enabled_runtime_that_systemd_has_not_started_for_want_of_another_service_is_down() {
    let mut story = Story::new();
    for minute in 0..4 {
        story.fails(&Probe::NoListener);
        let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
        let state = UnitState { file_state: "enabled".into(), ..never };
        let (other, active_state, result) = ("crio-wipe.service".into(), "failed".into(), "exit-code".into());
        let dependency = Dependency { unit: other, is_bound: false, active_state, result, ends_by_itself: false };
        let (unit, dependencies) = ("containerd.service".into(), vec![dependency]);
        story.happens(ServiceEvent::Bus(BusEvent::Read { unit, state, job: None, dependencies }));
        if minute == 0 {
            story.happens(ServiceEvent::Bus(BusEvent::JobRemoved { id: 1, result: "dependency".into() }));
        }
        story.now += Duration::from_mins(1);
    }
    let message = story.reports(Status::False, Reason::ContainerRuntimeDown);
    assert!(message.starts_with("systemd has not started containerd.service because crio-wipe.service"), "{message}");
}
