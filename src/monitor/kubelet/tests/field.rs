//! Failures of kubelets, and what looks like one, as people have reported them in public.

use super::*;

const SIGTERM: LastProcess = LastProcess { pid: 812, code: 2, status: 15 };
const SIGPIPE: LastProcess = LastProcess { pid: 812, code: 2, status: 13 };

/// The main process of the unit has ended so, and systemd waits to restart it.
fn follows(last: LastProcess, result: &str) -> UnitState {
    let state = unit("activating", 0, last, result);
    UnitState { sub_state: "auto-restart".into(), restart: "always".into(), ..state }
}

/// A kubelet that runs in the main process of this unit, with pid 812, and answers.
fn healthy_in(unit: &str) -> Story {
    let mut story = Story { kubelet: Kubelet::new(GRACE), api: ApiFacts::default(), now: Uptime::from_secs(1000) };
    story.happens(read(unit, running(812), None));
    story.open(812, Uptime::ZERO);
    story.probe(812, Probe::Healthy);
    story
}

/// Such a kubelet that has ended so, as systemd signals it: the properties of the service before those of the unit.
fn ended_in(unit_name: &str, last: LastProcess, result: &str) -> Story {
    let mut story = healthy_in(unit_name);
    story.happens(ServiceEvent::Exited(812));
    story.happens(changed(UnitState { restart: "always".into(), ..unit("active", 0, last, result) }));
    story
}

/// rancher/rke2#8945, k3s-io/k3s#2624: `level=fatal msg="Error: context canceled"` after the SIGTERM of k3s-upgrade and rke2-upgrade.
#[test]
fn exit_code_1_of_k3s_and_rke2_changes_nothing_if_systemd_follows_with_a_restart() {
    for name in ["k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service"] {
        let mut story = ended_in(name, exited(812, 1), "exit-code");
        assert_eq!(story.kubelet.view(story.now), None, "{name}: systemd may follow");
        story.happens(changed(follows(exited(812, 1), "exit-code")));
        story.keeps_what_is_shown();
        story.happens(changed(UnitState { restarts: 1, ..running(900) }));
        story.open(900, story.now);
        story.probe(900, Probe::Refused);
        story.keeps_what_is_shown();
        story.probe(900, Probe::Healthy);
        story.reports(Status::True, Reason::KubeletIsHealthy);
    }
    // k3s-io/k3s#2583: `systemctl stop k3s` ends it so, too.
    let mut stopped = healthy_in("k3s.service");
    stopped.all(job(JobKind::Stop));
    stopped.happens(ServiceEvent::Exited(812));
    stopped.all([job_removed("done"), changed(unit("failed", 0, exited(812, 1), "exit-code"))]);
    stopped.wait(GRACE);
    stopped.reports(Status::Unknown, Reason::KubeletStoppedByOperator);
    // A shell or podman that hands on SIGTERM, in any unit.
    let mut wrapped = ended_in("kubelet.service", exited(812, 143), "exit-code");
    wrapped.happens(changed(follows(exited(812, 143), "exit-code")));
    wrapped.keeps_what_is_shown();
    // A panic, a kill, and the kubelet alone, which exits with 0.
    for (name, last, result) in [
        ("k3s.service", exited(812, 2), "exit-code"),
        ("rke2-agent.service", LastProcess { pid: 812, code: 2, status: 9 }, "signal"),
        ("kubelet.service", exited(812, 1), "exit-code"),
    ] {
        ended_in(name, last, result).reports(Status::False, Reason::KubeletCrashed);
    }
}

