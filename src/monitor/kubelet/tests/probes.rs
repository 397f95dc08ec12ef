//! A kubelet that runs and does not answer.

use super::*;
use crate::facts::SyncLoop;
use crate::host::process::{Listener, ProcessId, ThreadWait, Throttled};

#[test]
fn failed_probes_alone_are_no_fault() {
    let mut story = Story::healthy();
    story.probe(812, Probe::TimedOut);
    story.probe(812, Probe::TimedOut);
    assert_eq!(story.kubelet.view(story.now), None, "two failures");
    story.probe(812, Probe::TimedOut);
    story.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    story.probe(812, Probe::Healthy);
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn failed_probes_and_a_state_that_confirms_them_are_a_hang() {
    let state = |state: char| Sample { state, ..Sample::default() };
    let frozen = Sample { frozen_by: Some("/system.slice/kubelet.service".into()), ..state('S') };
    let no_listener = Sample { listener: Listener::Nobody, ..state('S') };
    for (probe, sample, evidence) in [
        (Probe::TimedOut, state('T'), "it is stopped by a signal (state T)"),
        (Probe::TimedOut, frozen, "its cgroup /system.slice/kubelet.service is frozen"),
        (Probe::Refused, no_listener, "nothing listens on its port any more"),
    ] {
        let mut story = Story::healthy();
        story.fail(812, &probe, &sample);
        let message = story.reports(Status::False, Reason::KubeletHung);
        assert!(message.ends_with(evidence), "{message}");
    }
}

/// Failed probes alone fill the queue of a kubelet whose pages the host has to read again.
#[test]
fn connections_that_are_not_accepted_confirm_a_hang_after_ten_seconds_if_the_hosts_load_is_known() {
    let after = |rounds, listener, pressure: Pressure| {
        let mut story = Story::healthy();
        for _ in 0..rounds {
            story.fail_under(812, &Probe::TimedOut, &Sample { state: 'S', listener, ..Sample::default() }, pressure);
        }
        story
    };
    let idle = Pressure { memory_full_percent: Some(0.0), ..Pressure::default() };
    let early = after(4, Listener::Waiting(2), idle);
    assert_eq!(early.kubelet.view(early.now), None);
    let message = after(5, Listener::Waiting(2), idle).reports(Status::False, Reason::KubeletHung);
    assert!(message.ends_with("it does not accept the connections that wait at its port"), "{message}");
    after(5, Listener::Waiting(2), Pressure::default()).reports(Status::Unknown, Reason::KubeletHealthzSilent);
    after(5, Listener::Waiting(0), idle).reports(Status::Unknown, Reason::KubeletHealthzSilent);
}

fn wait(switches: u64) -> ThreadWait {
    ThreadWait { tid: 9, switches, function: "nfs_wait_bit_killable".into() }
}

#[test]
fn a_wait_in_the_kernel_of_ten_seconds_is_a_hang_and_a_sigkill_that_changes_nothing_takes_a_reboot() {
    let sample = |switches| Sample { uninterruptible: vec![wait(switches)], ..Sample::default() };
    let mut stuck = Story::healthy();
    let mut busy = Story::healthy();
    let mut killed = Story::healthy();
    for round in 0..5 {
        stuck.fail(812, &Probe::TimedOut, &sample(5));
        busy.fail(812, &Probe::TimedOut, &sample(round));
        killed.fail(812, &Probe::TimedOut, &Sample { is_killed: true, ..Sample::default() });
        if round == 0 {
            assert_eq!([&stuck, &killed].map(|story| story.kubelet.view(story.now)), [None, None], "it may end");
        }
    }
    let message = stuck.reports(Status::False, Reason::KubeletHung);
    assert!(
        message.ends_with("its thread 9 has waited in the kernel (state D, nfs_wait_bit_killable) for over 10 s"),
        "{message}"
    );
    killed.reports(Status::False, Reason::KubeletUnkillable);
    // Three samples within the last round had the same wait.
    assert_eq!(busy.kubelet.view(busy.now), None);
    busy.fail(812, &Probe::TimedOut, &Sample::default());
    busy.reports(Status::Unknown, Reason::KubeletHealthzSilent);
}

#[test]
fn a_renewed_lease_makes_failed_probes_a_warning_and_an_old_one_makes_them_a_hang() {
    let silent = Sample { state: 'S', ..Sample::default() };
    let mut firewall = Story::healthy();
    firewall.lease(100); // of an earlier silence
    firewall.fail(812, &Probe::TimedOut, &silent);
    firewall.lease(110);
    firewall.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    firewall.lease(120);
    firewall.reports(Status::True, Reason::KubeletHealthzUnreachable);
    firewall.now += Duration::from_mins(1); // the Lease cannot be read
    firewall.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    firewall.lease(130);
    firewall.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    firewall.happens(ServiceEvent::Exited(812));
    firewall.wait(ms(1000));
    firewall.reports(Status::False, Reason::KubeletCrashed);

    let mut hung = Story::healthy();
    hung.fail(812, &Probe::TimedOut, &silent);
    for _ in 0..4 {
        hung.lease(100);
        hung.reports(Status::Unknown, Reason::KubeletHealthzSilent);
        hung.now += Duration::from_secs(10);
    }
    hung.lease(100);
    hung.reports(Status::False, Reason::KubeletHung);
    hung.now += Duration::from_secs(30);
    hung.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    hung.now += Duration::from_mins(1);
    hung.lease(100);
    hung.reports(Status::Unknown, Reason::KubeletHealthzSilent); // it could not be read, and may have been renewed meanwhile
}

#[test]
fn a_starved_kubelet_is_a_warning_unless_it_is_stopped() {
    let pressure = Pressure { cpu_some_percent: Some(90.0), ..Pressure::default() };
    let story = |state: char| {
        let mut story = Story::healthy();
        for round in 1..4 {
            story.now += ms(800);
            let sample = Sample { state, run_delay: ms(400) * round, pressure, ..Sample::default() };
            story.see(Observation::Probed(812, Probe::TimedOut, Some(sample)));
        }
        story
    };
    story('R').reports(Status::True, Reason::KubeletStarved);
    story('T').reports(Status::False, Reason::KubeletHung);
}

/// As recorded in a guest with `CPUQuota=1%` and an idle host: 496 of 498 periods were throttled.
#[test]
fn a_kubelet_that_a_limit_of_its_unit_throttles_is_a_warning_and_with_an_old_lease_a_problem() {
    let slowed = |throttled: fn(u32) -> Throttled| {
        let mut story = Story::healthy();
        for round in 0..3 {
            story.now += ms(1000);
            let sample =
                Sample { state: 'S', throttled: throttled(round), run_delay: ms(990) * round, ..Sample::default() };
            story.see(Observation::Probed(812, Probe::TimedOut, Some(sample)));
        }
        story
    };
    let quota = slowed(|round| Throttled { cpu: ms(990) * round, memory_events: 7 });
    let message = quota.reports(Status::True, Reason::KubeletStarved);
    assert!(message.ends_with("CPUQuota= of its unit throttles it (cpu.stat)"), "{message}");
    let mut high = slowed(|round| Throttled { cpu: Duration::ZERO, memory_events: 100 * u64::from(round) });
    high.lease(100);
    high.lease(110);
    let message = high.reports(Status::True, Reason::KubeletStarved);
    assert!(message.ends_with("MemoryHigh= of its unit throttles it (memory.events)"), "{message}");
    for _ in 0..5 {
        high.now += Duration::from_secs(10);
        high.lease(110);
    }
    let message = high.reports(Status::False, Reason::KubeletHung);
    assert!(message.ends_with("and it does not renew its Lease"), "{message}");
}

/// kubernetes/kubernetes#115491: probes and the renewal of the Lease fail, and the kubelet is sound.
#[test]
fn while_no_connection_can_be_tracked_neither_probes_nor_the_lease_show_a_hang() {
    let silent = Sample { state: 'S', is_connection_table_full: true, ..Sample::default() };
    let mut story = Story::healthy();
    for _ in 0..6 {
        story.fail(812, &Probe::TimedOut, &silent);
        story.lease(100);
        story.now += Duration::from_secs(10);
    }
    let message = story.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    assert!(
        message.ends_with("the kernel can track no more connections (net.netfilter.nf_conntrack_max)"),
        "{message}"
    );
    story.fail(812, &Probe::TimedOut, &Sample { is_connection_table_full: false, ..silent });
    story.lease(100);
    story.reports(Status::False, Reason::KubeletHung);
}

/// The port may be another process's, and `healthzPort: 0` leaves nothing but the process.
#[test]
fn a_kubelet_that_is_suspended_is_a_hang_whoever_answers_and_if_it_serves_no_healthz() {
    let stopped = Sample { state: 'T', ..Sample::default() };
    let mut foreign = Story::healthy();
    foreign.fail(812, &Probe::Healthy, &stopped);
    let message = foreign.reports(Status::False, Reason::KubeletHung);
    let wanted = "a process other than kubelet pid 812 answers on its /healthz; it is stopped by a signal (state T)";
    assert_eq!(message, wanted);
    foreign.probe(812, Probe::Healthy);
    foreign.reports(Status::True, Reason::KubeletIsHealthy);
    let mut unprobed = Story::new(running(812));
    unprobed.open(812, Uptime::ZERO);
    unprobed.see(Observation::NotProbed(812));
    unprobed.reports(Status::True, Reason::KubeletIsHealthy);
    unprobed.fail(812, &Probe::Healthy, &stopped);
    unprobed.reports(Status::False, Reason::KubeletHung);
    unprobed.probe(812, Probe::Healthy);
    unprobed.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn a_kubelet_whose_sync_loop_stands_still_hangs_unless_it_reports_why_itself() {
    let mut story = Story::healthy();
    let id = story.kubelet.service.process().unwrap();
    let mut says = None;
    for (second, reason) in [
        (0, Reason::KubeletIsHealthy),
        (20, Reason::KubeletIsHealthy),
        (59, Reason::KubeletIsHealthy),
        (80, Reason::KubeletHung),
    ] {
        let answer = SyncLoop::stalled(story.now + Duration::from_secs(second)).after(says.as_ref());
        story.api.sync_loop = Some((id, answer.clone()));
        story.ready("True");
        says = Some(answer);
        let status = if reason == Reason::KubeletHung { Status::False } else { Status::True };
        story.reports(status, reason);
    }
    let message = story.reports(Status::False, Reason::KubeletHung);
    assert!(message.contains("its sync loop has not run for over 5 minutes"), "{message}");
    // The kubelet says why, such as "container runtime is down", or cannot say it.
    for ready in ["False", "Unknown"] {
        story.ready(ready);
        story.reports(Status::True, Reason::KubeletIsHealthy);
    }
    story.api.sync_loop = Some((ProcessId { pid: 812, start_ticks: 99 }, says.clone().unwrap()));
    story.ready("True");
    story.reports(Status::True, Reason::KubeletIsHealthy); // another process's answers
    story.api.sync_loop = Some((id, SyncLoop::Runs.after(says.as_ref())));
    story.ready("True");
    story.reports(Status::True, Reason::KubeletIsHealthy);
}

#[test]
fn a_kubelet_that_starts_is_given_its_time_and_then_judged_only_with_the_api() {
    let never = UnitState { was_started: false, ..unit("inactive", 0, LastProcess::default(), "success") };
    let mut story = Story::new(never);
    story.happens(changed(running(812)));
    story.open(812, story.now);
    let stopped = Sample { state: 'S', uninterruptible: vec![wait(5)], ..Sample::default() };
    story.fail(812, &Probe::Refused, &stopped);
    story.reports(Status::Unknown, Reason::KubeletStarting);
    story.now += GRACE;
    story.reach(None);
    story.fail(812, &Probe::Refused, &stopped);
    story.reports(Status::Unknown, Reason::KubeletHealthzSilent);
    story.reach(Some(Uptime::ZERO));
    story.reports(Status::False, Reason::KubeletHung);
}