#[test]
fn k3s_that_exits_again_and_again_or_is_not_restarted_is_a_problem() {
    let mut story = healthy_in("k3s.service");
    for (restarts, pid) in [(1, 812), (2, 900), (3, 901)] {
        story.happens(ServiceEvent::Exited(pid));
        story.happens(changed(UnitState { restarts: restarts - 1, ..follows(exited(pid, 1), "exit-code") }));
        let next = i32::try_from(restarts).unwrap() + 899;
        if restarts < 3 {
            story.keeps_what_is_shown();
            story.happens(changed(UnitState { restarts, ..running(next) }));
            story.open(next, story.now);
        }
    }
    story.reports(Status::False, Reason::KubeletCrashLooping);

    let mut left = ended_in("k3s.service", exited(812, 1), "exit-code");
    left.happens(changed(UnitState { restart: "no".into(), ..unit("failed", 0, exited(812, 1), "exit-code") }));
    left.reports(Status::False, Reason::KubeletCrashed);
}

/// kubernetes/kubernetes#69161, awslabs/amazon-eks-ami#122: the kubelet writes its log to a journald that has ended. systemd takes SIGPIPE
/// for a clean end, and so `Restart=on-failure` restarts nothing. awslabs/amazon-eks-ami#1792: the same after `kill`.
#[test]
fn a_clean_end_that_restart_on_failure_leaves_is_a_crash_at_once() {
    for (last, how) in [(SIGPIPE, "was killed by SIGPIPE (13)"), (exited(812, 0), "exited with code 0")] {
        let mut story = Story::healthy();
        story.happens(ServiceEvent::Exited(812));
        story.happens(changed(UnitState { restart: "on-failure".into(), ..unit("inactive", 0, last, "success") }));
        let message = story.reports(Status::False, Reason::KubeletCrashed);
        assert!(message.ends_with(how), "{message}");
    }
    let mut restarted = ended_in("kubelet.service", SIGPIPE, "success");
    restarted.happens(changed(follows(SIGPIPE, "success")));
    restarted.keeps_what_is_shown();
}

/// bottlerocket-os/bottlerocket#4721 and #2512: SIGTERM ends containerd cleanly, and systemd restarts it, but not the kubelet bound to it.
#[test]
fn a_kubelet_that_is_stopped_with_a_runtime_that_systemd_restarts_is_a_problem() {
    let stopped_with = |active_state: &str, ends_by_itself| {
        let containerd = |active_state: &str, ends_by_itself| {
            let (unit, active_state) = ("containerd.service".to_owned(), active_state.to_owned());
            vec![Dependency { unit, is_bound: true, active_state, result: "success".into(), ends_by_itself }]
        };
        let [queued, _] = job(JobKind::Stop);
        let mut story = Story::healthy();
        story.happens(queued);
        let dependencies = containerd(active_state, ends_by_itself);
        story.happens(ServiceEvent::Bus(BusEvent::Job { id: 7, kind: JobKind::Stop, dependencies }));
        story.all([ServiceEvent::Exited(812), job_removed("done")]);
        let (unit, state) = ("kubelet.service".to_owned(), unit("inactive", 0, exited(812, 0), "success"));
        let dependencies = containerd("active", false);
        story.happens(ServiceEvent::Bus(BusEvent::Read { unit, state, job: None, dependencies }));
        story.wait(Duration::from_mins(2));
        story
    };
    stopped_with("activating", true).reports(Status::False, Reason::KubeletStoppedWithDependency);
    stopped_with("inactive", true).reports(Status::False, Reason::KubeletStoppedWithDependency); // for a moment
    // `systemctl stop containerd`, and a start right after it.
    for active_state in ["deactivating", "inactive", "activating"] {
        stopped_with(active_state, false).reports(Status::Unknown, Reason::KubeletStoppedByOperator);
    }
}

/// kubernetes/kubernetes#118607, coreos/coreos-kubernetes#377: "Dependency failed for Kubernetes Kubelet" at boot. systemd tries such a
/// start once, whatever `Restart=` says, and also if the other unit comes up after all. poseidon/matchbox#253: that unit has not failed
/// itself, but lacks a third one.
#[test]
fn an_enabled_kubelet_that_systemd_has_not_started_for_want_of_another_unit_is_a_problem() {
    let boot = |file_state: &str, result: &str, states: [&str; 3], job| {
        let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
        let never = UnitState { file_state: file_state.into(), ..never };
        let mut story = Story::new(never.clone());
        story.happens(ServiceEvent::Bus(BusEvent::JobRemoved { id: 1, result: result.into() }));
        for active_state in states {
            let (unit, active_state, result) = ("docker.service".into(), active_state.to_owned(), "exit-code".into());
            let dependencies = vec![Dependency { unit, is_bound: false, active_state, result, ends_by_itself: false }];
            let (unit, state) = ("kubelet.service".to_owned(), never.clone());
            story.happens(ServiceEvent::Bus(BusEvent::Read { unit, state, job, dependencies }));
            story.wait(Duration::from_mins(1));
        }
        story
    };
    for (states, other) in [
        (["activating", "failed", "failed"], "docker.service"),
        (["failed", "activating", "active"], "docker.service"),
        (["inactive"; 3], "a unit that it requires"),
    ] {
        let mut story = boot("enabled", "dependency", states, None);
        let message = story.reports(Status::False, Reason::KubeletStoppedWithDependency);
        let wanted =
            format!("systemd has not started kubelet.service because {other} failed, and does not try again: ");
        assert!(message.starts_with(&wanted), "{message}");
        story.happens(changed(running(900)));
        story.open(900, story.now);
        story.probe(900, Probe::Healthy);
        story.reports(Status::True, Reason::KubeletIsHealthy);
    }
    for (file_state, result, states, job) in [
        ("disabled", "dependency", ["failed"; 3], None),
        ("enabled", "dependency", ["failed"; 3], Some(7)),
        // `ConditionPathExists=`, or no start was tried.
        ("enabled", "done", ["failed"; 3], None),
    ] {
        boot(file_state, result, states, job).reports(Status::Unknown, Reason::KubeletNotFound);
    }
    let mut stopped = boot("enabled", "dependency", ["failed"; 3], None);
    for event in job(JobKind::Stop) {
        stopped.happens(event);
    }
    stopped.wait(Duration::from_mins(3));
    stopped.reports(Status::Unknown, Reason::KubeletNotFound);
}

/// coreos/coreos-kubernetes#545: flanneld crashes, so that systemd restarts it, and what requires it: docker, and with that the kubelet. The
/// first start of flanneld fails, and the second does not.
#[test]
fn a_kubelet_whose_restart_systemd_gives_up_for_want_of_another_unit_is_a_problem() {
    let given_up = || {
        let mut story = Story::healthy();
        story.all(job(JobKind::Restart));
        story.happens(ServiceEvent::Exited(812));
        let state = unit("inactive", 0, exited(812, 0), "success");
        story.happens(changed(UnitState { file_state: "enabled".into(), restart: "always".into(), ..state }));
        story.keeps_what_is_shown();
        story.happens(job_removed("dependency"));
        let [_, read_late] = job(JobKind::Start);
        story.happens(read_late);
        story
    };
    let mut story = given_up();
    story.wait(Duration::from_secs(119));
    is_unexplained(&story);
    story.wait(Duration::from_secs(1));
    let message = story.reports(Status::False, Reason::KubeletStoppedWithDependency);
    assert!(message.contains("because a unit that it requires failed"), "{message}");
    story.all(job(JobKind::Start));
    story.happens(changed(running(900)));
    story.open(900, story.now);
    story.probe(900, Probe::Healthy);
    story.reports(Status::True, Reason::KubeletIsHealthy);
    // systemd was not to start it: nobody has started what its `Requisite=` names, or the conditions of what it is bound to are not met.
    let mut declined = given_up();
    declined.happens(ServiceEvent::Bus(BusEvent::Declined));
    declined.wait(Duration::from_mins(3));
    is_unexplained(&declined);
    // What happens to it without a D-Bus connection is not known.
    let mut unobserved = given_up();
    unobserved.happens(ServiceEvent::Bus(BusEvent::Lost));
    unobserved.wait(Duration::from_mins(3));
    is_unexplained(&unobserved);
}

/// Somebody has tried a start, and enables the unit for the next boot.
#[test]
fn a_unit_that_was_disabled_when_its_start_was_given_up_is_no_problem_once_it_is_enabled() {
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    let mut story = Story::new(UnitState { file_state: "disabled".into(), ..never.clone() });
    story.happens(job_removed("dependency"));
    story.wait(Duration::from_mins(3));
    story.happens(changed(UnitState { file_state: "enabled".into(), ..never }));
    story.reports(Status::Unknown, Reason::KubeletNotFound);
}

/// coreos/tectonic-forum#314, moby/moby#12606: `gcore` and gdb stop all threads, while a person looks for the cause of something else.
#[test]
fn a_kubelet_that_a_debugger_has_stopped_is_no_fault() {
    let traced = Sample { state: 't', ..Sample::default() };
    let mut story = Story::healthy();
    for _ in 0..20 {
        story.fail(812, &Probe::TimedOut, &traced);
        story.lease(100);
    }
    story.now += Duration::from_secs(40);
    story.lease(100);
    let message = story.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    assert!(message.ends_with("a debugger has stopped it (state t)"), "{message}");
    story.probe(812, Probe::Healthy);
    story.reports(Status::True, Reason::KubeletIsHealthy);
    let frozen = Sample { frozen_by: Some("/system.slice/kubelet.service".into()), ..traced };
    story.fail(812, &Probe::TimedOut, &frozen);
    story.reports(Status::False, Reason::KubeletHung);
}

/// aws/eks-node-monitoring-agent#239: `ip link set lo down`. The kubelet cannot be asked.
#[test]
fn a_probe_that_the_host_cannot_make_shows_no_fault_of_the_kubelet() {
    let mut story = Story::healthy();
    story.probe(812, Probe::TimedOut); // on the connection that was kept
    for _ in 0..10 {
        story.probe(812, Probe::Impossible("Network is unreachable (os error 101)".into()));
        story.lease(100);
        story.now += Duration::from_secs(10);
    }
    let message = story.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    assert!(message.ends_with("its /healthz cannot be probed: Network is unreachable (os error 101)"), "{message}");
}

/// kubernetes/kubernetes#57799 has `ExecStartPre=/usr/bin/systemctl is-active docker`. What comes before
/// the process fails each time: systemd tries again for good, and no process ends.
#[test]
fn a_unit_that_fails_before_its_process_for_as_long_as_a_start_may_take_is_a_problem() {
    let none = LastProcess::default();
    let again = |story: &mut Story, result: &str, seconds: u64| {
        for _ in 0..seconds / 10 {
            let restarts = story.kubelet.service.unit.restarts + 1;
            let in_state = |sub_state: &str, state| UnitState { sub_state: sub_state.into(), restarts, ..state };
            story.happens(changed(in_state("start-pre", unit("activating", 0, none, "success"))));
            // systemd 254 and later; before, the unit passes through `failed`.
            let sub_state = if restarts.is_multiple_of(2) { "failed-before-auto-restart" } else { "failed" };
            story.happens(changed(in_state(
                sub_state,
                UnitState { restart: "always".into(), ..unit("failed", 0, none, result) },
            )));
            story.happens(job_removed("failed"));
            story.happens(changed(in_state("auto-restart", follows(none, result))));
            story.wait(Duration::from_secs(10));
        }
    };
    for result in ["exit-code", "resources"] {
        let mut boot = Story::new(follows(none, result));
        again(&mut boot, result, 110);
        boot.reports(Status::Unknown, Reason::KubeletStarting);
        again(&mut boot, result, 20);
        let message = boot.reports(Status::False, Reason::KubeletCrashed);
        assert!(message.contains(&format!("Result={result}")), "{message}");
        boot.happens(changed(running(900)));
        boot.open(900, boot.now);
        boot.probe(900, Probe::Healthy);
        boot.reports(Status::True, Reason::KubeletIsHealthy);

        let mut restarted = Story::healthy();
        restarted.all(job(JobKind::Restart));
        restarted.happens(ServiceEvent::Exited(812));
        restarted.happens(changed(unit("inactive", 0, exited(812, 0), "success")));
        again(&mut restarted, result, 110);
        restarted.keeps_what_is_shown();
        again(&mut restarted, result, 20);
        restarted.reports(Status::False, Reason::KubeletCrashed);
    }
    // It is stopped between two attempts.
    let mut stopped = Story::new(follows(none, "exit-code"));
    again(&mut stopped, "exit-code", 110);
    stopped.all(job(JobKind::Stop));
    stopped.happens(job_removed("done"));
    stopped.happens(changed(UnitState { was_started: false, ..unit("inactive", 0, none, "success") }));
    again(&mut stopped, "exit-code", 20);
    stopped.reports(Status::Unknown, Reason::KubeletStarting);
}

fn is_unexplained(story: &Story) {
    let view = story.kubelet.view(story.now);
    assert!(matches!(view, Some(View::Unexplained(_))), "{view:?}");
}

#[test]
fn one_start_that_fails_before_its_process_is_no_problem() {
    let none = LastProcess::default();
    // systemd 252 passes through `failed`.
    let failed = || UnitState { restart: "always".into(), ..unit("failed", 0, none, "exit-code") };
    let mut story = Story::new(UnitState { sub_state: "start-pre".into(), ..unit("activating", 0, none, "success") });
    story.all([changed(failed()), job_removed("failed")]);
    is_unexplained(&story);
    // With RestartSec= above the grace.
    story.happens(changed(follows(none, "exit-code")));
    story.wait(2 * GRACE);
    story.reports(Status::Unknown, Reason::KubeletStarting);
    // It hits the start limit, and somebody runs `systemctl reset-failed`.
    story.happens(changed(UnitState { result: "start-limit-hit".into(), ..failed() }));
    story.reports(Status::False, Reason::KubeletCrashLooping);
    story.happens(changed(unit("inactive", 0, none, "success")));
    story.wait(GRACE);
    is_unexplained(&story);

    let mut k3s = ended_in("k3s.service", exited(812, 1), "exit-code");
    k3s.happens(changed(follows(exited(812, 1), "exit-code")));
    k3s.wait(2 * GRACE);
    k3s.reports(Status::Unknown, Reason::KubeletStarting);
}

/// k3s-io/k3s#2583: `systemctl stop k3s` leaves the unit failed with exit code 1. Then the agent is restarted.
#[test]
fn an_end_that_a_stop_may_have_caused_before_the_agents_start_is_no_problem() {
    for (name, status) in [("k3s.service", 1), ("kubelet.service", 143)] {
        let mut story = Story { kubelet: Kubelet::new(GRACE), api: ApiFacts::default(), now: Uptime::from_secs(1000) };
        story.happens(read(name, unit("failed", 0, exited(812, status), "exit-code"), None));
        story.wait(GRACE);
        is_unexplained(&story);
    }
}

/// With `OOMPolicy=stop`, which is the default, an OOM kill of a mount helper or an exec plugin makes systemd stop the unit.
#[test]
fn a_kubelet_that_systemd_stops_for_the_oom_kill_of_another_process_of_its_unit_was_not_killed_itself() {
    for last in [SIGTERM, exited(812, 0)] {
        let mut story = Story::healthy();
        let state = UnitState { sub_state: "stop-sigterm".into(), ..running(812) };
        story.happens(changed(UnitState { result: "oom-kill".into(), active_state: "deactivating".into(), ..state }));
        story.happens(ServiceEvent::Exited(812));
        story.happens(changed(unit("failed", 0, last, "oom-kill")));
        let message = story.reports(Status::False, Reason::KubeletOOMKilled);
        let wanted =
            "the kubelet was stopped by systemd (pid 812), because another process of kubelet.service was OOM-killed";
        assert!(message.starts_with(wanted), "{message}");
    }
}
